//! What the examples share: where their servers are, and what an example needs there before it begins.
//!
//! They are for servers on which things may be tried out: `cargo run --release --example demo -- servers` starts such.

use std::env;
use std::error::Error;

use amiquip::{Connection, QueueDeclareOptions};
use outboxd::config::Config;
use outboxd::{outbox, publisher};

/// Where the servers are.
pub(crate) struct Servers {
    pub(crate) database_url: String,
    pub(crate) amqp_url: String,
}

impl Servers {
    /// Those that `DATABASE_URL` and `AMQP_URL` name.
    pub(crate) fn from_environment() -> Result<Self, Box<dyn Error>> {
        let named = |name| {
            let start = "cargo run --release --example demo -- servers";
            env::var(name)
                .map_err(|_| format!("set {name} to a server for trying things out, or start one: {start}"))
        };
        Ok(Self { database_url: named("DATABASE_URL")?, amqp_url: named("AMQP_URL")? })
    }

    /// The relay's configuration: its defaults for these servers.
    pub(crate) fn config(&self) -> Result<Config, Box<dyn Error>> {
        Ok(Config::new(&self.database_url, &self.amqp_url)?)
    }

    /// Makes the outbox, as `outboxd init` does, and a queue for this type of event: without a route, an event goes to
    /// the queue that is named after its type. Both are left alone when they are there.
    pub(crate) fn prepare(&self, event_type: &str) -> Result<(), Box<dyn Error>> {
        outbox::init(&self.config()?.database)?;
        let mut connection = self.broker()?;
        let channel = connection.open_channel(None)?;
        channel.queue_declare(event_type, QueueDeclareOptions { durable: true, ..Default::default() })?;
        connection.close()?;
        Ok(())
    }

    /// A connection to the broker, in the clear. What the client says of a failure may hold the URL, so it is not told.
    pub(crate) fn broker(&self) -> Result<Connection, Box<dyn Error>> {
        let failed = |_| format!("no connection to the broker {}", publisher::describe_url(&self.amqp_url));
        Ok(Connection::insecure_open(&self.amqp_url).map_err(failed)?)
    }
}
