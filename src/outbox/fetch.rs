//! Reads the events of locked rows, with their payloads.

use std::time::Duration;

use postgres::types::Type;
use postgres::{Client, Row};

use crate::config::Claim as ClaimConfig;
use crate::error::{Error, Kind, Result};
use crate::event::{Event, Headers, Payload};
use crate::message::HEADERS_TEXT_MAX;

use super::bytes::StoredBytes;
use super::failure::failure;
use super::sql::Statements;
use super::take::{length, max_age};

/// Fetches rows that are ours.
pub(super) fn fetch(
    client: &mut Client,
    statements: &Statements,
    config: &ClaimConfig,
    ids: &[i64],
) -> Result<Vec<(Event, Payload)>> {
    let events: Vec<_> = client
        .query_typed(
            &statements.claim_fetch,
            &[
                (&ids, Type::INT8_ARRAY),
                (&max_age(config), Type::FLOAT8),
                (&length(config.payload_max), Type::INT4),
                (&length(HEADERS_TEXT_MAX), Type::INT4),
            ],
        )
        .and_then(|rows| rows.iter().map(event).collect())
        .map_err(|error| failure("fetching claimed events", &error))?;
    if events.len() != ids.len() {
        let text = format!("claiming events fetched {} of {} locked rows", events.len(), ids.len());
        return Err(Error::new(Kind::Internal, text));
    }
    Ok(events)
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
