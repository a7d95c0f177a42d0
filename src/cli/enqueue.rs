//! `outboxd enqueue`: appends one event, for trying things out and for scripts.

use std::io::{Read, stdin};
use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use outboxd::config::{Database, parse_duration};
use outboxd::event::NewEvent;
use outboxd::outbox;
use serde_json::Value;

use super::args::{examples, settings};
use super::exit::Exit;
use super::print;

/// The longest payload that is read from standard input, in bytes: RabbitMQ's own limit.
const STDIN_MAX: u64 = 512 << 20;

/// The event that `enqueue` appends, as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Enqueue {
    pub(crate) event_type: String,
    /// `-` is standard input. Default: `{}`.
    pub(crate) payload: String,
    pub(crate) ordering_key: Option<String>,
    /// The text of a JSON object.
    pub(crate) headers: Option<String>,
    pub(crate) exchange: Option<String>,
    pub(crate) routing_key: Option<String>,
    /// From now.
    pub(crate) expires_in: Option<Duration>,
    /// From now.
    pub(crate) delay: Option<Duration>,
}

/// Longest time that an event can be given on the command line: ten years.
const EVENT_TIME_MAX: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

fn event_time(text: &str) -> Result<Duration, &'static str> {
    parse_duration(text)
        .filter(|time| *time <= EVENT_TIME_MAX)
        .ok_or("expected a duration up to 3650d, such as 30s, 5m or 1h 30m")
}

/// Its command line.
pub(super) fn command() -> Command {
    let text = |id: &'static str, flag: &'static str, value: &'static str| {
        Arg::new(id).long(flag).value_name(value).allow_hyphen_values(true)
    };
    let time = |id, flag| text(id, flag, "TIME").value_parser(event_time);
    settings(Command::new("enqueue"), &["database_url", "table", "time_zone", "open_timeout"])
        .about("Append one event")
        .arg(
            Arg::new("event_type")
                .value_name("TYPE")
                .required(true)
                .help("the event's type, such as order.paid"),
        )
        .arg(
            Arg::new("payload")
                .value_name("PAYLOAD")
                .default_value("{}")
                .hide_default_value(true)
                // A number is JSON too.
                .allow_negative_numbers(true)
                .help("the message's body; - is standard input [{}]"),
        )
        .next_help_heading("Event")
        .arg(
            text("event_ordering_key", "ordering-key", "KEY")
                .help("events with one key leave in order; routing keys can name it"),
        )
        .arg(text("event_headers", "headers", "JSON").help("an object: the message's headers"))
        .arg(text("event_exchange", "exchange", "NAME").help("where it goes, whatever the routes say"))
        .arg(text("event_routing_key", "routing-key", "KEY").help("its routing key, whatever the routes say"))
        .arg(time("event_expires_in", "expires-in").help("it expires if it is not sent by then"))
        .arg(time("event_delay", "delay").help("it is not due before then"))
        .after_help(examples(
            "outboxd enqueue order.paid '{\"order\": 7}' --ordering-key order-7",
            "outboxd enqueue report.ready - --delay 5m < report.json",
        ))
}

/// Reads its command line; none where it has no type, which the command requires.
pub(super) fn read(matches: &ArgMatches) -> Option<Enqueue> {
    let text = |id: &str| matches.get_one::<String>(id).cloned();
    let time = |id: &str| matches.get_one::<Duration>(id).copied();
    Some(Enqueue {
        event_type: text("event_type")?,
        payload: text("payload")?,
        ordering_key: text("event_ordering_key"),
        headers: text("event_headers"),
        exchange: text("event_exchange"),
        routing_key: text("event_routing_key"),
        expires_in: time("event_expires_in"),
        delay: time("event_delay"),
    })
}

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
