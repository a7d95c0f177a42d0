//! I1, I2, I4 and I5: what arrived, what did not, and what the table says of it.

use crate::ledger::{Fate, Outcome, Receipt};

use super::{Event, Facts, Violations};

pub fn judge(facts: &Facts, violations: &mut Violations) {
    for receipt in &facts.strangers {
        violations.add("I2", format!("nobody has attempted {receipt:?}"));
    }
    for event in facts.events.values() {
        if event.committed() == (event.outcome == Outcome::RolledBack) && event.outcome != Outcome::Unknown {
            violations.add("I1", format!("the table knows better than its writer: {}", told(event)));
        }
        arrived_as_it_was(event, violations);
        if event.committed() {
            arrived(event, violations);
            ended(event, violations);
            told_truly(event, violations);
        }
    }
}

/// I1.
fn arrived(event: &Event, violations: &mut Violations) {
    if is_kept(event) && event.receipts.is_empty() {
        violations.add("I1", format!("lost: {}", told(event)));
    }
}

/// Whether it has to arrive. What an operator gave up has not.
pub fn is_kept(event: &Event) -> bool {
    matches!(event.attempt.fate, Fate::Kept | Fate::Brittle) && event.status() != "SKIPPED"
}

/// I2.
fn arrived_as_it_was(event: &Event, violations: &mut Violations) {
    let attempt = &event.attempt;
    for (_, receipt) in &event.receipts {
        let expected = Receipt {
            queue: attempt.queue.clone(),
            event_id: attempt.event_id.clone(),
            event_type: attempt.event_type.clone(),
            exchange: attempt.exchange.clone(),
            routing_key: attempt.routing_key.clone(),
            sha256: attempt.sha256.clone(),
            key: attempt.key.clone(),
            n: attempt.n,
            ..receipt.clone()
        };
        if !event.committed() {
            violations.add("I2", format!("arrived, and was never committed: {}", told(event)));
        } else if !matches!(attempt.fate, Fate::Kept | Fate::Brittle | Fate::Volatile | Fate::Brief) {
            violations.add("I2", format!("must not arrive: {}", told(event)));
        } else if expected != *receipt {
            violations.add("I2", format!("arrived as another one: {receipt:?} of {}", told(event)));
        }
    }
}

/// I4.
fn ended(event: &Event, violations: &mut Violations) {
    let status = event.status();
    let fits = match event.attempt.fate {
        Fate::Kept | Fate::Brittle | Fate::Volatile | Fate::Nobody => {
            status == "PUBLISHED" || status == "SKIPPED"
        }
        Fate::Brief | Fate::Over => ["PUBLISHED", "EXPIRED"].contains(&status),
        Fate::Refused => ["FAILED", "DEAD", "SKIPPED"].contains(&status),
        Fate::Unsendable => ["DEAD", "SKIPPED"].contains(&status),
        Fate::GivenUp => status == "SKIPPED",
    };
    if !fits {
        violations.add("I4", format!("{status} in the end: {}", told(event)));
    }
}

/// I5.
fn told_truly(event: &Event, violations: &mut Violations) {
    let fate = event.attempt.fate;
    if event.was("PUBLISHED") {
        if matches!(fate, Fate::Refused | Fate::Unsendable | Fate::Over | Fate::GivenUp) {
            violations.add("I5", format!("PUBLISHED, and no queue took it: {}", told(event)));
        } else if is_kept(event) && event.receipts.is_empty() {
            violations.add("I5", format!("PUBLISHED, and never arrived: {}", told(event)));
        }
    }
    for change in &event.changes {
        let is_told = change.last_error.as_ref().is_some_and(|text| !text.is_empty());
        if matches!(change.new_status.as_deref(), Some("FAILED" | "DEAD" | "EXPIRED")) && !is_told {
            violations.add("I5", format!("{:?} without a reason: {}", change.new_status, told(event)));
        }
    }
}

/// An event's story, for who has to find out what went wrong.
pub fn told(event: &Event) -> String {
    let attempt = &event.attempt;
    let changes: Vec<String> = event
        .changes
        .iter()
        .map(|it| {
            format!(
                "{} {} {} {} by {}{}",
                it.at,
                it.operation,
                it.new_status.as_deref().unwrap_or("-"),
                it.new_count,
                it.who,
                it.last_error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default()
            )
        })
        .collect();
    let receipts: Vec<String> = event
        .receipts
        .iter()
        .map(|(_, it)| format!("{}{}", it.at, if it.redelivered { " again" } else { "" }))
        .collect();
    format!(
        "{} {:?} {} n {} key {:?} row {} {:?} at {}; changes [{}]; arrivals [{}]",
        attempt.event_id,
        attempt.fate,
        attempt.event_type,
        attempt.n,
        attempt.key,
        event.id(),
        event.outcome,
        attempt.at,
        changes.join("; "),
        receipts.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::super::samples::{broken, event};
    use super::*;

    #[test]
    fn what_is_as_it_should_be_is_taken() {
        let cases = [
            event("a", Fate::Kept).published().arrived(1),
            event("a", Fate::Kept).published().arrived(1).arrived(2),
            event("a", Fate::Kept).rolled_back(),
            event("a", Fate::Kept).unknown().not_there(),
            event("a", Fate::Kept).unknown().published().arrived(1),
            event("a", Fate::Kept).skipped(),
            event("a", Fate::Volatile).published(),
            event("a", Fate::Nobody).published(),
            event("a", Fate::Refused).failed(1),
            event("a", Fate::Refused).failed(1).dead(2),
            event("a", Fate::Unsendable).dead(0),
            event("a", Fate::GivenUp).skipped(),
            event("a", Fate::Over).expired(),
            event("a", Fate::Brief).expired(),
            event("a", Fate::Brief).published(),
        ];
        for case in cases {
            assert_eq!(broken(judge, vec![case]), "");
        }
    }

    #[test]
    fn each_broken_promise_is_found() {
        let mut other = event("a", Fate::Kept).published().arrived(1);
        other.receipts[0].1.sha256 = "other".into();
        let mut unexplained = event("a", Fate::Refused).failed(1);
        unexplained.changes[1].last_error = None;
        let cases = [
            ("I1 I5", event("a", Fate::Kept).published()),
            ("I1 I4", event("a", Fate::Kept)),
            ("I4", event("a", Fate::Kept).arrived(1)),
            ("I1 I4", event("a", Fate::Kept).dead(3)),
            ("I1 I5", event("a", Fate::Brittle).published()),
            ("I1", event("a", Fate::Kept).not_there()),
            ("I1", event("a", Fate::Volatile).published().writer_said(Outcome::RolledBack)),
            ("I2", event("a", Fate::Kept).rolled_back().arrived(1)),
            ("I2", event("a", Fate::Kept).unknown().not_there().arrived(1)),
            ("I2", event("a", Fate::Refused).failed(1).arrived(1)),
            ("I2", event("a", Fate::Over).expired().arrived(1)),
            ("I2", event("a", Fate::GivenUp).skipped().arrived(1)),
            ("I2", other),
            ("I4", event("a", Fate::Volatile).failed(1)),
            ("I4", event("a", Fate::GivenUp)),
            ("I4 I5", event("a", Fate::Refused).published()),
            ("I5", unexplained),
        ];
        for (expected, case) in cases {
            let story = told(&case);
            assert_eq!(broken(judge, vec![case]), expected, "{story}");
        }
        let mut facts = Facts::default();
        facts.strangers.push(event("a", Fate::Kept).arrived(1).receipts.remove(0).1);
        let mut violations = Violations::default();
        judge(&facts, &mut violations);
        assert_eq!(violations.0.keys().copied().collect::<Vec<_>>(), ["I2"]);
    }
}
