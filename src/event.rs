//! The nouns: an event as it is claimed, its outcome, and what a run adds up to.
//!
//! No I/O and no decisions.

use std::ops::AddAssign;
use std::time::Duration;

use crate::confirm::Receipt;

pub use crate::new_event::{NewEvent, NewPayload};

/// An event as the table holds it, without its payload.
///
/// Texts that a message cannot carry anyway are cut by the claim to just over what AMQP allows, so that one odd
/// row cannot fill the memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The row's number; the order of events with one key.
    pub id: i64,
    /// A ULID by contract; the message id. Published as it is stored.
    pub event_id: String,
    /// What happened, such as `order.created`. Chooses the route.
    pub event_type: String,
    /// Events with one key leave in `id` order.
    pub ordering_key: Option<String>,
    /// The message's headers.
    pub headers: Headers,
    /// Overrides the route's exchange.
    pub exchange: Option<String>,
    /// Overrides the route's routing key.
    pub routing_key: Option<String>,
    /// Seconds since 1970, when that is a time that a message can carry.
    pub created_at: Option<u64>,
    /// What is left of its life at the claim, by the database's clock; zero when it is over.
    pub expires_in: Option<Duration>,
    /// Whether it is WAITING and older than `max_age`.
    pub over_max_age: bool,
    /// Whether its status is FAILED.
    pub failed: bool,
    /// How often it was refused.
    pub fail_count: u32,
    /// Why the last attempt did not end in a confirm.
    pub last_error: Option<String>,
}

impl Event {
    /// An event with nothing but what each must have: never tried, and without anything that is optional.
    pub fn new(id: i64, event_id: impl Into<String>, event_type: impl Into<String>) -> Self {
        Self {
            id,
            event_id: event_id.into(),
            event_type: event_type.into(),
            ordering_key: None,
            headers: Headers::None,
            exchange: None,
            routing_key: None,
            created_at: None,
            expires_in: None,
            over_max_age: false,
            failed: false,
            fail_count: 0,
            last_error: None,
        }
    }
}

/// An event's headers as the table holds them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Headers {
    /// The column is null.
    None,
    /// The column's JSON text.
    Json(String),
    /// More text than any message's headers can hold; this many bytes. Not fetched.
    TooLarge(usize),
}

/// An event's payload as the table holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// The exact bytes stored.
    Stored(Vec<u8>),
    /// More than `payload_max`; this many bytes. Not fetched.
    TooLarge(usize),
    /// The column is null.
    Missing,
}

/// What became of one event: a fact, not a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The broker took it.
    Confirmed(Receipt),
    /// Refused for a reason that may pass or be mended: unroutable, or something that the configuration decides.
    Refused(String),
    /// The broker's back-pressure: a nack.
    Busy(String),
    /// It can never be sent over AMQP as it is.
    Invalid(String),
    /// Sent, but the connection or the deadline ended before its confirm: it may or may not have arrived.
    Unknown(String),
    /// Not sent.
    Unsent,
}

/// How many events ended how, in a tick or a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Claimed, whatever became of them.
    pub claimed: u64,
    /// Confirmed and settled PUBLISHED.
    pub published: u64,
    /// Refused or nacked, and due again later.
    pub failed: u64,
    /// Refused for the last time, or unsendable.
    pub dead: u64,
    /// Out of time before they were sent.
    pub expired: u64,
    /// Sent without learning whether they arrived; due again.
    pub unconfirmed: u64,
    /// Handed back unsent.
    pub released: u64,
    /// Deleted or finished by someone else between claim and settle.
    pub gone: u64,
    /// Those of which the table refuses to hold what became of them: confirmed ones are not sent again by the same relay.
    pub unwritten: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.claimed += other.claimed;
        self.published += other.published;
        self.failed += other.failed;
        self.dead += other.dead;
        self.expired += other.expired;
        self.unconfirmed += other.unconfirmed;
        self.released += other.released;
        self.gone += other.gone;
        self.unwritten += other.unwritten;
    }
}

impl Tally {
    /// Whether events were refused, or are due still: the run is worth a look, or another run.
    pub fn leaves_work(&self) -> bool {
        self.failed + self.dead + self.unconfirmed + self.released + self.unwritten > 0
    }
}

impl std::fmt::Display for Tally {
    /// `claimed 7: published 5, failed 1, expired 1`, without what did not happen.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "claimed {}", self.claimed)?;
        let parts = [
            ("published", self.published),
            ("failed", self.failed),
            ("dead", self.dead),
            ("expired", self.expired),
            ("unconfirmed", self.unconfirmed),
            ("handed back", self.released),
            ("gone meanwhile", self.gone),
            ("not written", self.unwritten),
        ];
        let mut separator = ": ";
        for (what, count) in parts.into_iter().filter(|(_, count)| *count > 0) {
            write!(f, "{separator}{what} {count}")?;
            separator = ", ";
        }
        Ok(())
    }
}
