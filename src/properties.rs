//! What must be true of any text and any sequence that comes from outside: for tests that make them up, and for fuzzing.
//! Each property panics where it does not hold. Not for anyone else.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::config::{Config, Given, Origin, Problems, parse_toml};
use crate::confirm::{Ledger, Verdict};
use crate::event::{Event, Headers, Outcome, Payload};
use crate::message;
use crate::publisher::{self, Address, FieldTable};
use crate::route::{Pattern, Template};

/// No output may hold it.
pub const SECRET: &str = "hunter2";

fn shows_no_secret(what: &str) {
    assert!(!what.contains(SECRET), "{what} tells the secret");
}

/// A file of any text, with the two URLs, whose passwords are never shown, whatever else is in it.
pub fn config_file(text: &str) {
    if text.contains(SECRET) {
        return;
    }
    let urls = format!("database_url = \"postgres://u:{SECRET}@h/d\"\namqp_url = \"amqp://u:{SECRET}@h\"\n");
    for text in [text.to_owned(), format!("{urls}{text}"), format!("{text}\n{urls}")] {
        match parse_toml(&text, "o.toml") {
            Ok((given, routes)) => decided(Config::from_given(&given, &routes)),
            Err(problems) => told(&problems),
        }
    }
}

/// An environment of any names and values, likewise. A name that is a setting's, with its secret in it, is one.
pub fn environment(pairs: &[(String, String)]) {
    let given = |name: &str, value: &str| Given {
        name: name.into(),
        value: value.into(),
        origin: Origin::Environment,
    };
    let mut all = vec![
        given("DATABASE_URL", &format!("postgres://u:{SECRET}@h/d")),
        given("AMQP_URL", &format!("amqp://u:{SECRET}@h/{SECRET}/x")),
    ];
    let others = pairs.iter().filter(|(name, value)| !name.contains(SECRET) && !value.contains(SECRET));
    all.extend(others.map(|(name, value)| given(name, value)));
    decided(Config::from_given(&all, &[]));
}

fn decided(config: Result<Config, Problems>) {
    match config {
        Ok(config) => shows_no_secret(&format!("{config:?}")),
        Err(problems) => told(&problems),
    }
}

/// Problems are one line each.
fn told(problems: &Problems) {
    shows_no_secret(&problems.to_string());
    shows_no_secret(&format!("{problems:?}"));
    assert!(!problems.to_string().is_empty());
    assert!(!problems.to_string().chars().any(|c| c.is_control() && c != '\n'), "{problems:?}");
}

/// Any text as a broker's URL, with a secret anywhere in it.
pub fn amqp_url(text: &str) {
    match publisher::check_url(text) {
        Err(problem) => shows_no_secret(&problem),
        Ok(()) => {
            let address = Address::parse(text).unwrap();
            let (described, login) = (publisher::describe_url(text), publisher::login(text));
            if address.password.contains(SECRET) && text.matches(SECRET).count() == 1 {
                shows_no_secret(&described);
                shows_no_secret(&format!("{login:?}"));
            }
            publisher::cut_off(text);
        }
    }
}

/// A URL that is written from its parts is read as these parts.
pub fn amqp_url_of_parts(user: &str, password: &str, port: u16, vhost: &str, heartbeat_s: u16) {
    let encoded = |text: &str| {
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
    };
    let (users, passwords, vhosts) = (encoded(user), encoded(password), encoded(vhost));
    let url = format!("amqp://{users}:{passwords}@broker:{port}/{vhosts}?heartbeat={heartbeat_s}");
    let address = Address::parse(&url).unwrap();
    // What is left out has a default.
    let or = |text: &str, default: &str| if text.is_empty() { default.to_owned() } else { text.to_owned() };
    assert_eq!(address.user, or(user, "guest"), "{url}");
    assert_eq!(address.password, or(password, "guest"), "{url}");
    assert_eq!(address.vhost, or(vhost, "/"), "{url}");
    assert_eq!((address.port, address.heartbeat_s, address.host.as_str()), (port, heartbeat_s, "broker"));
}

/// Any text as a database's URL.
pub fn database_url(text: &str) {
    if let Err(problem) = crate::outbox::check_url(text, &[]) {
        shows_no_secret(&problem);
    }
}

/// A pattern matches as the plainest reading of it does, and is shown as it was written.
pub fn pattern(pattern: &str, event_type: &str) {
    let Ok(parsed) = Pattern::parse(pattern) else {
        assert!(pattern.is_empty());
        return;
    };
    assert_eq!(parsed.to_string(), pattern);
    assert_eq!(
        parsed.matches(event_type),
        matches_plainly(pattern, event_type),
        "{pattern:?} {event_type:?}"
    );
}

/// By the table of all beginnings, character by character.
fn matches_plainly(pattern: &str, text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    for c in pattern.chars() {
        let before = reached.clone();
        for end in 0..=text.len() {
            reached[end] = match c {
                '*' => before[..=end].contains(&true),
                c => end > 0 && before[end - 1] && text[end - 1] == c,
            };
        }
    }
    reached[text.len()]
}

/// What a template makes is as long as its parts, and the same as replacing them one after the other.
pub fn template(template: &str, event_type: &str, ordering_key: Option<&str>) {
    let Ok(parsed) = Template::parse(template) else { return };
    let (types, keys) = ("{event_type}", "{ordering_key}");
    let (typed, keyed) = (template.matches(types).count(), template.matches(keys).count());
    let Ok(filled) = parsed.fill(event_type, ordering_key) else {
        assert!(keyed > 0 && ordering_key.is_none());
        return;
    };
    let key = ordering_key.unwrap_or_default();
    let around = template.len() - typed * types.len() - keyed * keys.len();
    assert_eq!(filled.len(), around + typed * event_type.len() + keyed * key.len(), "{template:?}");
    let pieces = template.split(types).map(|piece| piece.replace(keys, key));
    assert_eq!(filled, pieces.collect::<Vec<_>>().join(event_type));
}

/// Any text as a row's headers: refused, or as long in a message as was reckoned. `written` is how long the client
/// writes a table.
pub fn headers(json: &str, written: impl Fn(&FieldTable) -> usize) {
    let config = Config::new("postgres://u@h/d", "amqp://u@h").unwrap();
    let event = Event { headers: Headers::Json(json.into()), ..Event::new(1, "01", "t") };
    match message::encode(&event, Payload::Stored(Vec::new()), &config.routing) {
        Ok(message) => {
            let table = publisher::table(&message.headers);
            assert_eq!(message::headers_size(json.into()).unwrap(), written(&table), "{json}");
            assert!(written(&table) < message::FRAME_MAX as usize);
            same_names(&message.headers, &table);
        }
        Err(Outcome::Invalid(reason)) => assert!(!reason.is_empty()),
        Err(other) => panic!("{json} is {other:?}"),
    }
}

fn same_names(headers: &Map<String, Value>, table: &FieldTable) {
    assert!(headers.keys().eq(table.keys()), "{headers:?}");
}

/// What a broker may do to a channel.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    Sent,
    Returned(u8),
    Ack(u8, bool),
    Nack(u8, bool),
}

impl Step {
    /// From any two bytes.
    pub fn of(kind: u8, tag: u8) -> Self {
        match kind % 7 {
            0 | 1 => Self::Sent,
            2 => Self::Returned(tag),
            3 => Self::Ack(tag, false),
            4 => Self::Ack(tag, true),
            5 => Self::Nack(tag, false),
            _ => Self::Nack(tag, true),
        }
    }
}

/// Each message has one verdict, or is left over at the end; the first that was said of it, and no confirm after a return.
pub fn ledger(steps: impl IntoIterator<Item = Step>) {
    let mut ledger = Ledger::default();
    // By tag: whether it was returned.
    let mut waiting: BTreeMap<u64, bool> = BTreeMap::new();
    let mut last = 0_u64;
    for step in steps {
        match step {
            Step::Sent => {
                last += 1;
                ledger.sent(last);
                waiting.insert(last, false);
            }
            Step::Returned(tag) => {
                ledger.returned(|it| *it == u64::from(tag), "NO_ROUTE");
                waiting.entry(tag.into()).and_modify(|it| *it = true);
            }
            Step::Ack(tag, multiple) | Step::Nack(tag, multiple) => {
                let is_ack = matches!(step, Step::Ack(..));
                let tag = u64::from(tag);
                let verdicts = if is_ack { ledger.ack(tag, multiple) } else { ledger.nack(tag, multiple) };
                let meant = |it: u64| if multiple { it <= tag || tag == 0 } else { it == tag };
                let expected: Vec<u64> = waiting.keys().copied().filter(|it| meant(*it)).collect();
                let told: Vec<u64> = verdicts.iter().map(|(it, _)| *it).collect();
                assert_eq!(told, expected, "{step:?}");
                for (it, verdict) in verdicts {
                    let is_returned = waiting.remove(&it).unwrap();
                    let is_right = match verdict {
                        Verdict::Confirmed(_) => is_ack && !is_returned,
                        Verdict::Returned(_) => is_ack && is_returned,
                        Verdict::Nacked => !is_ack,
                    };
                    assert!(is_right, "{it} by {step:?}");
                }
            }
        }
        assert_eq!((ledger.len(), ledger.is_empty()), (waiting.len(), waiting.is_empty()));
    }
    assert!(ledger.abandon().into_iter().eq(waiting.into_keys()));
}

#[cfg(test)]
mod tests;
