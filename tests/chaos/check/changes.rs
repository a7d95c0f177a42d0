//! I7 and I8: who wrote what into a row.

use crate::ledger::Fate;

use super::delivery::told;
use super::{Change, Event, Facts, Violations};

/// How the reason of a refusal begins that stands for the broker's back-pressure. It raises the count only up to the
/// limit.
const BUSY: &str = "nacked by the broker";

pub fn judge(facts: &Facts, violations: &mut Violations) {
    for event in facts.events.values() {
        for change in &event.changes {
            counted(event, change, violations);
            written(event, change, violations);
        }
    }
}

/// I7: an event that goes through whenever both servers are there is never refused.
fn counted(event: &Event, change: &Change, violations: &mut Violations) {
    let may_fail = matches!(event.attempt.fate, Fate::Refused | Fate::Brittle | Fate::Volatile);
    if change.new_count > change.old_count && !may_fail {
        violations.add("I7", format!("an outage was counted: {}", told(event)));
    }
}

/// I8: a relay changes nothing that is over, and each refusal that it writes is one more than the row held. A refusal
/// written by who has lost its claim is none: whoever had the row meanwhile has counted already.
fn written(event: &Event, change: &Change, violations: &mut Violations) {
    if change.operation != "UPDATE" || change.who == "operator" {
        return;
    }
    let (old, new) = (change.old_status.as_deref(), change.new_status.as_deref());
    if matches!(old, Some("PUBLISHED" | "DEAD" | "EXPIRED" | "SKIPPED")) {
        violations.add("I8", format!("{} wrote over {old:?}: {}", change.who, told(event)));
    }
    let more = change.new_count - change.old_count;
    let is_busy = change.last_error.as_ref().is_some_and(|text| text.starts_with(BUSY));
    let fits = match new {
        Some("FAILED") if old == Some("FAILED") && is_unconfirmed(change) => more == 0,
        Some("FAILED") => more == 1 || (is_busy && more == 0),
        // What no message can carry is dead at once, without a count.
        Some("DEAD") => more == 1 || event.attempt.fate == Fate::Unsendable,
        _ => more == 0,
    };
    if !fits {
        violations.add("I8", format!("{} counted from what was no longer so: {}", change.who, told(event)));
    }
}

/// Whether it notes an attempt without a confirm, which leaves the status as it is.
pub fn is_unconfirmed(change: &Change) -> bool {
    change.last_error.as_ref().is_some_and(|text| text.starts_with("unconfirmed x"))
}

#[cfg(test)]
mod tests {
    use super::super::samples::{broken, event};
    use super::*;

    #[test]
    fn what_is_written_by_who_has_it_is_taken() {
        let mut noted = event("a", Fate::Refused).failed(1).failed(1);
        noted.changes[2].last_error = Some("unconfirmed x1: gone".into());
        let mut busy = event("a", Fate::Refused).failed(5).failed(5);
        busy.changes[1].old_count = 4;
        busy.changes[2].last_error = Some("nacked by the broker: a queue is full".into());
        let cases = [
            event("a", Fate::Kept).published(),
            event("a", Fate::Kept).change("relay-1", "WAITING", 0).published(),
            event("a", Fate::Refused).failed(1).failed(2).dead(3),
            event("a", Fate::Refused).failed(1).dead(2).change("operator", "FAILED", 0).failed(1),
            event("a", Fate::Brittle).failed(1).published(),
            event("a", Fate::Unsendable).dead(0).skipped(),
            event("a", Fate::Over).expired(),
            noted,
            busy,
        ];
        for case in cases {
            let story = told(&case);
            assert_eq!(broken(judge, vec![case]), "", "{story}");
        }
    }

    #[test]
    fn each_wrong_change_is_found() {
        let cases = [
            ("I7", event("a", Fate::Kept).failed(1)),
            ("I7", event("a", Fate::Nobody).failed(1).published()),
            ("I7 I8", event("a", Fate::Kept).change("relay-0", "WAITING", 1)),
            ("I8", event("a", Fate::Kept).published().change("relay-1", "WAITING", 0)),
            ("I8", event("a", Fate::Refused).dead(1).failed(2)),
            // A second one had the row, and both counted from nothing.
            ("I8", event("a", Fate::Refused).failed(1).failed(1)),
            ("I8", event("a", Fate::Refused).failed(1).failed(2).failed(1)),
            ("I8", event("a", Fate::Refused).failed(1).failed(3)),
        ];
        for (expected, case) in cases {
            let story = told(&case);
            assert_eq!(broken(judge, vec![case]), expected, "{story}");
        }
    }
}
