//! A web shop without the web: an order and its event in one transaction, and the event published right after the
//! commit.
//!
//! `cargo run --release --example embed`, with `DATABASE_URL` and `AMQP_URL`. It ends by itself.

#![allow(clippy::print_stdout, reason = "an example is there to be read")]

mod common;

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use outboxd::NewEvent;
use outboxd::postgres::{Client, NoTls, Transaction};
use outboxd::relay::{Answer, Relay, Stage1, Stopped};
use serde_json::json;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How long a customer may be kept waiting for the broker. The order is safe whatever comes of it.
const PATIENCE: Duration = Duration::from_secs(2);

fn main() -> Result<()> {
    let servers = common::Servers::from_environment()?;
    servers.prepare("order.created")?;
    let mut client = Client::connect(&servers.database_url, NoTls)?;
    client
        .batch_execute("create table if not exists orders (id bigserial primary key, item text not null)")?;

    // The relay in the background is the safety net: it sends whatever stage 1 leaves, for whatever reason. It leaves
    // events alone until they are `min_age` old, so that stage 1 has its chance; the default of both times is 30 s,
    // and only an example is in such a hurry. Neither needs its servers to be there now.
    let mut config = servers.config()?;
    config.interval = Duration::from_secs(1);
    config.claim.min_age = Duration::from_secs(2);
    let relay = Relay::start(config.clone())?;
    // One for the whole application: it is cheap to clone, and callers that come together share their work.
    let stage1 = Stage1::start(config)?;

    // The usual case: the order is committed, and a moment later its event is with the broker.
    let mut tx = client.transaction()?;
    let (order, event_id) = place_order(&mut tx, "a kettle")?;
    tx.commit()?;
    for answer in stage1.publish_now(&[&event_id], PATIENCE) {
        println!("order {order} is placed. Its event: {}", meaning(&answer));
    }

    // What is rolled back was never there, and neither was its event: nobody needs to take it back.
    let mut tx = client.transaction()?;
    let (order, event_id) = place_order(&mut tx, "a kettle that is sold out")?;
    tx.rollback()?;
    for answer in stage1.publish_now(&[&event_id], PATIENCE) {
        println!("order {order} was rolled back. Its event: {}", meaning(&answer));
    }

    // As if the process had died right after the commit: nobody asks for the event, so the relay sends it.
    let mut tx = client.transaction()?;
    let (order, event_id) = place_order(&mut tx, "a teapot")?;
    tx.commit()?;
    println!("order {order} is placed, and nobody asks for its event.");
    let started = Instant::now();
    while status(&mut client, &event_id)? != "PUBLISHED" && started.elapsed() < Duration::from_secs(30) {
        thread::sleep(Duration::from_millis(100));
    }
    println!("After {:.1?} it is {}.", started.elapsed(), status(&mut client, &event_id)?);

    // The end of the application. Nothing is lost by any other end: what is in flight is due again.
    drop(stage1); // its last handle ends it; waits a second at most
    match relay.stop(Duration::from_secs(10)) {
        Stopped::Ended(total) => println!("The relay has ended in order; {total}."),
        Stopped::Panicked(reason) => println!("The relay had ended by a bug: {reason}"),
        Stopped::LeftBehind => println!("The relay still waits for a server, and is left behind."),
    }
    Ok(())
}

/// Writes an order, and the event that tells of it, in the caller's transaction: both are committed, or neither is.
fn place_order(tx: &mut Transaction<'_>, item: &str) -> Result<(i64, String)> {
    let order: i64 = tx.query_one("insert into orders (item) values ($1) returning id", &[&item])?.get(0);
    let event = NewEvent::new("order.created")
        .payload(json!({ "order": order, "item": item }))
        // The events of one order leave in the order in which they were written.
        .ordering_key(format!("order-{order}"))
        .header("tenant", "acme");
    let event_id = outboxd::append(tx, &event)?;
    Ok((order, event_id))
}

/// What an answer means for whoever placed the order. None is a reason to tell the customer anything but "thank you":
/// the order is committed, and its event with it.
fn meaning(answer: &Answer) -> String {
    match answer {
        Answer::Published => "published. The broker has it.".into(),
        Answer::AlreadyPublished => "published already. The relay was faster.".into(),
        Answer::BeingSent => "someone else is sending it at this moment.".into(),
        Answer::HeldBack | Answer::NotDue => "not its turn yet. The relay sends it when it is.".into(),
        Answer::Left(why) => format!("left to the relay, which goes on trying: {why}"),
        Answer::Unknown(why) => format!("sent, and perhaps taken. The relay sends it again: {why}"),
        // Worth an alarm for the operator: a queue is missing or full, or a route is wrong.
        Answer::Refused(why) => format!("refused. It is tried again, or dead: {why}"),
        Answer::Finished(status) => format!("over: it is {status}."),
        Answer::NotFound => "not found, as it must be after a rollback.".into(),
        other => format!("{other:?}"),
    }
}

/// What the outbox says of an event.
fn status(client: &mut Client, event_id: &str) -> Result<String> {
    let sql = "select status::text from event_outbox where event_id = $1";
    Ok(client.query_one(sql, &[&event_id])?.get(0))
}
