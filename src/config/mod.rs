//! What the relay is told: every value, its default, its limits, and how it must agree with the others.
//!
//! Pure. The environment, the command line and the file system are the binary's: what it gathered there comes
//! in as [`Given`] values with their [`Origin`]. Which of them wins, and whether it may, is decided here, in
//! [`Config::from_given`]. Each module is handed only the part that it may know.

mod file;
mod given;
mod libpq;
mod log;
mod metrics;
mod operator;
mod origins;
mod parts;
mod setting;
mod value;

use std::fmt;
use std::time::Duration;

use crate::route::{CONTENT_TYPE, Destination, Pattern, Route, Unroutable};
use crate::{outbox, publisher};

pub use file::parse_toml;
pub use given::{Given, GivenRoute, Origin, Problem, Problems};
use given::{Keys, Reader};
pub use libpq::{Fallback, is_ignored_variable, is_libpq_variable};
pub use log::LogFormat;
pub use metrics::Metrics;
use metrics::read_metrics;
pub use operator::Operator;
pub use origins::{exposed_flags, origins};
pub use parts::Parts;
pub use setting::{Group, ROUTE_KEYS, RouteKey, SETTINGS, Setting};
pub use value::{TableName, parse_duration};

/// Everything the relay is told. Valid as the constructors make it; who changes a field answers for its
/// limits.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the events come from.
    pub database: Database,
    /// Which events are taken, and how many at once.
    pub claim: Claim,
    /// Where the messages go to, and how many at once.
    pub broker: Broker,
    /// Which destination an event has.
    pub routing: Routing,
    /// What a refusal leads to.
    pub retry: Retry,
    /// The beat of the fixed rate, 10 ms to 24 h. Default: 30 s.
    pub interval: Duration,
    /// The longest time from the first SIGTERM to the end, 1 s to 10 min. Default: 10 s.
    pub grace: Duration,
    /// Whether the relay listens for commits (LISTEN/NOTIFY) and looks at the table when it hears of one. Default: it only
    /// polls. See [`Config::listening`].
    pub listen: bool,
    /// Where it listens, if `database.url` leads through a transaction pooler. Default: none, at `database.url`.
    pub listen_url: Option<Secret>,
    /// The age at which `run` purges finished events, 1 s to 3650 days. Default: none, nothing is purged.
    pub retention: Option<Duration>,
    /// Where the program shows how it is doing. The library does not look at it.
    pub metrics: Metrics,
}

/// What the outbox is told about the database.
#[derive(Debug, Clone)]
pub struct Database {
    /// Where it is, and who we are there; empty when the fallbacks say it all. No default.
    pub url: Secret,
    /// What stands for the parts that the URL leaves out. Default: none.
    pub fallbacks: Vec<Fallback>,
    /// The outbox. Default: `event_outbox`, found by the search path.
    pub table: TableName,
    /// The longest time until a session is usable, 1 s to 5 min. Default: 10 s.
    pub open_timeout: Duration,
    /// The server ends a claim whose relay does nothing for this long, 5 s to 1 h. Default: 60 s.
    pub claim_max_idle: Duration,
    /// The zone of the table's times where its columns have none, as PostgreSQL names it. Default: the session's own.
    pub time_zone: Option<String>,
}

/// Which events a claim takes, and its bounds.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Most events in one claim, 1 to 10 000. Default: 500.
    pub batch_rows: usize,
    /// Most bytes of payload in one claim, 1 KiB to 256 MiB; a larger event goes alone. Default: 8 MiB.
    pub batch_bytes: usize,
    /// A WAITING event is due at this age, 0 s to 30 days. Default: 30 s; 0 s with `listen`.
    pub min_age: Duration,
    /// A WAITING event older than this expires, 1 s to 3650 days and more than `min_age`. Default: none.
    pub max_age: Option<Duration>,
    /// [`Retry::max_failures`], because a FAILED event at a limit that was lowered since is claimed to be
    /// ended.
    pub max_failures: u32,
    /// [`Routing::payload_max`], in bytes: a larger payload is refused and need not be fetched.
    pub payload_max: usize,
    /// Whether a DEAD event holds back the later ones of its key. Default: it does.
    pub on_dead: OnDead,
}

/// What a DEAD event means for the later events of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDead {
    /// They wait until a person has decided about it.
    #[default]
    Block,
    /// They go on without it.
    Skip,
}

/// What the publisher is told about the broker.
#[derive(Debug, Clone)]
pub struct Broker {
    /// Where it is, and who we are there. No default.
    pub url: Secret,
    /// The longest time until a session is usable, 1 s to 5 min. Default: 10 s.
    pub open_timeout: Duration,
    /// The longest wait for the next confirm, 1 s to 10 min. Default: 15 s.
    pub publish_timeout: Duration,
    /// Threads that publish, each with a channel of its own, 1 to 32. Default: 2.
    pub workers: usize,
    /// Most unconfirmed messages per channel, 1 to 10 000. Default: 256.
    pub window: usize,
    /// Most unconfirmed bytes per channel, 1 KiB to 64 MiB; a larger message goes alone. Default: 4 MiB.
    pub window_bytes: usize,
}

/// Where events go.
#[derive(Debug, Clone)]
pub struct Routing {
    /// The first whose pattern matches decides. Default: none.
    pub routes: Vec<Route>,
    /// For events that no route names. Default: the default exchange, to the queue named like the event type.
    pub fallback: Destination,
    /// Largest payload that is sent, in bytes, 1 KiB to 512 MiB. Default: 16 MiB, which is RabbitMQ 4's own
    /// limit.
    pub payload_max: usize,
}

/// What a refusal leads to.
#[derive(Debug, Clone)]
pub struct Retry {
    /// Refusals until an event is DEAD, 1 to 1000. Default: 3.
    pub max_failures: u32,
    /// The wait after the first refusal, 1 ms to 24 h; it doubles with each further one. Default: 30 s.
    pub backoff_base: Duration,
    /// The longest such wait, 1 ms to 24 h and not below `backoff_base`. Default: 10 min.
    pub backoff_max: Duration,
}

impl Config {
    /// The defaults, for an application that runs the relay inside itself.
    ///
    /// # Errors
    /// What is wrong with the URLs; the URLs themselves are never part of it.
    pub fn new(database_url: &str, amqp_url: &str) -> Result<Self, Problems> {
        let given =
            |name: &str, value: &str| Given { name: name.into(), value: value.into(), origin: Origin::Code };
        Self::from_given(&[given("database_url", database_url), given("amqp_url", amqp_url)], &[])
    }

    /// The same, woken by commits: [`listen`](Self::listen) is set, and `min_age` is 0, because the relay is the one who
    /// publishes then. The table must have its trigger: [`init_notify`](crate::outbox::init_notify).
    #[must_use]
    pub fn listening(mut self) -> Self {
        self.listen = true;
        self.claim.min_age = Duration::ZERO;
        self
    }

    /// Decides every value from what was given for it: code before flag before environment before file before
    /// default. Only the value that wins is looked at, but a name that means nothing is reported wherever it
    /// stands.
    ///
    /// # Errors
    /// All problems at once.
    pub fn from_given(given: &[Given], routes: &[GivenRoute]) -> Result<Self, Problems> {
        let mut reader = Reader::new(given);
        let config = read_config(&mut reader, routes);
        reader.finish(config)
    }
}

impl Database {
    /// Like [`Config::from_given`], for commands that know no broker. Other settings' values are not looked
    /// at.
    ///
    /// # Errors
    /// All problems at once.
    pub fn from_given(given: &[Given]) -> Result<Self, Problems> {
        let mut reader = Reader::new(given);
        let database = read_database(&mut reader);
        reader.finish(database)
    }
}

impl TableName {
    /// Like [`Database::from_given`], for who needs no database either.
    ///
    /// # Errors
    /// All problems at once.
    pub fn from_given(given: &[Given]) -> Result<Self, Problems> {
        let mut reader = Reader::new(given);
        let table = reader.read("table", Self::parse);
        reader.finish(table)
    }
}

// Each of these first reads everything, so that every problem is seen, and only then asks what is missing.

fn read_config(reader: &mut Reader<'_>, routes: &[GivenRoute]) -> Option<Config> {
    let database = read_database(reader);
    let claim = read_claim(reader);
    let broker = read_broker(reader);
    let routing = read_routing(reader, routes);
    let retry = read_retry(reader);
    let interval = reader.read("interval", |text| value::duration(text, &setting::INTERVAL));
    let grace = reader.read("grace", |text| value::duration(text, &setting::GRACE));
    let retention = read_retention(reader);
    let listen = reader.read("listen", value::switch);
    let listen_url = read_listen_url(reader);
    let metrics = read_metrics(reader);
    Some(Config {
        database: database?,
        claim: claim?,
        broker: broker?,
        routing: routing?,
        retry: retry?,
        interval: interval?,
        grace: grace?,
        retention: retention?,
        listen: listen?,
        listen_url: listen_url?,
        metrics: metrics?,
    })
}

fn read_database(reader: &mut Reader<'_>) -> Option<Database> {
    let fallbacks = reader.fallbacks();
    let url = read_database_url(reader, &fallbacks);
    let table = reader.read("table", TableName::parse);
    let time_zone = reader.read("time_zone", |text| value::or_none(text, value::time_zone));
    let open_timeout = reader.read("open_timeout", |text| value::duration(text, &setting::OPEN_TIMEOUT));
    let claim_max_idle =
        reader.read("claim_max_idle", |text| value::duration(text, &setting::CLAIM_MAX_IDLE));
    Some(Database {
        url: url?,
        fallbacks,
        table: table?,
        open_timeout: open_timeout?,
        claim_max_idle: claim_max_idle?,
        time_zone: time_zone?,
    })
}

/// No URL at all is fine where the environment names the host, as people know it from psql.
fn read_database_url(reader: &mut Reader<'_>, fallbacks: &[Fallback]) -> Option<Secret> {
    let check = |text: &str| outbox::check_url(text, fallbacks);
    if !reader.is_given("database_url") && fallbacks.iter().any(|it| it.keyword() == "host") {
        return match check("") {
            Ok(()) => Some(Secret::default()),
            Err(why) => {
                reader.note(Problem::new("PGHOST, in place of database_url", why));
                None
            }
        };
    }
    reader.explained("database_url", |text| url(text, check))
}

fn read_listen_url(reader: &mut Reader<'_>) -> Option<Option<Secret>> {
    let fallbacks = reader.fallbacks();
    reader.explained("listen_url", |text| match text.trim() {
        "none" => Ok(None),
        text => url(text, |text| outbox::check_url(text, &fallbacks)).map(Some),
    })
}

fn read_claim(reader: &mut Reader<'_>) -> Option<Claim> {
    let batch_rows = reader.read("batch_rows", |text| value::count(text, &setting::BATCH_ROWS));
    let batch_bytes = reader.read("batch_bytes", |text| value::size(text, &setting::BATCH_BYTES));
    let min_age = read_min_age(reader);
    let max_age =
        reader.read("max_age", |text| value::or_none(text, |text| value::duration(text, &setting::MAX_AGE)));
    if let (Some(min), Some(Some(max))) = (min_age, max_age) {
        if max <= min {
            reader.disagree("max_age", "must be more than", "min_age");
        }
    }
    let max_failures = read_max_failures(reader);
    let payload_max = read_payload_max(reader);
    let on_dead = reader.read("on_dead", value::on_dead);
    Some(Claim {
        batch_rows: batch_rows?,
        batch_bytes: batch_bytes?,
        min_age: min_age?,
        max_age: max_age?,
        max_failures: max_failures?,
        payload_max: payload_max?,
        on_dead: on_dead?,
    })
}

/// A relay that hears of commits need not leave time to whoever publishes right after them.
fn read_min_age(reader: &mut Reader<'_>) -> Option<Duration> {
    let listens = reader.read("listen", value::switch)?;
    if listens && !reader.is_given("min_age") {
        return Some(Duration::ZERO);
    }
    reader.read("min_age", |text| value::duration(text, &setting::MIN_AGE))
}

fn read_broker(reader: &mut Reader<'_>) -> Option<Broker> {
    let url = reader.explained("amqp_url", |text| url(text, publisher::check_url));
    let open_timeout = reader.read("open_timeout", |text| value::duration(text, &setting::OPEN_TIMEOUT));
    let publish_timeout =
        reader.read("publish_timeout", |text| value::duration(text, &setting::PUBLISH_TIMEOUT));
    let workers = reader.read("workers", |text| value::count(text, &setting::WORKERS));
    let window = reader.read("window", |text| value::count(text, &setting::WINDOW));
    let window_bytes = reader.read("window_bytes", |text| value::size(text, &setting::WINDOW_BYTES));
    Some(Broker {
        url: url?,
        open_timeout: open_timeout?,
        publish_timeout: publish_timeout?,
        workers: workers?,
        window: window?,
        window_bytes: window_bytes?,
    })
}

fn read_routing(reader: &mut Reader<'_>, routes: &[GivenRoute]) -> Option<Routing> {
    let routes: Vec<_> = routes.iter().map(|route| read_route(reader, route)).collect();
    let exchange = reader.read("exchange", value::exchange);
    let routing_key = reader.explained("routing_key", value::routing_key);
    let payload_max = read_payload_max(reader);
    Some(Routing {
        routes: routes.into_iter().collect::<Option<_>>()?,
        fallback: Destination {
            exchange: exchange?,
            routing_key: routing_key?,
            content_type: CONTENT_TYPE.into(),
            unroutable: Unroutable::default(),
        },
        payload_max: payload_max?,
    })
}

fn read_route(reader: &mut Reader<'_>, route: &GivenRoute) -> Option<Route> {
    let mut keys = Keys::new(reader, route);
    let event_type = keys.read("event_type", |text| Pattern::parse(text).ok());
    let exchange = keys.read("exchange", value::exchange);
    let routing_key = keys.explained("routing_key", value::routing_key);
    let content_type = keys.read("content_type", value::content_type);
    let unroutable = keys.read("unroutable", |text| Unroutable::parse(text).ok());
    Some(Route {
        event_type: event_type?,
        destination: Destination {
            exchange: exchange?,
            routing_key: routing_key?,
            content_type: content_type?,
            unroutable: unroutable?,
        },
    })
}

fn read_retry(reader: &mut Reader<'_>) -> Option<Retry> {
    let max_failures = read_max_failures(reader);
    let base = reader.read("backoff_base", |text| value::duration(text, &setting::BACKOFF));
    let max = reader.read("backoff_max", |text| value::duration(text, &setting::BACKOFF));
    if let (Some(base), Some(max)) = (base, max) {
        if base > max {
            reader.disagree("backoff_base", "must be at most", "backoff_max");
        }
    }
    Some(Retry { max_failures: max_failures?, backoff_base: base?, backoff_max: max? })
}

fn read_max_failures(reader: &mut Reader<'_>) -> Option<u32> {
    reader.read("max_failures", |text| value::count(text, &setting::MAX_FAILURES))
}

fn read_payload_max(reader: &mut Reader<'_>) -> Option<usize> {
    reader.read("payload_max", |text| value::size(text, &setting::PAYLOAD_MAX))
}

fn read_retention(reader: &mut Reader<'_>) -> Option<Option<Duration>> {
    reader.read("retention", |text| value::or_none(text, |text| value::duration(text, &setting::RETENTION)))
}

/// The empty text is refused here because a driver may take it for "all defaults": the server next door.
fn url(text: &str, check: impl Fn(&str) -> Result<(), String>) -> Result<Secret, String> {
    if text.trim().is_empty() {
        return Err("is empty".into());
    }
    check(text).map(|()| Secret::new(text))
}

/// Text that is never printed: a URL with a password in it.
#[derive(Clone, Default)]
pub struct Secret(String);

impl Secret {
    /// Hides `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the one who connects with it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

#[cfg(test)]
mod tests;
