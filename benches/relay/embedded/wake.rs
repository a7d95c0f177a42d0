//! The wake-up: from the return of an application's commit to the consumer, while events flow.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use amiquip::{Connection, ConsumerMessage, ConsumerOptions, QueueDeclareOptions};
use outboxd::NewEvent;
use outboxd::relay::{Relay, RelayHandle, Stopped};

use super::parts::{Parts, append};
use super::{no_trigger, percentile};
use crate::ground::{DEADLINE, Ground, PAYLOAD_BYTES, QUEUE, payload};
use crate::harness::Database;
use crate::page::{Figure, Page, median};

const ROUNDS: usize = 3;

/// All writers together.
const EVENTS_PER_S: usize = 200;
const SECONDS: usize = 4;
const EVENTS: usize = EVENTS_PER_S * SECONDS;

/// One would fall behind its pace where a commit takes long.
const WRITERS: usize = 4;

/// The relay opens its sessions meanwhile.
const WARM_UP: Duration = Duration::from_secs(1);

/// Of each part, for the sum.
const SAMPLES: usize = 200;

const TO_REACH: f64 = 3.0;

/// What wakes the relay after a commit.
#[derive(Clone, Copy)]
enum Wake {
    /// The table's trigger, which it listens to.
    Notify,
    /// The application, in whose process it is.
    Nudge,
}

/// One round of a kind of wake-up.
struct Round {
    /// One bare publish and one small transaction, in milliseconds.
    sum: f64,
    /// Commit to consumer, in milliseconds.
    waits: Vec<f64>,
}

impl Round {
    fn ratio(&self) -> f64 {
        percentile(&self.waits, 50) / self.sum
    }
}

pub fn measure(ground: &Ground, page: &mut Page) {
    let mut parts = Parts::new(ground);
    let (mut notified, mut nudged) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for (wake, rounds) in [(Wake::Notify, &mut notified), (Wake::Nudge, &mut nudged)] {
            let sum = parts.sum(SAMPLES);
            ground.empty();
            ground.broker.drain_ready(QUEUE);
            rounds.push(Round { sum, waits: flow(ground, wake) });
        }
    }
    let name = format!("with `listen`, commit to consumer while {EVENTS_PER_S} events/s flow, p50");
    page.add(figure(&name, &notified).at_most(TO_REACH));
    page.add(figure("the same, nudged by the application instead", &nudged));
}

fn figure(name: &str, rounds: &[Round]) -> Figure {
    let ratios: Vec<f64> = rounds.iter().map(Round::ratio).collect();
    let middle = |hundredths| median(rounds.iter().map(|it| percentile(&it.waits, hundredths)));
    let sum = median(rounds.iter().map(|it| it.sum));
    Figure::new(name, middle(50), "ms")
        .and(&format!(" (p90 {:.2} ms, p99 {:.2} ms)", middle(90), middle(99)))
        .beside(format!("one bare publish with its confirm + one small transaction: {sum:.2} ms"))
        .ratios(&ratios)
}

/// A relay in the background that a commit wakes.
struct Woken {
    relay: RelayHandle,
    wake: Wake,
}

impl Woken {
    fn start(ground: &Ground, wake: Wake) -> Self {
        let mut config = ground.config.clone();
        if let Wake::Notify = wake {
            outboxd::outbox::init_notify(&config.database).unwrap();
            config = config.listening();
        }
        Self { relay: Relay::start(config).unwrap(), wake }
    }

    /// What an application does after a commit.
    fn committed(&self) {
        if let Wake::Nudge = self.wake {
            self.relay.nudge();
        }
    }

    fn stop(self, ground: &Ground) {
        let stopped = self.relay.stop(DEADLINE);
        assert!(matches!(stopped, Stopped::Ended(_)), "{stopped:?}");
        no_trigger(ground);
    }
}

/// How long each event took to the consumer, in milliseconds.
fn flow(ground: &Ground, wake: Wake) -> Vec<f64> {
    let relay = Woken::start(ground, wake);
    let (database, amqp_url) = (&ground.database, ground.servers.amqp_url());
    let began = Instant::now() + WARM_UP;
    let (committed, received) = thread::scope(|scope| {
        let consumer = scope.spawn(|| consume(amqp_url));
        let writers = (0..WRITERS).map(|number| {
            let relay = &relay;
            scope.spawn(move || write(database, relay, began, number))
        });
        let writers: Vec<_> = writers.collect();
        let committed: Vec<_> = writers.into_iter().flat_map(|it| it.join().unwrap()).collect();
        (committed, consumer.join().unwrap())
    });
    relay.stop(ground);
    // An event may be there before the writer hears of its commit.
    let took =
        |(id, at): &(String, Instant)| received[id].saturating_duration_since(*at).as_secs_f64() * 1000.0;
    committed.iter().map(took).collect()
}

/// Every so manieth event of the flow, in time; their ids, and when each commit returned.
fn write(database: &Database, relay: &Woken, began: Instant, number: usize) -> Vec<(String, Instant)> {
    let mut client = database.connect();
    let event = NewEvent::new(QUEUE).payload(payload(PAYLOAD_BYTES));
    let events = (number..EVENTS).step_by(WRITERS).map(|place| {
        let due = began + Duration::from_secs(1) * u32::try_from(place).unwrap() / EVENTS_PER_S as u32;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let committed = append(&mut client, &event);
        relay.committed();
        (committed.event_id, committed.at)
    });
    events.collect()
}

/// Consumes all of the flow, with an acknowledgement for each; when each event came.
fn consume(url: &str) -> HashMap<String, Instant> {
    let mut connection = Connection::insecure_open(url).unwrap();
    let channel = connection.open_channel(None).unwrap();
    channel.qos(0, 100, false).unwrap();
    let queue =
        channel.queue_declare(QUEUE, QueueDeclareOptions { durable: true, ..Default::default() }).unwrap();
    let consumer = queue.consume(ConsumerOptions::default()).unwrap();
    let mut received = HashMap::new();
    while received.len() < EVENTS {
        match consumer.receiver().recv_timeout(DEADLINE).unwrap() {
            ConsumerMessage::Delivery(delivery) => {
                let now = Instant::now();
                let id = delivery.properties.message_id().clone().unwrap();
                assert!(received.insert(id, now).is_none(), "a second copy");
                consumer.ack(delivery).unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
    consumer.cancel().unwrap();
    connection.close().unwrap();
    received
}
