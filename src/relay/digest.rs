//! What the relay tells the log: each change at once, failures that repeat as numbers, and what was moved once a minute.
//! Knows the time; what is said and when is `fold.rs` and `summary.rs`.

use std::time::{Duration, Instant};

use log::Level;

use crate::error::Error;
use crate::event::{Event, Tally};
use crate::policy::Settlement;

use super::fold::{Failure, Folds, Sort};
use super::line::Line;
use super::summary::{Summary, told};

#[derive(Debug, Default)]
pub(super) struct Digest {
    folds: Folds,
    summary: Summary,
}

impl Digest {
    /// An event's fate: one line if it was not published and needs more than time, or one more that is counted.
    pub(super) fn decided(&mut self, event: &Event, settlement: &Settlement) {
        let (sort, fail_count, backoff, reason) = match settlement {
            Settlement::Failed { fail_count, backoff, reason } => {
                (Sort::Refused, Some(*fail_count), Some(*backoff), reason)
            }
            Settlement::Dead { fail_count, reason } => (Sort::Dead, Some(*fail_count), None, reason),
            Settlement::Expired { reason } => (Sort::Expired, None, None, reason),
            Settlement::Unconfirmed { reason, .. } => {
                if log::log_enabled!(Level::Debug) {
                    in_full(Level::Debug, "event not confirmed", event).with("reason", reason.as_str()).log();
                }
                return;
            }
            Settlement::Published(_) | Settlement::Released => return,
        };
        let failure = Failure { sort, event_type: Some(&event.event_type), reason, row: Some(event.id) };
        self.failed(failure, || {
            in_full(sort.level(), sort.words_for_one(), event)
                .with_some("fail_count", fail_count.map(u64::from))
                .with_some("due_within", backoff)
                .with("reason", reason.as_str())
        });
    }

    /// The broker's connection ended in mid-drain.
    pub(super) fn lost(&mut self, reason: &str) {
        self.server_failed(Sort::Lost, reason);
    }

    /// There was no session for a second claim.
    pub(super) fn narrowed(&mut self, error: &Error) {
        self.server_failed(Sort::Narrowed, &error.to_string());
    }

    /// The table refuses to hold what became of an event.
    pub(super) fn unwritable(&mut self, row: i64, is_confirmed: bool, error: &Error) {
        let sort = if is_confirmed { Sort::Unwritable } else { Sort::Unsettled };
        let reason = &error.to_string();
        self.failed(Failure { sort, event_type: None, reason, row: Some(row) }, || {
            Line::new(sort.level(), sort.words_for_one()).with("id", row).with("reason", reason.as_str())
        });
    }

    fn server_failed(&mut self, sort: Sort, reason: &str) {
        self.failed(Failure { sort, event_type: None, reason, row: None }, || {
            Line::new(sort.level(), sort.words_for_one()).with("reason", reason)
        });
    }

    fn failed(&mut self, failure: Failure<'_>, line: impl FnOnce() -> Line) {
        let now = Instant::now();
        if self.folds.due().is_some_and(|due| due <= now) {
            self.folds.lines(now, false).iter().for_each(Line::log);
        }
        if self.folds.note(failure, now) {
            line().log();
        }
    }

    /// A tick of a relay that runs on has ended.
    pub(super) fn ticked(&mut self, tally: &Tally, began: Instant) {
        if tally.claimed > 0 && log::log_enabled!(Level::Debug) {
            told(Line::new(Level::Debug, "ticked"), tally).with("took", began.elapsed()).log();
        }
        self.summary.note(tally, began);
        self.tell_due();
    }

    /// What is due by now.
    pub(super) fn tell_due(&mut self) {
        let now = Instant::now();
        self.folds.lines(now, false).iter().for_each(Line::log);
        self.summary.line(now).iter().for_each(Line::log);
    }

    /// What was counted, at the end.
    pub(super) fn tell_rest(&mut self) {
        self.folds.lines(Instant::now(), true).iter().for_each(Line::log);
    }
}

fn in_full(level: Level, words: &'static str, event: &Event) -> Line {
    Line::new(level, words)
        .with("id", event.id)
        .with("event_id", event.event_id.as_str())
        .with("type", event.event_type.as_str())
}

/// Longest piece of a drain for which nothing would be told; longer ones are ended in between.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(60);
