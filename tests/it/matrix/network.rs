//! A network that swallows, resets, delays and crawls, made by a proxy between the relay and a healthy broker.

use std::time::{Duration, Instant};

use super::health::Resources;
use super::{DOWN, HASTY, IN_FLIGHT, RUN, SLOW_EVENTS, Scene, UP, lines, port, proxy, slow_proxy, through};
use crate::harness::Direction::{ToClient, ToServer};
use crate::harness::{Proxy, Servers, wait_until};
use crate::world::{DEADLINE, World};

/// A relay that must not mistake a bad link for a dead one.
const STEADY: [&str; 6] = ["--workers", "2", "--window", "16", "--publish-timeout", "6s"];

#[test]
fn a_black_hole_in_a_drain_is_noticed_and_costs_at_most_what_was_in_flight() {
    let proxy = slow_proxy();
    let mut scene = Scene::behind(&proxy, "", &HASTY);
    scene.drain(SLOW_EVENTS);
    proxy.swallow(ToServer, true);
    proxy.swallow(ToClient, true);
    scene.relay.wait_for_line(DOWN, DEADLINE);
    scene.was_in_the_middle();
    scene.frees_its_rows();
    scene.lets_go();
    scene.is_truthful();
    proxy.heal();
    scene.relay.wait_for_line(UP, DEADLINE);
    scene.recovers(IN_FLIGHT);
}

/// Nothing is sent that a deadline could be missed for, so only heartbeats can tell.
#[test]
fn a_black_hole_between_ticks_is_noticed_by_heartbeats_and_costs_nothing() {
    let proxy = proxy();
    let mut scene = Scene::behind(&proxy, "?heartbeat=2", &HASTY);
    proxy.swallow(ToServer, true);
    proxy.swallow(ToClient, true);
    scene.relay.wait_for_line(DOWN, DEADLINE);
    scene.insert(10);
    proxy.heal();
    scene.relay.wait_for_line(UP, DEADLINE);
    scene.recovers(0);
}

#[test]
fn confirms_that_are_swallowed_cost_at_most_what_was_in_flight() {
    let proxy = slow_proxy();
    let mut scene = Scene::behind(&proxy, "", &HASTY);
    scene.drain(SLOW_EVENTS);
    proxy.swallow(ToClient, true);
    scene.relay.wait_for_line(DOWN, DEADLINE);
    scene.was_in_the_middle();
    scene.frees_its_rows();
    scene.lets_go();
    scene.is_truthful();
    proxy.heal();
    scene.relay.wait_for_line(UP, DEADLINE);
    scene.recovers(IN_FLIGHT);
}

#[test]
fn messages_that_are_swallowed_are_sent_again_and_none_comes_twice() {
    let proxy = slow_proxy();
    let mut scene = Scene::behind(&proxy, "", &HASTY);
    scene.drain(SLOW_EVENTS);
    proxy.swallow(ToServer, true);
    scene.relay.wait_for_line(DOWN, DEADLINE);
    scene.was_in_the_middle();
    scene.frees_its_rows();
    scene.lets_go();
    scene.is_truthful();
    proxy.heal();
    scene.relay.wait_for_line(UP, DEADLINE);
    scene.recovers(0);
}

#[test]
fn a_reset_in_a_drain_costs_at_most_what_was_in_flight() {
    let proxy = slow_proxy();
    let mut scene = Scene::behind(&proxy, "", &HASTY);
    scene.drain(SLOW_EVENTS);
    proxy.reset();
    scene.was_in_the_middle();
    scene.recovers(IN_FLIGHT);
    assert_eq!(proxy.accepted(), 2, "{}", scene.relay);
}

#[test]
fn twenty_resets_in_a_row_leave_no_thread_and_no_descriptor_behind() {
    const RESETS: usize = 20;
    let proxy = slow_proxy();
    let mut scene = Scene::behind(&proxy, "", &HASTY);
    scene.drain(SLOW_EVENTS);
    for _ in 0..RESETS {
        let before = proxy.accepted();
        proxy.reset();
        wait_until("another connection", DEADLINE, || {
            (proxy.accepted() > before && proxy.live() == 1).then_some(())
        });
    }
    scene.recovers(RESETS * IN_FLIGHT);
}

/// The settle is slow, so that the connection ends between the last confirm and the commit.
#[test]
fn a_reset_after_the_last_confirm_costs_nothing() {
    let proxy = proxy();
    let mut scene = Scene::behind(&proxy, "", &HASTY);
    let slow = "create function slow() returns trigger language plpgsql as \
        $$ begin perform pg_sleep(1.5); return null; end $$; \
        create trigger slow after update on event_outbox execute function slow()";
    scene.world.client.batch_execute(slow).unwrap();
    scene.insert(50);
    let settling = "select count(*) from pg_stat_activity \
        where datname = current_database() and wait_event = 'PgSleep'";
    wait_until("it settles", DEADLINE, || {
        (scene.world.client.query_one(settling, &[]).unwrap().get::<_, i64>(0) > 0).then_some(())
    });
    proxy.reset();
    scene.recovers(0);
    assert_eq!(lines(&scene.relay, "level=error "), 0, "{}", scene.relay);
}

#[test]
fn a_network_that_cuts_frames_into_pieces_is_not_noticed() {
    let proxy = proxy();
    let mut scene = Scene::behind(&proxy, "", &STEADY);
    for direction in [ToServer, ToClient] {
        proxy.slice(direction, 7, Duration::from_micros(100));
    }
    scene.insert(300);
    is_not_noticed(&mut scene, &proxy);
}

#[test]
fn a_round_trip_of_a_hundred_to_seven_hundred_milliseconds_is_not_noticed() {
    let proxy = proxy();
    let mut scene = Scene::behind(&proxy, "", &STEADY);
    for direction in [ToServer, ToClient] {
        proxy.delay(direction, Duration::from_millis(50));
        proxy.jitter(direction, Duration::from_millis(300));
    }
    scene.insert(300);
    is_not_noticed(&mut scene, &proxy);
}

/// What is in flight takes longer than `publish_timeout` to go through, and every message a small part of it.
#[test]
fn a_link_of_ten_kilobytes_per_second_is_not_noticed() {
    crawls_unnoticed(&STEADY, 2_400);
}

/// Each worker waits longer than `publish_timeout` for its next confirm, since the others' messages go through
/// meanwhile; but the connection hears one twice a second.
#[test]
fn a_link_that_many_workers_share_is_alive_while_any_of_them_hears_confirms() {
    crawls_unnoticed(&["--workers", "8", "--window", "4", "--publish-timeout", "2s"], 4_000);
}

fn crawls_unnoticed(options: &[&str], payload_bytes: usize) {
    let proxy = proxy();
    let mut scene = Scene::behind(&proxy, "", options);
    for direction in [ToServer, ToClient] {
        proxy.bandwidth(direction, 10_000);
    }
    let payload = format!("\"{}\"", "x".repeat(payload_bytes));
    let values = format!("select $1, $2 || n, $3 from generate_series(1, {IN_FLIGHT}) as n");
    let insert = format!("insert into event_outbox (event_type, event_id, payload) {values}");
    // The rest of a ULID.
    let prefix = &ulid::Ulid::generate().to_string()[..20];
    scene.world.client.execute(&insert, &[&scene.queue, &prefix, &payload]).unwrap();
    scene.inserted += IN_FLIGHT as i64;
    is_not_noticed(&mut scene, &proxy);
}

/// Every event arrives once, no attempt was in doubt at any time, and the connection is still the first one.
fn is_not_noticed(scene: &mut Scene, proxy: &Proxy) {
    scene.recovers(0);
    let doubtful = "select count(*) from event_outbox where last_error is not null";
    assert_eq!(scene.world.client.query_one(doubtful, &[]).unwrap().get::<_, i64>(0), 0, "{}", scene.relay);
    let marked = scene.arrived.iter().filter(|it| it.headers.contains_key("x-outboxd-possible-duplicate"));
    assert_eq!(marked.count(), 0, "{}", scene.relay);
    assert_eq!(
        lines(&scene.relay, "level=warn ") + lines(&scene.relay, "level=error "),
        0,
        "{}",
        scene.relay
    );
    assert_eq!(proxy.accepted(), 1, "{}", scene.relay);
}

/// The pauses double: 0.2 s, 0.4 s and so on up to 5 s. Seven tries take eleven seconds, and half of that would still
/// be a pace.
#[test]
fn tries_against_a_dead_broker_slow_down_and_are_told_once() {
    const TRIES: u64 = 7;
    let dead = Proxy::to(port(Servers::shared().amqp_url()));
    dead.refuse(true);
    let counter = Proxy::to(dead.port());
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many(&queue, 10);
    world.amqp_url = through(&counter, &world.amqp_url);
    let start = Instant::now();
    let mut relay = world.start(&[&RUN[2..], &HASTY, &["--interval", "30s"]].concat());
    relay.wait_for_line(DOWN, DEADLINE);
    let base = Resources::at_rest(&relay);
    wait_until("many tries", DEADLINE, || (counter.accepted() >= TRIES).then_some(()));
    assert!(start.elapsed() > Duration::from_millis(5_500), "{TRIES} tries in {:?}", start.elapsed());
    base.return_to(&relay);
    let told = relay.output().1;
    let lines = told.lines().filter(|line| !line.contains("level=debug "));
    assert_eq!(lines.count(), 2, "its start and its trouble: {told}");
    let touched =
        "select count(*) from event_outbox where status <> 'WAITING' or last_retried_at is not null";
    assert_eq!(world.client.query_one(touched, &[]).unwrap().get::<_, i64>(0), 0, "{relay}");
    dead.refuse(false);
    let healed = Instant::now();
    relay.wait_for_line(UP, DEADLINE);
    // It did not wait for the next beat, which is much further away than the longest pause.
    assert!(healed.elapsed() < Duration::from_secs(15), "{:?} to return:\n{relay}", healed.elapsed());
    wait_until("all are published", DEADLINE, || (world.count("PUBLISHED") == 10).then_some(()));
    assert_eq!(world.arrivals(&queue).len(), 10);
}
