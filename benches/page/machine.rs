//! What was measured, and on what: the machine as Linux describes it, and versions as the servers tell them.

use std::fmt::{self, Display, Formatter};
use std::process::Command;
use std::{fs, thread};

/// Of the two servers.
#[derive(Clone)]
pub struct Versions {
    pub postgres: String,
    pub rabbit: String,
    pub erlang: String,
}

impl Display for Versions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { postgres, rabbit, erlang } = self;
        write!(f, "PostgreSQL {postgres}, RabbitMQ {rabbit} on {erlang}")
    }
}

/// The machine, the compiler, and the relay.
pub fn describe() -> String {
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let memory = line("/proc/meminfo", "MemTotal:");
    let memory = memory.split_whitespace().next().and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(0.0);
    format!(
        "{} with {cores} cores for everything and {:.0} GiB of memory, Linux {}; {}; outboxd {}{}",
        line("/proc/cpuinfo", "model name").trim_start_matches(':').trim(),
        memory / 1024.0 / 1024.0,
        fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
        output("rustc", &["--version"]),
        env!("CARGO_PKG_VERSION"),
        commit(),
    )
}

/// To the minute.
pub fn now() -> String {
    let now = chrono::Utc::now().to_rfc3339();
    format!("{} {} UTC", &now[..10], &now[11..16])
}

fn commit() -> String {
    let commit = output("git", &["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always"]);
    if commit.is_empty() { commit } else { format!(" at {commit}") }
}

fn line(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or("unknown").trim().into()
}

/// Empty when there is no such program.
fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or(String::new(), |it| String::from_utf8_lossy(&it.stdout).trim().into())
}
