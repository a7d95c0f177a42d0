//! A consumer that handles each event once although it may receive it twice.
//!
//! `cargo run --example consumer -- QUEUE` consumes that queue with `DATABASE_URL` and `AMQP_URL`, until it is
//! interrupted. Without them it starts private servers as the demo does, has three events relayed to it twice, and ends.

#![allow(clippy::print_stdout, reason = "an example is there to be read")]
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "whatever fails ends it: unacknowledged messages come again"
)]

mod ground;

use std::env;
use std::error::Error;
use std::time::Duration;

use amiquip::{Connection, ConsumerMessage, ConsumerOptions, Delivery, QueueDeclareOptions};
use outboxd::inbox;
use outboxd::postgres::{Client, NoTls};

/// Who handles the events: another consumer of the same events has another name.
const CONSUMER: &str = "billing";

fn main() -> Result<(), Box<dyn Error>> {
    match (env::var("DATABASE_URL"), env::var("AMQP_URL"), env::args().nth(1)) {
        (Ok(database), Ok(amqp), Some(queue)) => consume(&database, &amqp, &queue, None),
        _ => {
            let ground = ground::Ground::new()?;
            ground.relay_everything_twice()?;
            consume(&ground.database, &ground.amqp, ground::QUEUE, Some(Duration::from_secs(2)))?;
            ground.check()
        }
    }
}

/// Consumes a queue; until nothing has come for as long as `idle`, where that is given.
fn consume(database: &str, amqp: &str, queue: &str, idle: Option<Duration>) -> Result<(), Box<dyn Error>> {
    let mut client = Client::connect(database, NoTls)?;
    // The work: an invoice for each paid order.
    client.batch_execute(
        "create table if not exists invoices (id bigserial primary key, paid text not null)",
    )?;

    let mut connection = Connection::insecure_open(amqp)?;
    let channel = connection.open_channel(None)?;
    // What is not acknowledged yet and would come again, at most.
    channel.qos(0, 20, false)?;
    let queue = channel.queue_declare(queue, QueueDeclareOptions { durable: true, ..Default::default() })?;
    let consumer = queue.consume(ConsumerOptions { no_ack: false, ..Default::default() })?;
    loop {
        let next = match idle {
            Some(idle) => consumer.receiver().recv_timeout(idle).ok(),
            None => consumer.receiver().recv().ok(),
        };
        match next {
            Some(ConsumerMessage::Delivery(delivery)) => match handle(&mut client, &delivery)? {
                // Only after the commit. Dying in between brings the message again, and it is known then.
                Handled::Yes => consumer.ack(delivery)?,
                // Without requeue: it would only come again. A dead-letter exchange keeps it.
                Handled::Never => consumer.reject(delivery, false)?,
            },
            Some(other) => return Err(format!("the consumer was ended: {other:?}").into()),
            None => break,
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
