//! The whereabouts of every job of a session, from being handed over to its one outcome.
//!
//! Pure: knows no connection, no lane and no clock. `dispatch.rs` does what it says and tells it what happened.
//! However a connection ends, each job comes out exactly once.

use std::collections::{BTreeSet, VecDeque};

use crate::confirm::Receipt;
use crate::event::Outcome;

use super::{Job, Key};

/// What a session has to tell.
#[derive(Debug)]
pub enum News {
    /// A job's one outcome.
    Outcome(Key, Outcome),
    /// The confirm of a job whose outcome was given as unknown before.
    Late(Key, Receipt),
}

/// What a channel's end tells of an exchange.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lesson {
    /// It may be gone: to be asked for again before its next use.
    Ask(String),
    /// No message can go there, and why.
    Unusable(String, String),
}

#[derive(Debug, Default)]
pub(super) struct Desk {
    /// Whether the connection takes messages, as far as is known.
    open: bool,
    /// Whether the broker has answered to a message; before that, one goes alone.
    proven: bool,
    /// Whether that one is on its way.
    probing: bool,
    /// While events that may have ended an earlier connection are tried, no others are put at risk.
    careful: bool,
    /// Whether suspects are being tried.
    on_trial: bool,
    /// To be sent, in this order.
    backlog: VecDeque<Job>,
    /// To be sent one at a time, because one of them may end a channel or a connection.
    suspects: VecDeque<Job>,
    /// Without an outcome: those above, and those that the lanes have. In order, so that what is given up comes out in it.
    outstanding: BTreeSet<Key>,
    /// Given up as unknown; their confirm may still come.
    late: BTreeSet<Key>,
    news: VecDeque<News>,
}

impl Desk {
    pub(super) fn new() -> Self {
        Self { open: true, ..Self::default() }
    }

    /// Takes jobs over.
    pub(super) fn take(&mut self, jobs: Vec<Job>) {
        self.outstanding.extend(jobs.iter().map(|job| job.key));
        let (alone, others): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| job.alone);
        self.careful |= alone.iter().any(|job| job.risky);
        self.suspects.extend(alone);
        self.backlog.extend(others);
    }

    /// Whether the connection takes messages, from now on.
    pub(super) fn set_open(&mut self, open: bool) {
        self.open = open;
    }

    /// The next job for the lanes, if one may go now. What `refusal` has a reason against is refused instead.
    pub(super) fn next(&mut self, refusal: impl Fn(&str) -> Option<String>) -> Option<Job> {
        while self.open && !self.careful && (self.proven || !self.probing) {
            let job = self.backlog.pop_front()?;
            let Some(reason) = refusal(&job.message.exchange) else {
                self.probing = !self.proven;
                return Some(job);
            };
            self.decide(job.key, Outcome::Refused(reason));
        }
        None
    }

    /// The jobs to be tried one at a time, if a trial is to begin now.
    pub(super) fn begin_trial(&mut self) -> Vec<Job> {
        // What may end the connection waits until nobody else is on it.
        if !self.open || self.on_trial || (self.careful && self.is_sending()) {
            return Vec::new();
        }
        self.on_trial = !self.suspects.is_empty();
        std::mem::take(&mut self.suspects).into()
    }

    /// The trial is over; `rest` was not tried.
    pub(super) fn end_trial(&mut self, rest: impl IntoIterator<Item = Job>) {
        self.on_trial = false;
        self.suspects.extend(rest);
        self.careful &= !self.suspects.is_empty();
    }

    /// Takes back what no lane has taken, to be sent first.
    pub(super) fn put_back(&mut self, unsent: Vec<Job>) {
        // The first message of a fresh connection may be among them; then another one has to go first.
        self.probing &= unsent.is_empty();
        for job in unsent.into_iter().rev() {
            self.backlog.push_front(job);
        }
    }

    /// The outcomes that the broker's verdicts brought.
    pub(super) fn note(&mut self, outcomes: Vec<(Key, Outcome)>) {
        self.proven = true;
        for (key, outcome) in outcomes {
            self.decide(key, outcome);
        }
    }

    /// A job's outcome. The first one counts.
    pub(super) fn decide(&mut self, key: Key, outcome: Outcome) {
        if self.outstanding.remove(&key) {
            self.news.push_back(News::Outcome(key, outcome));
        } else if self.late.remove(&key) {
            if let Outcome::Confirmed(receipt) = outcome {
                self.news.push_back(News::Late(key, receipt));
            }
        }
    }

    /// The broker closed a channel over one of these. Alone it is the guilty one; otherwise those whose exchange the
    /// text names, or all, are suspects, and the others go again.
    pub(super) fn blame(&mut self, mut in_flight: Vec<Job>, code: u16, text: &str) -> Vec<Lesson> {
        self.proven = true; // a broker that blocks would not have answered
        let reason = format!("{text} ({code})");
        let named = |job: &Job| names_exchange(code, text, &job.message.exchange);
        if let [_] = in_flight.as_slice() {
            let Some(job) = in_flight.pop() else { return Vec::new() };
            let lesson = named(&job).then(|| Lesson::Unusable(job.message.exchange.clone(), reason.clone()));
            self.decide(job.key, Outcome::Refused(reason));
            return lesson.into_iter().collect();
        }
        let by_name = in_flight.iter().any(named);
        let mut lessons = Vec::new();
        for job in in_flight {
            // Given up on already: nobody waits for it any more.
            if !self.outstanding.contains(&job.key) {
                self.late.remove(&job.key);
            } else if by_name && !named(&job) {
                self.backlog.push_back(job.again());
            } else {
                lessons.push(Lesson::Ask(job.message.exchange.clone()));
                self.suspects.push_back(job.again());
            }
        }
        lessons
    }

    /// Hands back what no lane has: what was never sent as unsent, the rest as unknown. `untried` is what a trial has
    /// not come to.
    pub(super) fn withdraw(&mut self, untried: Vec<Job>) {
        let mut jobs = std::mem::take(&mut self.backlog);
        jobs.append(&mut self.suspects);
        jobs.extend(untried);
        for job in jobs {
            self.decide(job.key, job.withdrawn());
        }
        self.careful &= self.on_trial;
    }

    /// Gives up on what the lanes have; a confirm that comes after all is late. Jobs of claims below the number
    /// returned must not be published any more.
    pub(super) fn forsake(&mut self, reason: &str) -> u64 {
        let last = self.outstanding.iter().map(|key| key.claim).max();
        for key in std::mem::take(&mut self.outstanding) {
            self.late.insert(key);
            self.news.push_back(News::Outcome(key, Outcome::Unknown(reason.into())));
        }
        last.map_or(0, |last| last.saturating_add(1))
    }

    /// The connection is gone, and with it whatever the lanes still had.
    pub(super) fn lose(&mut self, reason: &str) {
        self.open = false;
        self.late.clear();
        for key in std::mem::take(&mut self.outstanding) {
            self.news.push_back(News::Outcome(key, Outcome::Unknown(format!("connection lost: {reason}"))));
        }
    }

    /// The next news, oldest first.
    pub(super) fn news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// Whether a job has no outcome yet.
    pub(super) fn is_waiting(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// Whether a confirm may still come late.
    pub(super) fn awaits_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// Whether jobs are to be tried before others are put at risk.
    pub(super) fn is_careful(&self) -> bool {
        self.careful
    }

    /// Whether a lane has a job without an outcome.
    pub(super) fn is_sending(&self) -> bool {
        self.outstanding.len() > self.backlog.len() + self.suspects.len()
    }
}

/// Whether the broker closed a channel over the exchange as such: it is missing, internal, or not ours to write to.
/// A refused topic names its exchange too, and is about one routing key.
fn names_exchange(code: u16, text: &str, exchange: &str) -> bool {
    let named = text.contains(&format!("exchange '{exchange}'"));
    matches!(code, 403 | 404) && named && !text.contains("access to topic")
}

#[cfg(test)]
mod tests;
