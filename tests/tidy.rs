//! The style of the source tree, as far as a program can read it: borders, SQL, printing, panics, sizes, and the
//! README's configuration table.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use outboxd::config::SETTINGS;

/// The most lines of a source file, tests included.
const LINES_MAX: usize = 450;

/// A file under `src`, without its tests.
struct Source {
    /// From `src` on, such as `relay/mod.rs`.
    path: String,
    /// Without comments, and with empty strings.
    code: String,
    /// The texts of the strings.
    strings: Vec<String>,
    lines: usize,
}

#[test]
fn each_side_is_spoken_to_in_one_place() {
    let borders = [
        ("postgres::", &["outbox/"][..]),
        ("amiquip::", &["publisher/"]),
        ("mio::", &["publisher/"]),
        ("clap::", &["cli/"]),
        ("env_logger::", &["cli/"]),
        ("signal_hook::", &["cli/"]),
        ("httparse::", &["cli/watch/"]),
        ("std::env::", &["cli/", "main.rs", "mutants.rs"]),
    ];
    let mut crossings = Vec::new();
    for source in sources() {
        for (path, homes) in borders {
            let at_home = homes.iter().any(|home| source.path.starts_with(home));
            if !at_home && names(&source.code, path) {
                crossings.push(format!("{} says {path}", source.path));
            }
        }
    }
    assert_eq!(crossings, Vec::<String>::new());
}

#[test]
fn decisions_do_no_input_or_output_and_know_no_clock() {
    let pure = [
        "confirm.rs",
        "event.rs",
        "new_event.rs",
        "message.rs",
        "policy.rs",
        "route.rs",
        "config/",
        "relay/fold.rs",
        "relay/line.rs",
        "relay/summary.rs",
        "cli/logging/format.rs",
    ];
    let effects = [
        "std::env::",
        "std::fs::",
        "std::io::",
        "std::net::",
        "std::process::",
        "std::thread::",
        "Instant::now",
        "SystemTime::now",
        "clock::",
    ];
    let mut found = Vec::new();
    for source in sources() {
        if pure.iter().any(|name| source.path.starts_with(name)) {
            let used = effects.iter().filter(|effect| names(&source.code, effect));
            found.extend(used.map(|effect| format!("{} says {effect}", source.path)));
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn statements_live_in_sql_files() {
    let found: Vec<String> = sources()
        .iter()
        .flat_map(|source| {
            let statements = source.strings.iter().filter(|text| is_statement(text));
            statements.map(|text| format!("{}: {text}", source.path))
        })
        .collect();
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn only_the_command_line_prints() {
    let found = sources_that_call(&["println", "print", "eprintln", "eprint", "dbg"], |path| {
        path.starts_with("cli/")
    });
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn nothing_panics_on_purpose() {
    let mut found = sources_that_call(&["panic", "todo", "unimplemented", "unreachable"], |_| false);
    for source in sources() {
        for call in [".unwrap()", ".expect("] {
            if source.code.contains(call) {
                found.push(format!("{} calls {call}", source.path));
            }
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn every_statement_says_what_it_is_for() {
    let folder = root().join("sql/query");
    let files = files(&folder, "sql");
    assert!(!files.is_empty(), "no statement in {}", folder.display());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let header = text.lines().take_while(|line| line.starts_with("--")).count();
        assert!(header > 0, "{} has no header", file.display());
        assert!(text.lines().count() > header, "{} holds no statement", file.display());
    }
}

#[test]
fn every_file_says_first_what_it_owns_and_stays_small() {
    let mut found = Vec::new();
    for file in files(&root().join("src"), "rs") {
        let text = fs::read_to_string(&file).unwrap();
        if !text.starts_with("//!") {
            found.push(format!("{} does not say what it owns", file.display()));
        }
        let lines = text.lines().count();
        if lines > LINES_MAX {
            found.push(format!("{} has {lines} lines", file.display()));
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

/// A README that tells other defaults than the code is worse than none.
#[test]
fn the_readme_shows_every_setting_with_its_default() {
    let readme = fs::read_to_string(root().join("README.md")).expect("a README.md");
    let (_, rest) = readme.split_once("<!-- settings -->").expect("<!-- settings -->");
    let (table, _) = rest.split_once("<!-- /settings -->").expect("<!-- /settings -->");
    let shown: BTreeMap<String, String> = table
        .lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let name = cells.get(1)?.strip_prefix('`')?.strip_suffix('`')?;
            Some((name.into(), cells.get(2)?.to_string()))
        })
        .collect();
    let expected: BTreeMap<String, String> = SETTINGS
        .iter()
        .map(|setting| {
            let default = match setting.default {
                None => "-".into(),
                Some("") => "`\"\"`".into(),
                Some(default) => format!("`{default}`"),
            };
            (setting.name.into(), default)
        })
        .collect();
    assert_eq!(shown, expected);
}

/// The rules above are only as good as the reading.
#[test]
fn code_and_strings_are_told_apart() {
    let text =
        "let a = \"x\\\"// y\"; // print!(\nlet b = '\"'; /* panic!( */ let c: &'static str = r#\"z\"#;";
    let (code, strings) = read(text);
    assert_eq!(strings, ["x\\\"// y", "z"]);
    assert!(!code.contains("print") && !code.contains("panic") && code.contains("'static str"), "{code}");
    assert!(names("use std::{fs, io::Read};", "std::io::") && names("use mio;", "mio::"));
    assert!(names("std::fs::read()", "std::fs::") && !names("tokio_postgres::x", "postgres::"));
    assert!(is_statement("select 1 from t") && is_statement("drop index x.y"));
    assert!(!is_statement("select") && !is_statement("commit") && !is_statement("update your configuration"));
    assert!(!is_statement("create it with: outboxd init"));
    assert!(sources().len() > 20 && sources().iter().all(|source| source.lines > 0));
}

/// Whether the code uses something under this path, in full or from a group.
fn names(code: &str, path: &str) -> bool {
    let starts = |text: &str, at: usize| {
        let before = text[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    };
    let bare = path.trim_end_matches("::");
    let imports = [format!("use {bare};"), format!("use {bare} as")];
    if imports.iter().any(|import| code.contains(import.as_str())) {
        return true;
    }
    if code.match_indices(path).any(|(at, _)| starts(code, at)) {
        return true;
    }
    let Some(module) = bare.strip_prefix("std::") else {
        return false;
    };
    code.match_indices("use std::{").any(|(at, _)| {
        let group = &code[at + "use std::{".len()..];
        let group = &group[..group.find(';').unwrap_or(group.len())];
        group.match_indices(module).any(|(at, _)| {
            let end = group[at + module.len()..].chars().next();
            starts(group, at) && !end.is_some_and(|c| c.is_alphanumeric() || c == '_')
        })
    })
}

/// Single words such as `commit` name a decision that code takes; a statement names a table.
fn is_statement(text: &str) -> bool {
    let text = text.trim_start().to_lowercase();
    let has = |word: &str| text.split_whitespace().any(|it| it == word);
    let begins = |words: &str| text.starts_with(words) && text.split_whitespace().count() > 2;
    let definitions = ["create ", "alter ", "drop "].iter().any(|verb| {
        let kinds = ["table ", "index ", "schema ", "type ", "database "];
        kinds.iter().any(|kind| begins(&format!("{verb}{kind}")))
    });
    definitions
        || begins("select ") && has("from")
        || begins("with ") && has("select")
        || begins("insert into ")
        || begins("update ") && has("set")
        || begins("delete from ")
        || begins("set local ")
}

fn sources_that_call(macros: &[&str], may: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources().iter().filter(|source| !may(&source.path)) {
        for name in macros {
            let call = format!("{name}!");
            let calls = source.code.match_indices(&call).any(|(at, _)| {
                let before = source.code[..at].chars().next_back();
                !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
            });
            if calls {
                found.push(format!("{} calls {call}", source.path));
            }
        }
    }
    found
}

fn sources() -> Vec<Source> {
    let folder = root().join("src");
    let files = files(&folder, "rs");
    // What only tests and fuzzing are built with.
    let tests =
        |path: &String| path.ends_with("tests.rs") || path.contains("/tests/") || path == "properties.rs";
    files
        .iter()
        .map(|file| (file, file.strip_prefix(&folder).unwrap().to_str().unwrap().to_owned()))
        .filter(|(_, path)| !tests(path))
        .map(|(file, path)| {
            let text = fs::read_to_string(file).unwrap();
            // Tests stand at the end of their file.
            let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
            let (code, strings) = read(&text[..end]);
            Source { path, code, strings, lines: text.lines().count() }
        })
        .collect()
}

/// Takes the comments out, and the strings apart.
fn read(text: &str) -> (String, Vec<String>) {
    let (mut code, mut strings) = (String::new(), Vec::new());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let raw = rest.strip_prefix('r').filter(|_| !code.ends_with(char::is_alphanumeric));
        let hashes = raw.map_or(0, |raw| raw.len() - raw.trim_start_matches('#').len());
        if rest.starts_with("//") {
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
        } else if rest.starts_with("/*") {
            rest = rest.split_once("*/").map_or("", |(_, rest)| rest);
        } else if let Some(string) = raw.and_then(|raw| raw[hashes..].strip_prefix('"')) {
            let (string, after) = string.split_once(&format!("\"{}", "#".repeat(hashes))).unwrap();
            strings.push(string.into());
            code.push_str("\"\"");
            rest = after;
        } else if c == '"' {
            let end = end_of_string(&rest[1..]);
            strings.push(rest[1..=end].into());
            code.push_str("\"\"");
            rest = &rest[end + 2..];
        } else if let Some(literal) = ["'\"'", "'\\''", "'\\\\'"].iter().find(|it| rest.starts_with(**it)) {
            rest = &rest[literal.len()..];
        } else {
            code.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    (code, strings)
}

/// The length up to the closing quote.
fn end_of_string(text: &str) -> usize {
    let mut escaped = false;
    let closes = |(_, c): &(usize, char)| {
        let closes = *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        closes
    };
    text.char_indices().find(closes).expect("a closing quote").0
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
