//! Listing events, without their payloads. Reads only.

use std::time::Duration;

use postgres::Row;

use crate::error::Result;

use super::super::sql::WALK_BEGIN;
use super::super::{Outbox, Ready};
use super::filter::Filter;
use super::page::{BATCH_ROWS, Step, Walk};

/// Which events to list.
#[derive(Debug, Clone)]
pub struct List {
    /// Which.
    pub filter: Filter,
    /// At most so many.
    pub limit: u64,
    /// The highest ids first.
    pub newest: bool,
    /// Only rows after this one (before it, where the highest ids come first): [`Listing::next_after`] of the list before.
    pub after: Option<i64>,
}

/// An event in a list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Listed {
    /// The row's number.
    pub id: i64,
    /// The message id.
    pub event_id: String,
    /// What happened.
    pub event_type: String,
    /// What it belongs to.
    pub ordering_key: Option<String>,
    /// As stored.
    pub status: String,
    /// How often it was refused.
    pub fail_count: u64,
    /// When it was created, in UTC.
    pub created_at: Option<String>,
    /// How long ago that was, by the database's clock; none when it is to come.
    pub age: Option<Duration>,
    /// When it is due, in UTC; when it was given up, of a SKIPPED or EXPIRED one.
    pub available_at: Option<String>,
    /// Why its last attempt did not end in a confirm; at most 1,000 characters.
    pub last_error: Option<String>,
}

/// Events in the order that was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing {
    /// The events.
    pub events: Vec<Listed>,
    /// Where the next list goes on, when the limit and not the table's end stopped this one.
    pub next_after: Option<i64>,
}

impl Outbox {
    /// Lists events in id order, or in the opposite one. Walks along the primary key, or an index that leads to what the filter means.
    ///
    /// # Errors
    /// The database cannot be reached, refuses, or does not hold the table.
    pub fn list(&mut self, list: &List) -> Result<Listing> {
        let after = list.after.or(list.newest.then_some(i64::MAX));
        let mut walk = Walk::new(self, &list.filter, after, Some(list.limit))?;
        let mut events = Vec::new();
        loop {
            let batch = walk.batch(BATCH_ROWS);
            let (step, listed) = self.with_session(|ready| {
                let Ready { session, statements, .. } = ready;
                let sql = if list.newest { &statements.list_newest } else { &statements.list };
                let (sql, parameters) = (sql.clone(), walk.parameters(&list.filter, batch));
                let rows = session.within_limits("listing events", move |client| {
                    client.batch_execute(WALK_BEGIN)?;
                    client.query_typed(&sql, &parameters.as_refs())
                })?;
                read(&rows).map_err(|error| super::super::failure::failure("listing events", &error))
            })?;
            events.extend(listed);
            if !walk.step(&step, batch) {
                let next_after = walk.exhausted().then(|| walk.position());
                return Ok(Listing { events, next_after });
            }
        }
    }
}

fn read(rows: &[Row]) -> std::result::Result<(Step, Vec<Listed>), postgres::Error> {
    let (last, length) = match rows.first() {
        Some(row) => (row.try_get(0)?, row.try_get(1)?),
        None => (None, 0),
    };
    let listed: Vec<Option<Listed>> =
        rows.iter().map(|row| Listed::read(row, 2)).collect::<std::result::Result<_, _>>()?;
    let listed: Vec<Listed> = listed.into_iter().flatten().collect();
    Ok((Step::listed(last, length, &listed), listed))
}

impl Listed {
    /// Reads ten columns, the first of them at `from`; none where the row holds no event.
    pub(super) fn read(row: &Row, from: usize) -> std::result::Result<Option<Self>, postgres::Error> {
        let Some(id) = row.try_get(from)? else {
            return Ok(None);
        };
        let text = |at: usize| row.try_get::<_, Option<String>>(from + at);
        let age: Option<f64> = row.try_get(from + 7)?;
        Ok(Some(Self {
            id,
            event_id: text(1)?.unwrap_or_default(),
            event_type: text(2)?.unwrap_or_default(),
            ordering_key: text(3)?,
            status: text(4)?.unwrap_or_default(),
            fail_count: super::page::unsigned(row.try_get(from + 5)?),
            created_at: text(6)?,
            age: age.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            available_at: text(8)?,
            last_error: text(9)?,
        }))
    }
}
