//! The daemon's life: its beat, how it ends, and how it starts before its servers.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::faults::breakable;
use crate::harness::{Broker, Message, Postgres, PostgresOptions, Proc, Servers, wait_until};
use crate::world::{DEADLINE, OUTBOXD, World, init};

/// Options with which a drain of some thousand events lasts long enough to be met in the middle.
const SLOW: [&str; 6] = ["--workers", "1", "--window", "1", "--batch-rows", "100"];

/// The grace that tests give, in the flag and as a time. Ending may take a little longer than it on a busy machine.
const GRACE: (&str, Duration) = ("10s", Duration::from_secs(20));

#[test]
fn the_first_tick_is_at_the_start() {
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many(&queue, 3);
    let mut relay = world.start(&["--interval", "1h"]);
    wait_until("all are published", DEADLINE, || (world.count("PUBLISHED") == 3).then_some(()));
    assert!(relay.is_running(), "{relay}");
}

#[test]
fn new_events_are_picked_up_at_the_beats_and_not_between() {
    const EVENTS: u32 = 6;
    const INTERVAL: Duration = Duration::from_millis(700);
    let mut world = World::new();
    let queue = world.queue();
    let relay = world.start(&["--interval", "700ms", "--min-age", "0s"]);
    let mut first = None;
    for sent in 1..=EVENTS {
        world.insert(&queue, "{}");
        // The tick that sent it has ended, so the next event has to wait for the next beat.
        wait_until("a tick has sent it", DEADLINE, || {
            let (_, log) = relay.output();
            (log.matches("msg=ticked claimed=1 published=1 ").count() == sent as usize).then_some(())
        });
        first.get_or_insert_with(Instant::now);
    }
    // Any two ticks can be close to each other when the machine is late with the first; all of them cannot.
    let elapsed = first.unwrap().elapsed();
    assert!(elapsed > INTERVAL * (EVENTS - 1) / 2, "{EVENTS} ticks in {elapsed:?}:\n{relay}");
}

#[test]
fn an_idle_relay_ends_at_once_when_it_is_told_to() {
    for signal in ["TERM", "INT"] {
        let mut world = World::new();
        let queue = world.queue();
        world.insert(&queue, "{}");
        let mut relay = world.start(&["--interval", "1h"]);
        relay.wait_for_line("claimed=1 published=1", DEADLINE);
        relay.signal(signal);
        let ended = relay.wait(GRACE.1);
        assert_eq!((ended.code, ended.signal), (Some(0), None), "{ended:?}");
        assert!(ended.stderr.contains(&format!("in flight\" signal=SIG{signal} grace=10s")), "{ended:?}");
        assert!(ended.stderr.contains("msg=stopped claimed=1 published=1"), "{ended:?}");
    }
}

#[test]
fn sigterm_in_the_middle_of_a_drain_hands_the_rest_back() {
    is_ended_in_the_middle_by("TERM");
}

#[test]
fn sigint_in_the_middle_of_a_drain_hands_the_rest_back() {
    is_ended_in_the_middle_by("INT");
}

fn is_ended_in_the_middle_by(signal: &str) {
    const EVENTS: i64 = 20_000;
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many(&queue, EVENTS);
    let mut relay = world.start(&[&SLOW[..], &["--grace", GRACE.0]].concat());
    wait_until("the drain is on its way", DEADLINE, || (world.count("PUBLISHED") >= 300).then_some(()));
    relay.signal(signal);
    let ended = relay.wait(GRACE.1);
    assert_eq!((ended.code, ended.signal), (Some(0), None), "{ended:?}");

    let published = event_ids(&mut world, "status = 'PUBLISHED'");
    assert!(published.len() < EVENTS as usize, "all were sent before the signal");
    assert_eq!(world.count("PUBLISHED") + world.count("WAITING"), EVENTS);
    let arrived = world.broker.drain_ready(&queue);
    assert_eq!(each_once(&arrived), published);
    assert_eq!(event_ids(&mut world, "fail_count > 0 or last_error is not null"), BTreeSet::new());

    let rest = event_ids(&mut world, "status = 'WAITING'");
    world.once(&["--batch-rows", "2000"], 0);
    assert_eq!(each_once(&world.broker.drain_ready(&queue)), rest);
    assert_eq!(world.count("PUBLISHED"), EVENTS);
}

#[test]
fn once_is_ended_by_sigterm_like_run() {
    const EVENTS: i64 = 10_000;
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many(&queue, EVENTS);
    let environment = [("DATABASE_URL", world.database.url.as_str()), ("AMQP_URL", &world.amqp_url)];
    let mut once = Proc::spawn(OUTBOXD, &[&["once", "--grace", GRACE.0], &SLOW[..]].concat(), &environment);
    wait_until("the drain is on its way", DEADLINE, || (world.count("PUBLISHED") >= 300).then_some(()));
    once.signal("TERM");
    let ended = once.wait(GRACE.1);
    // Events remain due, and a script may want to know.
    assert_eq!(ended.code, Some(75), "{ended:?}");
    let published = event_ids(&mut world, "status = 'PUBLISHED'");
    assert_eq!(world.count("WAITING"), EVENTS - published.len() as i64);
    assert_eq!(each_once(&world.broker.drain_ready(&queue)), published);
}

/// Someone's forgotten `lock table` must not keep a service from being stopped.
#[test]
fn sigterm_ends_a_relay_within_its_grace_while_the_table_is_locked() {
    let mut world = World::new();
    let mut locker = world.database.connect();
    let mut lock = locker.transaction().unwrap();
    lock.batch_execute("lock table event_outbox in access exclusive mode").unwrap();
    let mut relay = world.start(&["--interval", "100ms", "--grace", "3s"]);
    let waiting = "select count(*) from pg_stat_activity \
        where datname = current_database() and application_name = 'outboxd' and wait_event_type = 'Lock'";
    wait_until("the relay waits for the lock", DEADLINE, || {
        (world.client.query_one(waiting, &[]).unwrap().get::<_, i64>(0) > 0).then_some(())
    });
    relay.signal("TERM");
    let ended = relay.wait(GRACE.1);
    // In order, or because its grace is over.
    assert!([Some(0), Some(75)].contains(&ended.code), "{ended:?}");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    for (signal, code) in [("TERM", 143), ("INT", 130)] {
        let rabbit = breakable();
        let mut world = World::with_broker(&rabbit.url());
        let queue = world.queue();
        world.insert_many(&queue, 10_000);
        let patient = ["--grace", "5m", "--publish-timeout", "5m"];
        let mut relay = world.start(&[&SLOW[..], &patient].concat());
        wait_until("the drain is on its way", DEADLINE, || (world.count("PUBLISHED") >= 100).then_some(()));
        rabbit.freeze();
        relay.signal(signal);
        relay.wait_for_line("finishing or handing back", DEADLINE);
        assert!(relay.is_running(), "{relay}");
        relay.signal(signal);
        let ended = relay.wait(DEADLINE);
        rabbit.thaw();
        assert_eq!((ended.code, ended.signal), (Some(code), None), "{ended:?}");
    }
}

/// The process dies without a word; the server frees the rows of its claims, and nothing is lost.
#[test]
fn sigkill_in_the_middle_of_a_drain_costs_at_most_what_was_claimed() {
    const EVENTS: i64 = 10_000;
    // Two claims can be open, of 100 rows each.
    const CLAIMED_MAX: usize = 200;
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many(&queue, EVENTS);
    let relay = world.start(&SLOW);
    wait_until("the drain is on its way", DEADLINE, || (world.count("PUBLISHED") >= 500).then_some(()));
    relay.kill();
    let left = "select count(*) from pg_stat_activity \
        where datname = current_database() and application_name = 'outboxd'";
    wait_until("its sessions are gone", DEADLINE, || {
        (world.client.query_one(left, &[]).unwrap().get::<_, i64>(0) == 0).then_some(())
    });
    let published = world.count("PUBLISHED");
    assert!(published < EVENTS, "all were sent before the signal");
    let output = world.once(&[], 0);
    assert_eq!(output.stdout, format!("claimed {0}: published {0}\n", EVENTS - published));
    let arrived = world.broker.drain_ready(&queue);
    let ids: BTreeSet<String> = arrived.iter().map(|message| message.id().to_owned()).collect();
    assert_eq!(ids, event_ids(&mut world, "status = 'PUBLISHED' and fail_count = 0"));
    assert_eq!(ids.len(), EVENTS as usize);
    assert!(arrived.len() <= ids.len() + CLAIMED_MAX, "{} messages for {EVENTS} events", arrived.len());
}

#[test]
fn a_relay_that_starts_before_its_broker_waits_for_it() {
    let mut rabbit = breakable();
    let mut world = World::with_broker(&rabbit.url());
    let queue = world.queue();
    world.insert_many(&queue, 10);
    rabbit.stop();
    let mut relay = world.start(&["--interval", "200ms", "-v"]);
    // Three more tries, which are told to those who debug.
    wait_until("it has tried again", DEADLINE, || {
        (count(&relay, "level=debug msg=\"still in trouble\"") >= 3).then_some(())
    });
    assert_eq!(count(&relay, "level=error "), 1, "{relay}");
    assert_eq!(
        count(&relay, "opening a session on broker"),
        count(&relay, "level=debug msg=\"still in trouble\"") + 1,
        "{relay}"
    );
    assert_eq!(event_ids(&mut world, "last_retried_at is not null or status <> 'WAITING'"), BTreeSet::new());
    rabbit.restart();
    relay.wait_for_line("the broker is usable again after", DEADLINE);
    wait_until("all are published", DEADLINE, || (world.count("PUBLISHED") == 10).then_some(()));
    world.broker = Broker::open(&rabbit.url());
    assert_eq!(world.broker.drain_ready(&queue).len(), 10);
}

#[test]
fn a_relay_that_starts_before_its_database_waits_for_it() {
    let mut server = Postgres::start(&PostgresOptions::default());
    let mut world = World::on(server.database_from("outbox", init), Servers::shared().amqp_url());
    let queue = world.queue();
    world.insert_many(&queue, 10);
    server.stop();
    let mut relay = world.start(&["--interval", "200ms", "-v"]);
    wait_until("it has tried again", DEADLINE, || {
        (count(&relay, "level=debug msg=\"still in trouble\"") >= 3).then_some(())
    });
    assert_eq!(count(&relay, "level=error "), 1, "{relay}");
    server.restart();
    relay.wait_for_line("the database is usable again after", DEADLINE);
    world.client = world.database.connect();
    wait_until("all are published", DEADLINE, || (world.count("PUBLISHED") == 10).then_some(()));
    assert_eq!(each_once(&world.broker.drain_ready(&queue)).len(), 10);
}

#[test]
fn a_relay_that_starts_before_its_table_waits_for_it() {
    let mut world = World::on(Servers::shared().database(), Servers::shared().amqp_url());
    let queue = world.queue();
    let mut relay = world.start(&["--interval", "100ms", "--min-age", "0s", "-v"]);
    let line =
        relay.wait_for_line("table event_outbox does not exist: create it with: outboxd init", DEADLINE);
    assert!(line.contains("level=error "), "{line}");
    wait_until("it has tried again", DEADLINE, || {
        (count(&relay, "level=debug msg=\"still in trouble\"") >= 3).then_some(())
    });
    assert_eq!(count(&relay, "level=error "), 1, "{relay}");
    init(&world.database.url);
    world.insert(&queue, "{}");
    wait_until("it is published", DEADLINE, || (world.count("PUBLISHED") == 1).then_some(()));
}

/// How many lines of the log hold this text.
fn count(relay: &Proc, text: &str) -> usize {
    relay.output().1.lines().filter(|line| line.contains(text)).count()
}

/// The event ids of the rows for which this is true.
fn event_ids(world: &mut World, condition: &str) -> BTreeSet<String> {
    let sql = format!("select event_id::text from event_outbox where {condition}");
    world.client.query(&sql, &[]).unwrap().iter().map(|row| row.get(0)).collect()
}

/// The ids of messages none of which came twice.
fn each_once(messages: &[Message]) -> BTreeSet<String> {
    let ids: BTreeSet<String> = messages.iter().map(|message| message.id().to_owned()).collect();
    assert_eq!(ids.len(), messages.len(), "some came twice");
    ids
}
