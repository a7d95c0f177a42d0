//! Events for the checker's own tests, told in a line each.

use crate::ledger::{Attempt, Fate, Outcome, Receipt};

use super::{Change, Event, Facts, Violations};

/// The invariants that a judge finds broken in these events.
pub fn broken(judge: fn(&Facts, &mut Violations), events: Vec<Event>) -> String {
    let mut facts = Facts::default();
    facts.events.extend(events.into_iter().map(|event| (event.attempt.event_id.clone(), event)));
    verdict(judge, &facts)
}

/// The invariants that a judge finds broken in these facts.
pub fn verdict(judge: fn(&Facts, &mut Violations), facts: &Facts) -> String {
    let mut violations = Violations::default();
    judge(facts, &mut violations);
    violations.0.keys().copied().collect::<Vec<_>>().join(" ")
}

/// A committed event, as yet WAITING, attempted at 1000.
pub fn event(event_id: &str, fate: Fate) -> Event {
    let attempt = Attempt {
        tx: 1,
        event_id: event_id.into(),
        fate,
        key: None,
        n: 1,
        event_type: "t".into(),
        exchange: "e".into(),
        routing_key: "r".into(),
        queue: "q".into(),
        sha256: "s".into(),
        at: 1000,
    };
    let event = Event { attempt, outcome: Outcome::Committed, changes: vec![], receipts: vec![] };
    event.change("writer", "WAITING", 0)
}

impl Event {
    /// A change of its row by `who`, 100 ms after the one before.
    pub fn change(mut self, who: &str, status: &str, count: i64) -> Event {
        let before = self.changes.last().cloned();
        self.changes.push(Change {
            event_id: self.attempt.event_id.clone(),
            id: before.as_ref().map_or(1, |it| it.id),
            at: before.as_ref().map_or(1000, |it| it.at + 100),
            operation: if before.is_some() { "UPDATE" } else { "INSERT" }.into(),
            old_status: before.as_ref().and_then(|it| it.new_status.clone()),
            new_status: Some(status.into()),
            old_count: before.map_or(0, |it| it.new_count),
            new_count: count,
            last_error: (status != "PUBLISHED").then(|| "why".into()),
            who: who.into(),
        });
        self
    }

    pub fn published(self) -> Event {
        let count = self.changes.last().map_or(0, |it| it.new_count);
        self.change("relay-0", "PUBLISHED", count)
    }

    pub fn failed(self, count: i64) -> Event {
        self.change("relay-0", "FAILED", count)
    }

    pub fn dead(self, count: i64) -> Event {
        self.change("relay-0", "DEAD", count)
    }

    pub fn expired(self) -> Event {
        self.change("relay-0", "EXPIRED", 0)
    }

    pub fn skipped(self) -> Event {
        self.change("operator", "SKIPPED", 0)
    }

    pub fn writer_said(mut self, outcome: Outcome) -> Event {
        self.outcome = outcome;
        self
    }

    pub fn unknown(self) -> Event {
        self.writer_said(Outcome::Unknown)
    }

    pub fn not_there(mut self) -> Event {
        self.changes.clear();
        self
    }

    pub fn rolled_back(self) -> Event {
        self.not_there().writer_said(Outcome::RolledBack)
    }

    /// It has this row, of this key.
    pub fn row(mut self, id: i64, key: &str) -> Event {
        self.changes.iter_mut().for_each(|change| change.id = id);
        self.attempt.key = Some(key.into());
        self.attempt.n = id as u64;
        self
    }

    /// It arrives at this place in the order of arrivals, 100 ms for each after 1000.
    pub fn arrived(mut self, place: usize) -> Event {
        let attempt = &self.attempt;
        let receipt = Receipt {
            queue: attempt.queue.clone(),
            event_id: attempt.event_id.clone(),
            event_type: attempt.event_type.clone(),
            exchange: attempt.exchange.clone(),
            routing_key: attempt.routing_key.clone(),
            sha256: attempt.sha256.clone(),
            key: attempt.key.clone(),
            n: attempt.n,
            redelivered: false,
            at: 1000 + 100 * place as u64,
        };
        self.receipts.push((place, receipt));
        self
    }

    /// The last arrival was the broker's doing.
    pub fn redelivered(mut self) -> Event {
        if let Some((_, last)) = self.receipts.last_mut() {
            last.redelivered = true;
        }
        self
    }
}
