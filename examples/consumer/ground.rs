//! Private servers for the example, and a relay that sends everything twice, as one does whose host died at a bad
//! moment.

use std::error::Error;
use std::time::Duration;

use outboxd::config::Config;
use outboxd::outbox;
use outboxd::postgres::{Client, NoTls};
use outboxd::relay::{Relay, Stop};
use outboxd::{NewEvent, append, inbox};
use serde_json::json;

#[path = "../../tests/it/harness/mod.rs"]
mod harness;

use harness::{PostgresOptions, RabbitOptions, Servers};

/// Where events of this type go without any route.
pub(crate) const QUEUE: &str = "order.paid";

pub(crate) struct Ground {
    pub(crate) database: String,
    pub(crate) amqp: String,
    _servers: Servers,
}

impl Ground {
    pub(crate) fn new() -> Result<Self, Box<dyn Error>> {
        println!("Two private servers start; that takes some seconds.");
        let servers = Servers::start(PostgresOptions::default(), RabbitOptions::default());
        let database = servers.postgres().expect("the server is our own").url("postgres");
        servers.broker().declare_queue(QUEUE, &[]);
        Ok(Self { database, amqp: servers.amqp_url().to_owned(), _servers: servers })
    }

    /// Three orders are paid, and each of their events is sent twice.
    pub(crate) fn relay_everything_twice(&self) -> Result<(), Box<dyn Error>> {
        let mut config = Config::new(&self.database, &self.amqp)?;
        config.claim.min_age = Duration::ZERO;
        outbox::init(&config.database)?;
        inbox::init(&config.database)?;

        let mut client = Client::connect(&self.database, NoTls)?;
        for order in 1..=3 {
            let mut tx = client.transaction()?;
            append(&mut tx, &NewEvent::new("order.paid").payload(json!({ "order": order })))?;
            tx.commit()?;
        }
        let mut relay = Relay::new(config);
        for _ in 0..2 {
            relay.tick(&Stop::new());
            // As if the relay had died after the broker took them and before it wrote that down.
            client.execute("update event_outbox set status = 'WAITING', published_at = null", &[])?;
        }
        relay.close();
        Ok(())
    }

    /// The story must be true.
    pub(crate) fn check(&self) -> Result<(), Box<dyn Error>> {
        let mut client = Client::connect(&self.database, NoTls)?;
        let invoices: i64 = client.query_one("select count(*) from invoices", &[])?.get(0);
        assert_eq!(invoices, 3, "one for each order");
        println!("6 messages, {invoices} invoices.");
        Ok(())
    }
}
