//! Events that the broker refuses, among many that it takes: only the guilty ones pay, their neighbours arrive in the
//! same drain or soon after, what arrives twice is bounded, and connections, memory and time are too.

mod killers;
mod storms;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::harness::{Broker, ExchangeType, Proc, Rabbit, RabbitOptions, unique};
use crate::world::{DEADLINE, World};

/// The most bytes of a message that this broker takes.
const MESSAGE_MAX: usize = 65_536;

/// The largest frame that it agrees to; its default is 131,072.
const FRAME_MAX: usize = 8_192;

/// A broker with narrow limits, for all tests here; none of them breaks it.
fn narrow() -> &'static Rabbit {
    static NARROW: LazyLock<Rabbit> = LazyLock::new(|| {
        let config = vec![format!("max_message_size = {MESSAGE_MAX}"), format!("frame_max = {FRAME_MAX}")];
        Rabbit::start(&RabbitOptions { config, ..RabbitOptions::default() })
    });
    &NARROW
}

/// A world on that broker.
fn world() -> World {
    World::with_broker(&narrow().url())
}

/// A queue with an exchange of the same name in front, for the event type of the same name.
fn exchange(world: &World, kind: ExchangeType) -> String {
    let name = unique("exchange");
    world.broker.declare_queue(&name, &[]);
    world.broker.declare_exchange(&name, kind);
    world.broker.bind(&name, &name, &name);
    name
}

/// A user who may use no topic on this exchange but `allowed`.
fn user_for_topic(exchange: &str, allowed: &str) -> String {
    let user = unique("user");
    let rabbit = narrow();
    rabbit.ctl(&["add_user", &user, "secret"]);
    rabbit.ctl(&["set_permissions", &user, "^$", ".*", ".*"]);
    rabbit.ctl(&["set_topic_permissions", &user, exchange, &format!("^{allowed}$"), "^$"]);
    format!("amqp://{user}:secret@127.0.0.1:{}/%2F", rabbit.port())
}

/// A route that sends each of these types to the exchange of the same name.
fn routes(names: &[&str]) -> String {
    let route = |name: &&str| format!("[[route]]\nevent_type = \"{name}\"\nexchange = \"{name}\"\n");
    names.iter().map(route).collect()
}

/// How many rows of a type have which status and fail count.
fn states(world: &mut World, event_type: &str) -> Vec<(String, i32, i64)> {
    let sql = "select status::text, fail_count::integer, count(*) from event_outbox where event_type = $1 \
        group by 1, 2 order by 1, 2";
    let rows = world.client.query(sql, &[&event_type]).unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

/// That all rows of this type have this status and fail count.
fn assert_all(world: &mut World, event_type: &str, status: &str, fail_count: i32, count: i64) {
    let found = states(world, event_type);
    assert_eq!(found, [(status.to_owned(), fail_count, count)], "status, fail_count, count");
}

/// How many rows of a type give all these reasons.
fn saying(world: &mut World, event_type: &str, reasons: &[&str]) -> i64 {
    let sql = "select last_error from event_outbox where event_type = $1 and last_error is not null";
    let rows = world.client.query(sql, &[&event_type]).unwrap();
    let said = |text: String| reasons.iter().all(|reason| text.contains(reason));
    rows.iter().filter(|row| said(row.get(0))).count() as i64
}

/// That `count` events arrived in the queue, and returns how many messages are more than that.
fn surplus(world: &World, queue: &str, count: usize) -> usize {
    let arrived = Broker::open(&narrow().url()).drain_ready(queue);
    let ids: BTreeSet<&str> = arrived.iter().map(|message| message.id()).collect();
    assert_eq!(ids.len(), count, "events in {queue} on {}", world.broker.queue_len(queue));
    arrived.len() - count
}

/// Waits for a condition, and shows what the relay has said when it does not come.
fn wait_with(relay: &Proc, what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < DEADLINE, "waited in vain: {what}:\n{relay}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until nothing is due or on its way: every row has been tried.
fn wait_for_verdicts(world: &mut World, relay: &Proc) {
    wait_with(relay, "each has its outcome", || world.count("WAITING") == 0);
}

/// The most memory that a process has had so far, in bytes.
fn peak_memory(relay: &Proc) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", relay.id())).unwrap();
    let values: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once(':')).collect();
    let kib: u64 = values["VmHWM"].trim().trim_end_matches(" kB").parse().unwrap();
    kib * 1024
}

/// How many channels the broker has closed over what this user published: each costs at most what was in flight.
fn channel_exceptions(user: &str) -> usize {
    let log = fs::read(narrow().log_path()).unwrap();
    String::from_utf8_lossy(&log)
        .lines()
        .filter(|line| line.contains("Channel error on connection") && line.contains(user))
        .count()
}

#[test]
fn of_three_types_in_one_batch_only_the_one_without_an_exchange_fails() {
    let mut world = world();
    let kept = [exchange(&world, ExchangeType::Direct), exchange(&world, ExchangeType::Topic)];
    let lost = unique("missing");
    world.configure(&routes(&[&kept[0], &kept[1], &lost]));
    for _ in 0..10 {
        for name in [&kept[0], &lost, &kept[1]] {
            world.insert_many(name, 20);
        }
    }
    let output = world.once(&["--batch-rows", "600"], 75);
    assert_eq!(output.stdout, "claimed 600: published 400, failed 200\n", "{output:?}");
    assert_all(&mut world, &lost, "FAILED", 1, 200);
    assert_eq!(saying(&mut world, &lost, &["NOT_FOUND", "404", &lost]), 200);
    for name in &kept {
        assert_all(&mut world, name, "PUBLISHED", 0, 200);
        assert_eq!(surplus(&world, name, 200), 0, "the exchange was asked for before anything was sent");
    }
}

#[test]
fn an_exchange_deleted_under_full_windows_costs_at_most_a_window_per_closed_channel() {
    const EACH: i64 = 4_000;
    const WINDOW: usize = 64;
    let mut world = world();
    let (kept, lost) = (exchange(&world, ExchangeType::Direct), exchange(&world, ExchangeType::Direct));
    let user = unique("user");
    narrow().ctl(&["add_user", &user, "secret"]);
    narrow().ctl(&["set_permissions", &user, ".*", ".*", ".*"]);
    world.amqp_url = format!("amqp://{user}:secret@127.0.0.1:{}/%2F", narrow().port());
    world.configure(&routes(&[&kept, &lost]));
    for _ in 0..40 {
        world.insert_many(&kept, EACH / 40);
        world.insert_many(&lost, EACH / 40);
    }
    let window = WINDOW.to_string();
    let limits = [
        "--interval",
        "200ms",
        "--workers",
        "2",
        "--batch-rows",
        "200",
        "--backoff-base",
        "1h",
        "--backoff-max",
        "1h",
    ];
    let relay = world.start(&[&limits[..], &["--window", &window]].concat());
    wait_with(&relay, "the drain is on its way", || world.count("PUBLISHED") > 0);
    world.broker.delete_exchange(&lost);
    wait_for_verdicts(&mut world, &relay);

    assert_all(&mut world, &kept, "PUBLISHED", 0, EACH);
    let found = states(&mut world, &lost);
    let failed = found.iter().find(|it| it.0 == "FAILED").map_or(0, |it| it.2);
    assert!((1..EACH).contains(&failed), "it was deleted in the middle: {found:?}");
    let rest = ("PUBLISHED".to_owned(), 0, EACH - failed);
    assert_eq!(found, [("FAILED".to_owned(), 1, failed), rest], "{relay}");
    assert_eq!(saying(&mut world, &lost, &["NOT_FOUND", "404", &lost]), failed);
    // A connection that ends takes the windows of both workers with it.
    let connections = relay.output().1.matches("opening another").count();
    let bound = WINDOW * (channel_exceptions(&user) + 2 * connections);
    // What was in flight may arrive again, or fail although it had arrived unconfirmed.
    let lost_arrived = world.arrivals(&lost).len();
    let published = (EACH - failed) as usize;
    assert!(lost_arrived >= published, "{lost_arrived} of {published} arrived:\n{relay}");
    let twice = surplus(&world, &kept, EACH as usize) + lost_arrived - published;
    assert!(twice <= bound, "{twice} came in excess, at most {bound} were in flight:\n{relay}");
}
