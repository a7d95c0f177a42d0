//! Events that pass our checks and end the whole connection each time they are sent.

use super::{FRAME_MAX, exchange, narrow, routes, states, surplus, user_for_topic, wait_with, world};
use crate::harness::{Broker, ExchangeType, Proc, unique};
use crate::world::World;

/// Options of a relay that comes back soon, and where an event in doubt stays back long.
const RUN: [&str; 6] = ["--interval", "200ms", "--backoff-base", "1h", "--backoff-max", "1h"];

/// Waits until all the innocent are published, and checks that the guilty one alone is not, and says why.
fn check(world: &mut World, relay: &mut Proc, guilty: i64, innocent: i64) {
    wait_with(relay, "the innocent are published", || world.count("PUBLISHED") == innocent);
    wait_with(relay, "the guilty one stays back", || world.row(guilty).backs_off);
    let row = world.row(guilty);
    assert!(row.status != "PUBLISHED" && row.last_error.is_some(), "{row:?}");
    let sql = "select count(*) from event_outbox where id <> $1 and fail_count > 0";
    let blamed: i64 = world.client.query_one(sql, &[&guilty]).unwrap().get(0);
    assert_eq!(blamed, 0, "{relay}");
    assert!(relay.is_running());
}

/// The broker has agreed to smaller frames than ours could be, and ends a connection over a larger one.
#[test]
fn headers_larger_than_the_brokers_frame_cost_their_neighbours_nothing_but_time() {
    let mut world = world();
    let queue = world.queue();
    world.insert_many(&queue, 300);
    let headers = format!("'2020-01-01', jsonb_build_object('h', repeat('v', {}))", FRAME_MAX + 1000);
    let guilty = world.insert_with(&queue, "{}", "created_at, headers", &headers);
    world.insert_many(&queue, 300);
    let mut relay = world.start(&RUN);
    check(&mut world, &mut relay, guilty, 600);
    let twice = surplus(&world, &queue, 600);
    // Two windows per connection that ended.
    assert!(twice <= 2 * 256 * relay.output().1.matches("opening another").count(), "{twice}:\n{relay}");
}

/// The broker's reason names the key and is cut at 255 bytes, here inside a letter, which its client cannot read.
#[test]
fn a_refusal_that_the_client_cannot_read_costs_its_neighbours_nothing_but_time() {
    let mut world = world();
    let topics = exchange(&world, ExchangeType::Topic);
    world.configure(&routes(&[&topics]));
    world.insert_many(&topics, 300);
    // After 34 bytes of "ACCESS_REFUSED - access to topic '".
    let key = format!("'2020-01-01', '{}{}'", "x", "é".repeat(127));
    let guilty = world.insert_with(&topics, "{}", "created_at, routing_key", &key);
    world.insert_many(&topics, 300);
    world.amqp_url = user_for_topic(&topics, &topics);
    let mut relay = world.start(&RUN);
    check(&mut world, &mut relay, guilty, 600);
    surplus(&world, &topics, 600);
}

/// The same for a missing exchange, whose name is as long as we let it be: here the virtual host's name is cut.
#[test]
fn a_missing_exchange_that_the_client_cannot_read_of_costs_its_neighbours_nothing_but_time() {
    let vhost = unique("é") + &"é".repeat(30);
    narrow().ctl(&["add_vhost", &vhost]);
    narrow().ctl(&["set_permissions", "-p", &vhost, "guest", ".*", ".*", ".*"]);
    let encoded: String = vhost.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let mut world = world();
    world.amqp_url = narrow().url().replace("%2F", &encoded);
    world.broker = Broker::open(&world.amqp_url);
    let queue = world.queue();
    world.insert_many(&queue, 300);
    let mut guilty = Vec::new();
    for length in [199, 200] {
        let exchange = format!("'2020-01-01', '{:x<length$}'", "missing");
        guilty.push(world.insert_with(&queue, "{}", "created_at, exchange", &exchange));
    }
    world.insert_many(&queue, 300);
    let relay = world.start(&RUN);
    std::thread::sleep(std::time::Duration::from_secs(8));
    eprintln!("DIAG {relay}");
    wait_with(&relay, "the innocent are published", || world.count("PUBLISHED") == 600);
    let published: Vec<_> = states(&mut world, &queue).into_iter().filter(|it| it.0 == "PUBLISHED").collect();
    assert_eq!(published, [("PUBLISHED".to_owned(), 0, 600)]);
    for id in guilty {
        wait_with(&relay, "the guilty one says why", || {
            let row = world.row(id);
            row.status != "PUBLISHED" && row.last_error.is_some()
        });
    }
}
