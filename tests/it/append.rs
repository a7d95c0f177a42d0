//! Appending in the application's own transaction: from Rust, from SQL, and what is refused.

mod columns;
mod ids;
mod init;
mod refused;
mod sql;
mod transactions;
mod unsendable;

use std::time::{Duration, SystemTime};

use outboxd::{NewEvent, append, append_all};
use postgres::Client;
use serde_json::json;

use crate::harness::{AmqpValue, Pooler, Servers};
use crate::world::World;

/// Everything about the events, in the order of their rows, as JSON.
fn rows(client: &mut Client, columns: &str) -> Vec<serde_json::Value> {
    let sql = format!("select jsonb_build_array({columns})::text from event_outbox order by id");
    let rows = client.query(&sql, &[]).unwrap();
    rows.iter().map(|row| serde_json::from_str(row.get(0)).unwrap()).collect()
}

/// Appends in a transaction of its own.
fn append_one(client: &mut Client, event: &NewEvent) -> String {
    let mut tx = client.transaction().unwrap();
    let id = append(&mut tx, event).unwrap();
    tx.commit().unwrap();
    id
}

#[test]
fn a_rollback_leaves_nothing_and_a_commit_is_relayed() {
    let mut world = World::new();
    let queue = world.queue();
    let mut tx = world.client.transaction().unwrap();
    append(&mut tx, &NewEvent::new(&queue)).unwrap();
    append_all(&mut tx, &[NewEvent::new(&queue), NewEvent::new(&queue)]).unwrap();
    tx.rollback().unwrap();
    assert_eq!(rows(&mut world.client, "id").len(), 0);
    // What a savepoint takes back is gone, what is around it stays.
    let mut tx = world.client.transaction().unwrap();
    let kept = append(&mut tx, &NewEvent::new(&queue)).unwrap();
    let mut inner = tx.transaction().unwrap();
    append(&mut inner, &NewEvent::new(&queue)).unwrap();
    inner.rollback().unwrap();
    tx.commit().unwrap();
    world.once(&["--min-age", "0s"], 0);
    assert_eq!(world.arrivals(&queue), [kept]);
    assert_eq!(world.count("PUBLISHED"), 1);
}

#[test]
fn every_property_arrives_as_it_was_given() {
    let mut world = World::new();
    let (queue, exchange) = (world.queue(), crate::harness::unique("exchange"));
    world.broker.declare_exchange(&exchange, amiquip::ExchangeType::Direct);
    world.broker.bind(&queue, &exchange, "the.key");
    let event = NewEvent::new("order.paid")
        .payload("{ \"näh\": 1.50 }\n")
        .ordering_key("order-7")
        .header("tenant", "acme")
        .header("version", 2)
        .exchange(&exchange)
        .routing_key("the.key")
        .expires_in(Duration::from_secs(3600))
        .event_id("01JD5Z6Z3Y1Q2W3E4R5T6Y7V8W");
    let id = append_one(&mut world.client, &event);
    assert_eq!(id, "01JD5Z6Z3Y1Q2W3E4R5T6Y7V8W");
    world.once(&["--min-age", "0s"], 0);
    let arrived = world.broker.drain_ready(&queue);
    assert_eq!(arrived.len(), 1);
    let message = &arrived[0];
    assert_eq!((message.id(), message.text()), (id.as_str(), "{ \"näh\": 1.50 }\n"));
    assert_eq!(message.kind.as_deref(), Some("order.paid"));
    assert_eq!((message.exchange.as_str(), message.routing_key.as_str()), (exchange.as_str(), "the.key"));
    assert_eq!(message.headers.get("tenant"), Some(&AmqpValue::LongString("acme".into())));
    assert_eq!(message.headers.get("version"), Some(&AmqpValue::LongLongInt(2)));
    let left: u64 = message.expiration.as_ref().unwrap().parse().unwrap();
    assert!((3_500_000..=3_600_000).contains(&left), "{left}");
    let row = rows(&mut world.client, "status, ordering_key, fail_count, available_at");
    assert_eq!(row, [json!(["PUBLISHED", "order-7", 0, null])]);
    world.broker.delete_exchange(&exchange);
}

#[test]
fn a_new_event_with_nothing_set_is_an_empty_object_that_is_due() {
    let mut world = World::new();
    let id = append_one(&mut world.client, &NewEvent::new("ping"));
    let all = "event_id, event_type, payload, status, fail_count, ordering_key, headers, exchange, routing_key, \
        expired_at, available_at, published_at, last_error, last_retried_at, created_at <= clock_timestamp()";
    let row =
        json!([id, "ping", "{}", "WAITING", 0, null, null, null, null, null, null, null, null, null, true]);
    assert_eq!(rows(&mut world.client, all), [row]);
}

#[test]
fn times_are_the_databases_and_a_moment_is_what_it_says() {
    let mut world = World::new();
    let hour = Duration::from_secs(3600);
    world.client.batch_execute("set time zone 'Europe/Berlin'").unwrap();
    // Long enough to meet a change to or from summer time, when some days have 23 or 25 hours.
    let soon = SystemTime::now() + 24 * 200 * hour;
    append_one(&mut world.client, &NewEvent::new("t").available_in(hour).expires_in(24 * 200 * hour));
    append_one(&mut world.client, &NewEvent::new("t").available_in(hour).available_at(soon));
    let moment = soon.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    let times = format!(
        "extract(epoch from available_at - created_at)::float8, \
         extract(epoch from expired_at - created_at)::float8, \
         abs(extract(epoch from available_at)::float8 - {moment}) < 1"
    );
    let stored = rows(&mut world.client, &times);
    let seconds = |row: usize, column: usize| stored[row][column].as_f64().unwrap();
    assert_eq!((seconds(0, 0), seconds(0, 1)), (3600.0, 17_280_000.0));
    assert_eq!((&stored[1][1], &stored[1][2]), (&json!(null), &json!(true)), "{stored:?}");
}

#[test]
fn a_batch_is_in_the_order_of_its_rows_and_ids() {
    const MANY: usize = 12_345;
    let mut world = World::new();
    let events: Vec<_> = (0..MANY).map(|n| NewEvent::new("t").payload(json!({ "n": n }))).collect();
    let mut tx = world.client.transaction().unwrap();
    assert_eq!(append_all(&mut tx, &[]), Ok(vec![]));
    let ids = append_all(&mut tx, &events).unwrap();
    tx.commit().unwrap();
    assert!(ids.len() == MANY && ids.is_sorted_by(|a, b| a < b));
    let stored = world.client.query("select event_id, payload from event_outbox order by id", &[]).unwrap();
    let stored: Vec<(String, String)> = stored.iter().map(|row| (row.get(0), row.get(1))).collect();
    let expected: Vec<_> =
        ids.into_iter().enumerate().map(|(n, id)| (id, format!("{{\"n\":{n}}}"))).collect();
    assert!(stored == expected);
}

#[test]
fn a_transaction_pooler_in_between_is_fine() {
    let mut world = World::new();
    let port = url::Url::parse(&Servers::shared().database().url).unwrap().port().unwrap();
    let pooler = Pooler::to(port, &["default_pool_size = 2"]);
    let url = pooler.url(&world.database.name);
    let mut clients: Vec<_> = (0..4).map(|_| Client::connect(&url, postgres::NoTls).unwrap()).collect();
    // Each transaction may meet another session of the server.
    for round in 0..5 {
        for client in &mut clients {
            append_one(client, &NewEvent::new(format!("round.{round}")));
            let mut tx = client.transaction().unwrap();
            append_all(&mut tx, &[NewEvent::new("many"), NewEvent::new("many")]).unwrap();
            tx.commit().unwrap();
        }
    }
    assert_eq!(rows(&mut world.client, "event_type").len(), 60);
}
