//! `outboxd show`.

use clap::{Arg, ArgAction, ArgMatches, Command};
use outboxd::config::Routing;
use outboxd::event::Headers;
use outboxd::outbox::{self, Outbox, Reference, Shown};
use serde_json::{Value, json};

use super::super::args::{examples, settings};
use super::super::exit::Exit;
use super::super::print;
use super::{filter, report};

/// Which event to show.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Show {
    event: Reference,
    payload: bool,
    json: bool,
}

pub(super) fn command() -> Command {
    let names = [
        "database_url",
        "table",
        "time_zone",
        "open_timeout",
        "min_age",
        "listen",
        "max_age",
        "max_failures",
        "on_dead",
        "payload_max",
        "exchange",
        "routing_key",
    ];
    settings(Command::new("show"), &names)
        .about("Say everything about one event, and why it is or is not due now")
        .arg(Arg::new("show_id").value_name("ID").required(true).help("the row id, or the event id"))
        .arg(
            Arg::new("show_payload")
                .long("payload")
                .action(ArgAction::SetTrue)
                .help("print its payload, too"),
        )
        .arg(filter::json())
        .after_help(examples("outboxd show 4711", "outboxd show 01JD5Z6Z3Y1Q2W3E4R5T6Y7V8W --json"))
}

pub(super) fn read(matches: &ArgMatches) -> Option<Show> {
    let event = Reference::parse(&filter::one::<String>(matches, "show_id")?);
    Some(Show { event, payload: matches.get_flag("show_payload"), json: matches.get_flag("json") })
}

pub(super) fn show(outbox: &mut Outbox, routing: &Routing, asked: &Show) -> Exit {
    let show = outbox::Show { event: asked.event.clone(), payload: asked.payload };
    let shown = match outbox.show(&show) {
        Ok(Some(shown)) => shown,
        Ok(None) => {
            let (event, table) = (print::one_line(&asked.event.to_string()), outbox.table());
            print::error(format_args!("there is no event {event} in {table}"));
            return Exit::Missing;
        }
        Err(error) => return report::failed(&error),
    };
    if asked.json {
        print::line(document(&shown, routing, asked.payload))
    } else {
        print(&shown, routing)
    }
    Exit::Done
}

fn document(shown: &Shown, routing: &Routing, payload: bool) -> Value {
    let mut document = report::event(&shown.listed);
    let way = match shown.way(routing) {
        Ok(way) => json!({
            "exchange": way.exchange,
            "routing_key": way.routing_key,
            "mandatory": way.mandatory,
        }),
        Err(reason) => json!({ "error": reason }),
    };
    let headers = match &shown.headers {
        Headers::None => Value::Null,
        // What is no JSON to us is shown as the text it is.
        Headers::Json(text) => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
        Headers::TooLarge(length) => json!(format!("{length} bytes")),
    };
    let further = [
        ("last_retried_at", json!(shown.last_retried_at)),
        ("expired_at", json!(shown.expired_at)),
        ("published_at", json!(shown.published_at)),
        ("headers", headers),
        ("exchange", json!(shown.exchange)),
        ("routing_key", json!(shown.routing_key)),
        ("payload_bytes", json!(shown.payload_length)),
        ("route", way),
        ("due", json!({ "state": shown.standing.name(), "why": shown.standing.to_string() })),
    ];
    if let Some(document) = document.as_object_mut() {
        document.extend(further.map(|(name, value)| (name.to_string(), value)));
        if payload {
            let text = shown.payload.as_deref().map(String::from_utf8_lossy);
            document.insert("payload".into(), json!(text));
        }
    }
    document
}

fn print(shown: &Shown, routing: &Routing) {
    let listed = &shown.listed;
    let or_none = |text: &Option<String>| text.as_deref().map_or("-".into(), print::one_line);
    let headers = match &shown.headers {
        Headers::None => "-".into(),
        Headers::Json(text) => print::one_line(text),
        Headers::TooLarge(length) => format!("{length} bytes"),
    };
    let age = match (&listed.created_at, listed.age) {
        (_, Some(age)) => format!(" ({} ago)", report::short_age(age)),
        (Some(at), None) if !at.starts_with('-') => " (still to come: is time_zone right?)".into(),
        _ => String::new(),
    };
    let way = match shown.way(routing) {
        Ok(way) => format!(
            "exchange {:?}, routing key {:?}{}",
            way.exchange,
            way.routing_key,
            if way.mandatory { "" } else { ", fine if no queue is bound" }
        ),
        Err(reason) => format!("cannot be sent: {}", print::one_line(&reason)),
    };
    let lines = [
        ("id", listed.id.to_string()),
        ("event_id", print::one_line(&listed.event_id)),
        ("event_type", print::one_line(&listed.event_type)),
        ("ordering_key", or_none(&listed.ordering_key)),
        ("status", print::one_line(&listed.status)),
        ("fail_count", listed.fail_count.to_string()),
        ("created_at", or_none(&listed.created_at) + &age),
        ("available_at", or_none(&listed.available_at)),
        ("expired_at", or_none(&shown.expired_at)),
        ("last_retried_at", or_none(&shown.last_retried_at)),
        ("published_at", or_none(&shown.published_at)),
        ("last_error", or_none(&listed.last_error)),
        ("headers", headers),
        ("exchange", or_none(&shown.exchange)),
        ("routing_key", or_none(&shown.routing_key)),
        ("payload", shown.payload_length.map_or("null".into(), |length| format!("{length} bytes"))),
        ("route", way),
    ];
    for (name, value) in lines {
        print::line(format_args!("{name:<16} {value}"));
    }
    print::line(format_args!("\n{}", shown.standing));
    if let Some(payload) = &shown.payload {
        print::line(format_args!("\n{}", String::from_utf8_lossy(payload)));
    }
}
