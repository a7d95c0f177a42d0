//! An event to be appended: how it is put together, and what is refused because the relay could never send it.
//!
//! Pure: it knows no clock and no database. Its id is given to it when it is appended.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use crate::event::Outcome;
use crate::message::{EXCHANGE_MAX, FRAME_MAX, SHORT_STRING_MAX, headers_size};

/// The longest ordering key, in bytes; the table's own limit, for its index.
const ORDERING_KEY_MAX: usize = 1024;

/// The most bytes that the headers may take in a message, so that they fit a frame beside the other properties, each
/// at its longest.
const HEADERS_MAX: usize = FRAME_MAX as usize - 1_200;

/// The largest payload, in bytes: `payload_max` cannot be more.
const PAYLOAD_MAX: usize = 512 << 20;

/// The longest time from now, either way, that can be asked for: a hundred years.
const TIME_MAX: Duration = Duration::from_secs(36_500 * 24 * 60 * 60);

/// An event to be written into the outbox, by [`append`](crate::append) or [`append_all`](crate::append_all).
///
/// Only its type is needed; all else has a default. It may be appended more than once; each time it gets another id,
/// unless one is given. What the relay could never send is refused when it is appended, by [`NewEvent::check`].
///
/// ```
/// use std::time::Duration;
/// use outboxd::NewEvent;
/// use serde_json::json;
///
/// let event = NewEvent::new("order.paid")
///     .payload(json!({"order": 7, "total": "49.90"}))
///     .ordering_key("order-7")
///     .header("tenant", "acme")
///     .expires_in(Duration::from_secs(3600));
/// assert_eq!(event.check(), Ok(()));
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use = "an event is written by append"]
pub struct NewEvent {
    event_type: String,
    payload: NewPayload,
    ordering_key: Option<String>,
    headers: Option<Value>,
    exchange: Option<String>,
    routing_key: Option<String>,
    expires_in: Option<Duration>,
    due: Due,
    event_id: Option<String>,
}

/// What [`NewEvent::payload`] takes: text, UTF-8 bytes, or JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPayload(Vec<u8>);

/// When an event is due.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Due {
    Now,
    /// After this time, by the database's clock.
    In(Duration),
    At(DateTime<Utc>),
}

impl NewEvent {
    /// An event of this type, such as `order.paid`: it chooses the route. 1 to 255 bytes.
    ///
    /// Its payload is `{}`, and nothing else is set.
    pub fn new(event_type: impl Into<String>) -> Self {
        Self {
            event_type: event_type.into(),
            payload: NewPayload(b"{}".to_vec()),
            ordering_key: None,
            headers: None,
            exchange: None,
            routing_key: None,
            expires_in: None,
            due: Due::Now,
            event_id: None,
        }
    }

    /// The message's body. Published byte by byte as it stands, unless the column is `jsonb`. Default: `{}`.
    ///
    /// Bytes must be UTF-8, and hold no NUL; at most 512 MiB (and `payload_max` of the relay, 16 MiB by default).
    pub fn payload(mut self, payload: impl Into<NewPayload>) -> Self {
        self.payload = payload.into();
        self
    }

    /// Events with one key leave in the order of their rows, one at a time. At most 1,024 bytes. Default: none, and
    /// with that no order.
    pub fn ordering_key(mut self, key: impl Into<String>) -> Self {
        self.ordering_key = Some(key.into());
        self
    }

    /// One more header of the message; one of the same name is replaced. Default: none.
    ///
    /// A name has at most 255 bytes, all headers together must fit a frame of 128 KiB, and hold 2,000 values at most.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        let headers = self.headers.get_or_insert_with(|| Value::Object(Map::new()));
        // Anything but an object was given to `headers`, and is refused when the event is appended.
        if let Value::Object(headers) = headers {
            headers.insert(name.into(), value.into());
        }
        self
    }

    /// All headers at once, as a JSON object. Replaces those that were there.
    pub fn headers(mut self, headers: impl Into<Value>) -> Self {
        self.headers = Some(headers.into());
        self
    }

    /// Where it goes, whatever its route says; at most 200 bytes. Empty is the default exchange. Default: the route's.
    pub fn exchange(mut self, exchange: impl Into<String>) -> Self {
        self.exchange = Some(exchange.into());
        self
    }

    /// Its routing key, whatever its route says; at most 255 bytes. Default: the route's.
    pub fn routing_key(mut self, key: impl Into<String>) -> Self {
        self.routing_key = Some(key.into());
        self
    }

    /// Not sent any more once this time is over, by the database's clock. More than nothing and more than what it is
    /// available in, at most 100 years. Default: it never expires.
    pub fn expires_in(mut self, life: Duration) -> Self {
        self.expires_in = Some(life);
        self
    }

    /// Not sent before this time is over, by the database's clock. At most 100 years. Default: due at once.
    pub fn available_in(mut self, delay: Duration) -> Self {
        self.due = Due::In(delay);
        self
    }

    /// Not sent before this moment; takes a `SystemTime`, too. Replaces [`NewEvent::available_in`]. The database
    /// compares it with its own clock.
    pub fn available_at(mut self, time: impl Into<DateTime<Utc>>) -> Self {
        self.due = Due::At(time.into());
        self
    }

    /// Its id, which consumers deduplicate on: a ULID by contract, and unique in the table. At most 255 bytes (26 in
    /// the table that `init` makes). Default: one that is higher than all that this process has made before.
    pub fn event_id(mut self, id: impl Into<String>) -> Self {
        self.event_id = Some(id.into());
        self
    }

    /// Refuses what the relay could never send. Appending an event does this first.
    ///
    /// # Errors
    /// What is wrong with it, naming the field; never what the payload holds.
    pub fn check(&self) -> Result<(), String> {
        let texts = [
            ("event id", self.event_id.as_ref(), 1, SHORT_STRING_MAX),
            ("event type", Some(&self.event_type), 1, SHORT_STRING_MAX),
            ("ordering key", self.ordering_key.as_ref(), 0, ORDERING_KEY_MAX),
            ("routing key", self.routing_key.as_ref(), 0, SHORT_STRING_MAX),
            ("exchange", self.exchange.as_ref(), 0, EXCHANGE_MAX),
        ];
        for (what, text, least, most) in texts {
            let Some(text) = text else { continue };
            let length = text.len();
            if length < least {
                return Err(format!("the {what} is empty"));
            }
            if length > most {
                return Err(format!("the {what} has {length} bytes, at most {most} can be sent"));
            }
            if text.contains('\0') {
                return Err(format!("the {what} holds a NUL, which the database does not store in text"));
            }
        }
        self.check_headers()?;
        self.check_times()?;
        self.payload_text().map(|_| ())
    }

    fn check_headers(&self) -> Result<(), String> {
        let Some(headers) = &self.headers else {
            return Ok(());
        };
        if !headers.is_object() {
            return Err("the headers are not a JSON object".into());
        }
        if holds_nul(headers) {
            return Err("the headers hold a NUL, which the database does not store in text".into());
        }
        match headers_size(headers.to_string()) {
            Ok(size) if size > HEADERS_MAX => {
                Err(format!("the headers take {size} bytes, at most {HEADERS_MAX} can be sent"))
            }
            Err(Outcome::Invalid(reason)) => Err(reason),
            _ => Ok(()),
        }
    }

    fn check_times(&self) -> Result<(), String> {
        let days = TIME_MAX.as_secs() / (24 * 60 * 60);
        let too_long = |time: Option<Duration>| time.is_some_and(|time| time > TIME_MAX);
        if too_long(self.expires_in) {
            return Err(format!("expires_in is more than {days} days"));
        }
        if self.expires_in == Some(Duration::ZERO) {
            return Err("expires_in is zero".into());
        }
        match self.due {
            Due::In(delay) if too_long(Some(delay)) => Err(format!("available_in is more than {days} days")),
            Due::In(delay) if self.expires_in.is_some_and(|life| delay >= life) => {
                Err("it would expire before it is available".into())
            }
            Due::At(time) if !(0..=YEAR_9999).contains(&time.timestamp()) => {
                Err("available_at is not within the years 1970 to 9999".into())
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn payload_text(&self) -> Result<&str, String> {
        let bytes = &self.payload.0;
        if bytes.len() > PAYLOAD_MAX {
            return Err(format!("the payload has {} bytes, at most {PAYLOAD_MAX} can be sent", bytes.len()));
        }
        if bytes.contains(&0) {
            return Err("the payload holds a NUL, which the database does not store in text".into());
        }
        std::str::from_utf8(bytes).map_err(|_| "the payload is not UTF-8".into())
    }

    /// About how many bytes it is on its way to the database.
    pub(crate) fn size(&self) -> usize {
        let texts = [&self.ordering_key, &self.exchange, &self.routing_key, &self.event_id];
        let headers = self.headers.as_ref().map_or(0, |headers| headers.to_string().len());
        let texts = texts.into_iter().flatten().map(String::len).sum::<usize>();
        self.payload.0.len() + headers + self.event_type.len() + texts
    }

    pub(crate) fn parts(&self) -> Parts<'_> {
        Parts {
            event_type: &self.event_type,
            ordering_key: self.ordering_key.as_deref(),
            headers: self.headers.as_ref().map(Value::to_string),
            exchange: self.exchange.as_deref(),
            routing_key: self.routing_key.as_deref(),
            expires_in: self.expires_in,
            due: self.due,
            event_id: self.event_id.as_deref(),
        }
    }
}

/// The end of the year 9999, in seconds since 1970.
const YEAR_9999: i64 = 253_402_300_799;

/// What an event consists of beside its payload.
pub(crate) struct Parts<'a> {
    pub(crate) event_type: &'a str,
    pub(crate) ordering_key: Option<&'a str>,
    /// As JSON text.
    pub(crate) headers: Option<String>,
    pub(crate) exchange: Option<&'a str>,
    pub(crate) routing_key: Option<&'a str>,
    pub(crate) expires_in: Option<Duration>,
    pub(crate) due: Due,
    pub(crate) event_id: Option<&'a str>,
}

/// Whether a name or a text in it holds a NUL, which JSON can write and `jsonb` does not take.
fn holds_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(holds_nul),
        Value::Object(entries) => entries.iter().any(|(name, value)| name.contains('\0') || holds_nul(value)),
        _ => false,
    }
}

impl From<&str> for NewPayload {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<String> for NewPayload {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl From<&[u8]> for NewPayload {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl<const N: usize> From<&[u8; N]> for NewPayload {
    fn from(bytes: &[u8; N]) -> Self {
        Self(bytes.to_vec())
    }
}

impl From<Vec<u8>> for NewPayload {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<Value> for NewPayload {
    fn from(value: Value) -> Self {
        Self(value.to_string().into_bytes())
    }
}

impl From<&Value> for NewPayload {
    fn from(value: &Value) -> Self {
        Self(value.to_string().into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn payloads_come_in_several_forms() {
        let event =
            |payload: NewPayload| NewEvent::new("t").payload(payload).payload_text().map(str::to_owned);
        assert_eq!(NewEvent::new("t").payload_text(), Ok("{}"));
        for payload in
            ["[1]".into(), "[1]".to_owned().into(), b"[1]".into(), b"[1]"[..].into(), json!([1]).into()]
        {
            assert_eq!(event(payload), Ok("[1]".into()));
        }
        assert_eq!(event((&json!("é")).into()), Ok("\"é\"".into()));
        assert_eq!(event(b"\xff".into()), Err("the payload is not UTF-8".into()));
    }

    #[test]
    fn headers_add_up() {
        let event = NewEvent::new("t").header("a", 1).header("b", "x").header("a", true);
        assert_eq!(event.headers, Some(json!({"a": true, "b": "x"})));
        assert_eq!(
            event.headers(json!({"c": null})).header("d", 1).headers,
            Some(json!({"c": null, "d": 1}))
        );
        // What is wrong stays wrong, and is refused.
        assert!(NewEvent::new("t").headers(json!([])).header("a", 1).check().is_err());
    }

    #[test]
    fn what_could_never_be_sent_is_refused_by_name() {
        let new = || NewEvent::new("t");
        let long = |length: usize| "x".repeat(length);
        let day = Duration::from_secs(24 * 60 * 60);
        let cases = [
            (NewEvent::new(""), "the event type is empty"),
            (NewEvent::new(long(256)), "the event type has 256 bytes, at most 255 can be sent"),
            (new().event_id(""), "the event id is empty"),
            (new().event_id(long(256)), "the event id has 256 bytes, at most 255 can be sent"),
            (new().ordering_key(long(1025)), "the ordering key has 1025 bytes, at most 1024 can be sent"),
            (new().routing_key(long(256)), "the routing key has 256 bytes, at most 255 can be sent"),
            (new().exchange(long(201)), "the exchange has 201 bytes, at most 200 can be sent"),
            (new().exchange("a\0b"), "the exchange holds a NUL, which the database does not store in text"),
            (new().payload("a\0b"), "the payload holds a NUL, which the database does not store in text"),
            (new().headers(json!([1])), "the headers are not a JSON object"),
            (new().headers(Value::Null), "the headers are not a JSON object"),
            (new().header(long(256), 1), "a header's name is over 255 bytes long"),
            (new().header("x", vec![1; 2_000]), "headers hold 2001 values, at most 2000 can be sent"),
            (new().header("CC", 1), "header CC is not an array of routing keys"),
            (
                new().header("x", json!(["\0"])),
                "the headers hold a NUL, which the database does not store in text",
            ),
            (new().header("x", long(131_072)), "the headers take 131083 bytes, at most 129872 can be sent"),
            (new().expires_in(Duration::ZERO), "expires_in is zero"),
            (new().expires_in(day).available_in(day), "it would expire before it is available"),
            (new().expires_in(36_501 * day), "expires_in is more than 36500 days"),
            (new().available_in(Duration::MAX), "available_in is more than 36500 days"),
            (
                new().available_at(DateTime::<Utc>::MAX_UTC),
                "available_at is not within the years 1970 to 9999",
            ),
        ];
        for (event, reason) in cases {
            assert_eq!(event.check(), Err(reason.into()));
        }
        let longest = NewEvent::new(long(255))
            .ordering_key(long(1024))
            .exchange(long(200))
            .routing_key("")
            .header(long(255), long(100_000))
            .expires_in(36_500 * day)
            .available_at(std::time::SystemTime::now());
        assert_eq!(longest.check(), Ok(()));
    }

    /// What is checked here must never be refused by the encoding, however the route fills the rest.
    #[test]
    fn the_largest_headers_still_fit_a_frame() {
        use crate::config::Config;
        use crate::event::{Event, Headers, Payload};
        use crate::message::encode;

        let largest = |length: usize| NewEvent::new("t").header("x", "y".repeat(length));
        let length = (129_800..129_900).rev().find(|length| largest(*length).check().is_ok()).unwrap();
        assert!(length < 129_899 && largest(131_072).check().is_err());
        let routing = Config::new("postgres://h/d", "amqp://h").unwrap().routing;
        let event = Event {
            headers: Headers::Json(json!({"x": "y".repeat(length)}).to_string()),
            created_at: Some(1),
            expires_in: Some(Duration::from_secs(3600)),
            last_error: Some("unconfirmed".into()),
            ..Event::new(1, "i".repeat(255), "t".repeat(255))
        };
        assert!(encode(&event, Payload::Stored(Vec::new()), &routing).is_ok());
    }
}
