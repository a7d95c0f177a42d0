//! The judge: what the ledger and the history of the table say, against what is promised. Pure: it reads no file, asks no
//! server and knows no clock.
//!
//! | invariant | what it says | where it is judged |
//! |---|---|---|
//! | I1 | what is committed and can go through is received | `delivery` |
//! | I2 | nothing else is received, and nothing in another shape | `delivery` |
//! | I3 | copies are bounded by the faults that may cause them | `copies` |
//! | I4 | after the faults everything comes to its end | `delivery` |
//! | I5 | a status says what happened | `delivery` |
//! | I6 | events of one key arrive in the order of their commits, and none past one that is unresolved | `order` |
//! | I7 | only what an event did itself counts as its failure | `changes` |
//! | I8 | nobody writes what became of an event but who has it, confirms excepted | `changes` |
//! | I9 | memory, threads, open files and the log are bounded | `processes` |
//! | I10 | a relay ends when it is asked to, and does not end otherwise | `processes` |
//! | I11 | no password and no payload is in a log | `processes` |
//! | I12 | a server that is down is left alone as the back-off says | `processes` |

pub mod changes;
pub mod copies;
pub mod delivery;
pub mod order;
pub mod processes;
pub mod report;
#[cfg(test)]
mod samples;

use std::collections::{BTreeMap, HashMap};

use crate::ledger::{Attempt, Entry, Fault, Life, Millis, Outcome, Receipt, Sample};

/// A change of a row, as the table's history tells of it.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Change {
    pub event_id: String,
    pub id: i64,
    pub at: Millis,
    pub operation: String,
    pub old_status: Option<String>,
    pub new_status: Option<String>,
    pub old_count: i64,
    pub new_count: i64,
    pub last_error: Option<String>,
    pub who: String,
}

/// All that there is to judge by.
#[derive(Debug, Default)]
pub struct Facts {
    pub events: BTreeMap<String, Event>,
    /// What came that nobody had attempted.
    pub strangers: Vec<Receipt>,
    pub faults: Vec<Fault>,
    pub samples: Vec<Sample>,
    pub lives: Vec<Life>,
    /// Where in a log something secret was found, and what.
    pub leaks: Vec<String>,
    /// When all faults were over.
    pub healed: Millis,
}

/// An event, and everything that is known of it.
#[derive(Debug)]
pub struct Event {
    pub attempt: Attempt,
    pub outcome: Outcome,
    /// What happened to its row, oldest first. Nothing means that it was not committed.
    pub changes: Vec<Change>,
    /// What arrived, each with its place in the order of its queue's arrivals.
    pub receipts: Vec<(usize, Receipt)>,
}

impl Facts {
    /// Puts together what belongs together.
    pub fn new(entries: Vec<Entry>, history: Vec<Change>, leaks: Vec<String>, healed: Millis) -> Facts {
        let mut facts = Facts { leaks, healed, ..Facts::default() };
        let mut outcomes = HashMap::new();
        let mut receipts = Vec::new();
        for entry in entries {
            match entry {
                Entry::Attempt(attempt) => {
                    let event = Event {
                        attempt,
                        // A transaction whose end is not in the ledger ended under its writer's hands.
                        outcome: Outcome::Unknown,
                        changes: Vec::new(),
                        receipts: Vec::new(),
                    };
                    facts.events.insert(event.attempt.event_id.clone(), event);
                }
                Entry::Ended { tx, outcome, .. } => drop(outcomes.insert(tx, outcome)),
                Entry::Receipt(receipt) => receipts.push(receipt),
                Entry::Fault(fault) => facts.faults.push(fault),
                Entry::Sample(sample) => facts.samples.push(sample),
                Entry::Life(life) => facts.lives.push(life),
            }
        }
        for event in facts.events.values_mut() {
            event.outcome = outcomes.get(&event.attempt.tx).copied().unwrap_or(Outcome::Unknown);
        }
        for change in history {
            if let Some(event) = facts.events.get_mut(&change.event_id) {
                event.changes.push(change);
            }
        }
        for (place, receipt) in receipts.into_iter().enumerate() {
            match facts.events.get_mut(&receipt.event_id) {
                Some(event) => event.receipts.push((place, receipt)),
                None => facts.strangers.push(receipt),
            }
        }
        facts
    }

    /// Everything that is not as it was promised.
    pub fn judge(&self) -> Violations {
        let mut violations = Violations::default();
        delivery::judge(self, &mut violations);
        copies::judge(self, &mut violations);
        order::judge(self, &mut violations);
        changes::judge(self, &mut violations);
        processes::judge(self, &mut violations);
        violations
    }
}

impl Event {
    /// Whether its transaction was committed, as the table knows best.
    pub fn committed(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Its row's number, which is its place in its key's order.
    pub fn id(&self) -> i64 {
        self.changes.first().map_or(0, |change| change.id)
    }

    /// Its status in the end. One that was purged has the one that it had then.
    pub fn status(&self) -> &str {
        let last = self.changes.iter().rev().find_map(|change| change.new_status.as_deref());
        last.unwrap_or("not there")
    }

    /// Whether it ever had this status.
    pub fn was(&self, status: &str) -> bool {
        self.changes.iter().any(|change| change.new_status.as_deref() == Some(status))
    }
}

/// What is not as it was promised: how often, and the first few stories of each kind.
#[derive(Debug, Default)]
pub struct Violations(pub BTreeMap<&'static str, (usize, Vec<String>)>);

/// How many stories of each kind are told.
const STORIES: usize = 5;

impl Violations {
    pub fn add(&mut self, invariant: &'static str, story: String) {
        let (count, stories) = self.0.entry(invariant).or_default();
        *count += 1;
        if *count <= STORIES {
            stories.push(story);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Display for Violations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (invariant, (count, stories)) in &self.0 {
            writeln!(f, "{invariant} is broken {count} times, such as")?;
            for story in stories {
                writeln!(f, "    {story}")?;
            }
        }
        Ok(())
    }
}
