//! A claim's questions to the server, one statement each, in the transaction of its session.

use std::time::Duration;

use postgres::error::SqlState;
use postgres::types::{ToSql, Type};
use postgres::{Client, Row, SimpleQueryMessage};

use crate::config::Claim as ClaimConfig;
use crate::error::Result;
use crate::event::{Event, Headers, Payload};
use crate::message::HEADERS_TEXT_MAX;

use super::bytes::StoredBytes;
use super::failure::failure;
use super::order::Locked;
use super::sql::Statements;
use super::take::{Ask, BARRED_MAX, Refusal, SPAN_ROWS, count};
use super::{Left, Scope};

/// A statement's parameters with their types.
type Parameters<'a> = Vec<(&'a (dyn ToSql + Sync), Type)>;

/// A session's client, with the statements that fit its table.
pub(super) struct Asker<'a> {
    pub(super) client: &'a mut Client,
    pub(super) statements: &'a Statements,
    pub(super) config: &'a ClaimConfig,
    pub(super) passed_over: &'a [i64],
}

impl Ask for Asker<'_> {
    fn begin(&mut self) -> Result<()> {
        self.client
            .batch_execute(&self.statements.claim_begin)
            .map_err(|error| failure("claiming events", &error))
    }

    fn begin_walk(&mut self) -> Result<bool> {
        // One round trip for all of it, as there are no parameters.
        let answers = self
            .client
            .simple_query(&self.statements.claim_begin_walk)
            .map_err(|error| failure("claiming events", &error))?;
        let none = answers.iter().any(
            |it| matches!(it, SimpleQueryMessage::Row(row) if row.try_get(0).is_ok_and(|it| it == Some("f"))),
        );
        Ok(!none)
    }

    fn rollback(&mut self) -> Result<()> {
        self.client.batch_execute("rollback").map_err(|error| failure("the rollback of a claim", &error))
    }

    fn held(&mut self) -> Result<Vec<String>> {
        let keys_max = i32::try_from(BARRED_MAX).unwrap_or(i32::MAX);
        self.client
            .query_typed(
                &self.statements.claim_held,
                &[
                    (&self.max_age(), Type::FLOAT8),
                    (&count(self.config.max_failures), Type::INT4),
                    (&keys_max, Type::INT4),
                ],
            )
            .and_then(|rows| rows.iter().map(|row| row.try_get(0)).collect())
            .map_err(|error| failure("looking for keys that are held back", &error))
    }

    fn lock(
        &mut self,
        scope: &Scope,
        drain_age: Duration,
        asked: usize,
    ) -> std::result::Result<Vec<Locked>, Refusal> {
        self.locked(scope, drain_age, asked).map_err(|error| Refusal {
            is_untranslatable: error.code() == Some(&SqlState::UNTRANSLATABLE_CHARACTER),
            error: failure("claiming events", &error),
        })
    }

    fn order(&mut self, keys: &[String], counts: &[i64]) -> Result<Vec<(usize, i64)>> {
        let read = |row: &Row| {
            let number: i64 = row.try_get(0)?;
            Ok((usize::try_from(number - 1).unwrap_or(usize::MAX), row.try_get(1)?))
        };
        self.client
            .query_typed(
                &self.statements.claim_order,
                &[
                    (&keys, Type::TEXT_ARRAY),
                    (&counts, Type::INT8_ARRAY),
                    (&self.passed_over, Type::INT8_ARRAY),
                ],
            )
            .and_then(|rows| rows.iter().map(read).collect())
            .map_err(|error| failure("looking at the order of claimed events", &error))
    }

    fn fetch(&mut self, ids: &[i64]) -> Result<Vec<(Event, Payload)>> {
        self.client
            .query_typed(
                &self.statements.claim_fetch,
                &[
                    (&ids, Type::INT8_ARRAY),
                    (&self.max_age(), Type::FLOAT8),
                    (&length(self.config.payload_max), Type::INT4),
                    (&length(HEADERS_TEXT_MAX), Type::INT4),
                ],
            )
            .and_then(|rows| rows.iter().map(event).collect())
            .map_err(|error| failure("fetching claimed events", &error))
    }

    fn left(&mut self, event_ids: &[String]) -> Result<Vec<(String, Left)>> {
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
        self.client
            .query_typed(&self.statements.claim_left, &[(&event_ids, Type::TEXT_ARRAY)])
            .and_then(|rows| rows.iter().map(read).collect())
            .map_err(|error| failure("looking at events that were not claimed", &error))
    }

    fn skip(&mut self, last: i64, drain_age: Duration) -> Result<Option<i64>> {
        let read = |row: &Row| {
            let (head, end): (Option<i64>, Option<i64>) = (row.try_get(0)?, row.try_get(1)?);
            let is_full = row.try_get::<_, i64>(2)? >= SPAN_ROWS;
            Ok(head.map(|head| head - 1).or(end.filter(|_| is_full)))
        };
        self.client
            .query_typed_one(
                &self.statements.claim_skip,
                &[
                    (&self.config.min_age.as_secs_f64(), Type::FLOAT8),
                    (&self.max_age(), Type::FLOAT8),
                    (&count(self.config.max_failures), Type::INT4),
                    (&drain_age.as_secs_f64(), Type::FLOAT8),
                    (&last, Type::INT8),
                    (&SPAN_ROWS, Type::INT8),
                ],
            )
            .and_then(|row| read(&row))
            .map_err(|error| failure("looking past keys that are held back", &error))
    }
}

impl Asker<'_> {
    /// Locks the next due rows of the scope.
    fn locked(
        &mut self,
        scope: &Scope,
        drain_age: Duration,
        asked: usize,
    ) -> std::result::Result<Vec<Locked>, postgres::Error> {
        let (min_age, max_age) = (self.config.min_age.as_secs_f64(), self.max_age());
        let (max_failures, drain_age) = (count(self.config.max_failures), drain_age.as_secs_f64());
        let (payload_max, headers_max) = (length(self.config.payload_max), length(HEADERS_TEXT_MAX));
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
                    (&self.passed_over, Type::INT8_ARRAY),
                ];
                self.client.query_typed(&self.statements.claim_walk, &[parts, own].concat())?
            }
            Scope::Keys(keys) => {
                let rows_max = limit((asked / keys.len().max(1)).max(1));
                let own: Parameters = vec![
                    (&rows_max, Type::INT8),
                    (keys, Type::TEXT_ARRAY),
                    (&self.passed_over, Type::INT8_ARRAY),
                ];
                self.client.query_typed(&self.statements.claim_keys, &[parts, own].concat())?
            }
            Scope::Events(event_ids) => {
                let own: Parameters = vec![(event_ids, Type::TEXT_ARRAY)];
                self.client.query_typed(&self.statements.claim_events, &[parts, own].concat())?
            }
        };
        rows.iter()
            .map(|row| Ok(Locked { id: row.try_get(0)?, bytes: row.try_get(1)?, key: row.try_get(2)? }))
            .collect()
    }

    fn max_age(&self) -> Option<f64> {
        self.config.max_age.map(|age| age.as_secs_f64())
    }
}

fn event(row: &Row) -> std::result::Result<(Event, Payload), postgres::Error> {
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

/// A number of rows as SQL's bigint.
fn limit(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

/// A byte length as SQL's integer; no value of a column is longer than that.
fn length(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}
