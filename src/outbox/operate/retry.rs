//! Re-drive: making events due again that were refused, expired or lost after their delivery.

use std::time::Duration;

use postgres::types::Type;

use crate::error::Result;
use crate::policy::{RESENT, RETRIED, UNCONFIRMED};

use super::super::failure::failure;
use super::super::{Outbox, Ready};
use super::filter::{Filter, Status, seconds};
use super::page::{BATCH_ROWS, Changes, EXAMPLES, Step, Walk, change};

/// The statuses that a re-drive takes.
pub const RETRYABLE: [Status; 4] = [Status::Dead, Status::Failed, Status::Expired, Status::Published];

/// What becomes of an event's deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// It stays. An event whose deadline has passed is left as it is.
    Keep,
    /// It has none any more.
    Drop,
    /// It is so long after the event's new due time.
    Within(Duration),
}

/// Which events to make due again, and how.
#[derive(Debug, Clone)]
pub struct Redrive {
    /// Which. Without a status those that are DEAD, and those that are FAILED and backing off. Others of
    /// [`RETRYABLE`] must be named; further statuses are passed over.
    pub filter: Filter,
    /// What becomes of their deadlines.
    pub deadline: Deadline,
    /// Events a second: their due times are spread in id order, so that new events keep their place. None makes all
    /// due at once.
    pub rate: Option<f64>,
    /// At most so many.
    pub limit: Option<u64>,
    /// Changes nothing.
    pub dry_run: bool,
}

impl Outbox {
    /// Makes events WAITING again, due at once or spread over time, with no failures counted. Where `max_age` is set,
    /// which ends WAITING events only, they become FAILED with no failures counted instead. Their `last_error` says
    /// what they were; the next message of one that may have been delivered says that it may be a duplicate.
    ///
    /// A second call changes nothing. After each batch, `go_on` is told what was done so far, and may end it.
    ///
    /// # Errors
    /// The database cannot be reached, refuses, or does not hold the table. The batches before stay done.
    pub fn retry(&mut self, redrive: &Redrive, mut go_on: impl FnMut(&Changes) -> bool) -> Result<Changes> {
        let mut filter = redrive.filter.clone();
        let named = filter.statuses.contains(&Status::Failed);
        if filter.statuses.is_empty() {
            filter.statuses = vec![Status::Dead, Status::Failed];
        }
        filter.statuses.retain(|status| RETRYABLE.contains(status));
        let mut walk = Walk::new(self, &filter, None, redrive.limit)?;
        let mut changes = Changes::default();
        if filter.statuses.is_empty() {
            return Ok(changes);
        }
        let max_age = self.claim.max_age.is_some();
        let mut first_due = None;
        loop {
            let batch = walk.batch(BATCH_ROWS);
            let before = i64::try_from(changes.changed).unwrap_or(i64::MAX);
            let (step, now) = self.with_session(|ready| {
                let Ready { session, statements, .. } = ready;
                let mut parameters = walk.parameters(&filter, batch);
                let (life, drop) = match redrive.deadline {
                    Deadline::Keep => (None, false),
                    Deadline::Drop => (None, true),
                    Deadline::Within(life) => (Some(seconds(life)), false),
                };
                parameters.add(named, Type::BOOL);
                parameters.add(redrive.dry_run, Type::BOOL);
                parameters.add(redrive.rate, Type::FLOAT8);
                parameters.add(first_due, Type::FLOAT8);
                parameters.add(before, Type::INT8);
                parameters.add(life, Type::FLOAT8);
                parameters.add(drop, Type::BOOL);
                parameters.add(RETRIED, Type::TEXT);
                parameters.add(RESENT, Type::TEXT);
                parameters.add(UNCONFIRMED, Type::TEXT);
                parameters.add(i64::from(EXAMPLES), Type::INT8);
                let sql = if max_age { &statements.retry_failed } else { &statements.retry };
                let what = "making events due again";
                let rows = change(session, what, sql.clone(), parameters)?;
                let mut so_far = changes.clone();
                let (step, now) = Step::read(&rows, &mut so_far).map_err(|error| failure(what, &error))?;
                Ok(((step, so_far), now))
            })?;
            let (step, so_far) = step;
            changes = so_far;
            // One start for all batches: the rate holds across them.
            first_due.get_or_insert(now);
            let on = walk.step(&step, batch);
            if !go_on(&changes) && on || walk.exhausted() {
                changes.stopped_at = Some(walk.position());
                return Ok(changes);
            }
            if !on {
                return Ok(changes);
            }
        }
    }
}
