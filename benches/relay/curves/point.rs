//! One point of a curve: some drains of some seconds, a bare publisher beside each, and claims alone.

use std::thread;
use std::time::{Duration, Instant};

use outboxd::config::Database;
use outboxd::outbox::Outbox;
use outboxd::policy::Settlement;

use super::Load;
use crate::bare::Bare;
use crate::cpu;
use crate::drain::peak_rss;
use crate::ground::{DEADLINE, Ground, OUTBOXD, amqp_url, database_at, payload};
use crate::harness::{Direction, Proc, Proxy};
use crate::page::median;
use crate::table::walk;

const ROUNDS: usize = 3;
const CLAIMS: usize = 9;

/// What a drain is to take, about: little of it is the process's start, and a run ends in this hour.
const SECONDS: f64 = 2.0;

/// The first try for each relay, which is more than it claims at once, and what no machine gets more of.
const FIRST: usize = 1_000;
const EVENTS_MAX: usize = 40_000;
const BYTES_MAX: usize = 300_000_000;

/// Of a backlog so many are drained, whatever its size is.
const OF_A_BACKLOG: usize = 10_000;

/// `once` ended with more to do, as it was told to.
const MORE_IS_DUE: i32 = 75;

/// How often the relays' memory is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// Medians of the rounds.
pub struct Point {
    /// Events per second, from the start of the first process to the end of the last.
    pub rate: f64,
    /// Of a bare publisher with the same messages, workers and window.
    pub bare: f64,
    /// Of all relays together, per event.
    pub cpu_us: f64,
    /// Of the relay that had most.
    pub rss_mib: f64,
    pub claim_ms: f64,
}

/// Where a load's servers are, as seen through its proxies.
struct Way {
    broker_port: u16,
    database_url: String,
    // They work until they are dropped.
    _proxies: Vec<Proxy>,
}

pub fn measure(ground: &Ground, load: &Load) -> Point {
    let way = Way::new(ground, load);
    let events = events(ground, load, &way);
    let (mut drains, mut bares) = (Vec::new(), Vec::new());
    let mut claims = Vec::new();
    let body = payload(load.payload_bytes);
    let mut left = 0;
    for _ in 0..ROUNDS {
        // A large backlog has enough for all rounds.
        if left < load.backlog.unwrap_or(events) / 2 {
            left = load.backlog.unwrap_or(events);
            ground.fill(left, load.payload_bytes);
        }
        claims.push(claim_ms(ground, load, &way));
        drains.push(drain(ground, load, &way, events));
        left -= events;
        ground.renew_queue();
        let workers = load.workers * load.relays;
        let bare = Bare { port: way.broker_port, workers, window: load.window, body: body.as_bytes() };
        bares.push(bare.publish(events));
        ground.renew_queue();
    }
    let middle = |figure: fn(&Drain) -> f64| median(drains.iter().map(figure));
    Point {
        rate: events as f64 / middle(|it| it.seconds),
        bare: events as f64 / median(bares),
        cpu_us: middle(|it| it.cpu) * 1e6 / events as f64,
        rss_mib: middle(|it| it.peak_rss_mib),
        claim_ms: median(claims),
    }
}

/// As many as some seconds are enough for, found out by trying.
fn events(ground: &Ground, load: &Load, way: &Way) -> usize {
    if load.backlog.is_some() {
        return OF_A_BACKLOG;
    }
    let most = EVENTS_MAX.min(BYTES_MAX / load.payload_bytes);
    let mut events = (FIRST * load.relays).min(most / 3);
    loop {
        ground.fill(events, load.payload_bytes);
        let Drain { seconds, .. } = drain(ground, load, way, events);
        ground.renew_queue();
        if seconds >= SECONDS / 2.0 || events == most {
            return events;
        }
        // What the start takes makes the first guesses too low, never too high.
        events = most.min((events as f64 * SECONDS / seconds) as usize);
    }
}

impl Way {
    fn new(ground: &Ground, load: &Load) -> Self {
        let mut proxies = Vec::new();
        let mut broker_port = ground.servers.rabbit().unwrap().port();
        if let Some(round_trip) = load.broker {
            let proxy = ground.proxy();
            broker_port = proxy.port();
            proxies.push(slowed(proxy, round_trip));
        }
        let mut database_url = ground.database.url.clone();
        if let Some(round_trip) = load.database {
            let (proxy, url) = ground.database_proxy();
            database_url = url;
            proxies.push(slowed(proxy, round_trip));
        }
        Self { broker_port, database_url, _proxies: proxies }
    }

    fn database(&self) -> Database {
        database_at(&self.database_url)
    }
}

fn slowed(proxy: Proxy, round_trip: Duration) -> Proxy {
    proxy.delay(Direction::ToServer, round_trip / 2);
    proxy.delay(Direction::ToClient, round_trip / 2);
    proxy
}

struct Drain {
    seconds: f64,
    cpu: f64,
    peak_rss_mib: f64,
}

/// All relays at once. Just so many events are drained, by all of them together.
fn drain(ground: &Ground, load: &Load, way: &Way, events: usize) -> Drain {
    let before = ground.count("status = 'PUBLISHED'");
    let (workers, window) = (load.workers.to_string(), load.window.to_string());
    let most = events.to_string();
    let mut arguments = vec!["once", "--min-age", "0s", "--workers", &workers, "--window", &window];
    if load.backlog.is_some() {
        arguments.extend(["--max-events", &most]);
    }
    let amqp_url = amqp_url(way.broker_port);
    let environment =
        [("DATABASE_URL", way.database_url.as_str()), ("AMQP_URL", &amqp_url), ("RUST_LOG", "warn")];
    let cpu = cpu::of_ended_children();
    let began = Instant::now();
    let mut relays: Vec<Proc> =
        (0..load.relays).map(|_| Proc::spawn(OUTBOXD, &arguments, &environment)).collect();
    let mut peak_rss_mib = 0.0_f64;
    while relays.iter_mut().any(Proc::is_running) {
        assert!(began.elapsed() < DEADLINE, "a relay hangs:\n{}", relays[0]);
        peak_rss_mib = relays.iter().map(|relay| peak_rss(relay.id())).fold(peak_rss_mib, f64::max);
        thread::sleep(LOOK);
    }
    let seconds = began.elapsed().as_secs_f64();
    let cpu = cpu::of_ended_children() - cpu;
    for relay in relays {
        let ended = relay.wait(DEADLINE);
        let expected = if load.backlog.is_some_and(|it| it > before + events) { MORE_IS_DUE } else { 0 };
        assert_eq!(ended.code, Some(expected), "{ended:?}");
    }
    assert_eq!(ground.count("status = 'PUBLISHED'") - before, events);
    Drain { seconds, cpu, peak_rss_mib }
}

/// The median of claims from the table's start, each given back, while all other relays hold one.
fn claim_ms(ground: &Ground, load: &Load, way: &Way) -> f64 {
    let database = way.database();
    let outbox = || Outbox::new(database.clone(), ground.config.claim.clone());
    let others = (1..load.relays).map(|_| {
        let mut outbox = outbox();
        let held = outbox.claim(&walk(0), Duration::from_secs(1)).unwrap();
        (outbox, held)
    });
    let others: Vec<_> = others.collect();
    let mut outbox = outbox();
    // It opens the session.
    outbox.counts().unwrap();
    let took = median((0..CLAIMS).map(|_| {
        let began = Instant::now();
        let look = outbox.claim(&walk(0), Duration::from_secs(1)).unwrap();
        let ms = began.elapsed().as_secs_f64() * 1000.0;
        if let Some(claimed) = look.claimed {
            let released = claimed.events.iter().map(|(event, _)| (event.id, Settlement::Released));
            outbox.settle(claimed.claim, released.collect()).unwrap();
        }
        ms
    }));
    // Their sessions end, and the rows are free.
    drop(others);
    took
}
