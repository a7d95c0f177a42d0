//! One claim on its way: which of its events have no outcome yet, and what is to be written for the others.

use std::collections::{HashMap, HashSet};

use crate::config::Config;
use crate::confirm::Receipt;
use crate::event::{Event, Outcome, Payload};
use crate::message;
use crate::outbox::Claim;
use crate::policy::{self, Settlement};
use crate::publisher::{Job, Key};

pub(super) struct Flight {
    pub(super) number: u64,
    /// None once its session is lost: then only confirms are worth keeping.
    pub(super) claim: Option<Claim>,
    ids: HashSet<i64>,
    open: HashMap<i64, Event>,
    settlements: Vec<(i64, Settlement)>,
}

impl Flight {
    pub(super) fn new(number: u64, claim: Claim) -> Self {
        Self {
            number,
            claim: Some(claim),
            ids: HashSet::new(),
            open: HashMap::new(),
            settlements: Vec::new(),
        }
    }

    /// Takes the claimed events in, and returns the messages for those that can be sent.
    pub(super) fn load(&mut self, events: Vec<(Event, Payload)>, config: &Config) -> Vec<Job> {
        let mut jobs = Vec::with_capacity(events.len());
        for (event, payload) in events {
            self.ids.insert(event.id);
            if let Some(settlement) = policy::end(&event, &config.retry) {
                log_settlement(&event, &settlement);
                self.settlements.push((event.id, settlement));
                continue;
            }
            let id = event.id;
            let (alone, risky) = (policy::goes_alone(&event), policy::is_risky(&event));
            let encoded = message::encode(&event, payload, &config.routing);
            self.open.insert(id, event);
            match encoded {
                Ok(message) => {
                    let key = Key { claim: self.number, id };
                    let mut job = Job::new(key, message);
                    job.alone = alone;
                    job.risky = risky;
                    jobs.push(job);
                }
                Err(outcome) => self.note(id, outcome, config),
            }
        }
        jobs
    }

    /// Whether the event of this row is on its way here.
    pub(super) fn holds(&self, id: i64) -> bool {
        self.ids.contains(&id)
    }

    /// Leaves an event to the flight that has it already.
    pub(super) fn pass_over(&mut self, id: i64) {
        self.settlements.push((id, Settlement::Released));
    }

    /// Notes an event's outcome. The first one counts.
    pub(super) fn note(&mut self, id: i64, outcome: Outcome, config: &Config) {
        if let Some(event) = self.open.remove(&id) {
            let settlement = policy::settlement(&event, outcome, &config.retry);
            log_settlement(&event, &settlement);
            self.settlements.push((id, settlement));
        }
    }

    /// Whether every event has its outcome.
    pub(super) fn is_complete(&self) -> bool {
        self.open.is_empty()
    }

    /// The claim, unless it is lost, and what is to be written.
    pub(super) fn land(self) -> (Option<Claim>, Vec<(i64, Settlement)>) {
        (self.claim, self.settlements)
    }
}

/// The confirms among settlements whose claim is lost.
pub(super) fn confirms(settlements: Vec<(i64, Settlement)>) -> impl Iterator<Item = (i64, Receipt)> {
    settlements.into_iter().filter_map(|(id, settlement)| match settlement {
        Settlement::Published(receipt) => Some((id, receipt)),
        _ => None,
    })
}

/// One line per event that was not published and needs more than time: what, and why.
fn log_settlement(event: &Event, settlement: &Settlement) {
    let Event { event_id, event_type, .. } = event;
    match settlement {
        Settlement::Failed { fail_count, backoff, reason } => {
            let backoff = humantime::format_duration(*backoff);
            log::warn!(
                "event {event_id} ({event_type}) refused, fail_count {fail_count}, due again within {backoff}: {reason}"
            );
        }
        Settlement::Dead { fail_count, reason } => {
            log::error!("event {event_id} ({event_type}) is DEAD, fail_count {fail_count}: {reason}");
        }
        Settlement::Expired { reason } => log::warn!("event {event_id} ({event_type}) EXPIRED: {reason}"),
        Settlement::Unconfirmed { reason, .. } => log::debug!("event {event_id} ({event_type}) {reason}"),
        Settlement::Published(_) | Settlement::Released => {}
    }
}
