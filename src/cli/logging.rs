//! The log: one line per thing that matters, on standard error.

use std::io::Write;

use chrono::{SecondsFormat, Utc};
use env_logger::{Builder, Env};
use log::LevelFilter;

/// Starts logging: at `info`, at `debug` with `-v` and `trace` with `-vv`, or as `RUST_LOG` says.
pub(crate) fn start(verbose: u8) {
    let level = if verbose > 0 { LevelFilter::Debug } else { LevelFilter::Info };
    let logger = Builder::new()
        .filter_level(level)
        // The clients' own lines say nothing that ours do not, and theirs can hold payloads.
        .filter_module("amiquip", LevelFilter::Off)
        .filter_module("postgres", LevelFilter::Off)
        .filter_module("tokio_postgres", LevelFilter::Off)
        .parse_env(Env::default())
        .format(|out, record| {
            let time = Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true);
            writeln!(out, "{time} {} {}", record.level(), record.args())
        })
        .try_init();
    if logger.is_err() {
        super::print::error("the log was started before");
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
