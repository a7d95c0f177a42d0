//! Thousands of guilty events among innocent ones.

use std::time::{Duration, Instant};

use super::{
    MESSAGE_MAX, assert_all, exchange, narrow, peak_memory, routes, saying, states, surplus, user_for_topic,
    wait_for_verdicts, world,
};
use crate::harness::{AmqpValue, ExchangeType, Proxy, unique, wait_until};
use crate::world::DEADLINE;

/// Options of a relay that tries each event once.
const ONCE_EACH: [&str; 6] = ["--interval", "200ms", "--backoff-base", "1h", "--backoff-max", "1h"];

/// What a relay may need at most, whatever it is fed with here: the payloads of two batches are a small part of it.
const MEMORY_MAX: u64 = 64 * 1024 * 1024;

#[test]
fn ten_thousand_events_without_an_exchange_cost_one_connection_and_little_memory() {
    let mut world = world();
    let good = exchange(&world, ExchangeType::Direct);
    let missing = unique("missing");
    world.configure(&routes(&[&good, &missing]));
    for _ in 0..20 {
        world.insert_many(&missing, 500);
        world.insert_many(&good, 100);
    }
    let proxy = Proxy::to(narrow().port());
    world.amqp_url = format!("amqp://guest:guest@127.0.0.1:{}/%2F", proxy.port());
    let begun = Instant::now();
    let relay = world.start(&ONCE_EACH);
    wait_for_verdicts(&mut world, &relay);
    let lasted = begun.elapsed();
    assert_all(&mut world, &good, "PUBLISHED", 0, 2_000);
    assert_all(&mut world, &missing, "FAILED", 1, 10_000);
    assert_eq!(saying(&mut world, &missing, &["NOT_FOUND", "404", &missing]), 10_000);
    assert_eq!(surplus(&world, &good, 2_000), 0);
    assert_eq!(proxy.accepted(), 1, "connections:\n{relay}");
    let peak = peak_memory(&relay);
    assert!(peak < MEMORY_MAX, "{peak} bytes");
    // Far more than it takes; a probe of some ms for each would take longer.
    assert!(lasted < Duration::from_secs(45), "{lasted:?}");
}

/// Nothing tells beforehand that a topic is refused, so each of these closes a channel; and no exchange is to blame.
#[test]
fn hundreds_of_events_that_each_close_a_channel_cost_their_neighbours_nothing() {
    let mut world = world();
    let topics = exchange(&world, ExchangeType::Topic);
    let refused = unique("refused");
    world.configure(&format!(
        "{}[[route]]\nevent_type = \"{refused}\"\nexchange = \"{topics}\"\n",
        routes(&[&topics])
    ));
    for _ in 0..100 {
        world.insert_many(&topics, 20);
        world.insert_many(&refused, 3);
    }
    let url = user_for_topic(&topics, &topics);
    let proxy = Proxy::to(narrow().port());
    world.amqp_url = url.replace(&format!(":{}/", narrow().port()), &format!(":{}/", proxy.port()));
    let relay = world.start(&ONCE_EACH);
    wait_for_verdicts(&mut world, &relay);
    assert_all(&mut world, &topics, "PUBLISHED", 0, 2_000);
    assert_all(&mut world, &refused, "FAILED", 1, 300);
    assert_eq!(saying(&mut world, &refused, &["ACCESS_REFUSED", "access to topic", "403"]), 300);
    surplus(&world, &topics, 2_000);
    // A client that is told of a channel's end while it publishes may lose the connection over it, now and then.
    assert!(proxy.accepted() <= 30, "{} connections:\n{relay}", proxy.accepted());
    let peak = peak_memory(&relay);
    assert!(peak < MEMORY_MAX, "{peak} bytes");
}

#[test]
fn messages_larger_than_the_broker_takes_cost_their_neighbours_nothing() {
    let mut world = world();
    let queue = world.queue();
    let large = "x".repeat(MESSAGE_MAX + 1);
    let fits = "y".repeat(MESSAGE_MAX);
    let mut guilty = Vec::new();
    for _ in 0..10 {
        world.insert_many(&queue, 30);
        guilty.push(world.insert(&queue, &large));
        world.insert(&queue, &fits);
    }
    let relay = world.start(&ONCE_EACH);
    wait_for_verdicts(&mut world, &relay);
    for id in guilty {
        let row = world.row(id);
        assert_eq!((row.status.as_str(), row.fail_count, row.backs_off), ("FAILED", 1, true), "{row:?}");
        let reason = row.last_error.unwrap_or_default();
        assert!(reason.contains("406") && reason.contains("larger than configured max size"), "{reason}");
    }
    assert_eq!(states(&mut world, &queue), [("FAILED".into(), 1, 10), ("PUBLISHED".into(), 0, 310)]);
    surplus(&world, &queue, 310);
}

#[test]
fn a_storm_of_nacks_kills_no_event_and_ends_when_there_is_room() {
    let mut world = world();
    let (healthy, full) = (world.queue(), unique("full"));
    let room = [
        ("x-max-length", AmqpValue::LongLongInt(10)),
        ("x-overflow", AmqpValue::LongString("reject-publish".into())),
    ];
    world.broker.declare_queue(&full, &room);
    for _ in 0..20 {
        world.insert_many(&full, 50);
        world.insert_many(&healthy, 50);
    }
    let proxy = Proxy::to(narrow().port());
    world.amqp_url = format!("amqp://guest:guest@127.0.0.1:{}/%2F", proxy.port());
    let hasty =
        ["--interval", "100ms", "--backoff-base", "100ms", "--backoff-max", "200ms", "--max-failures", "2"];
    let relay = world.start(&hasty);
    wait_until("the healthy ones are published", DEADLINE, || {
        (states(&mut world, &healthy) == [("PUBLISHED".to_owned(), 0, 1_000)]).then_some(())
    });
    // Tried again and again, at most once per back-off.
    let tries = "select count(*) from event_outbox where status = 'FAILED' and fail_count = 1 \
        and last_error like '%nacked by the broker%' and last_retried_at > created_at + interval '1 hour'";
    wait_until("all that found no room wait", DEADLINE, || {
        let waiting: i64 = world.client.query_one(tries, &[]).unwrap().get(0);
        (waiting > 900 && world.count("WAITING") == 0).then_some(())
    });
    assert_eq!(world.count("DEAD"), 0, "{relay}");
    // A consumer comes.
    let mut arrived = Vec::new();
    wait_until("all are published", DEADLINE, || {
        arrived.extend(world.arrivals(&full));
        (world.count("PUBLISHED") == 2_000).then_some(())
    });
    arrived.extend(world.arrivals(&full));
    assert_eq!(arrived.len(), 1_000, "each exactly once");
    arrived.sort_unstable();
    arrived.dedup();
    assert_eq!(arrived.len(), 1_000, "each exactly once");
    assert_eq!(surplus(&world, &healthy, 1_000), 0);
    assert_eq!(proxy.accepted(), 1, "connections:\n{relay}");
}
