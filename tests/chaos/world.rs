//! The systems under fault: a database and a broker of the run's own, and the roads that lead there.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use amiquip::{
    AmqpProperties, AmqpValue, Connection, ExchangeDeclareOptions, ExchangeType, FieldTable, Publish,
    QueueDeclareOptions, QueueDeleteOptions,
};
use postgres::{Client, NoTls};

use crate::harness::{Database, Postgres, PostgresOptions, Proc, Proxy, Rabbit, RabbitOptions};
use crate::setting::{self, BRITTLE, BROKER_PASSWORD, BROKER_USER, DATABASE_PASSWORD, DIRECT, FULL, KEPT};
use crate::setting::{RELAYS, VOLATILE};

/// The binary under test.
pub const OUTBOXD: &str = env!("CARGO_BIN_EXE_outboxd");

/// What follows from starting and stopping servers on a slow machine.
pub const DEADLINE: Duration = Duration::from_secs(180);

/// Everything that faults strike.
pub struct World {
    pub postgres: Mutex<Postgres>,
    pub rabbit: Mutex<Rabbit>,
    pub database: Database,
    pub broker_url: String,
    /// One to each server for each relay. Faults of the network are made here.
    pub broker_roads: Vec<Road>,
    pub database_roads: Vec<Road>,
    pub folder: PathBuf,
}

/// A relay's way to a server.
pub struct Road {
    pub proxy: Proxy,
    /// Held while there is a fault on it: healing it ends all of them.
    pub taken: Mutex<()>,
}

impl World {
    /// Starts the servers, and makes the table, the exchanges and the queues.
    pub fn start(folder: PathBuf) -> World {
        // What is committed must survive a kill of the server. It need not survive the machine.
        let config = vec!["synchronous_commit = on".to_owned()];
        let options = PostgresOptions { config, ..PostgresOptions::default() };
        let (postgres, rabbit) = std::thread::scope(|scope| {
            let postgres = scope.spawn(|| Postgres::start(&options));
            let rabbit = scope.spawn(|| Rabbit::start(&RabbitOptions::default()));
            (postgres.join().expect("PostgreSQL"), rabbit.join().expect("RabbitMQ"))
        });
        rabbit.ctl(&["add_user", BROKER_USER, BROKER_PASSWORD]);
        rabbit.ctl(&["set_permissions", BROKER_USER, ".*", ".*", ".*"]);
        let database = postgres.database();
        prepare(&database);
        let broker_url = rabbit.url();
        topology(&broker_url).unwrap_or_else(|error| panic!("cannot declare exchanges and queues: {error}"));
        let to = |port| (0..RELAYS).map(|_| Road { proxy: Proxy::to(port), taken: Mutex::new(()) }).collect();
        std::fs::write(folder.join("outboxd.toml"), setting::config()).expect("a configuration file");
        World {
            broker_roads: to(rabbit.port()),
            database_roads: to(postgres.port()),
            postgres: Mutex::new(postgres),
            rabbit: Mutex::new(rabbit),
            database,
            broker_url,
            folder,
        }
    }

    /// A session that no fault of a road meets.
    pub fn connect(&self) -> Result<Client, postgres::Error> {
        connect(&self.database.url)
    }

    /// How many connections a relay has opened to the broker, and to the database.
    pub fn opened(&self, relay: usize) -> (u64, u64) {
        (self.broker_roads[relay].proxy.accepted(), self.database_roads[relay].proxy.accepted())
    }

    /// The addresses for a relay. Its passwords are nobody's but its own, to be found in a log that holds them.
    pub fn environment(&self, relay: usize) -> Vec<(String, String)> {
        let heartbeat = setting::settings(relay).heartbeat;
        let port = |roads: &[Road], url: &str| match roads.get(relay) {
            Some(road) => road.proxy.port(),
            None => url::Url::parse(url).ok().and_then(|url| url.port()).expect("a port"),
        };
        let database = format!(
            "postgres://postgres:{DATABASE_PASSWORD}@127.0.0.1:{}/{}?application_name={}",
            port(&self.database_roads, &self.database.url),
            self.database.name,
            setting::name(relay)
        );
        let broker = format!(
            "amqp://{BROKER_USER}:{BROKER_PASSWORD}@127.0.0.1:{}/%2F?heartbeat={heartbeat}",
            port(&self.broker_roads, &self.broker_url)
        );
        vec![
            ("DATABASE_URL".into(), database),
            ("AMQP_URL".into(), broker),
            ("OUTBOXD_CONFIG".into(), self.folder.join("outboxd.toml").display().to_string()),
        ]
    }
}

/// A session that tells soon that its server is gone.
pub fn connect(url: &str) -> Result<Client, postgres::Error> {
    let mut config: postgres::Config = url.parse()?;
    config.connect_timeout(Duration::from_secs(10)).connect(NoTls)
}

fn prepare(database: &Database) {
    let made =
        Proc::run(OUTBOXD, &["init", "--notify"], &[("DATABASE_URL", database.url.as_str())], DEADLINE);
    assert_eq!(made.code, Some(0), "{made:?}");
    let mut client = database.connect();
    client.batch_execute(include_str!("history.sql")).expect("the history of changes");
    let keys = "insert into chaos_key (key) select $1 || n from generate_series(0, $2::bigint - 1) as n";
    for (prefix, count) in
        [("key-", setting::KEYS), ("troubled-", setting::TROUBLED_KEYS), ("brittle-", setting::KEYS)]
    {
        client.execute(keys, &[&prefix, &(count as i64)]).expect("keys");
    }
}

/// Declares everything that is not there.
pub fn topology(url: &str) -> amiquip::Result<()> {
    with_channel(url, |channel| {
        for (name, kind) in
            [(KEPT, ExchangeType::Topic), (BRITTLE, ExchangeType::Topic), (VOLATILE, ExchangeType::Topic)]
        {
            declare(channel, name, kind)?;
        }
        for queue in [KEPT, DIRECT, BRITTLE, VOLATILE] {
            declare_queue(channel, queue)?;
        }
        // Full from the start: it takes one, and has one.
        let arguments =
            [("x-max-length", AmqpValue::LongInt(1)), ("x-overflow", text("reject-publish"))].into_iter();
        let arguments = arguments.map(|(name, value)| (name.to_owned(), value)).collect();
        let options = QueueDeclareOptions { durable: true, arguments, ..QueueDeclareOptions::default() };
        if channel.queue_declare(FULL, options)?.declared_message_count() == Some(0) {
            let properties = AmqpProperties::default().with_delivery_mode(2);
            channel.basic_publish("", Publish::with_properties(b"full", FULL, properties))?;
        }
        Ok(())
    })
}

/// Does this on a channel of a connection of its own.
pub fn with_channel<T>(
    url: &str,
    act: impl FnOnce(&amiquip::Channel) -> amiquip::Result<T>,
) -> amiquip::Result<T> {
    let mut connection = Connection::insecure_open(&format!("{url}?heartbeat=5"))?;
    let channel = connection.open_channel(None)?;
    let done = act(&channel);
    let closed = connection.close();
    let value = done?;
    closed.map(|()| value)
}

/// An exchange that outlives the broker, with the queue of its name bound to it where that is there.
pub fn declare(channel: &amiquip::Channel, name: &str, kind: ExchangeType) -> amiquip::Result<()> {
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    channel.exchange_declare(kind, name, options).map(drop)
}

/// A queue that keeps what it confirmed, with one consumer at a time: two could not keep an order.
pub fn declare_queue(channel: &amiquip::Channel, name: &str) -> amiquip::Result<()> {
    let mut arguments = FieldTable::new();
    arguments.insert("x-queue-type".into(), text("quorum"));
    arguments.insert("x-single-active-consumer".into(), AmqpValue::Boolean(true));
    let options = QueueDeclareOptions { durable: true, arguments, ..QueueDeclareOptions::default() };
    channel.queue_declare(name, options)?;
    if name != DIRECT {
        channel.queue_bind(name, name, format!("{name}.#"), FieldTable::new())?;
    }
    Ok(())
}

/// Deletes a queue with what is in it.
pub fn delete_queue(channel: &amiquip::Channel, name: &str) -> amiquip::Result<()> {
    channel.queue_delete(name, QueueDeleteOptions::default()).map(drop)
}

fn text(text: &str) -> AmqpValue {
    AmqpValue::LongString(text.into())
}

/// A thread that failed is told of by its own panic, not by the locks that it held.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
