//! Chains beside events that cost the whole channel: what was in flight with one of those is sent again, in order.

use amiquip::{Connection, ExchangeDeclareOptions, ExchangeType};

use super::oracle::Oracle;
use super::{arrived, insert_chain, insert_keys, set, statuses};
use crate::harness::unique;
use crate::world::World;

/// An exchange that nobody may publish to, while its connection is open; the broker closes the channel of who does.
fn internal(world: &World) -> (Connection, String) {
    let name = unique("internal");
    let mut connection = Connection::insecure_open(&world.amqp_url).unwrap();
    let options = ExchangeDeclareOptions { internal: true, ..ExchangeDeclareOptions::default() };
    let channel = connection.open_channel(None).unwrap();
    channel.exchange_declare(ExchangeType::Fanout, &name, options).unwrap();
    drop(channel);
    (connection, name)
}

#[test]
fn chains_keep_their_order_beside_events_that_close_the_channel() {
    let mut world = World::new();
    let queue = world.queue();
    let (connection, internal) = internal(&world);
    let keys: Vec<String> = (0..400).map(|n| format!("key {}", n % 7)).collect();
    let keys: Vec<Option<&str>> =
        keys.iter().enumerate().map(|(n, it)| (n % 5 > 0).then_some(it.as_str())).collect();
    let ids = insert_keys(&mut world.client, &queue, &keys);
    let guilty: Vec<i64> = ids.iter().copied().step_by(100).collect();
    set(&mut world.client, &guilty, &format!("exchange = '{internal}'"));
    let output = world.once(&["--batch-rows", "90"], 75);
    assert!(output.stdout.contains("published 396, failed 4\n"), "{output:?}");
    let verdict = Oracle::read(&mut world.client).check(&world.arrivals(&queue)).unwrap();
    assert_eq!((verdict.received, verdict.compared), (396, 320 - 7));
    let counted = "select count(*) from event_outbox where fail_count > 0";
    assert_eq!(world.client.query_one(counted, &[]).unwrap().get::<_, i64>(0), 4);
    connection.close().unwrap();
}

#[test]
fn an_event_that_closes_the_channel_holds_its_own_key_back() {
    let mut world = World::new();
    let queue = world.queue();
    let (connection, internal) = internal(&world);
    let chain = insert_chain(&mut world.client, &queue, Some("k"), 6);
    let other = insert_chain(&mut world.client, &queue, Some("l"), 6);
    set(&mut world.client, &chain[2..3], &format!("exchange = '{internal}'"));
    world.once(&[], 75);
    assert_eq!(
        statuses(&mut world, &chain),
        ["PUBLISHED", "PUBLISHED", "FAILED", "WAITING", "WAITING", "WAITING"]
    );
    assert_eq!(statuses(&mut world, &other), ["PUBLISHED"; 6]);
    set(&mut world.client, &chain[2..3], "exchange = null, available_at = null");
    world.once(&[], 0);
    let of_chain: Vec<i64> =
        arrived(&mut world, &queue).into_iter().filter(|id| chain.contains(id)).collect();
    assert_eq!(of_chain, chain);
    connection.close().unwrap();
}
