//! Servers that fail while the relay works. In all of it nothing is lost, no attempt is spent, the relay goes on by
//! itself, and what arrives twice is bounded by what was in flight.

mod broker;
mod database;

use std::collections::BTreeSet;
use std::sync::{LazyLock, Mutex, MutexGuard};

use crate::harness::{Broker, Message, Proc, Rabbit, RabbitOptions, wait_until};
use crate::world::{DEADLINE, World};

/// How many events a drain has that is to be met in the middle.
const EVENTS: i64 = 6_000;

/// Options of a relay whose drain takes long and has few messages in flight, with claims that hold many more. A
/// relay that forgets the confirms of a lost claim sends far more than a window twice.
const RUN: [&str; 10] = [
    "--interval",
    "200ms",
    "--workers",
    "2",
    "--window",
    "2",
    "--batch-rows",
    "1000",
    "--publish-timeout",
    "2s",
];

/// The most messages that such a relay has in flight.
const IN_FLIGHT: usize = 4;

/// A broker for tests that break one, one test at a time. It takes seconds to start, so they share it.
pub(crate) fn breakable() -> MutexGuard<'static, Rabbit> {
    static BROKER: LazyLock<Mutex<Rabbit>> =
        LazyLock::new(|| Mutex::new(Rabbit::start(&RabbitOptions::default())));
    BROKER.lock().unwrap_or_else(|poisoned| {
        // A test failed half way, and left it in whatever state.
        let mut rabbit = poisoned.into_inner();
        rabbit.thaw();
        rabbit.kill();
        rabbit.restart();
        BROKER.clear_poison();
        rabbit
    })
}

/// A world with due events, and a relay in the middle of draining them.
fn draining(amqp_url: &str) -> (World, String, Proc) {
    let mut world = World::with_broker(amqp_url);
    let queue = world.queue();
    world.insert_many(&queue, EVENTS);
    let relay = world.start(&RUN);
    is_draining(&mut world);
    (world, queue, relay)
}

fn is_draining(world: &mut World) {
    wait_until("the drain is on its way", DEADLINE, || (world.count("PUBLISHED") > 0).then_some(()));
    assert!(world.count("PUBLISHED") < EVENTS, "all were sent before the fault");
}

/// Waits for more to be PUBLISHED, unless all are.
fn goes_on(world: &mut World) {
    let before = world.count("PUBLISHED");
    wait_until("it goes on", DEADLINE, || {
        let published = world.count("PUBLISHED");
        (published > before || published == EVENTS).then_some(())
    });
}

/// Waits until every event is PUBLISHED, and checks that each arrived, that at most `twice` came more than once,
/// and that no attempt was counted.
fn all_arrive(world: &mut World, relay: &Proc, queue: &str, twice: usize) {
    // However slow the machine is: only a drain that stands still has failed.
    while world.count("PUBLISHED") < EVENTS {
        goes_on(world);
    }
    let unfair = "select count(*) from event_outbox where fail_count > 0";
    assert_eq!(world.client.query_one(unfair, &[]).unwrap().get::<_, i64>(0), 0, "{relay}");
    // The test's own connection may have been lost with the broker.
    world.broker = Broker::open(&world.amqp_url);
    let arrived = world.broker.drain_ready(queue);
    assert_eq!(ids(&arrived).len(), EVENTS as usize, "{relay}");
    let surplus = arrived.len() - EVENTS as usize;
    assert!(surplus <= twice, "{surplus} came twice, {twice} at most were in flight:\n{relay}");
    assert!(!relay.output().1.contains("panic"), "{relay}");
}

fn ids(messages: &[Message]) -> BTreeSet<String> {
    messages.iter().map(|message| message.id().to_owned()).collect()
}

/// How many lines of the log hold this text.
fn lines(relay: &Proc, text: &str) -> usize {
    relay.output().1.lines().filter(|line| line.contains(text)).count()
}
