//! `outboxd run`, and what ends it.

use outboxd::config::Config;
use outboxd::event::Tally;
use outboxd::outbox;
use outboxd::publisher;
use outboxd::relay::{Relay, Stop};

use super::exit::Exit;
use super::systemd::Manager;
use super::{logging, print, signals, watch};

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
        ("unwritten", total.unwritten),
    ];
    always.into_iter().chain(others.into_iter().filter(|(_, count)| *count > 0)).collect()
}

/// A request to stop, which SIGTERM and SIGINT make; none when that cannot be, which is said.
pub(super) fn stop_on_signals(config: &Config, manager: &Manager) -> Option<Stop> {
    let stop = Stop::new();
    match signals::listen(stop.clone(), config.grace, manager.clone()) {
        Ok(()) => Some(stop),
        Err(error) => {
            print::error(format_args!("listening for signals failed: {error}"));
            None
        }
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
