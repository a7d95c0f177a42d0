//! Events of one key leave in id order, with any number of relays and through every fault.

pub mod oracle;

mod chains;
mod claims;
mod faults;
mod guilty;
mod heads;
mod relays;
mod storm;
mod times;

use std::collections::HashMap;

use postgres::Client;

use crate::harness::{Broker, ExchangeType, Proxy, Servers, unique};
use crate::world::World;

/// Writes due events of one key, `null` for none, in one statement; their ids in order.
fn insert_chain(client: &mut Client, event_type: &str, key: Option<&str>, count: i64) -> Vec<i64> {
    let keys: Vec<Option<&str>> = (0..count).map(|_| key).collect();
    insert_keys(client, event_type, &keys)
}

/// Writes one due event per entry, in this order; their ids in order.
fn insert_keys(client: &mut Client, event_type: &str, keys: &[Option<&str>]) -> Vec<i64> {
    let event_ids: Vec<String> = keys.iter().map(|_| ulid::Ulid::generate().to_string()).collect();
    let sql = "insert into event_outbox (event_id, event_type, payload, created_at, ordering_key) \
         select event_id, $1, '{}', clock_timestamp() - interval '1 hour', key \
         from unnest($2::text[], $3::text[]) with ordinality as new (event_id, key, n) order by n \
         returning id";
    let rows = client.query(sql, &[&event_type, &event_ids, &keys]).unwrap();
    let mut ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    ids.sort_unstable();
    ids
}

/// Changes rows by hand, as an operator would.
fn set(client: &mut Client, ids: &[i64], change: &str) {
    let sql = format!("update event_outbox set {change} where id = any($1)");
    assert_eq!(client.execute(&sql, &[&ids]).unwrap(), ids.len() as u64, "{change}");
}

/// The statuses of these rows, in order.
fn statuses(world: &mut World, ids: &[i64]) -> Vec<String> {
    ids.iter().map(|id| world.row(*id).status).collect()
}

/// The ids of the rows whose messages are in the queue, in the order of their arrival; takes them out.
fn arrived(world: &mut World, queue: &str) -> Vec<i64> {
    let rows = world.client.query("select event_id::text, id::bigint from event_outbox", &[]).unwrap();
    let ids: HashMap<String, i64> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    world.arrivals(queue).iter().map(|event_id| ids[event_id]).collect()
}

/// An exchange with a queue that can be taken from it, so that its events are refused for a while.
struct Road {
    exchange: String,
    queue: String,
    event_type: String,
}

impl Road {
    fn new(world: &World) -> Road {
        let road = Road { exchange: unique("road"), queue: unique("queue"), event_type: unique("type") };
        world.broker.declare_queue(&road.queue, &[]);
        world.broker.declare_exchange(&road.exchange, ExchangeType::Direct);
        road.open(&world.broker);
        world.configure(&format!("exchange = \"{}\"\n", road.exchange));
        road
    }

    fn open(&self, broker: &Broker) {
        broker.bind(&self.queue, &self.exchange, &self.event_type);
    }

    fn close(&self, broker: &Broker) {
        broker.unbind(&self.queue, &self.exchange, &self.event_type);
    }
}

/// A world whose relays reach the shared broker through this proxy, and a queue. The test's own connection does not go
/// through it.
fn behind_proxy() -> (World, Proxy, String) {
    let mut world = World::new();
    let mut url = url::Url::parse(Servers::shared().amqp_url()).unwrap();
    let proxy = Proxy::to(url.port().unwrap_or(5672));
    url.set_port(Some(proxy.port())).unwrap();
    world.amqp_url = url.into();
    let queue = world.queue();
    (world, proxy, queue)
}
