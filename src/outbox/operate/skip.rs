//! Giving events up.

use postgres::types::Type;

use crate::config::OnDead;
use crate::error::Result;

use super::super::failure::failure;
use super::super::{Outbox, Ready};
use super::filter::{Filter, Reference, Status};
use super::page::{BATCH_ROWS, Changes, EXAMPLES, Step, Walk, change};

/// The statuses that can be given up: the unfinished ones.
pub const SKIPPABLE: [Status; 3] = [Status::Waiting, Status::Failed, Status::Dead];

/// Which events to give up.
#[derive(Debug, Clone)]
pub struct Skip {
    /// Which. Without a status all of [`SKIPPABLE`]; further statuses are passed over.
    pub filter: Filter,
    /// Only the first unfinished event of the filter's key, if the filter means it: what holds the others back.
    pub head_only: bool,
    /// For `last_error`; none keeps the last one.
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
    pub fn skip(&mut self, skip: &Skip, mut go_on: impl FnMut(&Changes) -> bool) -> Result<Changes> {
        let mut filter = skip.filter.clone();
        if filter.statuses.is_empty() {
            filter.statuses = SKIPPABLE.into();
        }
        filter.statuses.retain(|status| SKIPPABLE.contains(status));
        let mut changes = Changes::default();
        if filter.statuses.is_empty() {
            return Ok(changes);
        }
        if skip.head_only {
            let Some(key) = filter.ordering_key.clone() else {
                return Ok(changes);
            };
            let Some(head) = self.head_of(key)? else {
                return Ok(changes);
            };
            if !filter.events.is_empty() {
                let named = Walk::new(self, &filter, None, None)?;
                if !named.names(head) {
                    return Ok(changes);
                }
            }
            filter.events = vec![Reference::Row(head)];
        }
        let mut walk = Walk::new(self, &filter, None, skip.limit)?;
        let reason = skip.reason.as_ref().map(|reason| reason.replace('\0', "\u{FFFD}"));
        loop {
            let batch = walk.batch(BATCH_ROWS);
            let (step, so_far) = self.with_session(|ready| {
                let Ready { session, statements, .. } = ready;
                let mut parameters = walk.parameters(&filter, batch);
                parameters.add(reason.clone(), Type::TEXT);
                parameters.add(skip.dry_run, Type::BOOL);
                parameters.add(i64::from(EXAMPLES), Type::INT8);
                let what = "giving events up";
                let rows = change(session, what, statements.skip.clone(), parameters)?;
                let mut so_far = changes.clone();
                let (step, _) = Step::read(&rows, &mut so_far).map_err(|error| failure(what, &error))?;
                Ok((step, so_far))
            })?;
            changes = so_far;
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
