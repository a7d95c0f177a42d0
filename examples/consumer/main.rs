//! A consumer that handles each event once, although it may receive it twice.
//!
//! `cargo run --release --example consumer`, with `DATABASE_URL` and `AMQP_URL`, sends itself three events twice, and
//! ends when nothing more comes. With a queue's name as its argument it consumes that queue until it is interrupted.

#![allow(clippy::print_stdout, reason = "an example is there to be read")]

#[path = "../common/mod.rs"]
mod common;
mod copies;

use std::env;
use std::error::Error;
use std::time::Duration;

use amiquip::{Connection, ConsumerMessage, ConsumerOptions, Delivery, QueueDeclareOptions};
use outboxd::inbox;
use outboxd::postgres::{Client, NoTls};

/// Who handles the events: another consumer of the same events has another name.
const CONSUMER: &str = "billing";

fn main() -> Result<(), Box<dyn Error>> {
    let servers = common::Servers::from_environment()?;
    let config = servers.config()?;
    let mut client = Client::connect(&servers.database_url, NoTls)?;
    // Once: the inbox, as `outboxd init --inbox` makes it, and what the work needs: an invoice for each paid order.
    inbox::init(&config.database)?;
    client.batch_execute(
        "create table if not exists invoices (id bigserial primary key, paid text not null)",
    )?;

    match env::args().nth(1) {
        Some(queue) => consume(&mut client, servers.broker()?, &queue, Duration::MAX),
        None => {
            servers.prepare("order.paid")?;
            copies::send(&mut client, config, "order.paid")?;
            consume(&mut client, servers.broker()?, "order.paid", Duration::from_secs(2))
        }
    }
}

/// Consumes a queue until nothing has come for as long as `idle`.
fn consume(
    client: &mut Client,
    mut connection: Connection,
    queue: &str,
    idle: Duration,
) -> Result<(), Box<dyn Error>> {
    let channel = connection.open_channel(None)?;
    // At most so many are on their way here without an acknowledgement; they would come again.
    channel.qos(0, 20, false)?;
    let queue = channel.queue_declare(queue, QueueDeclareOptions { durable: true, ..Default::default() })?;
    let consumer = queue.consume(ConsumerOptions { no_ack: false, ..Default::default() })?;
    while let Ok(message) = consumer.receiver().recv_timeout(idle) {
        let ConsumerMessage::Delivery(delivery) = message else {
            return Err(format!("the consumer was ended: {message:?}").into());
        };
        // An error ends this program: what is not acknowledged comes again.
        match handle(client, &delivery)? {
            // Only after the commit. Dying in between brings the message again, and it is known then.
            Handled::Yes => consumer.ack(delivery)?,
            // Without requeue, since it would only come again. A dead-letter exchange keeps it.
            Handled::Never => consumer.reject(delivery, false)?,
        }
    }
    connection.close()?;
    Ok(())
}

/// What became of a message.
enum Handled {
    /// Now, or by an earlier copy of it.
    Yes,
    /// It is no event of ours.
    Never,
}

fn handle(client: &mut Client, delivery: &Delivery) -> Result<Handled, Box<dyn Error>> {
    let Some(id) = delivery.properties.message_id() else {
        println!("a message without an id is not from an outbox");
        return Ok(Handled::Never);
    };
    let paid = String::from_utf8_lossy(&delivery.body);
    let mut tx = client.transaction()?;
    // The question and the work commit together, or neither does.
    if inbox::first_time(&mut tx, CONSUMER, id)? {
        tx.execute("insert into invoices (paid) values ($1)", &[&paid])?;
        println!("{id}  handled: {paid}");
    } else {
        println!("{id}  a copy, known already");
    }
    tx.commit()?;
    Ok(Handled::Yes)
}
