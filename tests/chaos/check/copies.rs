//! I3: how many copies the relays may cause.
//!
//! Two bounds. The first is on each event: it has no copy but one for each attempt of which its row says that it ended
//! without a confirm, and for each fault that may keep a relay from saying so (a relay that dies or freezes, a database
//! out of reach, locks in the way, and an exchange that is gone, over which a channel's messages are sent again in the
//! same claim). Such a fault allows one, and one more for every `publish_timeout` that it went on, if it struck between the
//! event's writing and its last arrival, or shortly before. The second bound is on all events together: each fault may
//! cost what is in flight where it strikes.
//!
//! In flight is, for a relay that loses its connection to the broker, `workers` x `window`, one that is tried alone, and
//! one for each further connection that goes the same way: a fresh one sends a single message until it is answered. For a
//! relay that dies, freezes or loses its claims it is all that it may have claimed: four claims. That is coarse: claims
//! are seldom full, and most of what a lost claim had confirmed is written before anyone else claims it. Faults that cost
//! nothing by themselves (a relay that is asked to end, an operator's commands, a missing queue) are bounded by nothing
//! here when they coincide with others, which are.

use std::time::Duration;

use crate::ledger::{Fault, Millis};
use crate::setting::{ONCE, RELAYS, Settings, settings};

use super::changes::is_unconfirmed;
use super::delivery::told;
use super::{Event, Facts, Violations};

/// How long after its end a fault may still cost something: a server ends an idle claim after up to 12 s, a statement
/// after 15 s, and what is sent again then takes its time on a slow machine.
const AFTERMATH: Millis = 30_000;

/// The most claims of a relay at a time.
const CLAIMS_MAX: u64 = 4;

pub fn judge(facts: &Facts, violations: &mut Violations) {
    let mut all = 0;
    for event in facts.events.values() {
        let copies = copies(event);
        all += copies;
        let allowed = allowed(event, &facts.faults);
        if copies > allowed {
            violations.add(
                "I3",
                format!("{copies} copies, by what went wrong meanwhile {allowed} at most: {}", told(event)),
            );
        }
    }
    let bound = bound(&facts.faults);
    if all > bound {
        violations.add("I3", format!("{all} copies, and all faults together may cause {bound}"));
    }
}

/// How often it came that was not the broker's doing, beyond the first time.
pub fn copies(event: &Event) -> u64 {
    let sent = event.receipts.iter().filter(|(_, receipt)| !receipt.redelivered).count();
    (sent as u64).saturating_sub(1)
}

/// The most copies of an event.
fn allowed(event: &Event, faults: &[Fault]) -> u64 {
    let noted = event.changes.iter().filter(|change| is_unconfirmed(change)).count() as u64;
    let last = event.receipts.iter().map(|(_, receipt)| receipt.at).max().unwrap_or(0);
    let overlap =
        faults.iter().filter(|fault| fault.start <= last && fault.healed + AFTERMATH >= event.attempt.at);
    noted + overlap.filter(|fault| silences(fault)).map(|fault| 1 + rounds(fault)).sum::<u64>()
}

/// Whether a fault may keep a relay from noting that an attempt ended without a confirm.
fn silences(fault: &Fault) -> bool {
    let others = ["RelayKill", "RelayFreeze", "RelayEnd", "RowsHeld", "IndexBuilt", "ExchangeGone"];
    fault.kind.starts_with("Database") || others.contains(&fault.kind.as_str())
}

/// How often a relay may have given up and tried again under a fault.
fn rounds(fault: &Fault) -> u64 {
    fault.healed.saturating_sub(fault.start) / millis(settings(0).publish_timeout)
}

/// The most copies that all faults together may cause.
pub fn bound(faults: &[Fault]) -> u64 {
    faults.iter().map(cost).sum()
}

/// The most copies that a fault may cause.
pub fn cost(fault: &Fault) -> u64 {
    let one = |of: fn(&Settings) -> u64| fault.relay.map_or(0, |relay| of(&settings(relay)));
    let all = |of: fn(&Settings) -> u64| (0..=ONCE).map(|relay| of(&settings(relay))).sum::<u64>();
    // Each try may cost the one message that a fresh connection sends; while nothing answers, a try takes at least the
    // shortest pause of the back-off.
    let retries = (RELAYS as u64 + 1) * (1 + fault.healed.saturating_sub(fault.start) / 1000);
    match fault.kind.as_str() {
        "RelayKill" | "RelayFreeze" => one(claims),
        // It may have to go without the confirms of what it has sent.
        "RelayEnd" => one(window),
        kind if kind.starts_with("BrokerRoad") => one(window) + retries,
        kind if kind.starts_with("DatabaseRoad") => one(claims),
        kind if kind.starts_with("Broker") => all(window) + retries,
        kind if kind.starts_with("Database") => all(claims),
        "RowsHeld" | "IndexBuilt" => all(claims),
        // A channel ends with what is in flight on it, and so may the one that takes its place.
        "ExchangeGone" => 2 * all(window),
        // What was in flight to it may never be confirmed, and ends the connection after `publish_timeout`.
        "QueueGone" => all(window),
        _ => 0,
    }
}

fn claims(settings: &Settings) -> u64 {
    CLAIMS_MAX * settings.batch_rows
}

fn window(settings: &Settings) -> u64 {
    settings.workers * settings.window + 1
}

fn millis(time: Duration) -> Millis {
    time.as_millis() as Millis
}

#[cfg(test)]
mod tests {
    use super::super::samples::{event, verdict};
    use super::*;
    use crate::ledger::Fate;

    fn fault(kind: &str, start: Millis, healed: Millis) -> Fault {
        Fault { kind: kind.into(), relay: Some(1), start, healed }
    }

    fn broken(events: Vec<Event>, faults: Vec<Fault>) -> String {
        let mut facts = Facts { faults, ..Facts::default() };
        facts.events.extend(events.into_iter().map(|event| (event.attempt.event_id.clone(), event)));
        verdict(judge, &facts)
    }

    fn kept() -> Event {
        event("a", Fate::Kept).published().arrived(1)
    }

    /// Sent once without a confirm, and noted so.
    fn twice(name: &str) -> Event {
        let mut noted = event(name, Fate::Kept).change("relay-1", "WAITING", 0).published();
        noted.changes[1].last_error = Some("unconfirmed x1: connection lost".into());
        noted.arrived(1).arrived(2)
    }

    #[test]
    fn copies_within_the_bounds_are_taken() {
        let reset = || fault("BrokerRoadReset", 1050, 1060);
        assert_eq!(broken(vec![kept()], vec![]), "");
        assert_eq!(broken(vec![twice("a")], vec![reset()]), "");
        assert_eq!(broken(vec![kept().arrived(2).redelivered()], vec![]), "");
        let killed = || fault("RelayKill", 1050, 1060);
        assert_eq!(broken(vec![kept().arrived(2)], vec![killed()]), "");
        assert_eq!(broken(vec![kept().arrived(2).arrived(3)], vec![killed(), killed()]), "");
        // A fault that goes on allows one for each time that a relay gives up.
        let long = fault("DatabaseFreeze", 1050, 1050 + 2 * 3000);
        assert_eq!(broken(vec![kept().arrived(2).arrived(3).arrived(4)], vec![long]), "");
        // One that was over just before the event was written may still be felt.
        assert_eq!(broken(vec![kept().arrived(2)], vec![fault("DatabaseKill", 100, 900)]), "");
    }

    #[test]
    fn copies_beyond_the_bounds_are_found() {
        assert_eq!(broken(vec![kept().arrived(2)], vec![]), "I3");
        // Noted, and no fault was there to cause it: the bound of all faults is none.
        assert_eq!(broken(vec![twice("a")], vec![]), "I3");
        let reset = || fault("BrokerRoadReset", 1050, 1060);
        // A lost connection is noted.
        assert_eq!(broken(vec![kept().arrived(2)], vec![reset()]), "I3");
        assert_eq!(broken(vec![twice("a").arrived(3)], vec![reset()]), "I3");
        // These cost nothing.
        assert_eq!(broken(vec![kept().arrived(2)], vec![fault("Operator", 1050, 1060)]), "I3");
        // It began when all was over.
        assert_eq!(broken(vec![kept().arrived(2)], vec![fault("DatabaseKill", 5000, 6000)]), "I3");
        // It was over long before.
        let mut late = kept().arrived(2);
        late.attempt.at += 60_000;
        late.receipts.iter_mut().for_each(|(_, receipt)| receipt.at += 60_000);
        assert_eq!(broken(vec![late], vec![fault("DatabaseKill", 100, 900)]), "I3");
        // Each event is within its bound, all together are not: relay 1 has a window of 16.
        assert_eq!(bound(&[reset()]), 16 + 1 + 4);
        let many = |count: usize| (0..count).map(|n| twice(&format!("{n}"))).collect();
        assert_eq!(broken(many(21), vec![reset()]), "");
        assert_eq!(broken(many(22), vec![reset()]), "I3");
    }
}
