//! Secrets: from files and systemd's credentials, warned about on the command line, and told by no output.

use std::fs;
use std::path::PathBuf;

use super::{PASSWORD, Told, run};
use crate::harness::unique;
use crate::world::World;

/// A folder for files with secrets, gone with its test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let path = std::env::temp_dir().join(unique("outboxd-secrets"));
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// Writes a file, and returns its path.
    fn file(&self, name: &str, text: &[u8]) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().into()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The URL with a password that nobody asks for.
fn with_password(url: &str) -> String {
    url.replace("postgres@", &format!("postgres:{PASSWORD}@"))
}

#[test]
fn urls_come_from_the_files_that_variables_name() {
    let mut world = World::new();
    let folder = Folder::new();
    let queue = world.queue();
    world.insert(&queue, "{}");
    let database = folder.file("one", format!("{}\n", with_password(&world.database.url)).as_bytes());
    let broker = folder.file("two", format!("{}\r\n\n", world.amqp_url).as_bytes());
    let environment = [("DATABASE_URL_FILE", database.as_str()), ("AMQP_URL_FILE", &broker)];
    let output = run(&["once"], &environment);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "claimed 1: published 1\n"), "{output:?}");
    let told = Told::by(&[], &environment);
    told.ends(0).is("configuration", "ok", &["given by DATABASE_URL_FILE, AMQP_URL_FILE"]);
    // A command that knows no broker has no use for its file.
    let unreadable = [("DATABASE_URL_FILE", database.as_str()), ("AMQP_URL_FILE", "/nonexistent")];
    assert_eq!(run(&["enqueue", "x", "--exchange", "amq.topic"], &unreadable).code, Some(0));
    // A flag wins, as over any variable.
    let told = Told::by(&["--amqp-url", "amqp://127.0.0.1:1"], &environment);
    told.ends(69).is("configuration", "ok", &["DATABASE_URL_FILE, --amqp-url"]);
    // The third secret.
    let listen = folder.file("three", world.database.url.as_bytes());
    let told = Told::by(&["--listen"], &[&environment[..], &[("OUTBOXD_LISTEN_URL_FILE", &listen)]].concat());
    told.ends(0).is("configuration", "ok", &["OUTBOXD_LISTEN_URL_FILE"]).is("notify", "ok", &[]);
}

#[test]
fn credentials_are_taken_where_nothing_else_is_given() {
    let world = World::new();
    let folder = Folder::new();
    folder.file("database_url", with_password(&world.database.url).as_bytes());
    folder.file("amqp_url", world.amqp_url.as_bytes());
    let credentials = ("CREDENTIALS_DIRECTORY", folder.path());
    let told = Told::by(&[], &[credentials]);
    let places = "the credential database_url, the credential amqp_url";
    told.ends(0).is("configuration", "ok", &[places]);
    // Anything else wins, and then the credential is not even read.
    folder.file("amqp_url", b"\xff");
    let told = Told::by(&[], &[credentials, ("AMQP_URL", &world.amqp_url)]);
    told.ends(0).is("configuration", "ok", &["the credential database_url, AMQP_URL"]);
    world.configure(&format!("amqp_url = \"{}\"", world.amqp_url));
    Told::by(&["--config", world.config_path()], &[credentials]).ends(0);
    Told::by(&[], &[credentials]).ends(78).is(
        "configuration",
        "error",
        &["the credential amqp_url: cannot read it"],
    );
    // An empty variable counts as none, and so does a folder without such files.
    let urls = [("DATABASE_URL", world.database.url.as_str()), ("AMQP_URL", &world.amqp_url)];
    let empty = [("DATABASE_URL_FILE", ""), ("CREDENTIALS_DIRECTORY", "/nonexistent")];
    Told::by(&[], &[urls, empty].concat()).ends(0);
}

#[test]
fn a_file_that_cannot_be_used_is_named_and_its_content_is_not() {
    let folder = Folder::new();
    let latin =
        folder.file("latin", format!("postgres://u:{PASSWORD}\u{e9}@h").replace('\u{e9}', "").as_bytes());
    fs::write(&latin, [PASSWORD.as_bytes(), b"\xe9"].concat()).unwrap();
    let large = folder.file("large", PASSWORD.repeat(10_000).as_bytes());
    let broken = folder.file("broken", format!("postgres://u:{PASSWORD}@h:port/d").as_bytes());
    let two_lines = folder.file("two", format!("postgres://u:{PASSWORD}@h/d\n{PASSWORD}").as_bytes());
    let empty = folder.file("empty", b"\n");
    let marked = format!("postgres://u:{PASSWORD}@h");
    for (path, words) in [
        ("/nonexistent/secret", "\"/nonexistent/secret\": cannot read it: No such file"),
        (folder.path(), "cannot read it: Is a directory"),
        (&latin, "cannot read it: stream did not contain valid UTF-8"),
        (&large, "cannot read it: more than 65536 bytes"),
        ("/dev/zero", "cannot read it: more than 65536 bytes"),
        (&broken, "DATABASE_URL_FILE"),
        (&two_lines, "cannot read it: more than one line"),
        (&empty, "DATABASE_URL_FILE: is empty"),
        (&marked, "DATABASE_URL_FILE (hidden): cannot read it"),
    ] {
        let environment = [("DATABASE_URL_FILE", path), ("AMQP_URL", "amqp://mq")];
        for command in ["once", "status", "init"] {
            let output = run(&[command], &environment);
            assert_eq!(output.code, Some(78), "{path}: {output:?}");
            assert!(output.stderr.contains(words), "{words:?}: {output:?}");
        }
    }
    let both = [("DATABASE_URL", "postgres://h"), ("DATABASE_URL_FILE", &broken), ("AMQP_URL", "amqp://mq")];
    let output = run(&["once"], &both);
    assert_eq!(output.code, Some(78), "{output:?}");
    assert!(output.stderr.contains("DATABASE_URL_FILE: DATABASE_URL is set, too"), "{output:?}");
}

#[test]
fn a_password_on_the_command_line_is_warned_of_once_and_an_address_without_one_is_not() {
    let world = World::new();
    let secret = with_password(&world.database.url);
    let output = run(&["enqueue", "x", "--exchange", "amq.topic", "--database-url", &secret], &[]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let warning = "--database-url holds a password, which everyone on this machine can see (ps): give it as \
        DATABASE_URL, DATABASE_URL_FILE, or in the configuration file";
    assert_eq!(output.stderr.matches(warning).count(), 1, "{output:?}");
    let output =
        run(&["enqueue", "x", "--exchange", "amq.topic", "--database-url", &world.database.url], &[]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
    let told = Told::by(&["--database-url", &secret], &[("AMQP_URL", &world.amqp_url)]);
    told.ends(0).is("command_line", "warning", &["--database-url holds a password", "DATABASE_URL_FILE"]);
    assert_eq!(told.output.stderr, "");
    let told = Told::by(&["--database-url", &world.database.url], &[("AMQP_URL", &world.amqp_url)]);
    told.ends(0).lacks("command_line");
}

#[test]
fn an_address_that_is_wrong_or_missing_does_not_hide_the_other_server() {
    let world = World::new();
    let broken = format!("postgres://app:{PASSWORD}@127.0.0.1:port/app");
    for (variables, words) in [
        (&[][..], "database_url: missing; give it as --database-url or DATABASE_URL"),
        (&[("DATABASE_URL", broken.as_str())], "DATABASE_URL: "),
    ] {
        let told = Told::by(&[], &[variables, &[("AMQP_URL", &world.amqp_url)]].concat());
        told.ends(78).is("configuration", "error", &[words]);
        told.is("broker", "ok", &["lets us in"]).is("alarms", "ok", &[]).lacks("database");
    }
    let told = Told::by(&[], &[("DATABASE_URL", &world.database.url)]);
    told.ends(78).is("configuration", "error", &["amqp_url: missing; give it as --amqp-url or AMQP_URL"]);
    told.is("database", "ok", &[]).is("table", "ok", &[]).lacks("broker");
}

/// Exchanges are looked for although no table tells of events.
#[test]
fn routes_are_looked_at_without_a_database_and_not_where_they_could_not_be_read() {
    let mut world = World::new();
    let exchange = unique("nowhere");
    world.configure(&format!("[[route]]\nevent_type = \"a\"\nexchange = \"{exchange}\""));
    let file = world.config_path().to_owned();
    let told = Told::by(&["--config", &file], &[("AMQP_URL", &world.amqp_url)]);
    told.ends(78).is("exchange", "error", &[&exchange]).lacks("database");
    world.configure("routes that nobody can read");
    let queue = unique("queue");
    world.insert(&queue, "{}");
    let told = Told::of(&world, &[]);
    told.ends(78).is("configuration", "error", &[]).is("broker", "ok", &[]).is("table", "ok", &[]);
    // There is no such queue, but a route may lead elsewhere.
    told.lacks("route");
}

#[test]
fn what_is_wrong_with_the_configuration_does_not_hide_the_database() {
    let world = World::new();
    let broken = format!("amqp://u:{PASSWORD}@h:port/");
    let told = Told::by(&[], &[("DATABASE_URL", &world.database.url), ("AMQP_URL", &broken)]);
    told.ends(78).is("configuration", "error", &["AMQP_URL"]).is("indexes", "ok", &[]).lacks("broker");
    let told = Told::by(&["--workers", "many"], &[("OUTBOXD_WORKRES", "1")]);
    assert_eq!(told.ends(78).about("configuration").len(), 4, "{:?}", told.output);
    told.lacks("database");
}

/// Each setting that could hold one, well-formed or not, in each place from which it can come.
#[test]
fn planted_secrets_are_told_by_no_output_of_check() {
    let folder = Folder::new();
    let databases = [
        format!("postgres://app:{PASSWORD}@127.0.0.1:1/app"),
        format!("postgres://app:{PASSWORD}@127.0.0.1:port/app"),
        format!("postgres://app:{PASSWORD}/@127.0.0.1/app"),
        format!("host=127.0.0.1 port=1 user=app password={PASSWORD}"),
        format!("host=127.0.0.1 port=x password={PASSWORD}"),
        PASSWORD.to_owned(),
    ];
    let brokers = [
        format!("amqp://app:{PASSWORD}@127.0.0.1:1/%2F"),
        format!("amqp://app:{PASSWORD}@127.0.0.1:port/"),
        format!("amqp://app:{PASSWORD}/x@127.0.0.1/"),
        format!("http://app:{PASSWORD}@127.0.0.1/"),
        PASSWORD.to_owned(),
    ];
    for (n, database) in databases.iter().enumerate() {
        let broker = &brokers[n % brokers.len()];
        let variables = [("DATABASE_URL", database.as_str()), ("AMQP_URL", broker)];
        let (one, two) = (folder.file("one", database.as_bytes()), folder.file("two", broker.as_bytes()));
        let files = [("DATABASE_URL_FILE", one.as_str()), ("AMQP_URL_FILE", &two)];
        let flags = ["--database-url", database, "--amqp-url", broker, "--listen-url", database, "--listen"];
        folder.file(
            "outboxd.toml",
            format!("database_url = \"{database}\"\namqp_url = \"{broker}\"").as_bytes(),
        );
        let toml = format!("{}/outboxd.toml", folder.path());
        folder.file("database_url", database.as_bytes());
        folder.file("amqp_url", broker.as_bytes());
        for format in [&["-vv"][..], &["-vv", "--json"]] {
            let check = |further: &[&str], environment: &[(&str, &str)]| {
                let output =
                    run(&[&["check", "--open-timeout", "1s"], format, further].concat(), environment);
                assert!(matches!(output.code, Some(69 | 78)), "{output:?}");
            };
            check(&[], &variables);
            check(&[], &files);
            check(&flags, &[]);
            check(&["--config", &toml], &[]);
            check(&[], &[("CREDENTIALS_DIRECTORY", folder.path())]);
        }
    }
}
