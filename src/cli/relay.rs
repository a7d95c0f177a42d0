//! `outboxd run` and `outboxd once`.

use chrono::{DateTime, SecondsFormat, Utc};
use outboxd::config::Config;
use outboxd::event::Tally;
use outboxd::outbox::{self, Backlog, Outbox};
use outboxd::publisher;
use outboxd::relay::{Relay, Stop, Tick, Trouble};

use super::exit::Exit;
use super::systemd::Manager;
use super::watch::{self, Leaving};
use super::{logging, print, signals};

/// Relays until it is told to end.
pub(crate) fn run(config: Config, manager: Manager) -> Exit {
    let Some(stop) = stop_on_signals(&config, &manager) else {
        return Exit::Internal;
    };
    log::info!(
        version = env!("CARGO_PKG_VERSION"),
        table:% = config.database.table,
        database:% = outbox::describe(&config.database),
        broker:% = publisher::describe_url(config.broker.url.expose()),
        interval:% = humantime::format_duration(config.interval);
        "started"
    );
    warn_of_short_claims(&config);
    let mut relay = match watch::start(&config, Relay::new(config.clone())) {
        Ok(relay) => relay,
        Err(exit) => return exit,
    };
    // Whether the servers are there is no matter of the start: a relay waits for them.
    if let Some(mut watching) = manager.ready(watch::silence_max(config.database.open_timeout)) {
        relay = relay.observed_by(move |happening| watching.note(happening));
    }
    let total = relay.run(&stop);
    relay.close();
    logging::info("stopped", &counts(&total));
    Exit::Done
}

/// The counts of a tally, without what did not happen.
fn counts(total: &Tally) -> Vec<(&'static str, u64)> {
    let always = [("claimed", total.claimed), ("published", total.published)];
    let others = [
        ("failed", total.failed),
        ("dead", total.dead),
        ("expired", total.expired),
        ("unconfirmed", total.unconfirmed),
        ("released", total.released),
        ("gone", total.gone),
    ];
    always.into_iter().chain(others.into_iter().filter(|(_, count)| *count > 0)).collect()
}

/// Drains what is due and ends.
pub(crate) fn once(config: Config) -> Exit {
    let mut leaving = Leaving::new(config.metrics.file.clone());
    let exit = relay_once(config, &mut leaving);
    leaving.write(exit);
    exit
}

fn relay_once(config: Config, leaving: &mut Leaving) -> Exit {
    let Some(stop) = stop_on_signals(&config, &Manager::default()) else {
        return Exit::Internal;
    };
    let min_age = humantime::format_duration(config.claim.min_age).to_string();
    let mut relay = Relay::new(config);
    let Tick { tally, stopped, trouble, .. } = relay.tick(&stop);
    let idle = tally.claimed == 0 && trouble.is_none() && !stopped;
    let trouble = if idle { relay.probe_broker() } else { trouble };
    let backlog = idle.then(|| relay.outbox().backlog());
    if trouble.is_none() {
        advise(relay.outbox());
    }
    leaving.note(tally, trouble.as_ref(), relay.outbox());
    relay.close();
    match (backlog, &trouble) {
        (Some(Ok(backlog)), None) => print::line(nothing_due(&backlog, &min_age)),
        (Some(Err(error)), None) => {
            print::error(&error);
            return error.kind().into();
        }
        // What kept it from looking is said below.
        (_, Some(_)) if tally.claimed == 0 => {}
        _ => print::line(tally),
    }
    match trouble {
        Some(Trouble { error, since, .. }) => {
            let since = DateTime::<Utc>::from(since).to_rfc3339_opts(SecondsFormat::Secs, true);
            print::error(format_args!("{error} (since {since})"));
            error.kind().into()
        }
        None if stopped || tally.leaves_work() => Exit::Incomplete,
        None => Exit::Done,
    }
}

fn stop_on_signals(config: &Config, manager: &Manager) -> Option<Stop> {
    let stop = Stop::new();
    match signals::listen(stop.clone(), config.grace, manager.clone()) {
        Ok(()) => Some(stop),
        Err(error) => {
            print::error(format_args!("listening for signals failed: {error}"));
            None
        }
    }
}

/// Warns of what slows the relay down or leads it astray. What it could not look at is no trouble of this run.
fn advise(outbox: &mut Outbox) {
    match outbox.advice() {
        Ok(advice) => advice.iter().for_each(|it| log::warn!("{it}")),
        Err(error) => log::debug!("{error}"),
    }
}

/// A relay that is frozen and wakes up after others have taken its claim over must find its connection to the
/// broker closed: what it still had in its buffers would otherwise be sent a second time.
fn warn_of_short_claims(config: &Config) {
    let idle = config.database.claim_max_idle;
    match publisher::cut_off(config.broker.url.expose()) {
        Some(cut_off) if idle >= cut_off => {}
        Some(cut_off) => log::warn!(
            "claim_max_idle {idle:?} is below {cut_off:?}, after which the broker closes a silent connection: a relay that \
             was frozen may send events twice; raise it, or lower heartbeat in AMQP_URL"
        ),
        None => log::warn!(
            "heartbeat=0 in AMQP_URL: the broker never closes a silent connection, and a relay that was frozen may \
             send events twice"
        ),
    }
}

/// Why nothing was due, and what sends it.
fn nothing_due(backlog: &Backlog, min_age: &str) -> String {
    let reasons = [
        (backlog.young, format!("younger than min_age {min_age}: --min-age 0s sends it now")),
        (backlog.backing_off, "failed and backing off".into()),
        (backlog.scheduled, "scheduled for later".into()),
        (backlog.held_back, "held back by the first event of their key: outboxd status names it".into()),
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
        let backlog =
            Backlog { due: 0, young: 1, backing_off: 0, scheduled: 0, held_back: 0, oldest_due: None };
        assert_eq!(
            nothing_due(&backlog, "30s"),
            "0 due; 1 younger than min_age 30s: --min-age 0s sends it now"
        );
        let backlog =
            Backlog { due: 4, young: 0, backing_off: 2, scheduled: 3, held_back: 0, oldest_due: None };
        assert_eq!(
            nothing_due(&backlog, "30s"),
            "0 due; 2 failed and backing off; 3 scheduled for later; 4 being sent by another relay"
        );
    }
}
