//! `outboxd run` and `outboxd once`.

use chrono::{DateTime, SecondsFormat, Utc};
use outboxd::config::Config;
use outboxd::outbox::{self, Backlog};
use outboxd::publisher;
use outboxd::relay::{Relay, Stop, Tick, Trouble};

use super::exit::Exit;
use super::{print, signals};

/// Relays until it is told to end.
pub(crate) fn run(config: Config) -> Exit {
    let Some(stop) = stop_on_signals(&config) else {
        return Exit::Internal;
    };
    log::info!(
        "outboxd {} relays {} on {} to {} every {}",
        env!("CARGO_PKG_VERSION"),
        config.database.table,
        outbox::describe_url(config.database.url.expose()),
        publisher::describe_url(config.broker.url.expose()),
        humantime::format_duration(config.interval),
    );
    let mut relay = Relay::new(config);
    let total = relay.run(&stop);
    relay.close();
    log::info!("ended; since the start {total}");
    Exit::Done
}

/// Drains what is due and ends.
pub(crate) fn once(config: Config) -> Exit {
    let Some(stop) = stop_on_signals(&config) else {
        return Exit::Internal;
    };
    let min_age = humantime::format_duration(config.claim.min_age).to_string();
    let mut relay = Relay::new(config);
    let Tick { tally, trouble } = relay.tick(&stop);
    let backlog = if tally.claimed == 0 && trouble.is_none() {
        relay.outbox().backlog().ok()
    } else {
        None
    };
    relay.close();
    match backlog {
        Some(backlog) => print::line(nothing_due(&backlog, &min_age)),
        None => print::line(tally),
    }
    match trouble {
        Some(Trouble { error, since, .. }) => {
            let since = DateTime::<Utc>::from(since).to_rfc3339_opts(SecondsFormat::Secs, true);
            print::error(format_args!("{error} (since {since})"));
            error.kind().into()
        }
        None if tally.leaves_work() => Exit::Incomplete,
        None => Exit::Done,
    }
}

fn stop_on_signals(config: &Config) -> Option<Stop> {
    let stop = Stop::new();
    match signals::listen(stop.clone(), config.grace) {
        Ok(()) => Some(stop),
        Err(error) => {
            print::error(format_args!("listening for signals failed: {error}"));
            None
        }
    }
}

/// Why nothing was due, and what sends it.
fn nothing_due(backlog: &Backlog, min_age: &str) -> String {
    let reasons = [
        (
            backlog.young,
            format!("younger than min_age {min_age}: --min-age 0s sends it now"),
        ),
        (backlog.backing_off, "failed and backing off".into()),
        (backlog.scheduled, "scheduled for later".into()),
        (backlog.due, "being sent by another relay".into()),
    ];
    let mut text = String::from("0 due");
    for (count, reason) in reasons.iter().filter(|(count, _)| *count > 0) {
        text += &format!("; {count} {reason}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_due_says_why() {
        let backlog = Backlog {
            due: 0,
            young: 1,
            backing_off: 0,
            scheduled: 0,
            oldest_due: None,
        };
        assert_eq!(
            nothing_due(&backlog, "30s"),
            "0 due; 1 younger than min_age 30s: --min-age 0s sends it now"
        );
        let backlog = Backlog {
            due: 4,
            young: 0,
            backing_off: 2,
            scheduled: 3,
            oldest_due: None,
        };
        assert_eq!(
            nothing_due(&backlog, "30s"),
            "0 due; 2 failed and backing off; 3 scheduled for later; 4 being sent by another relay"
        );
    }
}
