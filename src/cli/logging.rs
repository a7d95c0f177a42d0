//! The log: one line per thing that matters, on standard error.

use std::io::Write;

use chrono::{SecondsFormat, Utc};
use env_logger::{Builder, Env};
use log::LevelFilter;

use super::print;

/// The clients of both servers. Their own lines say nothing that ours do not, and can hold payloads and passwords:
/// not written, whatever `RUST_LOG` says.
const CLIENTS: [&str; 4] = ["amiquip", "postgres", "tokio_postgres", "mio"];

/// Starts logging: at `info`, at `debug` with `-v` and `trace` with `-vv`, or as `RUST_LOG` says.
pub(crate) fn start(verbose: u8) {
    let level = if verbose > 0 { LevelFilter::Debug } else { LevelFilter::Info };
    let logger = Builder::new()
        .filter_level(level)
        .parse_env(Env::default())
        .format(|out, record| {
            if CLIENTS.iter().any(|client| record.target().starts_with(client)) {
                return Ok(());
            }
            let time = Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true);
            writeln!(out, "{time} {} {}", record.level(), print::one_line(&record.args().to_string()))
        })
        .try_init();
    if logger.is_err() {
        print::error("the log was started before");
    }
    // One line instead of a trace; where it happened is what a report of the bug needs.
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        log::error!(
            "a bug: panic at {place} in thread {:?}",
            std::thread::current().name().unwrap_or_default()
        );
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_cannot_write_a_second_line() {
        assert_eq!(print::one_line("event é \n2026 ERROR \u{1b}[31m"), "event é \\n2026 ERROR \\u{1b}[31m");
    }
}
