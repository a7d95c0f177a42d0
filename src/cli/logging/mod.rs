//! The log of the process: which lines there are, how they look, and that writing them holds nobody up.

mod format;
mod queue;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use chrono::Utc;
use env_logger::{Builder, Env, Target};
use log::{Level, LevelFilter, Record};
use outboxd::config::LogFormat;

use format::{Style, dropped};
use queue::{Queue, write_until_taken};

use super::{print, progress};

/// The clients of both servers. Their own lines say nothing that ours do not, and can hold payloads and passwords:
/// not written, whatever `RUST_LOG` says.
const CLIENTS: [&str; 4] = ["amiquip", "postgres", "tokio_postgres", "mio"];

/// How long a process that ends, or has something else to say, waits for its log lines to be taken.
const FLUSH_MAX: Duration = Duration::from_millis(500);

/// What is written; none where nothing can be.
static LINES: OnceLock<&'static Queue> = OnceLock::new();
static AS_JSON: AtomicBool = AtomicBool::new(false);

/// Starts logging: at `info`, or as `RUST_LOG` says; at `debug` with `-v` and at `trace` with `-vv`, whatever it says.
pub(crate) fn start(verbose: u8) {
    let mut builder = Builder::new();
    builder.filter_level(LevelFilter::Info);
    match verbose {
        0 => builder.parse_env(Env::default()),
        1 => builder.filter_level(LevelFilter::Debug),
        _ => builder.filter_level(LevelFilter::Trace),
    };
    let logger = builder
        .format(move |out, record| match is_ours(record) {
            true => writeln!(out, "{}", Style::now().line(Utc::now(), record)),
            false => Ok(()),
        })
        .target(Target::Pipe(Box::new(Lines)))
        .try_init();
    let lines: &'static Queue =
        Box::leak(Box::new(Queue::new(|count| dropped(&Style::now(), Utc::now(), count))));
    let writer = thread::Builder::new().name("outboxd-log".into()).spawn(move || {
        loop {
            let line = lines.next();
            // A reader that went away is no reason to fail.
            let mut out = io::stderr().lock();
            progress::clear(&mut out);
            let _ = write_until_taken(&mut out, &line);
            drop(out);
            lines.taken();
        }
    });
    let writer = writer.map(|_| LINES.set(lines));
    if logger.is_err() || writer.is_err() {
        print::error("there is no log: no thread for it, or it was started before");
    }
    // One line instead of a trace; where it happened is what a report of the bug needs. What it says may hold anything.
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let thread = thread::current().name().unwrap_or_default().to_owned();
        log::error!(place, thread; "a bug: panic");
    }));
}

/// What the lines look like from now on.
pub(crate) fn use_format(format: LogFormat) {
    AS_JSON.store(format == LogFormat::Json, Ordering::Relaxed);
}

/// A line whose pairs are not always the same ones; for others there are `log`'s macros.
pub(crate) fn info(message: &str, counts: &[(&str, u64)]) {
    log::logger().log(
        &Record::builder()
            .level(Level::Info)
            .target(module_path!())
            .args(format_args!("{message}"))
            .key_values(&counts)
            .build(),
    );
}

/// What ends a command, or is told in spite of it. Whatever the level is and however much waits, it is written, unless
/// nobody reads it for a short time.
pub(crate) fn say(text: &str) {
    say_all(&format!("{}\n", Style::now().last_word(Utc::now(), text)));
}

/// The same with lines as they are.
pub(crate) fn say_all(lines: &str) {
    match LINES.get() {
        Some(queue) => queue.put_last(lines.as_bytes()),
        None => drop(io::stderr().write_all(lines.as_bytes())),
    }
    flush();
}

/// Waits until what was logged is written, for a short time at most.
pub(crate) fn flush() {
    if let Some(lines) = LINES.get() {
        lines.flush(FLUSH_MAX);
    }
}

fn is_ours(record: &Record<'_>) -> bool {
    !CLIENTS.iter().any(|client| record.target().starts_with(client))
}

impl Style {
    /// What lines look like now.
    fn now() -> Self {
        static JOURNAL: OnceLock<bool> = OnceLock::new();
        Self { json: AS_JSON.load(Ordering::Relaxed), journal: *JOURNAL.get_or_init(writes_to_journal) }
    }
}

/// Whether standard error is a stream of systemd's journal: it is the one that this variable names.
fn writes_to_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let file = io::stderr().as_fd().try_clone_to_owned().map(File::from);
    file.and_then(|file| file.metadata()).is_ok_and(|file| stream == format!("{}:{}", file.dev(), file.ino()))
}

/// Where the logger puts its lines, each in one call.
struct Lines;

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(lines) = LINES.get() {
            lines.put(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_of_the_servers_say_nothing() {
        let says = |target| is_ours(&Record::builder().target(target).level(Level::Error).build());
        assert!(says("outboxd::relay") && says("outboxd"));
        for target in ["amiquip::io_loop", "tokio_postgres::connection", "postgres", "mio::poll"] {
            assert!(!says(target), "{target}");
        }
    }
}
