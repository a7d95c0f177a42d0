//! From an event to the message that carries it, refusing what could not be sent before it touches a channel.
//!
//! Pure. Each limit here is one that the broker enforces by closing the channel or the whole connection, which
//! would hit the event's neighbours (measured on RabbitMQ 3.10: a routing key of 256 bytes closes the connection
//! with 501, a message id or header name of 256 bytes with 541, a content header over a frame with 501).

use std::time::Duration;

use serde_json::{Map, Value};

use crate::config::Routing;
use crate::event::{Event, Headers, Outcome, Payload};
use crate::policy::may_be_duplicate;
use crate::route;

/// The longest AMQP short string, in bytes: its length is one byte on the wire.
pub const SHORT_STRING_MAX: usize = 255;

/// The longest exchange name, in bytes. Short of 255 because the broker's error text repeats the name and is cut
/// at 255 bytes: a cut inside a character makes a frame that the client cannot read.
pub const EXCHANGE_MAX: usize = 200;

/// The largest frame that we negotiate, in bytes; RabbitMQ's default.
pub const FRAME_MAX: u32 = 131_072;

/// What a frame spends on its type, channel, size and end mark.
const FRAME_OVERHEAD: usize = 8;

/// The most bytes of JSON text that are read as headers: a frame's worth with every character escaped, and then
/// some. More cannot fit, and is not even fetched.
pub const HEADERS_TEXT_MAX: usize = 8 * FRAME_MAX as usize;

/// The most values in a message's headers, at every depth. The client begins anew with a larger buffer for each, and with
/// 10,000 of them takes so long that the connection is given up (measured: 0.1 s for 2,000, 6 s for 14,000).
const VALUES_MAX: usize = 2_000;

/// The longest life that an `expiration` can state, in milliseconds: the broker reads 32 bits.
const EXPIRATION_MAX_MS: u128 = u32::MAX as u128;

/// The header on a message that may have been delivered before.
pub const POSSIBLE_DUPLICATE: &str = "x-outboxd-possible-duplicate";

/// What it takes in the content header, reserved in each: a message that fits once fits again.
const POSSIBLE_DUPLICATE_SIZE: usize = 1 + POSSIBLE_DUPLICATE.len() + 1 + 1;

/// A message, ready for a channel in confirm mode.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Empty for the default exchange.
    pub exchange: String,
    /// At most 255 bytes.
    pub routing_key: String,
    /// Whether the broker returns it when no queue is bound for it.
    pub mandatory: bool,
    /// The route's.
    pub content_type: String,
    /// The event id.
    pub message_id: String,
    /// The event type.
    pub event_type: String,
    /// The event's creation, in seconds since 1970.
    pub timestamp: Option<u64>,
    /// What is left of its life, in milliseconds: the broker drops it from a queue after that.
    pub expiration_ms: Option<u32>,
    /// The event's headers, with their JSON types.
    pub headers: Map<String, Value>,
    /// The payload's exact bytes.
    pub body: Vec<u8>,
}

/// The routing key of [`Message::probe`]; no queue is meant to have this name.
const PROBE_KEY: &str = "outboxd.probe";

impl Message {
    /// A message to nobody: the broker drops it, and tells a connection that has published about its alarms.
    pub fn probe() -> Self {
        Self {
            exchange: String::new(),
            routing_key: PROBE_KEY.into(),
            mandatory: false,
            content_type: route::CONTENT_TYPE.into(),
            message_id: PROBE_KEY.into(),
            event_type: PROBE_KEY.into(),
            timestamp: None,
            expiration_ms: None,
            headers: Map::new(),
            body: Vec::new(),
        }
    }
}

/// The message for an event.
///
/// # Errors
/// The event's outcome, when it cannot be sent: [`Outcome::Invalid`] when it never can, [`Outcome::Refused`] when
/// the configuration decides so.
pub fn encode(event: &Event, payload: Payload, routing: &Routing) -> Result<Message, Outcome> {
    let destination = route::find(&routing.routes, &routing.fallback, &event.event_type);
    named("event_id", &event.event_id)?;
    named("event_type", &event.event_type)?;
    let exchange = match &event.exchange {
        Some(exchange) if exchange.len() > EXCHANGE_MAX => {
            return Err(Outcome::Invalid(format!("exchange is over {EXCHANGE_MAX} bytes long")));
        }
        Some(exchange) => exchange.clone(),
        None => destination.exchange.clone(),
    };
    let routing_key = match &event.routing_key {
        Some(key) => {
            short("routing_key", key)?;
            key.clone()
        }
        None => filled(&destination.routing_key, event)?,
    };
    let mut headers = headers(&event.headers)?;
    if may_be_duplicate(event.last_error.as_deref()) {
        headers.insert(POSSIBLE_DUPLICATE.into(), Value::Bool(true));
    }
    let message = Message {
        exchange,
        routing_key,
        mandatory: destination.unroutable == route::Unroutable::Fail,
        content_type: destination.content_type.clone(),
        message_id: event.event_id.clone(),
        event_type: event.event_type.clone(),
        timestamp: event.created_at,
        expiration_ms: event.expires_in.and_then(expiration_ms),
        headers,
        body: body(payload, routing.payload_max)?,
    };
    let size = content_header_size(&message);
    let limit = FRAME_MAX as usize - FRAME_OVERHEAD;
    if size > limit {
        return Err(Outcome::Invalid(format!("headers take {size} bytes, a message's can take {limit}")));
    }
    Ok(message)
}

/// The bytes that these headers take in a message, when it can carry them.
pub(crate) fn headers_size(json: String) -> Result<usize, Outcome> {
    headers(&Headers::Json(json)).map(|headers| table_size(&headers))
}

fn named(column: &str, text: &str) -> Result<(), Outcome> {
    if text.is_empty() {
        return Err(Outcome::Invalid(format!("{column} is empty")));
    }
    short(column, text)
}

fn short(column: &str, text: &str) -> Result<(), Outcome> {
    if text.len() > SHORT_STRING_MAX {
        return Err(Outcome::Invalid(format!("{column} is over {SHORT_STRING_MAX} bytes long")));
    }
    Ok(())
}

fn filled(template: &route::Template, event: &Event) -> Result<String, Outcome> {
    let key = template.fill(&event.event_type, event.ordering_key.as_deref()).map_err(|name| {
        Outcome::Refused(format!("its route's routing key needs {{{name}}} and the event has none"))
    })?;
    if key.len() > SHORT_STRING_MAX {
        let length = key.len();
        return Err(Outcome::Refused(format!(
            "its route makes a routing key of {length} bytes, AMQP allows {SHORT_STRING_MAX}"
        )));
    }
    Ok(key)
}

fn body(payload: Payload, payload_max: usize) -> Result<Vec<u8>, Outcome> {
    match payload {
        Payload::Stored(bytes) if bytes.len() <= payload_max => Ok(bytes),
        Payload::Stored(bytes) => Err(over_payload_max(bytes.len(), payload_max)),
        Payload::TooLarge(length) => Err(over_payload_max(length, payload_max)),
        Payload::Missing => Err(Outcome::Invalid("payload is null".into())),
    }
}

fn over_payload_max(length: usize, payload_max: usize) -> Outcome {
    Outcome::Refused(format!("payload has {length} bytes, payload_max is {payload_max}"))
}

/// The whole milliseconds left, at least one: an expiration of 0 would mean "drop unless a consumer waits".
fn expiration_ms(left: Duration) -> Option<u32> {
    let ms = left.as_millis();
    if ms > EXPIRATION_MAX_MS {
        return None;
    }
    u32::try_from(ms.max(1)).ok()
}

fn headers(stored: &Headers) -> Result<Map<String, Value>, Outcome> {
    let text = match stored {
        Headers::None => return Ok(Map::new()),
        Headers::TooLarge(length) => {
            return Err(Outcome::Invalid(format!(
                "headers have {length} bytes, more than a message can carry"
            )));
        }
        Headers::Json(text) => text,
    };
    let headers = match serde_json::from_str(text) {
        Ok(Value::Object(headers)) => headers,
        Ok(Value::Null) => return Ok(Map::new()),
        Ok(_) => return Err(Outcome::Invalid("headers are not a JSON object".into())),
        Err(_) => return Err(Outcome::Invalid("headers are not readable as JSON".into())),
    };
    let count: usize = headers.values().map(values).sum();
    if count > VALUES_MAX {
        return Err(Outcome::Invalid(format!(
            "headers hold {count} values, at most {VALUES_MAX} can be sent"
        )));
    }
    check_names(&headers)?;
    for name in ["CC", "BCC"] {
        let routing_keys = |value: &Value| {
            value.as_array().is_some_and(|keys| {
                keys.iter().all(|key| key.as_str().is_some_and(|key| key.len() <= SHORT_STRING_MAX))
            })
        };
        // The broker reads these two as further routing keys, and closes the channel over anything else.
        if headers.get(name).is_some_and(|value| !routing_keys(value)) {
            return Err(Outcome::Invalid(format!("header {name} is not an array of routing keys")));
        }
    }
    Ok(headers)
}

fn check_names(headers: &Map<String, Value>) -> Result<(), Outcome> {
    for (name, value) in headers {
        if name.len() > SHORT_STRING_MAX {
            return Err(Outcome::Invalid(format!("a header's name is over {SHORT_STRING_MAX} bytes long")));
        }
        check_value(value)?;
    }
    Ok(())
}

fn check_value(value: &Value) -> Result<(), Outcome> {
    match value {
        Value::Object(inner) => check_names(inner),
        Value::Array(items) => items.iter().try_for_each(check_value),
        _ => Ok(()),
    }
}

/// How many values it is, with those in it.
fn values(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(values).sum::<usize>(),
        Value::Object(inner) => 1 + inner.values().map(values).sum::<usize>(),
        _ => 1,
    }
}

/// The bytes of the message's content header: AMQP 0-9-1, section 4.2.6.1.
fn content_header_size(message: &Message) -> usize {
    const FIXED: usize = 2 + 2 + 8 + 2; // class, weight, body size, property flags
    const TIMESTAMP_AND_DELIVERY_MODE: usize = 8 + 1;
    const EXPIRATION: usize = 1 + 10; // the longest number of 32 bits
    let shorts = [&message.content_type, &message.message_id, &message.event_type];
    FIXED
        + TIMESTAMP_AND_DELIVERY_MODE
        + EXPIRATION
        + shorts.iter().map(|text| 1 + text.len()).sum::<usize>()
        + 1
        + APP_ID.len()
        + table_size(&message.headers)
        + POSSIBLE_DUPLICATE_SIZE
}

/// The `app_id` of every message.
pub const APP_ID: &str = "outboxd";

fn table_size(table: &Map<String, Value>) -> usize {
    4 + table.iter().map(|(name, value)| 1 + name.len() + value_size(value)).sum::<usize>()
}

fn value_size(value: &Value) -> usize {
    1 + match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 8,
        Value::String(text) => 4 + text.len(),
        Value::Array(items) => 4 + items.iter().map(value_size).sum::<usize>(),
        Value::Object(inner) => table_size(inner),
    }
}

#[cfg(test)]
mod tests;
