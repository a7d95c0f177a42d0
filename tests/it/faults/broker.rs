//! A broker that dies, stops, blocks, freezes, or loses an exchange.

use std::thread;
use std::time::Duration;

use super::{EVENTS, IN_FLIGHT, RUN, all_arrive, breakable, draining, goes_on, ids, is_draining, lines};
use crate::harness::{Broker, ExchangeType, Proc, unique, wait_until};
use crate::world::{DEADLINE, OUTBOXD, World};

/// Closes every connection, as an operator does. The test's own goes with it.
const CLOSE_ALL: &str =
    "[rabbit_networking:close_connection(P, \"bye\") || P <- rabbit_networking:connections()].";

#[test]
fn a_broker_that_is_killed_in_a_drain_costs_nothing_but_time() {
    let mut rabbit = breakable();
    let (mut world, queue, mut relay) = draining(&rabbit.url());
    rabbit.kill();
    relay.wait_for_line("nothing is claimed and no attempt is spent until that is over", DEADLINE);
    rabbit.restart();
    relay.wait_for_line("the broker is usable again after", DEADLINE);
    all_arrive(&mut world, &relay, &queue, IN_FLIGHT);
}

#[test]
fn a_broker_that_is_stopped_in_a_drain_costs_nothing_but_time() {
    let mut rabbit = breakable();
    let (mut world, queue, mut relay) = draining(&rabbit.url());
    rabbit.stop();
    relay.wait_for_line("nothing is claimed and no attempt is spent until that is over", DEADLINE);
    rabbit.restart();
    relay.wait_for_line("the broker is usable again after", DEADLINE);
    all_arrive(&mut world, &relay, &queue, IN_FLIGHT);
}

#[test]
fn a_connection_that_is_closed_by_an_operator_is_opened_again() {
    let rabbit = breakable();
    let (mut world, queue, relay) = draining(&rabbit.url());
    let mut closed = 0;
    while closed < 3 && world.count("PUBLISHED") < EVENTS {
        rabbit.eval(CLOSE_ALL);
        closed += 1;
        goes_on(&mut world);
    }
    all_arrive(&mut world, &relay, &queue, IN_FLIGHT * closed);
}

#[test]
fn a_connection_that_ends_between_ticks_is_opened_again_without_a_word() {
    let rabbit = breakable();
    let mut world = World::with_broker(&rabbit.url());
    let queue = world.queue();
    world.insert(&queue, "{}");
    let mut relay = world.start(&["--interval", "500ms", "--min-age", "0s"]);
    relay.wait_for_line("claimed=1 published=1", DEADLINE);
    rabbit.eval(CLOSE_ALL);
    world.insert(&queue, "{}");
    wait_until("it is published", DEADLINE, || (world.count("PUBLISHED") == 2).then_some(()));
    let (_, log) = relay.output();
    assert!(!log.contains("level=error ") && !log.contains("level=warn "), "{log}");
    assert_eq!(ids(&Broker::open(&rabbit.url()).drain_ready(&queue)).len(), 2);
}

#[test]
fn a_memory_alarm_in_a_drain_is_waited_out() {
    let rabbit = breakable();
    let (mut world, queue, mut relay) = draining(&rabbit.url());
    rabbit.memory_alarm(true);
    let line = relay.wait_for_line("error=\"the broker blocks publishers (", DEADLINE);
    assert!(line.contains("level=error ") && line.contains("memory"), "{line}");
    // Nothing moves, and all that is held is free for others, while it lasts.
    let free = "select count(*) from (select 1 from event_outbox for update nowait) as t";
    wait_until("no row is locked", DEADLINE, || world.client.query_one(free, &[]).ok());
    let published = world.count("PUBLISHED");
    assert_eq!(published + world.count("WAITING"), EVENTS);
    assert!(published < EVENTS);
    // Many tries later it has been told once.
    thread::sleep(Duration::from_secs(2));
    assert_eq!(world.count("PUBLISHED"), published, "{relay}");
    assert_eq!(lines(&relay, "level=error "), 1, "{relay}");
    rabbit.memory_alarm(false);
    relay.wait_for_line("the broker is usable again after", DEADLINE);
    all_arrive(&mut world, &relay, &queue, IN_FLIGHT);
}

#[test]
fn a_memory_alarm_before_the_first_publish_keeps_the_batch_back() {
    let rabbit = breakable();
    let mut world = World::with_broker(&rabbit.url());
    let queue = world.queue();
    world.insert_many(&queue, EVENTS);
    rabbit.memory_alarm(true);
    let mut relay = world.start(&RUN);
    relay.wait_for_line("error=\"the broker blocks publishers (", DEADLINE);
    assert_eq!(world.count("WAITING"), EVENTS);
    // Only the one that went ahead was sent.
    let tried = "select count(*) from event_outbox where last_retried_at is not null";
    let tried: i64 = world.client.query_one(tried, &[]).unwrap().get(0);
    assert!(tried <= 1, "{tried} were tried:\n{relay}");

    let environment = [("DATABASE_URL", world.database.url.as_str()), ("AMQP_URL", &world.amqp_url)];
    let once = Proc::run(OUTBOXD, &["once", "--publish-timeout", "1s"], &environment, DEADLINE);
    assert_eq!(once.code, Some(69), "{once:?}");
    let last = once.stderr.lines().last().unwrap();
    assert!(
        last.starts_with("outboxd: the broker blocks publishers (") && last.contains("(since 20"),
        "{once:?}"
    );
    assert!(!once.stdout.contains("published"), "{once:?}");

    rabbit.memory_alarm(false);
    all_arrive(&mut world, &relay, &queue, 2);
}

/// A connection that has published nothing is not told of an alarm, but who watches cron's exit codes wants to be.
#[test]
fn once_tells_of_a_memory_alarm_although_nothing_is_due() {
    let rabbit = breakable();
    let world = World::with_broker(&rabbit.url());
    rabbit.memory_alarm(true);
    let output = world.once(&[], 69);
    rabbit.memory_alarm(false);
    assert!(output.stderr.contains("outboxd: the broker blocks publishers ("), "{output:?}");
    assert_eq!(world.once(&[], 0).stdout, "0 due\n");
}

#[test]
fn sigterm_ends_a_relay_within_its_grace_while_the_broker_blocks() {
    let rabbit = breakable();
    let mut world = World::with_broker(&rabbit.url());
    let queue = world.queue();
    world.insert_many(&queue, 1000);
    let mut relay =
        world.start(&["--window", "1", "--workers", "1", "--grace", "4s", "--publish-timeout", "5m"]);
    is_draining(&mut world);
    rabbit.memory_alarm(true);
    relay.signal("TERM");
    let ended = relay.wait(Duration::from_secs(20));
    rabbit.memory_alarm(false);
    assert_eq!((ended.code, ended.signal), (Some(0), None), "{ended:?}");
    assert_eq!(world.count("PUBLISHED") + world.count("WAITING"), 1000);
    world.once(&[], 0);
    assert_eq!(ids(&world.broker.drain_ready(&queue)).len(), 1000);
}

#[test]
fn sigterm_ends_a_relay_within_its_grace_while_the_broker_is_frozen() {
    let rabbit = breakable();
    let mut world = World::with_broker(&rabbit.url());
    let queue = world.queue();
    world.insert_many(&queue, EVENTS);
    let mut relay =
        world.start(&["--window", "1", "--workers", "1", "--grace", "4s", "--publish-timeout", "5m"]);
    is_draining(&mut world);
    rabbit.freeze();
    relay.signal("TERM");
    let ended = relay.wait(Duration::from_secs(20));
    rabbit.thaw();
    assert_eq!((ended.code, ended.signal), (Some(0), None), "{ended:?}");
    assert_eq!(world.count("PUBLISHED") + world.count("WAITING"), EVENTS);
    world.once(&[], 0);
    world.broker = Broker::open(&rabbit.url());
    let arrived = world.broker.drain_ready(&queue);
    assert_eq!(ids(&arrived).len(), EVENTS as usize);
    assert!(arrived.len() <= EVENTS as usize + 1, "{} messages", arrived.len());
}

#[test]
fn a_frozen_broker_is_given_up_after_publish_timeout_and_used_again() {
    let rabbit = breakable();
    let (mut world, queue, mut relay) = draining(&rabbit.url());
    rabbit.freeze();
    relay.wait_for_line("no confirm within publish_timeout 2s", DEADLINE);
    let free = "select count(*) from (select 1 from event_outbox for update nowait) as t";
    wait_until("no row is locked", DEADLINE, || world.client.query_one(free, &[]).ok());
    let unsure =
        "select count(*) from event_outbox where last_error like 'unconfirmed x1: %' and status = 'WAITING'";
    let unsure: i64 = world.client.query_one(unsure, &[]).unwrap().get(0);
    assert!((1..=IN_FLIGHT as i64).contains(&unsure), "{unsure} are unconfirmed:\n{relay}");
    rabbit.thaw();
    all_arrive(&mut world, &relay, &queue, IN_FLIGHT);
}

#[test]
fn an_exchange_that_is_deleted_in_a_drain_costs_only_its_own_events() {
    let mut world = World::new();
    let (kept, lost) = (unique("kept"), unique("lost"));
    for name in [&kept, &lost] {
        world.broker.declare_queue(name, &[]);
        world.broker.declare_exchange(name, ExchangeType::Direct);
        world.broker.bind(name, name, name);
    }
    world.configure(&format!(
        "[[route]]\nevent_type = \"{kept}\"\nexchange = \"{kept}\"\n[[route]]\nevent_type = \"{lost}\"\n\
         exchange = \"{lost}\""
    ));
    for _ in 0..50 {
        world.insert_many(&kept, 100);
        world.insert_many(&lost, 100);
    }
    let relay = world.start(&[&RUN[..], &["--backoff-base", "1h", "--backoff-max", "2h"]].concat());
    is_draining(&mut world);
    world.broker.delete_exchange(&lost);
    wait_until("each has its outcome", DEADLINE, || (world.count("WAITING") == 0).then_some(()));

    let states = "select event_type::text, status::text, fail_count, count(*) from event_outbox \
        group by 1, 2, 3 order by 1, 2";
    let states = world.client.query(states, &[]).unwrap();
    let states: Vec<(String, String, i32, i64)> =
        states.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect();
    let failed = states.iter().find(|it| it.1 == "FAILED").map_or(0, |it| it.3);
    assert!((1..5000).contains(&failed), "{states:?}");
    let expected = [
        (kept.clone(), "PUBLISHED".to_owned(), 0, 5000),
        (lost.clone(), "FAILED".to_owned(), 1, failed),
        (lost.clone(), "PUBLISHED".to_owned(), 0, 5000 - failed),
    ];
    assert_eq!(states, expected, "{relay}");
    let named = "select count(*) from event_outbox where status = 'FAILED' \
        and last_error like '%404%' and position($1 in last_error) > 0";
    let named: i64 = world.client.query_one(named, &[&lost]).unwrap().get(0);
    assert_eq!(named, failed);
    let arrived = world.broker.drain_ready(&kept);
    assert_eq!(ids(&arrived).len(), 5000);
    // Channels end with what is in flight on them, and only then.
    assert!(arrived.len() <= 5000 + 10 * IN_FLIGHT, "{} messages:\n{relay}", arrived.len());

    let published = "select event_id::text from event_outbox where status = 'PUBLISHED' and event_type = $1";
    let published = world.client.query(published, &[&lost]).unwrap();
    let published = published.iter().map(|row| row.get(0)).collect();
    let arrived = ids(&world.broker.drain_ready(&lost));
    assert!(arrived.is_superset(&published), "{relay}");
    // One that went through, and whose confirm was still on its way when the channel ended, was refused the second time.
    assert!(
        arrived.len() <= published.len() + IN_FLIGHT,
        "{} of {}:\n{relay}",
        arrived.len(),
        published.len()
    );
}
