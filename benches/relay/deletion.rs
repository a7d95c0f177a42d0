//! An exchange that is deleted while a window holds many messages for it.
//!
//! Only those messages may be suspected of having ended the channel, and trying them one at a time costs a round
//! trip each. Behind a proxy with a long round trip such tries show from outside: as the drain's additional time,
//! counted in round trips.

use std::thread;
use std::time::{Duration, Instant};

use crate::ground::{DEADLINE, Ground, PAYLOAD_BYTES, amqp_url};
use crate::harness::{Direction, ExchangeType};
use crate::page::{Figure, Page, median};

/// The exchange, and the one queue behind it.
const DOOMED: &str = "bench.doomed";

const EVENTS: usize = 2_000;

/// Every fourth row behind the first window goes to the doomed exchange, until so many do. The first of them arrive
/// before the deletion, the next window meets it. Few enough of it are suspects that trying the whole window one at
/// a time would miss what is to be reached.
const EVERY: usize = 4;
const FIRST_DOOMED: usize = WINDOW + EVERY;
const DOOMED_EVENTS: usize = 256;
const SUSPECTS_MAX: usize = WINDOW / EVERY;

/// The default.
const WINDOW: usize = 256;

/// What else may go alone, and cost a round trip: another channel, asking for the exchange.
const ALLOWANCE: usize = 20;

/// Long, so that what the machine does besides is little in comparison.
const ROUND_TRIP: Duration = Duration::from_millis(100);

const ROUNDS: usize = 3;

/// One drain.
struct Drain {
    seconds: f64,
    /// Events of the doomed exchange that were refused.
    refused: usize,
    /// Messages that arrived a second time.
    copies: usize,
    connections: u64,
}

pub fn measure(ground: &Ground, page: &mut Page) {
    let (mut calm, mut struck) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        calm.push(drain(ground, false));
        struck.push(drain(ground, true));
    }
    let (with, without) =
        (median(struck.iter().map(|it| it.seconds)), median(calm.iter().map(|it| it.seconds)));
    let round_trips = (with - without) / ROUND_TRIP.as_secs_f64();
    let most = |figure: fn(&Drain) -> u64| struck.iter().map(figure).max().unwrap_or(0);
    let connections = most(|it| it.connections);
    let name = format!(
        "an exchange deleted in mid-flight: window {WINDOW}, 1 worker, {EVENTS} events, {DOOMED_EVENTS} of them for it, \
         round trip {ROUND_TRIP:?}"
    );
    let text = format!(
        " more; at most {} refused, {} arrived twice, {connections} connection",
        most(|it| it.refused as u64),
        most(|it| it.copies as u64),
    );
    let goal =
        format!("at most {SUSPECTS_MAX} (suspects in a window) + {ALLOWANCE} round trips, 1 connection");
    let reached = round_trips <= (SUSPECTS_MAX + ALLOWANCE) as f64 && connections == 1;
    let figure = Figure::new(name, round_trips, "round trips").and(&text);
    page.add(figure.beside(format!("{with:.2} s, without it {without:.2} s")).reaches(goal, reached));
}

fn drain(ground: &Ground, deletes: bool) -> Drain {
    let broker = &ground.broker;
    broker.declare_queue(DOOMED, &[]);
    broker.declare_exchange(DOOMED, ExchangeType::Fanout);
    broker.bind(DOOMED, DOOMED, "");
    ground.fill(EVENTS, PAYLOAD_BYTES);
    let last = FIRST_DOOMED + EVERY * (DOOMED_EVENTS - 1);
    let doomed = format!("id % {EVERY} = 0 and id between {FIRST_DOOMED} and {last}");
    let sql = format!("update event_outbox set exchange = '{DOOMED}' where {doomed}");
    assert_eq!(ground.database.connect().execute(&sql, &[]).unwrap(), DOOMED_EVENTS as u64);

    let proxy = ground.proxy();
    proxy.delay(Direction::ToServer, ROUND_TRIP / 2);
    proxy.delay(Direction::ToClient, ROUND_TRIP / 2);
    let started = Instant::now();
    let relay = ground.start(&amqp_url(proxy.port()), &["once", "--workers", "1"]);
    if deletes {
        while broker.queue_len(DOOMED) == 0 {
            assert!(started.elapsed() < DEADLINE, "nothing arrived:\n{relay}");
            thread::sleep(Duration::from_millis(1));
        }
        broker.delete_exchange(DOOMED);
    }
    let ended = relay.wait(DEADLINE);
    let seconds = started.elapsed().as_secs_f64();

    // Whatever it cost, only the guilty paid, and everything else has arrived.
    let refused = ground.count(&format!("{doomed} and status = 'FAILED' and fail_count = 1"));
    assert_eq!(refused > 0, deletes, "{ended:?}");
    let published = ground.count("status = 'PUBLISHED' and fail_count = 0");
    assert_eq!(published + refused, EVENTS, "{ended:?}");
    let (messages, copies) = ground.take();
    assert_eq!(messages.len() - copies, EVENTS - DOOMED_EVENTS, "{ended:?}");
    broker.delete_queue(DOOMED);
    if !deletes {
        broker.delete_exchange(DOOMED);
    }
    Drain { seconds, refused, copies, connections: proxy.accepted() }
}
