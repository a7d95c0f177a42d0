//! What waking the relay costs those who write: a NOTIFY with each commit, or a relay that polls beside them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use outboxd::NewEvent;
use postgres::fallible_iterator::FallibleIterator;

use super::no_trigger;
use super::parts::append;
use crate::ground::{DEADLINE, Ground, PAYLOAD_BYTES, QUEUE, payload};
use crate::harness::{Database, Proc, wait_until};
use crate::page::{Figure, Page, median};

const ROUNDS: usize = 7;
const WRITING: Duration = Duration::from_secs(1);
const WRITERS: [usize; 2] = [8, 1];

/// What goes on beside the writers.
#[derive(Clone, Copy)]
struct Beside {
    what: &'static str,
    /// That of `init --notify`.
    trigger: bool,
    /// A session that does nothing else.
    listener: bool,
    relay: Option<&'static [&'static str]>,
}

const POLLING: &[&str] = &["run", "--interval", "100ms", "--min-age", "0s"];

const LISTENING: &[&str] = &["run", "--listen"];

const BESIDES: [Beside; 4] = [
    Beside { what: "nothing beside them", trigger: false, listener: false, relay: None },
    Beside { what: "the trigger of init --notify, a listener", trigger: true, listener: true, relay: None },
    Beside { what: "run --interval 100ms", trigger: false, listener: false, relay: Some(POLLING) },
    Beside { what: "the trigger, run --listen", trigger: true, listener: false, relay: Some(LISTENING) },
];

pub fn measure(ground: &Ground, page: &mut Page) {
    let mut rates = BESIDES.map(|_| WRITERS.map(|_| Vec::new()));
    for round in 0..ROUNDS {
        // Each has its turn at each place.
        for place in 0..BESIDES.len() {
            let beside = (round + place) % BESIDES.len();
            for (rates, rate) in rates[beside].iter_mut().zip(commits_per_s(ground, BESIDES[beside])) {
                rates.push(rate);
            }
        }
    }
    let [alone, ..] = &rates;
    for (at, writers) in WRITERS.into_iter().enumerate() {
        let nothing = median(alone[at].iter().copied());
        for (beside, rates) in BESIDES.iter().zip(&rates) {
            let name =
                format!("{writers} writers of small transactions with one event each: {}", beside.what);
            let ratios: Vec<f64> =
                rates[at].iter().zip(&alone[at]).map(|(rate, alone)| rate / alone).collect();
            let figure = Figure::new(name, median(rates[at].iter().copied()), "commits/s");
            let is_alone = std::ptr::eq(rates, alone);
            page.add(if is_alone {
                figure
            } else {
                figure.beside(format!("nothing beside them: {nothing:.0} commits/s")).ratios(&ratios)
            });
        }
    }
    ground.empty();
    ground.broker.drain_ready(QUEUE);
}

/// For each number of writers.
fn commits_per_s(ground: &Ground, beside: Beside) -> [f64; WRITERS.len()] {
    ground.empty();
    // Its length must not be what the next one pays for.
    ground.broker.drain_ready(QUEUE);
    if beside.trigger {
        outboxd::outbox::init_notify(&ground.config.database).unwrap();
    }
    let relay = beside.relay.map(|arguments| started(ground, arguments));
    let database = &ground.database;
    let ended = AtomicBool::new(false);
    let rates = thread::scope(|scope| {
        let listener = beside.listener.then(|| scope.spawn(|| listen(database, &ended)));
        let rates = WRITERS.map(|writers| write(ground, writers));
        ended.store(true, Ordering::Relaxed);
        if let Some(listener) = listener {
            assert!(listener.join().unwrap() > 0, "no notification came");
        }
        rates
    });
    drop(relay);
    no_trigger(ground);
    rates
}

/// A relay that has published something.
fn started(ground: &Ground, arguments: &[&str]) -> Proc {
    ground.insert(1, "null");
    let mut relay = ground.start(ground.servers.amqp_url(), arguments);
    let mut is_published = || {
        assert!(relay.is_running(), "the relay has ended:\n{relay}");
        (ground.count("status = 'PUBLISHED'") == 1).then_some(())
    };
    wait_until("the relay publishes", DEADLINE, &mut is_published);
    relay
}

/// How many notifications came.
fn listen(database: &Database, ended: &AtomicBool) -> usize {
    let mut client = database.connect();
    let channel = "select 'outboxd_' || 'event_outbox'::regclass::oid";
    let channel: String = client.query_one(channel, &[]).unwrap().get(0);
    client.batch_execute(&format!("listen {channel}")).unwrap();
    let mut heard = 0;
    while !ended.load(Ordering::Relaxed) {
        heard += client.notifications().timeout_iter(Duration::from_millis(50)).count().unwrap();
    }
    heard
}

/// Writes for a while; in commits per second, all writers together.
fn write(ground: &Ground, writers: usize) -> f64 {
    let event = NewEvent::new(QUEUE).payload(payload(PAYLOAD_BYTES));
    let mut clients: Vec<_> = (0..writers).map(|_| ground.database.connect()).collect();
    let began = Instant::now();
    let commits: usize = thread::scope(|scope| {
        let threads = clients.iter_mut().map(|client| {
            let event = &event;
            scope.spawn(move || {
                let mut commits = 0;
                while began.elapsed() < WRITING {
                    append(client, event);
                    commits += 1;
                }
                commits
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|it| it.join().unwrap()).sum()
    });
    commits as f64 / began.elapsed().as_secs_f64()
}
