//! Claiming: lock due rows, then fetch as many of them as the byte bound allows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use postgres::types::Type;
use postgres::{Client, Row};

use crate::config::Claim as ClaimConfig;
use crate::error::{Error, Kind, Result};
use crate::event::{Event, Headers, Payload};
use crate::message::HEADERS_TEXT_MAX;

use super::bytes::StoredBytes;
use super::failure::failure;
use super::sql::Statements;
use super::{Outbox, Ready};

/// Events that are this relay's alone while it holds the claim.
///
/// Not `Clone`, and consumed by settling: what became of it is decided once. Dropped instead, it closes its
/// session, and the server frees the rows.
pub struct Claim {
    pub(super) ready: Ready,
    pub(super) touched: Instant,
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("claim")
    }
}

/// What a claim brought.
#[derive(Debug)]
pub struct Claimed {
    /// The claim to settle.
    pub claim: Claim,
    /// Its events in `id` order, with their payloads.
    pub events: Vec<(Event, Payload)>,
    /// Where the next claim goes on: the last row's id, when a bound and not the table's end stopped this one.
    pub more_after: Option<i64>,
}

impl Outbox {
    /// Claims the next due events after row `after`, up to `batch_rows` and `batch_bytes`; none when nothing is due
    /// there. A single event over `batch_bytes` is claimed alone. Events that were tried within the last `drain_age`
    /// are left for the next drain.
    ///
    /// If the process dies in here, or before the claim is settled, the server rolls back and the rows are due as
    /// before.
    ///
    /// # Errors
    /// The database cannot be reached, refuses, or does not hold the table.
    pub fn claim(&mut self, after: i64, drain_age: Duration) -> Result<Option<Claimed>> {
        let reused = !self.resting.is_empty();
        let ready = self.ready()?;
        match claim_on(ready, &self.claim, after, drain_age) {
            // A session at rest may have been closed meanwhile; that shows only now, and a new one is worth a try.
            Err(error) if reused && error.is_transient() => {
                self.resting.clear();
                let ready = Ready::open(&self.database, self.claim.batch_rows, &mut self.opening)?;
                self.keep_empty(claim_on(ready, &self.claim, after, drain_age)?)
            }
            other => self.keep_empty(other?),
        }
    }

    /// An empty claim's session goes back to rest.
    fn keep_empty(&mut self, claimed: Claimed) -> Result<Option<Claimed>> {
        if !claimed.events.is_empty() {
            return Ok(Some(claimed));
        }
        let mut ready = claimed.claim.ready;
        ready.session.call("the rollback of a claim", |client| {
            client.batch_execute("rollback").map_err(|error| failure("the rollback of a claim", &error))
        })?;
        self.resting.push(ready);
        Ok(None)
    }
}

/// Any error drops the session, and with it the transaction: after a failed statement a commit would report
/// success although the server rolled back.
fn claim_on(mut ready: Ready, config: &ClaimConfig, after: i64, drain_age: Duration) -> Result<Claimed> {
    let (statements, config, rows_max) = (Arc::clone(&ready.statements), config.clone(), ready.rows_max);
    let taken = ready.session.call("claiming events", move |client| {
        take(client, &statements, &config, rows_max, after, drain_age)
    })?;
    ready.rows_max = taken.rows_max;
    let claim = Claim { ready, touched: Instant::now() };
    Ok(Claimed { claim, events: taken.events, more_after: taken.more_after })
}

/// What was taken on the session's own thread.
struct Taken {
    events: Vec<(Event, Payload)>,
    more_after: Option<i64>,
    rows_max: usize,
}

fn take(
    client: &mut Client,
    statements: &Statements,
    config: &ClaimConfig,
    mut rows_max: usize,
    after: i64,
    drain_age: Duration,
) -> Result<Taken> {
    let (ids, full) = loop {
        client.batch_execute(&statements.claim_begin).map_err(|error| failure("claiming events", &error))?;
        let sizes = lock(client, statements, config, rows_max, after, drain_age)
            .map_err(|error| failure("claiming events", &error))?;
        let (ids, bytes) = within(&sizes, config);
        if ids.len() == sizes.len() {
            let full = ids.len() == rows_max;
            if bytes <= config.batch_bytes / 2 {
                rows_max = rows_max.saturating_mul(2).min(config.batch_rows);
            }
            break (ids, full);
        }
        // The rows over the byte bound are locked too, and other relays, and our own next claim, would pass over
        // them: given back, and only as many asked for as fit. The session remembers how many that were.
        client.batch_execute("rollback").map_err(|error| failure("the rollback of a claim", &error))?;
        rows_max = ids.len();
    };
    let more_after = ids.last().copied().filter(|_| full);
    let events = if ids.is_empty() {
        Vec::new()
    } else {
        fetch(client, statements, config, &ids).map_err(|error| failure("fetching claimed events", &error))?
    };
    if events.len() != ids.len() {
        let text = format!("claiming events fetched {} of {} locked rows", events.len(), ids.len());
        return Err(Error::new(Kind::Internal, text));
    }
    Ok(Taken { events, more_after, rows_max })
}

/// Locks the next due rows: their ids and sizes.
fn lock(
    client: &mut Client,
    statements: &Statements,
    config: &ClaimConfig,
    rows_max: usize,
    after: i64,
    drain_age: Duration,
) -> std::result::Result<Vec<(i64, i64)>, postgres::Error> {
    let rows = client.query_typed(
        &statements.claim_lock,
        &[
            (&after, Type::INT8),
            (&i64::try_from(rows_max).unwrap_or(i64::MAX), Type::INT8),
            (&config.min_age.as_secs_f64(), Type::FLOAT8),
            (&max_age(config), Type::FLOAT8),
            (&count(config.max_failures), Type::INT4),
            (&drain_age.as_secs_f64(), Type::FLOAT8),
            (&length(config.payload_max), Type::INT4),
            (&length(HEADERS_TEXT_MAX), Type::INT4),
        ],
    )?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

fn fetch(
    client: &mut Client,
    statements: &Statements,
    config: &ClaimConfig,
    ids: &[i64],
) -> std::result::Result<Vec<(Event, Payload)>, postgres::Error> {
    let rows = client.query_typed(
        &statements.claim_fetch,
        &[
            (&ids, Type::INT8_ARRAY),
            (&max_age(config), Type::FLOAT8),
            (&length(config.payload_max), Type::INT4),
            (&length(HEADERS_TEXT_MAX), Type::INT4),
        ],
    )?;
    rows.iter().map(read).collect()
}

fn max_age(config: &ClaimConfig) -> Option<f64> {
    config.max_age.map(|age| age.as_secs_f64())
}

impl Claim {
    /// Keeps the server from taking the claim for abandoned: speaks to it when it has heard nothing for `after`.
    ///
    /// # Errors
    /// The session is lost, and with it the rows: others may send them from now on.
    pub fn touch(&mut self, after: Duration) -> Result<()> {
        if self.touched.elapsed() < after {
            return Ok(());
        }
        self.touched = Instant::now();
        self.ready.session.call("keeping a claim alive", |client| {
            client.batch_execute("select").map_err(|error| failure("keeping a claim alive", &error))
        })
    }
}

/// The ids of the first rows that are within the byte bound together, always the first one; and their bytes.
fn within(sizes: &[(i64, i64)], config: &ClaimConfig) -> (Vec<i64>, usize) {
    let mut bytes = 0_usize;
    let mut ids = Vec::with_capacity(sizes.len());
    for (id, size) in sizes {
        let size = usize::try_from(*size).unwrap_or(usize::MAX);
        if bytes.saturating_add(size) > config.batch_bytes && !ids.is_empty() {
            break;
        }
        bytes = bytes.saturating_add(size);
        ids.push(*id);
    }
    (ids, bytes)
}

fn read(row: &Row) -> std::result::Result<(Event, Payload), postgres::Error> {
    let headers: Option<String> = row.try_get(5)?;
    let headers = match (headers, row.try_get::<_, Option<i32>>(4)?) {
        (Some(json), _) => Headers::Json(json),
        (None, Some(length)) => Headers::TooLarge(usize::try_from(length).unwrap_or(0)),
        (None, None) => Headers::None,
    };
    let payload: Option<StoredBytes> = row.try_get(15)?;
    let payload = match (payload, row.try_get::<_, Option<i32>>(14)?) {
        (Some(bytes), _) => Payload::Stored(bytes.0),
        (None, Some(length)) => Payload::TooLarge(usize::try_from(length).unwrap_or(0)),
        (None, None) => Payload::Missing,
    };
    let event = Event {
        id: row.try_get(0)?,
        event_id: row.try_get(1)?,
        event_type: row.try_get(2)?,
        ordering_key: row.try_get(3)?,
        headers,
        exchange: row.try_get(6)?,
        routing_key: row.try_get(7)?,
        created_at: row.try_get::<_, Option<i64>>(8)?.and_then(|seconds| u64::try_from(seconds).ok()),
        expires_in: row
            .try_get::<_, Option<i64>>(9)?
            .map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0))),
        over_max_age: row.try_get(10)?,
        failed: row.try_get(11)?,
        fail_count: u32::try_from(row.try_get::<_, i32>(12)?).unwrap_or(0),
        last_error: row.try_get(13)?,
    };
    Ok((event, payload))
}

/// A byte length as SQL's integer; no value of a column is longer than that.
fn length(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

/// A failure count as SQL's integer.
pub(super) fn count(failures: u32) -> i32 {
    i32::try_from(failures).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_stays_within_its_bytes_but_for_a_single_event() {
        let config = ClaimConfig {
            batch_rows: 10,
            batch_bytes: 100,
            min_age: Duration::ZERO,
            max_age: None,
            max_failures: 3,
            payload_max: 1000,
        };
        type Case<'a> = (&'a [(i64, i64)], &'a [i64]);
        let cases: &[Case] = &[
            (&[], &[]),
            (&[(1, 50), (2, 50), (3, 1)], &[1, 2]),
            (&[(1, 101), (2, 1)], &[1]),
            (&[(1, 99), (2, 2), (3, 1)], &[1]),
            (&[(1, 0), (2, 100), (3, 0)], &[1, 2, 3]),
            (&[(1, 50), (2, i64::MAX), (3, 50)], &[1]),
        ];
        for (sizes, expected) in cases {
            assert_eq!(within(sizes, &config).0, *expected, "{sizes:?}");
        }
    }
}
