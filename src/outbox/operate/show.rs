//! Everything about one event, and why it is or is not due. Reads only, but for a lock that is gone at once.

use std::sync::Arc;
use std::time::Duration;

use postgres::Row;
use postgres::types::Type;

use crate::config::{OnDead, Routing};
use crate::error::Result;
use crate::event::{Event, Headers, Outcome, Payload};
use crate::message::{self, HEADERS_TEXT_MAX};
use crate::policy::{RESENT, RETRIED, unconfirmed_in_a_row};

use super::super::bytes::StoredBytes;
use super::super::failure::failure;
use super::super::sql::quoted_table;
use super::super::take::count;
use super::super::{Outbox, Ready};
use super::filter::{Reference, Status, seconds};
use super::list::Listed;
use super::page::{Parameters, unsigned};
use super::standing::{Facts, Moment, Standing};

/// Which event to show.
#[derive(Debug, Clone)]
pub struct Show {
    /// Which.
    pub event: Reference,
    /// Whether to fetch its payload.
    pub payload: bool,
}

/// An event with everything that the table says about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown {
    /// What a list shows.
    pub listed: Listed,
    /// When it was last sent or refused, in UTC.
    pub last_retried_at: Option<String>,
    /// Its deadline, in UTC.
    pub expired_at: Option<String>,
    /// When the broker confirmed it, in UTC.
    pub published_at: Option<String>,
    /// The message's headers.
    pub headers: Headers,
    /// Overrides the route's exchange.
    pub exchange: Option<String>,
    /// Overrides the route's routing key.
    pub routing_key: Option<String>,
    /// In bytes; none when the payload is null.
    pub payload_length: Option<u64>,
    /// The payload's bytes, when they were asked for.
    pub payload: Option<Vec<u8>>,
    /// Why it is or is not due now.
    pub standing: Standing,
}

/// Where a message goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// Empty for the default exchange.
    pub exchange: String,
    /// Its routing key.
    pub routing_key: String,
    /// Whether it is refused when no queue is bound for it.
    pub mandatory: bool,
}

impl Shown {
    /// Where it goes by these routes.
    ///
    /// # Errors
    /// Why it cannot be sent.
    pub fn way(&self, routing: &Routing) -> std::result::Result<Way, String> {
        let listed = &self.listed;
        let event = Event {
            ordering_key: listed.ordering_key.clone(),
            headers: self.headers.clone(),
            exchange: self.exchange.clone(),
            routing_key: self.routing_key.clone(),
            failed: listed.status == Status::Failed.name(),
            fail_count: u32::try_from(listed.fail_count).unwrap_or(u32::MAX),
            last_error: listed.last_error.clone(),
            ..Event::new(listed.id, listed.event_id.clone(), listed.event_type.clone())
        };
        let length = self.payload_length.map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        let payload = match length {
            None => Payload::Missing,
            Some(length) if length > routing.payload_max => Payload::TooLarge(length),
            Some(_) => Payload::Stored(Vec::new()),
        };
        match message::encode(&event, payload, routing) {
            Ok(message) => Ok(Way {
                exchange: message.exchange,
                routing_key: message.routing_key,
                mandatory: message.mandatory,
            }),
            Err(Outcome::Refused(reason) | Outcome::Invalid(reason)) => Err(reason),
            Err(_) => Err("not known".into()),
        }
    }
}

impl Outbox {
    /// Shows one event; none when there is no such event.
    ///
    /// # Errors
    /// The database cannot be reached, refuses, or does not hold the table.
    pub fn show(&mut self, show: &Show) -> Result<Option<Shown>> {
        let Some((mut shown, facts)) = self.look(show)? else {
            return Ok(None);
        };
        shown.standing = Standing::of(&facts);
        let unfinished = !matches!(
            shown.standing,
            Standing::Finished(_) | Standing::Foreign(_) | Standing::Dead { .. } | Standing::Sending
        );
        if let (true, Some(key)) = (unfinished, shown.listed.ordering_key.clone()) {
            if let Some((id, status, because)) = self.held_back_by(key, shown.listed.id)? {
                shown.standing = Standing::HeldBack { id, status, because: Box::new(because) };
            }
        }
        Ok(Some(shown))
    }

    /// The event of this key that holds row `id` back: its number, its status, and why it is not sent itself.
    fn held_back_by(&mut self, key: String, id: i64) -> Result<Option<(i64, String, Standing)>> {
        // One that cannot be sent now, or else the first one, if it is on its way right now.
        let blocker = self.blocker(key.clone(), id)?;
        let other = match blocker {
            Some(other) => Some(other),
            None => self.head_of(key)?.filter(|head| *head < id),
        };
        let Some(other) = other else {
            return Ok(None);
        };
        let row = Show { event: Reference::Row(other), payload: false };
        let Some((shown, facts)) = self.look(&row)? else {
            return Ok(None);
        };
        let because = Standing::of(&facts);
        let holds = blocker.is_some() || because == Standing::Sending;
        Ok(holds.then_some((other, shown.listed.status, because)))
    }

    /// The row, and what decides about it.
    fn look(&mut self, show: &Show) -> Result<Option<(Shown, Facts)>> {
        let (id, event_id) = match &show.event {
            Reference::Row(id) => (Some(*id), id.to_string()),
            Reference::Event(event_id) => (None, event_id.clone()),
        };
        let table = quoted_table(&self.database.table);
        let claim = self.claim.clone();
        let payload = show.payload;
        self.with_session(|ready| {
            let Ready { session, statements, .. } = ready;
            let what = "looking at an event";
            let mut parameters = Parameters::default();
            parameters.add(id, Type::INT8);
            parameters.add(event_id.clone(), Type::TEXT);
            parameters.add(seconds(claim.min_age), Type::FLOAT8);
            parameters.add(claim.max_age.map(seconds), Type::FLOAT8);
            parameters.add(count(claim.max_failures), Type::INT4);
            parameters.add(payload, Type::BOOL);
            parameters.add(i32::try_from(HEADERS_TEXT_MAX).unwrap_or(i32::MAX), Type::INT4);
            parameters.add(table.clone(), Type::TEXT);
            let sql = Arc::clone(statements);
            let rows = session
                .within_limits(what, move |client| client.query_typed(&sql.show, &parameters.as_refs()))?;
            let Some((shown, mut facts, lockable)) =
                rows.first().map(read).transpose().map_err(|error| failure(what, &error))?
            else {
                return Ok(None);
            };
            facts.dead_blocks = claim.on_dead == OnDead::Block;
            let unfinished = [Status::Waiting.name(), Status::Failed.name()];
            if lockable && unfinished.contains(&facts.status.as_str()) {
                let (sql, id) = (Arc::clone(statements), facts.id);
                let free = session.write_within_limits("asking for a row's lock", move |client| {
                    client.query_typed(&sql.row_lock, &[(&id, Type::INT8)])
                })?;
                facts.locked = free.is_empty();
            }
            Ok(Some((shown, facts)))
        })
    }

    /// The event that holds this one back, if any does.
    fn blocker(&mut self, key: String, id: i64) -> Result<Option<i64>> {
        let claim = self.claim.clone();
        self.with_session(|ready| {
            let mut parameters = Parameters::default();
            parameters.add(key.clone(), Type::TEXT);
            parameters.add(id, Type::INT8);
            parameters.add(seconds(claim.min_age), Type::FLOAT8);
            parameters.add(claim.max_age.map(seconds), Type::FLOAT8);
            parameters.add(count(claim.max_failures), Type::INT4);
            parameters.add(claim.on_dead == OnDead::Block, Type::BOOL);
            let sql = Arc::clone(&ready.statements);
            ready.session.within_limits("looking at an event's key", move |client| {
                let rows = client.query_typed(&sql.key_blocker, &parameters.as_refs())?;
                rows.first().map(|row| row.try_get(0)).transpose()
            })
        })
    }
}

/// Whether an operator made it due, and no attempt followed.
fn by_hand(last_error: Option<&str>) -> bool {
    last_error.is_some_and(|text| text.starts_with(RETRIED) || text.starts_with(RESENT))
}

/// The row, what decides about it, and whether its lock can be asked for.
fn read(row: &Row) -> std::result::Result<(Shown, Facts, bool), postgres::Error> {
    let listed = Listed::read(row, 0)?.unwrap_or_default();
    let length: Option<i32> = row.try_get(13)?;
    let headers = match (row.try_get::<_, Option<String>>(14)?, length) {
        (Some(json), _) => Headers::Json(json),
        (None, Some(length)) => Headers::TooLarge(usize::try_from(length).unwrap_or(0)),
        (None, None) => Headers::None,
    };
    let left = |seconds: Option<f64>| seconds.and_then(|left| Duration::try_from_secs_f64(left).ok());
    let later: bool = row.try_get(23)?;
    let later = match (&listed.available_at, later) {
        (Some(at), true) => Some(Moment { at: at.clone(), left: left(row.try_get(22)?) }),
        _ => None,
    };
    let old_enough: Option<f64> = row.try_get(24)?;
    let young = match (row.try_get::<_, Option<String>>(25)?, old_enough) {
        (Some(at), Some(seconds)) if seconds > 0.0 => Some(Moment { at, left: left(Some(seconds)) }),
        _ => None,
    };
    let facts = Facts {
        id: listed.id,
        status: listed.status.clone(),
        keyed: listed.ordering_key.is_some(),
        expired: row.try_get(19)?,
        over_max_age: row.try_get(20)?,
        at_limit: row.try_get(21)?,
        later,
        young,
        unconfirmed: unconfirmed_in_a_row(listed.last_error.as_deref()) > 0,
        by_hand: by_hand(listed.last_error.as_deref()),
        locked: false,
        dead_blocks: true,
    };
    let shown = Shown {
        last_retried_at: row.try_get(10)?,
        expired_at: row.try_get(11)?,
        published_at: row.try_get(12)?,
        headers,
        exchange: row.try_get(15)?,
        routing_key: row.try_get(16)?,
        payload_length: row.try_get::<_, Option<i64>>(17)?.map(unsigned),
        payload: row.try_get::<_, Option<StoredBytes>>(18)?.map(|bytes| bytes.0),
        standing: Standing::of(&facts),
        listed,
    };
    Ok((shown, facts, row.try_get(26)?))
}
