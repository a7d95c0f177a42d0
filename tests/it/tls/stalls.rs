//! A connection with TLS that stops moving: the limits hold as they do without.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{listeners, trusting, url, world};
use crate::harness::{Certificates, Direction, Proc, Proxy, wait_until};
use crate::world::{DEADLINE, World};

const EVENTS: i64 = 2_000;

/// The most messages in flight, and in doubt when a connection is given up.
const IN_FLIGHT: usize = 200;

/// A relay in the middle of a drain over a proxy. Its payloads fill every buffer once nothing moves, and no heartbeat
/// comes to its help.
fn draining(arguments: &[&str]) -> (World, Proxy, String, Proc) {
    let mut world = world();
    let queue = world.queue();
    world.insert_many(&queue, EVENTS);
    let sql = "update event_outbox set payload = repeat('payload ', 2500)";
    world.client.execute(sql, &[]).unwrap();
    let proxy = Proxy::to(listeners().tls);
    // Slow enough to be met on its way.
    proxy.bandwidth(Direction::ToServer, 8_000_000);
    let parameters = trusting(Certificates::make().ca()) + "&heartbeat=0";
    world.amqp_url = url("amqps", "127.0.0.1", proxy.port(), &parameters);
    let limits = ["--interval", "200ms", "--workers", "2", "--window", "100"];
    let relay = world.start(&[&limits[..], arguments].concat());
    wait_until("the drain is on its way", DEADLINE, || (world.count("PUBLISHED") > 0).then_some(()));
    proxy.stall(Direction::ToServer);
    proxy.stall(Direction::ToClient);
    assert!(world.count("PUBLISHED") < EVENTS, "all were sent before the fault");
    (world, proxy, queue, relay)
}

fn check_arrivals(world: &World, queue: &str) {
    let arrived = world.arrivals(queue);
    let distinct: BTreeSet<&String> = arrived.iter().collect();
    assert_eq!(distinct.len(), EVENTS as usize);
    let surplus = arrived.len() - distinct.len();
    assert!(surplus <= IN_FLIGHT, "{surplus} came twice");
}

#[test]
fn a_stalled_connection_with_tls_is_given_up_after_publish_timeout() {
    let (mut world, proxy, queue, mut relay) = draining(&["--publish-timeout", "1s"]);
    relay.wait_for_line("no confirm within publish_timeout 1s", DEADLINE);
    let free = "select count(*) from (select 1 from event_outbox for update nowait) as t";
    wait_until("no row is locked", DEADLINE, || world.client.query_one(free, &[]).ok());
    proxy.heal();
    wait_until("all are published", DEADLINE, || (world.count("PUBLISHED") == EVENTS).then_some(()));
    let counted = "select count(*) from event_outbox where fail_count > 0";
    assert_eq!(world.client.query_one(counted, &[]).unwrap().get::<_, i64>(0), 0, "{relay}");
    check_arrivals(&world, &queue);
    assert!(!relay.output().1.contains("panic"), "{relay}");
}

#[test]
fn sigterm_ends_a_relay_within_its_grace_while_a_connection_with_tls_stalls() {
    let (mut world, proxy, queue, mut relay) = draining(&["--publish-timeout", "5m", "--grace", "3s"]);
    relay.signal("TERM");
    let ended = relay.wait(Duration::from_secs(20));
    assert_eq!((ended.code, ended.signal), (Some(0), None), "{ended:?}");
    assert_eq!(world.count("PUBLISHED") + world.count("WAITING"), EVENTS);
    proxy.heal();
    // The rest goes as if nothing had been.
    world.once(&[], 0);
    check_arrivals(&world, &queue);
}
