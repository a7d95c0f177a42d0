//! What order per key costs: one hot key, many keys, and keys in trouble beside those without.

use std::time::{Duration, Instant};

use outboxd::outbox::Outbox;

use crate::bare::Bare;
use crate::ground::{Ground, PAYLOAD_BYTES, payload};
use crate::page::{Figure, Page, count, median, with_unit};
use crate::table::walk;

const ROUNDS: usize = 3;
const HOT: usize = 10_000;
const OTHERS: usize = 50_000;
const STUCK: usize = 100_000;

const NO_KEY: &str = "null";
const ONE_KEY: &str = "'hot'";

pub fn measure(ground: &Ground, page: &mut Page) {
    hot_key(ground, page);
    hot_key_among_others(ground, page);
    many_keys(ground, page);
    stuck_keys(ground, page);
}

/// One event after the other: each waits for the confirm of the one before.
fn hot_key(ground: &Ground, page: &mut Page) {
    let (port, body) = (ground.servers.rabbit().unwrap().port(), payload(PAYLOAD_BYTES));
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let bare = Bare { port, workers: 1, window: 1, body: body.as_bytes() }.publish(HOT);
        ground.empty();
        ground.insert(HOT, ONE_KEY);
        let drain = drain(ground, "true");
        rounds.push((bare, drain));
    }
    let drain = Drains { events: HOT, against: "a bare publisher of one at a time", at_least: 0.5 };
    page.add(drain.figure(&rounds, &format!("{} events of one key", count(HOT))));
}

fn hot_key_among_others(ground: &Ground, page: &mut Page) {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        ground.empty();
        ground.insert(OTHERS, NO_KEY);
        let alone = drain(ground, "ordering_key is null");
        ground.empty();
        ground.insert(HOT, ONE_KEY);
        ground.insert(OTHERS, NO_KEY);
        let beside = drain(ground, "ordering_key is null");
        rounds.push((alone, beside));
    }
    let drain = Drains { events: OTHERS, against: "alone", at_least: 0.7 };
    page.add(drain.figure(
        &rounds,
        &format!(
            "{} events without a key, {} older ones of a hot key beside them",
            count(OTHERS),
            count(HOT)
        ),
    ));
}

fn many_keys(ground: &Ground, page: &mut Page) {
    for (how, key) in [("in turn", "'key ' || n % 1000"), ("key by key", "'key ' || n / 10")] {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            ground.empty();
            ground.insert(HOT, NO_KEY);
            let unordered = drain(ground, "true");
            ground.empty();
            ground.insert(HOT, key);
            rounds.push((unordered, drain(ground, "true")));
        }
        let drain = Drains { events: HOT, against: "without keys", at_least: 0.7 };
        page.add(drain.figure(&rounds, &format!("1,000 keys with 10 events each, {how}")));
    }
}

fn stuck_keys(ground: &Ground, page: &mut Page) {
    let mut rounds = Vec::new();
    let mut claims = Vec::new();
    for _ in 0..ROUNDS {
        ground.empty();
        ground.insert(OTHERS, "'key ' || n % 5000");
        let alone = drain(ground, "true");
        ground.empty();
        ground.insert(STUCK, "'stuck ' || n % 2");
        ground.fail_heads();
        claims.push(empty_claim(ground).as_secs_f64() * 1000.0);
        ground.insert(OTHERS, "'key ' || n % 5000");
        let beside = drain(ground, "ordering_key like 'key %'");
        rounds.push((alone, beside));
    }
    let drain = Drains { events: OTHERS, against: "alone", at_least: 0.7 };
    let name = format!(
        "{} events on 5,000 keys, {} older ones stuck behind two failed heads",
        count(OTHERS),
        count(STUCK)
    );
    page.add(drain.figure(&rounds, &name));
    let name = format!("an empty claim beside {} stuck rows", count(STUCK));
    page.add(Figure::new(name, median(claims), "ms").at_most(100.0));
}

fn empty_claim(ground: &Ground) -> Duration {
    let mut outbox = Outbox::new(ground.config.database.clone(), ground.config.claim.clone());
    let claim = |outbox: &mut Outbox| {
        let started = Instant::now();
        let look = outbox.claim(&walk(0), Duration::from_secs(1)).unwrap();
        assert!(look.claimed.is_none(), "{look:?}");
        started.elapsed()
    };
    // The first one opens the session.
    claim(&mut outbox);
    claim(&mut outbox)
}

/// `outboxd once` from its start until the last of these events was published, by the database's clock; seconds.
fn drain(ground: &Ground, condition: &str) -> f64 {
    let mut client = ground.database.connect();
    let started: f64 =
        client.query_one("select extract(epoch from clock_timestamp())::float8", &[]).unwrap().get(0);
    let (output, _) = ground.once(ground.servers.amqp_url());
    assert!(output.code == Some(0), "{output:?}");
    let sql = format!(
        "select extract(epoch from max(published_at))::float8, count(*) filter (where status <> 'PUBLISHED')
         from event_outbox where {condition}"
    );
    let row = client.query_one(&sql, &[]).unwrap();
    assert_eq!(row.get::<_, i64>(1), 0, "all were published");
    ground.renew_queue();
    row.get::<_, f64>(0) - started
}

/// Drains of so many events, and what their rate is compared with.
struct Drains {
    events: usize,
    against: &'static str,
    at_least: f64,
}

impl Drains {
    /// Each round has the seconds of what it is compared with, and those of the drain.
    fn figure(&self, rounds: &[(f64, f64)], name: &str) -> Figure {
        let rate = |seconds: fn(&(f64, f64)) -> f64| self.events as f64 / median(rounds.iter().map(seconds));
        let ratios: Vec<f64> = rounds.iter().map(|(against, drain)| against / drain).collect();
        Figure::new(name, rate(|it| it.1), "events/s")
            .beside(format!("{}: {}", self.against, with_unit(rate(|it| it.0), "events/s")))
            .ratios(&ratios)
            .at_least(self.at_least)
    }
}
