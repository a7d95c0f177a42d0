//! Real servers for the tests, the benchmark and the demo.
//!
//! Everything here runs on 127.0.0.1 with private data folders and free ports, beside any server that
//! the machine runs already, and is gone when the process ends for any reason (see `guard`).

// Each of the programs that include this module uses a part of it.
#![allow(dead_code, unused_imports, unreachable_pub, missing_docs)]
// A test that cannot have its servers fails; that is what panics are for.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod broker;
mod certificates;
mod database;
mod guard;
mod hostile;
mod pooler;
mod postgres;
mod process;
mod proxy;
mod rabbit;
mod root;
mod server;
mod wait;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Once, OnceLock};
use std::{env, thread};

pub use amiquip::{AmqpValue, ExchangeType, FieldTable};

pub use self::broker::{Broker, Message, drain_queue};
pub use self::certificates::{Certificates, Identity, PKCS12_PASSWORD};
pub use self::database::{Cluster, Database, describe};
pub use self::hostile::{Behaviour, Hostile};
pub use self::pooler::Pooler;
pub use self::postgres::{Postgres, PostgresOptions};
pub use self::process::{Output, Proc};
pub use self::proxy::{Direction, Proxy};
pub use self::rabbit::{Rabbit, RabbitOptions};
pub use self::server::free_port;
pub use self::wait::wait_until;

/// A PostgreSQL server for the tests that somebody else runs; its user must be allowed to create databases.
const DATABASE_VARIABLE: &str = "OUTBOXD_TEST_DATABASE_URL";

/// A RabbitMQ broker for the tests that somebody else runs.
const AMQP_VARIABLE: &str = "OUTBOXD_TEST_AMQP_URL";

/// One PostgreSQL server and one RabbitMQ broker.
///
/// Both start at the same time. Each call waits only for the server that it needs, so a run of database
/// tests does not wait for the broker. A server that failed to start fails every test that needs it,
/// with the same words, but it is not started again and again.
pub struct Servers {
    setup: Setup,
    store: OnceLock<Result<Store, String>>,
    bus: OnceLock<Result<Bus, String>>,
}

/// Where the servers come from.
enum Setup {
    /// The process's pair: given by the environment, or started with default options.
    Shared,
    /// A pair of one's own.
    Own(PostgresOptions, RabbitOptions),
}

struct Store {
    cluster: Cluster,
    server: Option<Postgres>,
}

struct Bus {
    url: String,
    server: Option<Rabbit>,
}

impl Servers {
    /// The pair that all tests of this process share. Tests that break a server start their own.
    pub fn shared() -> &'static Servers {
        static SHARED: LazyLock<Servers> = LazyLock::new(|| Servers::new(Setup::Shared));
        static START: Once = Once::new();
        START.call_once(|| {
            thread::spawn(|| SHARED.bus());
            thread::spawn(|| SHARED.store());
        });
        &SHARED
    }

    /// Starts a pair with these options and waits for both.
    ///
    /// # Panics
    /// Panics when one of them does not start.
    pub fn start(postgres: PostgresOptions, rabbit: RabbitOptions) -> Servers {
        let servers = Servers::new(Setup::Own(postgres, rabbit));
        thread::scope(|scope| {
            scope.spawn(|| servers.bus());
            scope.spawn(|| servers.store());
        });
        // The threads only start them; a failure is told here.
        servers.require_store();
        servers.require_bus();
        servers
    }

    /// A new empty database.
    pub fn database(&self) -> Database {
        self.require_store().cluster.database()
    }

    /// A new database with what `prepare` has made, which gets a URL and is called once per template name.
    pub fn database_from(&self, template: &str, prepare: fn(&str)) -> Database {
        self.require_store().cluster.database_from(template, prepare)
    }

    /// The broker's URL, such as `amqp://guest:guest@127.0.0.1:5672/%2F`.
    pub fn amqp_url(&self) -> &str {
        &self.require_bus().url
    }

    /// A connection of the test's own to the broker.
    pub fn broker(&self) -> Broker {
        Broker::open(self.amqp_url())
    }

    /// What PostgreSQL and the broker say their versions are, such as `15.18` and `3.10.8`.
    pub fn versions(&self) -> (String, String) {
        let row = self.database().connect().query_one("show server_version", &[]);
        let postgres: String = row.expect("a server knows its version").get(0);
        // What follows says how it was packaged.
        let postgres = postgres.split(' ').next().unwrap_or_default().to_owned();
        (postgres, self.broker().version())
    }

    /// The PostgreSQL server, unless somebody else runs it.
    pub fn postgres(&self) -> Option<&Postgres> {
        self.require_store().server.as_ref()
    }

    /// The RabbitMQ broker, unless somebody else runs it.
    pub fn rabbit(&self) -> Option<&Rabbit> {
        self.require_bus().server.as_ref()
    }

    fn new(setup: Setup) -> Servers {
        Servers { setup, store: OnceLock::new(), bus: OnceLock::new() }
    }

    fn store(&self) -> &Result<Store, String> {
        self.store.get_or_init(|| {
            let server = match &self.setup {
                Setup::Own(options, _) => Postgres::try_start(options, true)?,
                Setup::Shared => match given()? {
                    Some((url, _)) => {
                        return Ok(Store { cluster: Cluster::new(url, false), server: None });
                    }
                    None => Postgres::try_start(&PostgresOptions::default(), false)?,
                },
            };
            Ok(Store { cluster: server.cluster().clone(), server: Some(server) })
        })
    }

    fn bus(&self) -> &Result<Bus, String> {
        self.bus.get_or_init(|| {
            let server = match &self.setup {
                Setup::Own(_, options) => Rabbit::try_start(options)?,
                Setup::Shared => match given()? {
                    Some((_, url)) => return Ok(Bus { url, server: None }),
                    None => Rabbit::try_start(&RabbitOptions::default())?,
                },
            };
            Ok(Bus { url: server.url(), server: Some(server) })
        })
    }

    fn require_store(&self) -> &Store {
        self.store().as_ref().unwrap_or_else(|message| panic!("{message}"))
    }

    fn require_bus(&self) -> &Bus {
        self.bus().as_ref().unwrap_or_else(|message| panic!("{message}"))
    }
}

/// The URLs of the servers that the environment points to, if it does.
fn given() -> Result<Option<(String, String)>, String> {
    match (env::var(DATABASE_VARIABLE), env::var(AMQP_VARIABLE)) {
        (Ok(database), Ok(amqp)) => Ok(Some((database, amqp))),
        (Err(_), Err(_)) => Ok(None),
        _ => Err(format!("set both of {DATABASE_VARIABLE} and {AMQP_VARIABLE}, or none of them")),
    }
}

/// A name for an exchange or a queue that no other test has.
pub fn unique(name: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    format!("{name}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}
