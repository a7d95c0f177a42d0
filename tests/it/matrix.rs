//! One fault at a time, from the broker's death to a slow link, each against the same promises: no event is lost, no
//! attempt is counted, what comes twice is bounded by what was in flight, nothing is PUBLISHED that has not arrived,
//! and the process ends up with the threads and descriptors that it had before.

mod broker;
mod health;
mod network;

use std::collections::BTreeSet;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::health::Resources;
use crate::harness::{Broker, Direction, Message, Proc, Proxy, Rabbit, RabbitOptions, Servers, wait_until};
use crate::world::{DEADLINE, World};

/// Options of every relay here, besides its workers and its `publish_timeout`. Its claims hold many more events than
/// are in flight at any time.
const RUN: [&str; 12] = [
    "--interval",
    "1s",
    "--min-age",
    "0s",
    "--open-timeout",
    "3s",
    "--batch-rows",
    "200",
    "--backoff-base",
    "1s",
    "--backoff-max",
    "2s",
];

/// A relay that gives up soon on a confirm that does not come.
const HASTY: [&str; 6] = ["--workers", "2", "--window", "16", "--publish-timeout", "2s"];

/// The most messages that such a relay has in flight: one window for each worker.
const IN_FLIGHT: usize = 32;

/// More events than a claim has rows, so that each way that a relay works is warm afterwards.
const WARM_UP: i64 = 600;

/// How many events a drain has that is to be met in the middle.
const EVENTS: i64 = 6_000;

/// The same where a proxy slows it down.
const SLOW_EVENTS: i64 = 3_000;

/// What is told once when the broker cannot be used.
const DOWN: &str = "nothing is claimed and no attempt is spent until that is over";

/// What is told when it can be used again.
const UP: &str = "the broker is usable again after";

/// A broker that asks for no heartbeats, for tests that hurt one, one test at a time. Nothing but a deadline of the
/// relay's own notices that such a broker has stopped. Each test mends it on its way out, also when it fails.
fn silent() -> MutexGuard<'static, Rabbit> {
    static BROKER: LazyLock<Mutex<Rabbit>> = LazyLock::new(|| {
        let config = vec!["heartbeat = 0".to_owned()];
        Mutex::new(Rabbit::start(&RabbitOptions { config, ..RabbitOptions::default() }))
    });
    BROKER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is wrong with a broker, until it is dropped. Made after the test's own connection, which would otherwise
/// wait for ever in its drop when the test fails.
struct Fault<'a> {
    rabbit: &'a Rabbit,
    end: fn(&Rabbit),
}

impl Fault<'_> {
    fn frozen(rabbit: &Rabbit) -> Fault<'_> {
        rabbit.freeze();
        Fault { rabbit, end: Rabbit::thaw }
    }

    fn stopped(rabbit: &Rabbit) -> Fault<'_> {
        rabbit.eval("rabbit:stop().");
        Fault { rabbit, end: |rabbit| drop(rabbit.eval("rabbit:start().")) }
    }

    fn alarmed(rabbit: &Rabbit) -> Fault<'_> {
        rabbit.memory_alarm(true);
        Fault { rabbit, end: |rabbit| rabbit.memory_alarm(false) }
    }
}

impl Drop for Fault<'_> {
    fn drop(&mut self) {
        (self.end)(self.rabbit);
    }
}

/// A running relay that has shown that it works, and what it held then.
struct Scene {
    world: World,
    queue: String,
    relay: Proc,
    base: Resources,
    inserted: i64,
    arrived: Vec<Message>,
}

impl Scene {
    /// A relay that speaks to the broker of this URL.
    fn on(amqp_url: &str, options: &[&str]) -> Scene {
        Scene::in_world(World::with_broker(amqp_url), options)
    }

    /// A relay that speaks to the shared broker through a proxy, with these parameters in its URL. The test's own
    /// connection does not go through it.
    fn behind(proxy: &Proxy, parameters: &str, options: &[&str]) -> Scene {
        let mut world = World::new();
        world.amqp_url = format!("{}{parameters}", through(proxy, &world.amqp_url));
        Scene::in_world(world, options)
    }

    fn in_world(mut world: World, options: &[&str]) -> Scene {
        let queue = world.queue();
        world.insert_many(&queue, WARM_UP);
        let relay = world.start(&[&RUN[..], options].concat());
        wait_until(&format!("the relay works:\n{relay}"), DEADLINE, || {
            (world.count("PUBLISHED") == WARM_UP).then_some(())
        });
        let base = Resources::at_rest(&relay);
        Scene { world, queue, relay, base, inserted: WARM_UP, arrived: Vec::new() }
    }

    /// Writes further events.
    fn insert(&mut self, count: i64) {
        self.world.insert_many(&self.queue, count);
        self.inserted += count;
    }

    /// Writes further events, and waits until some of them are PUBLISHED.
    fn drain(&mut self, count: i64) {
        let before = self.inserted;
        self.insert(count);
        wait_until("the drain is on its way", DEADLINE, || {
            (self.world.count("PUBLISHED") > before).then_some(())
        });
    }

    /// Called when a fault has shown: it must have met the drain in the middle.
    fn was_in_the_middle(&mut self) {
        let published = self.world.count("PUBLISHED");
        assert!(published < self.inserted, "all were sent before the fault:\n{}", self.relay);
    }

    /// Waits until no claim is open, so that the rows are free for other relays.
    fn frees_its_rows(&mut self) {
        let free = "select count(*) from (select 1 from event_outbox for update nowait) as t";
        wait_until(&format!("no row is locked:\n{}", self.relay), DEADLINE, || {
            self.world.client.query_one(free, &[]).ok()
        });
    }

    /// Waits until what the lost connection needed is gone, although nobody answers: at least a thread for each of
    /// the two workers and one for the client. A try to open another connection needs fewer.
    fn lets_go(&self) {
        Resources { threads: self.base.threads - 3, ..self.base }.return_to(&self.relay);
    }

    /// Whatever is PUBLISHED at this moment has arrived.
    fn is_truthful(&mut self) {
        let sql = "select event_id::text from event_outbox where status = 'PUBLISHED'";
        let published = self.world.client.query(sql, &[]).unwrap();
        self.arrived.extend(self.world.broker.drain_ready(&self.queue));
        let arrived = ids(&self.arrived);
        let invented = published.iter().filter(|row| !arrived.contains(row.get::<_, &str>(0))).count();
        assert_eq!(invented, 0, "so many are PUBLISHED and have not arrived:\n{}", self.relay);
    }

    /// Waits until every event is PUBLISHED, and checks all the promises; `twice` bounds the duplicates.
    fn recovers(&mut self, twice: usize) {
        wait_until(&format!("all are published; so far:\n{}", self.relay), DEADLINE, || {
            (self.world.count("PUBLISHED") == self.inserted).then_some(())
        });
        self.base.return_to(&self.relay);
        assert!(self.relay.is_running(), "{}", self.relay);
        let counted = "select count(*) from event_outbox where fail_count > 0 or status <> 'PUBLISHED'";
        let counted: i64 = self.world.client.query_one(counted, &[]).unwrap().get(0);
        assert_eq!(counted, 0, "infrastructure was counted as a failure:\n{}", self.relay);
        self.is_truthful();
        assert_eq!(ids(&self.arrived).len() as i64, self.inserted, "{}", self.relay);
        let surplus = self.arrived.len() - self.inserted as usize;
        assert!(surplus <= twice, "{surplus} came twice, {twice} may:\n{}", self.relay);
        assert!(!self.relay.output().1.contains("panic"), "{}", self.relay);
    }

    /// Opens the test's own connection again, which may have ended with the broker.
    fn reconnect(&mut self) {
        self.world.broker = Broker::open(&self.world.amqp_url);
    }
}

/// A proxy in front of the shared broker.
fn proxy() -> Proxy {
    Proxy::to(port(Servers::shared().amqp_url()))
}

/// A proxy in front of the shared broker whose confirms take long enough for a drain to be met in the middle, with
/// all of its windows full.
fn slow_proxy() -> Proxy {
    let proxy = proxy();
    proxy.delay(Direction::ToClient, Duration::from_millis(20));
    proxy
}

fn port(amqp_url: &str) -> u16 {
    url::Url::parse(amqp_url).unwrap().port().unwrap_or(5672)
}

/// The URL of the same broker through a proxy.
fn through(proxy: &Proxy, amqp_url: &str) -> String {
    let mut url = url::Url::parse(amqp_url).unwrap();
    url.set_port(Some(proxy.port())).unwrap();
    url.into()
}

fn ids(messages: &[Message]) -> BTreeSet<&str> {
    messages.iter().map(Message::id).collect()
}

/// The lines of a relay's log that hold this text.
fn lines(relay: &Proc, text: &str) -> usize {
    relay.output().1.lines().filter(|line| line.contains(text)).count()
}
