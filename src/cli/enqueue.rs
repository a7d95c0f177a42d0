//! `outboxd enqueue`: appends one event, for trying things out and for scripts.

use std::io::{Read, stdin};

use outboxd::config::Database;
use outboxd::event::NewEvent;
use outboxd::outbox;
use serde_json::Value;

use super::args::Enqueue;
use super::exit::Exit;
use super::print;

/// The longest payload that is read from standard input, in bytes: RabbitMQ's own limit.
const STDIN_MAX: u64 = 512 << 20;

/// Appends the event and prints its id.
pub(crate) fn enqueue(database: &Database, asked: Enqueue) -> Exit {
    let payload = match asked.payload.as_str() {
        "-" => match read_stdin() {
            Ok(payload) => payload,
            Err(reason) => {
                print::error(format_args!("payload from standard input: {reason}"));
                return Exit::Usage;
            }
        },
        _ => asked.payload,
    };
    let mut event = NewEvent::new(asked.event_type).payload(payload);
    // What is no JSON at all is refused as what is no object.
    if let Some(headers) = asked.headers {
        event = event.headers(serde_json::from_str(&headers).unwrap_or(Value::Null));
    }
    if let Some(key) = asked.ordering_key {
        event = event.ordering_key(key);
    }
    if let Some(exchange) = asked.exchange {
        event = event.exchange(exchange);
    }
    if let Some(key) = asked.routing_key {
        event = event.routing_key(key);
    }
    if let Some(life) = asked.expires_in {
        event = event.expires_in(life);
    }
    if let Some(delay) = asked.delay {
        event = event.available_in(delay);
    }
    if let Err(reason) = event.check() {
        print::error(format_args!("the event could never be sent: {reason}"));
        return Exit::Usage;
    }
    match outbox::enqueue(database, &event) {
        Ok(id) => {
            print::line(id);
            Exit::Done
        }
        Err(error) => {
            print::error(&error);
            error.kind().into()
        }
    }
}

fn read_stdin() -> Result<String, String> {
    let mut text = String::new();
    let length = stdin().take(STDIN_MAX + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if u64::try_from(length).is_ok_and(|length| length > STDIN_MAX) {
        return Err(format!("over {STDIN_MAX} bytes"));
    }
    Ok(text)
}
