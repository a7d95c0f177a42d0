//! Where every figure goes when it is measured, and the table that a run ends with.
//!
//! What was measured is kept under `target`, group by group, so that a run of some groups, and of another benchmark,
//! leaves the others on the page as they were.

// Each of the programs that include this module uses a part of it.
#![allow(dead_code, unused_imports)]

mod figure;
mod machine;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

pub use self::figure::{Figure, count, median, range, with_unit};
pub use self::machine::Versions;

/// Committed, so that a reader sees figures without measuring.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/FIGURES.md");

const HEAD: &str =
    "| figure | measured | beside it, in the same run | ratio | goal | met |\n|---|---|---|---|---|---|\n";

/// The page's order; what is not in here comes last.
const ORDER: [&str; 10] = [
    "drain",
    "curves",
    "table",
    "order",
    "deletion",
    "restart",
    "network",
    "embedded",
    "size, with TLS",
    "size, without TLS",
];

/// The harness takes its servers from another root where one of these is set; such figures stand beside the others.
const ROOTS: [&str; 2] = ["OUTBOXD_TEST_RABBITMQ_ROOT", "OUTBOXD_TEST_POSTGRES_ROOT"];

/// The figures of this run and of those before it.
pub struct Page {
    /// By group: when and on what it was measured, and its rows.
    groups: Map<String, Value>,
    versions: Versions,
    /// The one that is being measured, and its rows so far.
    group: String,
    rows: Vec<Value>,
}

impl Page {
    pub fn open(versions: Versions) -> Self {
        Self { groups: kept(), versions, group: String::new(), rows: Vec::new() }
    }

    /// What comes now belongs to this group, whose figures of runs before are forgotten.
    pub fn begin(&mut self, group: &str) {
        let elsewhere = ROOTS.iter().any(|name| std::env::var_os(name).is_some_and(|it| !it.is_empty()));
        let Versions { postgres, rabbit, .. } = &self.versions;
        self.group = group.into();
        if elsewhere {
            self.group += &format!(" (PostgreSQL {postgres}, RabbitMQ {rabbit})");
        }
        println!("\n== {}", self.group);
        self.rows.clear();
    }

    /// Prints a figure and puts it down.
    pub fn add(&mut self, figure: Figure) {
        println!("{figure}");
        self.rows.push(Value::from(figure.cells()));
    }

    /// The group is complete; a run that is ended later has it all the same.
    pub fn end(&mut self) {
        let measured = format!("{}, {}", machine::now(), self.versions);
        let group = json!({ "measured": measured, "rows": std::mem::take(&mut self.rows) });
        // Another benchmark may have put its own down meanwhile.
        self.groups = kept();
        self.groups.insert(self.group.clone(), group);
        let text = serde_json::to_string_pretty(&self.groups).unwrap();
        fs::write(store(), text).unwrap();
    }

    /// Writes the page, and prints it.
    pub fn write(&self) {
        let mut text = format!("# Figures\n\nWritten by `make bench`, on {}.\n\n{HEAD}", machine::describe());
        let place = |name: &str| {
            let group = name.split(" (").next();
            ORDER.iter().position(|it| Some(*it) == group).unwrap_or(ORDER.len())
        };
        let mut groups: Vec<_> = self.groups.iter().collect();
        // What has the same place stays in the order of the names.
        groups.sort_by_key(|(name, _)| place(name));
        for (name, group) in groups {
            let measured = group["measured"].as_str().unwrap_or_default();
            text += &format!("| **{name}**<br>{measured} | | | | | |\n");
            for row in group["rows"].as_array().into_iter().flatten() {
                let cells = row.as_array().into_iter().flatten().filter_map(Value::as_str);
                text += &format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
            }
        }
        text += "\nA ratio is the figure over what stands beside it, the median of the rounds' own, with the least and the most \
                 of them.\nA goal is for the ratio where there is one, otherwise for the figure.\n";
        fs::write(PAGE, &text).unwrap();
        println!("\n{text}\nThis is in {PAGE} now.");
    }
}

/// Under `target`, whichever that is.
pub fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("bench");
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// What was measured so far, by group.
fn kept() -> Map<String, Value> {
    fs::read_to_string(store()).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

fn store() -> PathBuf {
    folder().join("figures.json")
}
