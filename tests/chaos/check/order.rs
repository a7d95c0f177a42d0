//! I6: the order of the events of one key.

use std::collections::BTreeMap;

use super::delivery::told;
use super::{Event, Facts, Violations};

pub fn judge(facts: &Facts, violations: &mut Violations) {
    let mut keys: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
    for event in facts.events.values().filter(|event| event.committed()) {
        if let Some(key) = &event.attempt.key {
            keys.entry(key).or_default().push(event);
        }
    }
    for events in keys.values_mut() {
        events.sort_by_key(|event| event.id());
        in_order(events, violations);
    }
}

/// Compares each event with the last arrival among those before it, and with those before it that are unresolved.
fn in_order(events: &[&Event], violations: &mut Violations) {
    let mut last: Option<(usize, &Event)> = None;
    let mut in_the_way: Vec<&Event> = Vec::new();
    let mut n = 0;
    for event in events {
        if event.attempt.n < n {
            violations.add("I6", format!("the writers were not alone on the key: {}", told(event)));
        }
        n = event.attempt.n;
        if let Some((place, receipt)) = event.receipts.first() {
            if let Some((before, other)) = last.filter(|(before, _)| before > place) {
                violations.add(
                    "I6",
                    format!("{} came at {place}, before {} at {before}", told(event), told(other)),
                );
            }
            for other in &in_the_way {
                // Skipped by hand: what follows is free from then on.
                let freed = other
                    .changes
                    .iter()
                    .find(|it| matches!(it.new_status.as_deref(), Some("SKIPPED" | "EXPIRED")));
                if freed.is_none_or(|freed| receipt.at < freed.at && freed.who == "operator") {
                    violations
                        .add("I6", format!("{} came past {}, which is unresolved", told(event), told(other)));
                }
            }
            if last.is_none_or(|(before, _)| before < *place) {
                last = Some((*place, event));
            }
        }
        if event.status() != "PUBLISHED" && !event.was("PUBLISHED") {
            in_the_way.push(event);
        }
    }
}

/// How many pairs of neighbours were compared.
pub fn compared(facts: &Facts) -> usize {
    let mut arrived: BTreeMap<&str, usize> = BTreeMap::new();
    for event in facts.events.values().filter(|event| event.committed() && !event.receipts.is_empty()) {
        if let Some(key) = &event.attempt.key {
            *arrived.entry(key).or_default() += 1;
        }
    }
    arrived.values().map(|count| count - 1).sum()
}

#[cfg(test)]
mod tests {
    use super::super::samples::{broken, event};
    use super::*;
    use crate::ledger::Fate;

    fn kept(name: &str, id: i64) -> Event {
        event(name, Fate::Kept).row(id, "k").published()
    }

    #[test]
    fn what_keeps_the_order_is_taken() {
        let cases = [
            vec![kept("a", 1).arrived(1), kept("b", 2).arrived(2), kept("c", 3).arrived(5)],
            // A copy may come at any time after the first.
            vec![kept("a", 1).arrived(1).arrived(9), kept("b", 2).arrived(2)],
            // Other keys, and none, have no order among each other.
            vec![kept("a", 1).arrived(2), event("b", Fate::Kept).row(2, "other").published().arrived(1)],
            vec![kept("a", 1).arrived(2), event("b", Fate::Kept).published().arrived(1)],
            // Given up at 1200 (two changes after 1000), free from then on.
            vec![event("a", Fate::Unsendable).row(1, "k").dead(0).skipped(), kept("b", 2).arrived(3)],
            vec![event("a", Fate::Over).row(1, "k").expired(), kept("b", 2).arrived(1)],
            vec![kept("a", 1).arrived(1), event("b", Fate::Kept).row(2, "k")],
        ];
        for case in cases {
            assert_eq!(broken(judge, case), "");
        }
    }

    #[test]
    fn each_broken_order_is_found() {
        let cases = [
            vec![kept("a", 1).arrived(2), kept("b", 2).arrived(1)],
            // The copy of b comes in order, and does not make up for the first.
            vec![kept("a", 1).arrived(2), kept("b", 2).arrived(1).arrived(3)],
            vec![kept("a", 1).arrived(1), kept("b", 2).arrived(3), kept("c", 3).arrived(2)],
            vec![event("a", Fate::Kept).row(1, "k"), kept("b", 2).arrived(1)],
            vec![event("a", Fate::Refused).row(1, "k").failed(1), kept("b", 2).arrived(1)],
            vec![event("a", Fate::Unsendable).row(1, "k").dead(0), kept("b", 2).arrived(9)],
            // Before it was given up, at 1200.
            vec![event("a", Fate::Unsendable).row(1, "k").dead(0).skipped(), kept("b", 2).arrived(1)],
            vec![
                event("a", Fate::Unsendable).row(1, "k").dead(0),
                event("b", Fate::Over).row(2, "k").expired(),
                kept("c", 3).arrived(9),
            ],
        ];
        for case in cases {
            let stories: Vec<String> = case.iter().map(told).collect();
            assert_eq!(broken(judge, case), "I6", "{stories:?}");
        }
        let mut twice = kept("b", 2).arrived(2);
        twice.attempt.n = 0;
        assert_eq!(broken(judge, vec![kept("a", 1).arrived(1), twice]), "I6");
    }
}
