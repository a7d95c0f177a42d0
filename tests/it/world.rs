//! What most tests start from: an outbox in a database of its own, a broker, and the relay as a process.

use std::time::Duration;

use postgres::Client;

use crate::harness::{Broker, Database, Output, Proc, Servers, unique};

/// Generous: these machines are shared, and a deadline that passes is a failure.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The binary under test.
pub const OUTBOXD: &str = env!("CARGO_BIN_EXE_outboxd");

/// An outbox, a broker, and names that no other test has.
pub struct World {
    pub database: Database,
    pub client: Client,
    pub broker: Broker,
    pub amqp_url: String,
    config: config_file::ConfigFile,
}

/// A row of the outbox, as far as tests look at it.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub id: i64,
    pub event_id: String,
    pub status: String,
    pub fail_count: i32,
    pub last_error: Option<String>,
    /// Whether the column holds a time.
    pub attempted: bool,
    pub published: bool,
    /// Whether `available_at` is in the future.
    pub backs_off: bool,
}

/// Makes an empty outbox.
pub fn init(database_url: &str) {
    let made = Proc::run(OUTBOXD, &["init"], &[("DATABASE_URL", database_url)], DEADLINE);
    assert_eq!(made.code, Some(0), "{made:?}");
}

/// The text as it stands in quotes in a line of the log.
pub fn as_logged(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

impl World {
    /// A world with an empty outbox.
    pub fn new() -> World {
        World::with_broker(Servers::shared().amqp_url())
    }

    /// A world with an empty outbox, and a broker that the test started itself.
    pub fn with_broker(amqp_url: &str) -> World {
        World::on(Servers::shared().database_from("outbox", init), amqp_url)
    }

    /// A world on a database that the test prepares itself.
    pub fn on(database: Database, amqp_url: &str) -> World {
        let client = database.connect();
        let broker = Broker::open(amqp_url);
        let config = config_file::ConfigFile::new();
        World { database, client, broker, amqp_url: amqp_url.into(), config }
    }

    /// A queue of its own, which is also the event type that goes there without any route.
    pub fn queue(&self) -> String {
        let name = unique("type");
        self.broker.declare_queue(&name, &[]);
        name
    }

    /// Writes an event that is old enough to be due at once, and returns its row's id.
    pub fn insert(&mut self, event_type: &str, payload: &str) -> i64 {
        self.insert_with(event_type, payload, "created_at", "clock_timestamp() - interval '1 hour'")
    }

    /// The same with further columns, given as SQL.
    pub fn insert_with(&mut self, event_type: &str, payload: &str, columns: &str, values: &str) -> i64 {
        let event_id = ulid::Ulid::generate().to_string();
        let sql = format!(
            "insert into event_outbox (event_id, event_type, payload, {columns}) values ($1, $2, $3, {values}) \
             returning id"
        );
        self.client.query_one(&sql, &[&event_id, &event_type, &payload]).unwrap().get(0)
    }

    /// Writes `count` due events of one type in one statement.
    pub fn insert_many(&mut self, event_type: &str, count: i64) {
        let sql = "insert into event_outbox (event_id, event_type, payload, created_at) \
             select $3 || lpad(n::text, 12, '0'), $1, json_build_object('n', n)::text, \
                 clock_timestamp() - interval '1 hour' \
             from generate_series(1, $2::bigint) as n";
        // 14 characters that no other call has, so that ids stay unique.
        let prefix = &ulid::Ulid::generate().to_string()[12..];
        self.client.execute(sql, &[&event_type, &count, &prefix]).unwrap();
    }

    /// The row with this id.
    pub fn row(&mut self, id: i64) -> Row {
        let sql = "select id, event_id::text, status::text, fail_count::integer, last_error, \
                 last_retried_at is not null, published_at is not null, \
                 coalesce(available_at > clock_timestamp(), false) \
             from event_outbox where id = $1";
        let row = self.client.query_one(sql, &[&id]).unwrap();
        Row {
            id: row.get(0),
            event_id: row.get(1),
            status: row.get(2),
            fail_count: row.get(3),
            last_error: row.get(4),
            attempted: row.get(5),
            published: row.get(6),
            backs_off: row.get(7),
        }
    }

    /// How many rows have this status.
    pub fn count(&mut self, status: &str) -> i64 {
        let sql = "select count(*) from event_outbox where status::text = $1";
        self.client.query_one(sql, &[&status]).unwrap().get(0)
    }

    /// The event ids of the messages that are in the queue now, in the order of their arrival; takes them out.
    pub fn arrivals(&self, queue: &str) -> Vec<String> {
        let messages = self.broker.drain_ready(queue);
        messages.iter().map(|message| message.id().to_owned()).collect()
    }

    /// Ends the back-off of every failed event.
    pub fn end_backoff(&mut self) {
        let sql = "update event_outbox set available_at = null where status = 'FAILED'";
        self.client.execute(sql, &[]).unwrap();
    }

    /// The configuration file that `once` and `run` of this world read; TOML.
    pub fn configure(&self, toml: &str) {
        self.config.write(toml);
    }

    /// The path of that file.
    pub fn config_path(&self) -> &str {
        self.config.path()
    }

    /// Runs `outboxd once` with these further arguments, and expects the exit code.
    pub fn once(&self, arguments: &[&str], code: i32) -> Output {
        let output = Proc::run(OUTBOXD, &self.arguments("once", arguments), &self.environment(), DEADLINE);
        assert_eq!(output.code, Some(code), "{output:?}");
        output
    }

    /// Starts `outboxd run` with these further arguments, as a process. It logs every tick.
    pub fn start(&self, arguments: &[&str]) -> Proc {
        Proc::spawn(OUTBOXD, &self.arguments("run", &[&["-v"], arguments].concat()), &self.environment())
    }

    /// Runs any command of the binary.
    pub fn outboxd(&self, arguments: &[&str]) -> Output {
        Proc::run(OUTBOXD, arguments, &self.environment(), DEADLINE)
    }

    fn arguments<'a>(&'a self, command: &'a str, further: &[&'a str]) -> Vec<&'a str> {
        [&[command, "--config", self.config.path()], further].concat()
    }

    fn environment(&self) -> [(&str, &str); 2] {
        [("DATABASE_URL", &self.database.url), ("AMQP_URL", &self.amqp_url)]
    }
}

mod config_file {
    //! A configuration file that is gone with its world.

    use std::path::PathBuf;
    use std::{env, fs};

    use crate::harness::unique;

    pub struct ConfigFile {
        path: PathBuf,
        text: String,
    }

    impl ConfigFile {
        pub fn new() -> ConfigFile {
            let path = env::temp_dir().join(unique("outboxd-test")).with_extension("toml");
            fs::write(&path, "").unwrap();
            let text = path.to_str().unwrap().to_owned();
            ConfigFile { path, text }
        }

        pub fn path(&self) -> &str {
            &self.text
        }

        pub fn write(&self, toml: &str) {
            fs::write(&self.path, toml).unwrap();
        }
    }

    impl Drop for ConfigFile {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
