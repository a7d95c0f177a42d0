//! Giving events up.

use postgres::types::Type;

use crate::config::OnDead;
use crate::error::Result;

use super::super::{Outbox, Ready};
use super::filter::{Filter, Reference, Status};
use super::page::{Before, Changes, EXAMPLES, Job, Parameters, Walk};
use super::show::{Show, Shown};

/// The statuses that can be given up: the unfinished ones.
pub const SKIPPABLE: [Status; 3] = [Status::Waiting, Status::Failed, Status::Dead];

/// Which events to give up.
#[derive(Debug, Clone)]
pub struct Skip {
    /// Which. Without a status all of [`SKIPPABLE`]; further statuses are passed over.
    pub filter: Filter,
    /// Only the first unfinished event of the filter's key, if the filter means it and it blocks the key: it is DEAD,
    /// backs off, or is scheduled. One that is merely due, or younger than `min_age`, is left.
    pub head_only: bool,
    /// For `last_error`; without one it says so, and keeps the last one behind that.
    pub reason: Option<String>,
    /// At most so many.
    pub limit: Option<u64>,
    /// Changes nothing.
    pub dry_run: bool,
}

impl Outbox {
    /// Makes unfinished events SKIPPED: they are never sent, and hold no others back. The time of it goes into
    /// `available_at`.
    ///
    /// A second call changes nothing. After each batch, `go_on` is told what was done so far, and may end it.
    ///
    /// # Errors
    /// The database cannot be reached, refuses, or does not hold the table. The batches before stay done.
    pub fn skip(&mut self, skip: &Skip, go_on: impl FnMut(&Changes) -> bool) -> Result<Changes> {
        let mut filter = skip.filter.clone();
        if filter.statuses.is_empty() {
            filter.statuses = SKIPPABLE.into();
        }
        filter.statuses.retain(|status| SKIPPABLE.contains(status));
        if skip.head_only && !self.narrow_to_head(&mut filter)? || filter.statuses.is_empty() {
            return Ok(Changes::default());
        }
        let job = Job {
            what: "giving events up",
            filter: &filter,
            after: None,
            limit: skip.limit,
            sql: |statements| &statements.skip,
            ends_early: false,
        };
        let reason = skip.reason.as_ref().map(|reason| reason.replace('\0', "\u{FFFD}"));
        let further = |_: &Before, parameters: &mut Parameters| {
            parameters.add(reason.clone(), Type::TEXT);
            parameters.add(skip.dry_run, Type::BOOL);
            parameters.add(i64::from(EXAMPLES), Type::INT8);
        };
        self.change(&job, further, go_on)
    }

    /// Makes the filter mean only the head of its key as it is now. False when there is none that blocks the key, or
    /// the filter does not mean it.
    fn narrow_to_head(&mut self, filter: &mut Filter) -> Result<bool> {
        let Some(head) = filter.ordering_key.clone().map(|key| self.head(key)).transpose()?.flatten() else {
            return Ok(false);
        };
        if !head.standing.blocks_key() {
            return Ok(false);
        }
        let id = head.listed.id;
        if !filter.events.is_empty() && !Walk::new(self, filter, None, None)?.names(id) {
            return Ok(false);
        }
        filter.events = vec![Reference::Row(id)];
        // One that is retried meanwhile is not what was looked at.
        filter.statuses.retain(|status| status.name() == head.listed.status);
        Ok(true)
    }

    /// The first unfinished event of a key, with why it is or is not due. DEAD ones count where `on_dead` says so.
    ///
    /// # Errors
    /// The database cannot be reached, refuses, or does not hold the table.
    pub fn head(&mut self, key: String) -> Result<Option<Shown>> {
        let Some(id) = self.head_of(key)? else {
            return Ok(None);
        };
        self.show(&Show { event: Reference::Row(id), payload: false })
    }

    /// The first event of a key that comes before its others: DEAD ones only where `on_dead` says so.
    pub(super) fn head_of(&mut self, key: String) -> Result<Option<i64>> {
        let dead_blocks = self.claim.on_dead == OnDead::Block;
        self.with_session(|ready| {
            let Ready { session, statements, .. } = ready;
            let (sql, key) = (statements.key_head.clone(), key.clone());
            session.within_limits("looking for the head of a key", move |client| {
                let rows = client.query_typed(&sql, &[(&key, Type::TEXT), (&dead_blocks, Type::BOOL)])?;
                rows.first().map(|row| row.try_get(0)).transpose()
            })
        })
    }
}
