//! Deleting what is finished and old.

use std::time::Duration;

use postgres::types::Type;

use crate::error::Result;

use super::super::Outbox;
use super::filter::{Filter, Status, seconds};
use super::page::{Before, Changes, EXAMPLES, Job, Parameters};

/// The statuses that can be purged, the last of them only when it is named.
pub const PURGEABLE: [Status; 4] = [Status::Published, Status::Expired, Status::Skipped, Status::Dead];

/// Which events to delete.
#[derive(Debug, Clone)]
pub struct Purge {
    /// Which. Without a status those that are PUBLISHED, EXPIRED or SKIPPED; DEAD ones must be named. Unfinished
    /// events are never deleted, whatever it says.
    pub filter: Filter,
    /// They were finished at least so long ago, by the database's clock.
    pub finished_before: Duration,
    /// At most so many.
    pub limit: Option<u64>,
    /// Only rows after this one: [`Changes::stopped_at`] of a purge that was ended early.
    pub after: Option<i64>,
    /// Deletes nothing.
    pub dry_run: bool,
}

impl Outbox {
    /// Deletes events that were finished long enough ago, the lowest ids first.
    ///
    /// PUBLISHED events count from `published_at`; EXPIRED, SKIPPED and DEAD ones from the latest of their times that
    /// is not in the future. The walk ends at 5,000 rows in a row that were all created later than that: what comes
    /// after them was not finished before it either.
    ///
    /// After each batch, `go_on` is told what was done so far, and may end it. Any number of purges may work at once.
    ///
    /// # Errors
    /// The database cannot be reached, refuses, or does not hold the table. The batches before stay done.
    pub fn purge(&mut self, purge: &Purge, go_on: impl FnMut(&Changes) -> bool) -> Result<Changes> {
        let mut filter = purge.filter.clone();
        if filter.statuses.is_empty() {
            filter.statuses = vec![Status::Published, Status::Expired, Status::Skipped];
        }
        filter.statuses.retain(|status| PURGEABLE.contains(status));
        if filter.statuses.is_empty() {
            return Ok(Changes::default());
        }
        let job = Job {
            what: "purging events",
            filter: &filter,
            after: purge.after,
            limit: purge.limit,
            sql: |statements| &statements.purge,
            ends_early: true,
        };
        let further = |_: &Before, parameters: &mut Parameters| {
            parameters.add(seconds(purge.finished_before), Type::FLOAT8);
            parameters.add(purge.dry_run, Type::BOOL);
            parameters.add(i64::from(EXAMPLES), Type::INT8);
        };
        self.change(&job, further, go_on)
    }
}
