//! A claim's statements, on its session's own thread: lock due rows, see which of them are ours, fetch those.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use postgres::error::SqlState;
use postgres::types::{ToSql, Type};
use postgres::{Client, Row, SimpleQueryMessage};

use crate::config::Claim as ClaimConfig;
use crate::error::Result;
use crate::event::{Event, Payload};
use crate::message::HEADERS_TEXT_MAX;

use super::failure::failure;
use super::fetch::fetch;
use super::order::{Locked, Ours, keys, ours};
use super::sql::Statements;
use super::{Chain, Left, Scope};

/// Most keys that a walk leaves out. What is beyond is looked at, found not to be ours, and passed.
const BARRED_MAX: usize = 5000;

/// How often a walk looks again within a claim because all that it locked were followers of keys that it did not know
/// to be barred. After that it only looks how far it may go on, so that a claim's time is bounded.
const LOOKS_MAX: usize = 4;

/// How many rows it looks over then.
const SPAN_ROWS: i64 = 20_000;

/// What a claim took.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) events: Vec<(Event, Payload)>,
    pub(super) chains: Vec<Chain>,
    pub(super) withheld: Option<i64>,
    pub(super) barred: Vec<String>,
    pub(super) unasked: Vec<String>,
    pub(super) left: Vec<(String, Left)>,
    pub(super) more_after: Option<i64>,
    /// How many rows the session's next claim had better ask for.
    pub(super) rows_max: usize,
}

/// A statement's parameters with their types.
type Parameters<'a> = Vec<(&'a (dyn ToSql + Sync), Type)>;

/// Takes what is due in `scope`, but for the rows that are `passed_over`. The transaction is left open when that is
/// anything, and rolled back when not.
pub(super) fn take(
    client: &mut Client,
    statements: &Statements,
    config: &ClaimConfig,
    mut scope: Scope,
    passed_over: &[i64],
    asked_at: DrainAge,
    rows_max: usize,
) -> Result<Taken> {
    let mut taken = Taken { rows_max, ..Taken::default() };
    let mut looks = 0;
    match &mut scope {
        Scope::Walk { fresh: true, barred, .. } => {
            if begin_walk(client, statements)? {
                taken.barred = held(client, statements, config)?;
                barred.extend(taken.barred.iter().cloned());
            }
        }
        _ => begin(client, statements)?,
    }
    loop {
        let rows = lock_fitting(client, statements, config, &mut scope, passed_over, asked_at, &mut taken)?;
        let Ours { ids, chains, barred } = sort_out(client, statements, &rows, passed_over)?;
        taken.barred.extend(barred.iter().cloned());
        if !ids.is_empty() {
            taken.events = fetch(client, statements, config, &ids)?;
        }
        if let Scope::Events(asked_for) = &scope {
            let took: HashSet<&str> = taken.events.iter().map(|(event, _)| event.event_id.as_str()).collect();
            let others = asked_for.iter().filter(|id| !took.contains(id.as_str())).cloned().collect();
            taken.left.extend(left(client, statements, others)?);
        }
        if !ids.is_empty() {
            taken.chains = chains;
            taken.withheld = rows.iter().map(|row| row.id).find(|id| ids.binary_search(id).is_err());
            return Ok(taken);
        }
        rollback(client)?;
        let (Scope::Walk { after, barred: known, .. }, Some(last)) = (&mut scope, taken.more_after) else {
            return Ok(taken);
        };
        // Nothing but followers of keys in trouble: they are given back, and passed over from now on.
        looks += 1;
        begin(client, statements)?;
        if looks < LOOKS_MAX && known.len() + barred.len() <= BARRED_MAX {
            known.extend(barred);
        } else if looks < LOOKS_MAX {
            *after = last;
        } else {
            taken.more_after = skip(client, statements, config, last, asked_at.age())?;
            rollback(client)?;
            return Ok(taken);
        }
    }
}

/// How far a walk may go on unseen behind `last`; none when there is nothing behind it.
fn skip(
    client: &mut Client,
    statements: &Statements,
    config: &ClaimConfig,
    last: i64,
    drain_age: Duration,
) -> Result<Option<i64>> {
    let read = |row: &Row| {
        let (head, end): (Option<i64>, Option<i64>) = (row.try_get(0)?, row.try_get(1)?);
        let is_full = row.try_get::<_, i64>(2)? >= SPAN_ROWS;
        Ok(head.map(|head| head - 1).or(end.filter(|_| is_full)))
    };
    client
        .query_typed_one(
            &statements.claim_skip,
            &[
                (&config.min_age.as_secs_f64(), Type::FLOAT8),
                (&max_age(config), Type::FLOAT8),
                (&count(config.max_failures), Type::INT4),
                (&drain_age.as_secs_f64(), Type::FLOAT8),
                (&last, Type::INT8),
                (&SPAN_ROWS, Type::INT8),
            ],
        )
        .and_then(|row| read(&row))
        .map_err(|error| failure("looking past keys that are held back", &error))
}

/// Since when a drain has been going on, by its age at a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct DrainAge {
    age: Duration,
    at: Instant,
}

impl DrainAge {
    /// The drain is this old now.
    pub(super) fn now(age: Duration) -> Self {
        Self { age, at: Instant::now() }
    }

    /// How old it is.
    fn age(self) -> Duration {
        self.age + self.at.elapsed()
    }
}

/// Locks the next due rows, as many as are within the byte bound together. Sorted by id.
fn lock_fitting(
    client: &mut Client,
    statements: &Statements,
    config: &ClaimConfig,
    scope: &mut Scope,
    passed_over: &[i64],
    asked_at: DrainAge,
    taken: &mut Taken,
) -> Result<Vec<Locked>> {
    let failed = |error: &postgres::Error| failure("claiming events", error);
    loop {
        let asked = taken.rows_max;
        if let Scope::Keys(asked_for) | Scope::Events(asked_for) = scope {
            taken.unasked.extend(asked_for.drain(asked.min(asked_for.len())..));
        }
        let mut rows = match lock(client, statements, config, scope, passed_over, asked_at.age(), asked) {
            Err(error) if error.code() == Some(&SqlState::UNTRANSLATABLE_CHARACTER) => {
                // The database holds no such event, and must not refuse the others for it.
                let Scope::Events(asked_for) = scope else { return Err(failed(&error)) };
                let (ascii, others) = std::mem::take(asked_for).into_iter().partition(|id| id.is_ascii());
                *asked_for = ascii;
                let others: Vec<String> = others;
                if others.is_empty() {
                    return Err(failed(&error));
                }
                taken.left.extend(others.into_iter().map(|id| (id, Left::NotFound)));
                rollback(client)?;
                begin(client, statements)?;
                continue;
            }
            locked => locked.map_err(|error| failed(&error))?,
        };
        rows.sort_by_key(|row| row.id);
        let (fit, bytes) = within(&rows, config);
        if fit == rows.len() {
            if bytes <= config.batch_bytes / 2 {
                taken.rows_max = asked.saturating_mul(2).min(config.batch_rows);
            }
            let full = rows.len() >= asked;
            taken.more_after = rows.last().map(|row| row.id).filter(|_| full);
            return Ok(rows);
        }
        // The rows over the byte bound are locked too, and other relays, and our own next claim, would pass over
        // them: given back, and only as many asked for as fit. The session remembers how many that were.
        taken.rows_max = fit;
        rollback(client)?;
        begin(client, statements)?;
    }
}

fn begin(client: &mut Client, statements: &Statements) -> Result<()> {
    client.batch_execute(&statements.claim_begin).map_err(|error| failure("claiming events", &error))
}

/// The same for the first look of a walk: whether any key may hold itself back.
fn begin_walk(client: &mut Client, statements: &Statements) -> Result<bool> {
    // One round trip for all of it, as there are no parameters.
    let answers = client
        .simple_query(&statements.claim_begin_walk)
        .map_err(|error| failure("claiming events", &error))?;
    let none = answers.iter().any(
        |it| matches!(it, SimpleQueryMessage::Row(row) if row.try_get(0).is_ok_and(|it| it == Some("f"))),
    );
    Ok(!none)
}

fn rollback(client: &mut Client) -> Result<()> {
    client.batch_execute("rollback").map_err(|error| failure("the rollback of a claim", &error))
}

/// The keys that hold themselves back for a while.
fn held(client: &mut Client, statements: &Statements, config: &ClaimConfig) -> Result<Vec<String>> {
    let keys_max = i32::try_from(BARRED_MAX).unwrap_or(i32::MAX);
    client
        .query_typed(
            &statements.claim_held,
            &[
                (&max_age(config), Type::FLOAT8),
                (&count(config.max_failures), Type::INT4),
                (&keys_max, Type::INT4),
            ],
        )
        .and_then(|rows| rows.iter().map(|row| row.try_get(0)).collect())
        .map_err(|error| failure("looking for keys that are held back", &error))
}

/// Locks the next due rows of the scope.
fn lock(
    client: &mut Client,
    statements: &Statements,
    config: &ClaimConfig,
    scope: &Scope,
    passed_over: &[i64],
    drain_age: Duration,
    asked: usize,
) -> std::result::Result<Vec<Locked>, postgres::Error> {
    let (min_age, max_age) = (config.min_age.as_secs_f64(), max_age(config));
    let (max_failures, drain_age) = (count(config.max_failures), drain_age.as_secs_f64());
    let (payload_max, headers_max) = (length(config.payload_max), length(HEADERS_TEXT_MAX));
    let parts: Parameters = vec![
        (&min_age, Type::FLOAT8),
        (&max_age, Type::FLOAT8),
        (&max_failures, Type::INT4),
        (&drain_age, Type::FLOAT8),
        (&payload_max, Type::INT4),
        (&headers_max, Type::INT4),
    ];
    let rows = match scope {
        Scope::Walk { after, barred, .. } => {
            let rows_max = limit(asked);
            let own: Parameters = vec![
                (&rows_max, Type::INT8),
                (after, Type::INT8),
                (barred, Type::TEXT_ARRAY),
                (&passed_over, Type::INT8_ARRAY),
            ];
            client.query_typed(&statements.claim_walk, &[parts, own].concat())?
        }
        Scope::Keys(keys) => {
            let rows_max = limit((asked / keys.len().max(1)).max(1));
            let own: Parameters =
                vec![(&rows_max, Type::INT8), (keys, Type::TEXT_ARRAY), (&passed_over, Type::INT8_ARRAY)];
            client.query_typed(&statements.claim_keys, &[parts, own].concat())?
        }
        Scope::Events(event_ids) => {
            let own: Parameters = vec![(event_ids, Type::TEXT_ARRAY)];
            client.query_typed(&statements.claim_events, &[parts, own].concat())?
        }
    };
    rows.iter()
        .map(|row| Ok(Locked { id: row.try_get(0)?, bytes: row.try_get(1)?, key: row.try_get(2)? }))
        .collect()
}

/// Why these events were not taken.
fn left(client: &mut Client, statements: &Statements, event_ids: Vec<String>) -> Result<Vec<(String, Left)>> {
    if event_ids.is_empty() {
        return Ok(Vec::new());
    }
    let read = |row: &Row| {
        let status: Option<String> = row.try_get(1)?;
        let left = match status {
            None => Left::NotFound,
            Some(status) if status != "WAITING" && status != "FAILED" => Left::Finished(status),
            Some(_) if row.try_get(2)? => Left::Later,
            Some(_) => match (row.try_get(3)?, row.try_get(4)?) {
                (true, Some(key)) => Left::Held(key),
                (_, key) => Left::Locked(key),
            },
        };
        Ok((row.try_get(0)?, left))
    };
    client
        .query_typed(&statements.claim_left, &[(&event_ids, Type::TEXT_ARRAY)])
        .and_then(|rows| rows.iter().map(read).collect())
        .map_err(|error| failure("looking at events that were not claimed", &error))
}

/// Which of the locked rows are ours; asked in a statement of its own, after the locks.
fn sort_out(
    client: &mut Client,
    statements: &Statements,
    rows: &[Locked],
    passed_over: &[i64],
) -> Result<Ours> {
    let (keys, counts) = keys(rows);
    if keys.is_empty() {
        return Ok(ours(rows, keys, &[]));
    }
    let read = |row: &Row| {
        let number: i64 = row.try_get(0)?;
        Ok((usize::try_from(number - 1).unwrap_or(usize::MAX), row.try_get(1)?))
    };
    let unfinished = client
        .query_typed(
            &statements.claim_order,
            &[(&keys, Type::TEXT_ARRAY), (&counts, Type::INT8_ARRAY), (&passed_over, Type::INT8_ARRAY)],
        )
        .and_then(|rows| rows.iter().map(read).collect::<std::result::Result<Vec<_>, _>>())
        .map_err(|error| failure("looking at the order of claimed events", &error))?;
    Ok(ours(rows, keys, &unfinished))
}

pub(super) fn max_age(config: &ClaimConfig) -> Option<f64> {
    config.max_age.map(|age| age.as_secs_f64())
}

/// How many of the rows are within the byte bound together, always the first one; and their bytes.
fn within(rows: &[Locked], config: &ClaimConfig) -> (usize, usize) {
    let mut bytes = 0_usize;
    for (place, row) in rows.iter().enumerate() {
        let size = usize::try_from(row.bytes).unwrap_or(usize::MAX);
        if bytes.saturating_add(size) > config.batch_bytes && place > 0 {
            return (place, bytes);
        }
        bytes = bytes.saturating_add(size);
    }
    (rows.len(), bytes)
}

/// A number of rows as SQL's bigint.
fn limit(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

/// A byte length as SQL's integer; no value of a column is longer than that.
pub(super) fn length(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

/// A failure count as SQL's integer.
pub(super) fn count(failures: u32) -> i32 {
    i32::try_from(failures).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::OnDead;

    #[test]
    fn a_claim_stays_within_its_bytes_but_for_a_single_event() {
        let config = ClaimConfig {
            batch_rows: 10,
            batch_bytes: 100,
            min_age: Duration::ZERO,
            max_age: None,
            max_failures: 3,
            payload_max: 1000,
            on_dead: OnDead::Block,
        };
        let cases: &[(&[i64], usize)] = &[
            (&[], 0),
            (&[50, 50, 1], 2),
            (&[101, 1], 1),
            (&[99, 2, 1], 1),
            (&[0, 100, 0], 3),
            (&[50, i64::MAX, 50], 1),
        ];
        for (sizes, expected) in cases {
            let rows: Vec<_> =
                (1..).zip(*sizes).map(|(id, bytes)| Locked { id, bytes: *bytes, key: None }).collect();
            assert_eq!(within(&rows, &config).0, *expected, "{sizes:?}");
        }
    }
}
