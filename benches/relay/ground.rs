//! What all figures stand on: the servers, an outbox to fill, a queue, and the binary.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use amiquip::{AmqpValue, Connection};
use outboxd::config::{Config, Database as DatabaseConfig, Given, Origin};

use crate::harness::{
    Broker, Database, Message, Output, PostgresOptions, Proc, Proxy, RabbitOptions, Servers,
};
use crate::page::Versions;

pub const OUTBOXD: &str = env!("CARGO_BIN_EXE_outboxd");

/// The queue, and the type of the events that go there without any route.
pub const QUEUE: &str = "bench.event";

/// What the pattern's events are like.
pub const PAYLOAD_BYTES: usize = 500;

/// Far beyond what anything here takes; only a relay that hangs meets it.
pub const DEADLINE: Duration = Duration::from_secs(300);

pub struct Ground {
    pub servers: Servers,
    pub database: Database,
    pub broker: Broker,
    pub config: Config,
}

impl Ground {
    pub fn new() -> Self {
        let postgres = PostgresOptions { durable: true, ..PostgresOptions::default() };
        let servers = Servers::start(postgres, RabbitOptions::default());
        let database = servers.database();
        let mut config = Config::new(&database.url, servers.amqp_url()).unwrap();
        config.claim.min_age = Duration::ZERO;
        outboxd::outbox::init(&config.database).unwrap();
        let broker = servers.broker();
        broker.declare_queue(QUEUE, &[]);
        Self { servers, database, broker, config }
    }

    /// What the servers say that they are.
    pub fn versions(&self) -> Versions {
        let postgres = self.database.connect().query_one("show server_version", &[]).unwrap();
        let broker = Connection::insecure_open(self.servers.amqp_url()).unwrap();
        let says = |name| match broker.server_properties().get(name) {
            Some(AmqpValue::LongString(text)) => text.clone(),
            other => panic!("the broker's {name}: {other:?}"),
        };
        let (rabbit, erlang) = (says("version"), says("platform"));
        broker.close().unwrap();
        // Debian's package says its own version behind it.
        let postgres: String = postgres.get(0);
        Versions { postgres: postgres.split(' ').next().unwrap_or_default().into(), rabbit, erlang }
    }

    /// A table with only these events to send, all old enough for the defaults, and statistics as autovacuum would
    /// keep them.
    pub fn fill(&self, events: usize, payload_bytes: usize) {
        let mut client = self.database.connect();
        client.batch_execute("truncate event_outbox restart identity").unwrap();
        client
            .execute(
                "insert into event_outbox (event_id, event_type, payload, created_at)
                 select lpad(n::text, 26, '0'), $1, $2, clock_timestamp() - interval '1 hour'
                 from generate_series(1, $3::bigint) as n",
                &[&QUEUE, &payload(payload_bytes), &i64::try_from(events).unwrap()],
            )
            .unwrap();
        client.batch_execute("vacuum analyze event_outbox").unwrap();
    }

    /// An empty table.
    pub fn empty(&self) {
        self.database.connect().batch_execute("truncate event_outbox restart identity").unwrap();
    }

    /// Adds events that are due; `key` is their ordering key as SQL, in which `n` counts them.
    pub fn insert(&self, events: usize, key: &str) {
        let mut client = self.database.connect();
        let sql = format!(
            "insert into event_outbox (event_id, event_type, payload, created_at, ordering_key)
             select lpad((n + coalesce((select max(id) from event_outbox), 0))::text, 26, '0'), $1, $2,
                 clock_timestamp() - interval '1 hour', {key}
             from generate_series(1, $3::bigint) as n"
        );
        let events = i64::try_from(events).unwrap();
        client.execute(&sql, &[&QUEUE, &payload(PAYLOAD_BYTES), &events]).unwrap();
        client.batch_execute("vacuum analyze event_outbox").unwrap();
    }

    /// Adds many rows of this status, with small payloads, and leaves the planner in the dark.
    pub fn bulk(&self, rows: i64, status: &str) {
        let sql = "insert into event_outbox (event_id, event_type, payload, created_at, status)
             select lpad((n + coalesce((select max(id) from event_outbox), 0))::text, 26, '0'), $1, $2,
                 clock_timestamp() - interval '1 hour', $3
             from generate_series(1, $4::bigint) as n";
        self.database.connect().execute(sql, &[&QUEUE, &payload(100), &status, &rows]).unwrap();
    }

    /// The first event of each key has failed, and backs off for longer than anything here takes.
    pub fn fail_heads(&self) {
        let sql = "update event_outbox
             set status = 'FAILED', fail_count = 1, available_at = clock_timestamp() + interval '1 day'
             where id in (select min(id) from event_outbox where ordering_key is not null group by ordering_key)";
        self.database.connect().batch_execute(sql).unwrap();
    }

    /// How many rows meet this condition.
    pub fn count(&self, condition: &str) -> usize {
        let sql = format!("select count(*) from event_outbox where {condition}");
        let count: i64 = self.database.connect().query_one(&sql, &[]).unwrap().get(0);
        usize::try_from(count).unwrap()
    }

    /// Throws away what has arrived, however much it is.
    pub fn renew_queue(&self) {
        self.broker.delete_queue(QUEUE);
        self.broker.declare_queue(QUEUE, &[]);
    }

    /// The queue's messages and how many of them are second copies; it is empty then.
    pub fn take(&self) -> (Vec<Message>, usize) {
        let messages = self.broker.drain_ready(QUEUE);
        let ids: HashSet<&str> = messages.iter().map(Message::id).collect();
        let copies = messages.len() - ids.len();
        (messages, copies)
    }

    /// A proxy in front of the broker.
    pub fn proxy(&self) -> Proxy {
        Proxy::to(self.servers.rabbit().unwrap().port())
    }

    /// A proxy in front of the database, and the database's URL through it.
    pub fn database_proxy(&self) -> (Proxy, String) {
        let port = self.servers.postgres().unwrap().port();
        let proxy = Proxy::to(port);
        let url = self.database.url.replace(&format!(":{port}/"), &format!(":{}/", proxy.port()));
        assert_ne!(url, self.database.url);
        (proxy, url)
    }

    /// The relay as anyone would start it.
    pub fn start(&self, amqp_url: &str, arguments: &[&str]) -> Proc {
        Proc::spawn(OUTBOXD, arguments, &[("DATABASE_URL", &self.database.url), ("AMQP_URL", amqp_url)])
    }

    /// `outboxd once` from its start to its end, in seconds.
    pub fn once(&self, amqp_url: &str) -> (Output, f64) {
        let started = Instant::now();
        let output = self.start(amqp_url, &["once"]).wait(DEADLINE);
        (output, started.elapsed().as_secs_f64())
    }
}

/// The default virtual host, for the default user, at this port.
pub fn amqp_url(port: u16) -> String {
    format!("amqp://guest:guest@127.0.0.1:{port}/%2F")
}

/// The configuration of a database at this address, with defaults.
pub fn database_at(url: &str) -> DatabaseConfig {
    let (name, value) = ("database_url".into(), url.into());
    DatabaseConfig::from_given(&[Given { name, value, origin: Origin::Code }]).unwrap()
}

/// A JSON object of so many bytes.
pub fn payload(bytes: usize) -> String {
    let payload = format!("{{\"filler\":\"{}\"}}", "x".repeat(bytes - 13));
    assert_eq!(payload.len(), bytes);
    payload
}
