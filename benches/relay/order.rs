//! What order per key costs: one hot key, many keys, and keys in trouble beside those without.

use std::time::{Duration, Instant};

use outboxd::outbox::Outbox;

use crate::bare::Bare;
use crate::ground::{Ground, PAYLOAD_BYTES, QUEUE, payload};
use crate::table::walk;
use crate::{median, promise};

const ROUNDS: usize = 3;
const HOT: usize = 10_000;
const OTHERS: usize = 50_000;
const STUCK: usize = 100_000;

const NO_KEY: &str = "null";
const ONE_KEY: &str = "'hot'";

pub fn measure(ground: &Ground) {
    hot_key(ground);
    hot_key_among_others(ground);
    many_keys(ground);
    stuck_keys(ground);
}

/// One event after the other: each waits for the confirm of the one before.
fn hot_key(ground: &Ground) {
    let (port, body) = (ground.servers.rabbit().unwrap().port(), payload(PAYLOAD_BYTES));
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let bare = Bare { port, workers: 1, window: 1, body: body.as_bytes() }.publish(HOT);
        ground.empty();
        ground.insert(HOT, ONE_KEY);
        let drain = drain(ground, "true");
        rounds.push((bare, drain));
    }
    let ratio = median(rounds.iter().map(|(bare, drain)| bare / drain));
    let text = format!(
        "{:.2} s against {:.2} s: {ratio:.2} of the rate",
        median(rounds.iter().map(|it| it.1)),
        median(rounds.iter().map(|it| it.0))
    );
    let what = format!("{HOT} events of one key, against one-at-a-time confirms");
    promise(&what, &text, "0.5 of the rate", ratio >= 0.5);
}

fn hot_key_among_others(ground: &Ground) {
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
    report(&rounds, &format!("{OTHERS} events without a key, older ones of a hot key beside them"), 0.7);
}

fn many_keys(ground: &Ground) {
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
        report(&rounds, &format!("1,000 keys with 10 events each, {how}, against no keys"), 0.7);
    }
}

fn stuck_keys(ground: &Ground) {
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
    report(
        &rounds,
        &format!("{OTHERS} events on 5,000 keys, {STUCK} older ones stuck behind two heads"),
        0.7,
    );
    let claim = median(claims);
    let what = format!("an empty claim beside {STUCK} stuck rows");
    promise(&what, &format!("{claim:.0} ms"), "100 ms", claim <= 100.0);
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
    ground.broker.delete_queue(QUEUE);
    ground.broker.declare_queue(QUEUE, &[]);
    row.get::<_, f64>(0) - started
}

fn report(rounds: &[(f64, f64)], what: &str, to_reach: f64) {
    let ratio = median(rounds.iter().map(|(alone, beside)| alone / beside));
    let (alone, beside) = (median(rounds.iter().map(|it| it.0)), median(rounds.iter().map(|it| it.1)));
    let text = format!("{beside:.2} s against {alone:.2} s: {ratio:.2} of the speed");
    promise(what, &text, &format!("{to_reach} of the speed"), ratio >= to_reach);
}
