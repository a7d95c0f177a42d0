//! Re-drive: making events due again that were refused, expired or lost after their delivery.

use std::time::Duration;

use postgres::types::Type;

use crate::error::Result;
use crate::policy::{RESENT, RETRIED, UNCONFIRMED};

use super::super::Outbox;
use super::filter::{Filter, Status, seconds};
use super::page::{Before, Changes, EXAMPLES, Job, Parameters};

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
    /// Which. Without a status those that are DEAD, and those that are FAILED and backing off; a FAILED one that is due
    /// already when it is named by its id or its status. Others of
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
    /// Makes events due again, at once or spread over time: FAILED with no failures counted, whatever they were, so that
    /// neither `min_age` nor `max_age` concerns them. Their `last_error` says what they were; the next message of one
    /// that may have been delivered says that it may be a duplicate.
    ///
    /// A second call changes nothing, but for PUBLISHED ones that were sent again meanwhile: let their filter have a
    /// [`published_until`](Filter::published_until) that lies before the first. After each batch, `go_on` is told what was
    /// done so far, and may end it.
    ///
    /// # Errors
    /// The database cannot be reached, refuses, or does not hold the table. The batches before stay done.
    pub fn retry(&mut self, redrive: &Redrive, go_on: impl FnMut(&Changes) -> bool) -> Result<Changes> {
        let mut filter = redrive.filter.clone();
        let named = filter.statuses.contains(&Status::Failed) || !filter.events.is_empty();
        if filter.statuses.is_empty() {
            filter.statuses = vec![Status::Dead, Status::Failed];
        }
        filter.statuses.retain(|status| RETRYABLE.contains(status));
        if filter.statuses.is_empty() {
            return Ok(Changes::default());
        }
        let (life, drop) = match redrive.deadline {
            Deadline::Keep => (None, false),
            Deadline::Drop => (None, true),
            Deadline::Within(life) => (Some(seconds(life)), false),
        };
        let job = Job {
            what: "making events due again",
            filter: &filter,
            after: None,
            limit: redrive.limit,
            sql: |statements| &statements.retry,
            ends_early: false,
        };
        let further = |before: &Before, parameters: &mut Parameters| {
            parameters.add(named, Type::BOOL);
            parameters.add(redrive.dry_run, Type::BOOL);
            parameters.add(redrive.rate, Type::FLOAT8);
            parameters.add(before.started, Type::FLOAT8);
            parameters.add(i64::try_from(before.changed).unwrap_or(i64::MAX), Type::INT8);
            parameters.add(life, Type::FLOAT8);
            parameters.add(drop, Type::BOOL);
            parameters.add(RETRIED, Type::TEXT);
            parameters.add(RESENT, Type::TEXT);
            parameters.add(UNCONFIRMED, Type::TEXT);
            parameters.add(i64::from(EXAMPLES), Type::INT8);
        };
        self.change(&job, further, go_on)
    }
}
