//! A broker that is killed, stopped, frozen, or blocks.

use std::thread;
use std::time::Duration;

use super::{DOWN, EVENTS, Fault, HASTY, IN_FLIGHT, RUN, Scene, UP, lines, silent};
use crate::faults::breakable;
use crate::harness::Rabbit;
use crate::world::DEADLINE;

/// A relay that waits long for confirms and must end soon nevertheless, and the most that its end may take on a busy
/// machine.
const PATIENT: [&str; 8] = ["--workers", "2", "--window", "16", "--publish-timeout", "5m", "--grace", "4s"];
const GRACE_MAX: Duration = Duration::from_secs(20);

#[test]
fn a_broker_killed_in_a_drain_costs_at_most_what_was_in_flight_and_few_words() {
    let mut rabbit = breakable();
    let mut scene = Scene::on(&rabbit.url(), &HASTY);
    scene.drain(EVENTS);
    rabbit.kill();
    let before = scene.relay.output().1.lines().count();
    // It takes seconds, in which a relay has tried many times.
    rabbit.restart();
    scene.relay.wait_for_line(UP, DEADLINE);
    let log = scene.relay.output().1;
    let told =
        log.lines().skip(before).filter(|line| !line.contains("level=debug ") && !line.contains(" claimed="));
    let told = told.count();
    assert!(told <= 3, "the loss, the trouble and its end take three lines:\n{}", scene.relay);
    scene.reconnect();
    scene.recovers(IN_FLIGHT);
}

/// Its node goes on without it. The broker says goodbye or resets, whichever comes first.
#[test]
fn a_broker_application_stopped_in_a_drain_costs_at_most_what_was_in_flight() {
    let rabbit = breakable();
    let mut scene = Scene::on(&rabbit.url(), &HASTY);
    scene.drain(EVENTS);
    let stopped = Fault::stopped(&rabbit);
    scene.relay.wait_for_line(DOWN, DEADLINE);
    scene.was_in_the_middle();
    drop(stopped);
    scene.relay.wait_for_line(UP, DEADLINE);
    scene.reconnect();
    scene.recovers(IN_FLIGHT);
}

/// Long enough for the relay to fail to open another connection, whose threads must not stay behind.
#[test]
fn a_broker_frozen_for_long_costs_at_most_what_was_in_flight() {
    let rabbit = breakable();
    let mut scene = Scene::on(&rabbit.url(), &HASTY);
    is_frozen_in_a_drain(&mut scene, &rabbit);
}

#[test]
fn a_broker_frozen_without_heartbeats_costs_at_most_what_was_in_flight() {
    let rabbit = silent();
    let mut scene = Scene::on(&rabbit.url(), &HASTY);
    is_frozen_in_a_drain(&mut scene, &rabbit);
}

fn is_frozen_in_a_drain(scene: &mut Scene, rabbit: &Rabbit) {
    scene.drain(EVENTS);
    let frozen = Fault::frozen(rabbit);
    scene.relay.wait_for_line("no confirm within publish_timeout 2s", DEADLINE);
    scene.relay.wait_for_line(DOWN, DEADLINE);
    scene.was_in_the_middle();
    scene.frees_its_rows();
    scene.lets_go();
    drop(frozen);
    scene.relay.wait_for_line(UP, DEADLINE);
    scene.reconnect();
    scene.recovers(IN_FLIGHT);
}

#[test]
fn sigterm_ends_a_relay_within_its_grace_while_a_broker_without_heartbeats_is_frozen() {
    let rabbit = silent();
    let mut scene = Scene::on(&rabbit.url(), &PATIENT);
    scene.drain(EVENTS);
    ends_within_its_grace(scene, Fault::frozen(&rabbit));
}

#[test]
fn sigterm_ends_a_relay_within_its_grace_while_a_broker_without_heartbeats_blocks() {
    let rabbit = silent();
    let mut scene = Scene::on(&rabbit.url(), &PATIENT);
    scene.drain(EVENTS);
    ends_within_its_grace(scene, Fault::alarmed(&rabbit));
}

/// It ends in order, and a relay after it sends the rest.
fn ends_within_its_grace(scene: Scene, fault: Fault<'_>) {
    let Scene { mut world, queue, mut relay, base, inserted, arrived } = scene;
    // Ends before the world does, should an assertion fail.
    let fault = fault;
    relay.signal("TERM");
    let ended = relay.wait(GRACE_MAX);
    assert_eq!((ended.code, ended.signal), (Some(0), None), "{ended:?}");
    assert!(!ended.stderr.contains("still not done after the grace"), "{ended:?}");
    let published = world.count("PUBLISHED");
    assert!(published < inserted, "all were sent before the signal");
    assert_eq!(world.count("WAITING"), inserted - published);
    drop(fault);
    let relay = world.start(&[&RUN[..], &HASTY].concat());
    let mut scene = Scene { world, queue, relay, base, inserted, arrived };
    scene.reconnect();
    scene.recovers(IN_FLIGHT);
}

/// The session has proven itself, and is not told of the alarm before it publishes again: a window may go out.
#[test]
fn an_alarm_between_ticks_costs_at_most_a_window_and_is_told_once() {
    let rabbit = silent();
    let mut scene = Scene::on(&rabbit.url(), &HASTY);
    let alarm = Fault::alarmed(&rabbit);
    scene.insert(500);
    is_blocked(&mut scene, 500);
    drop(alarm);
    scene.relay.wait_for_line(UP, DEADLINE);
    scene.recovers(IN_FLIGHT);
}

#[test]
fn an_alarm_in_a_drain_costs_at_most_what_was_in_flight_and_is_told_once() {
    let rabbit = silent();
    let mut scene = Scene::on(&rabbit.url(), &HASTY);
    scene.drain(EVENTS);
    let alarm = Fault::alarmed(&rabbit);
    is_blocked(&mut scene, EVENTS);
    drop(alarm);
    scene.relay.wait_for_line(UP, DEADLINE);
    scene.recovers(IN_FLIGHT);
}

/// While the broker blocks, rows and threads are free, and what may have been sent is bounded.
fn is_blocked(scene: &mut Scene, at_most: i64) {
    scene.relay.wait_for_line("error=\"the broker blocks publishers (", DEADLINE);
    scene.was_in_the_middle();
    scene.frees_its_rows();
    let waiting = scene.world.count("WAITING");
    assert!((1..=at_most).contains(&waiting), "{waiting} wait");
    let doubtful = "select count(*) from event_outbox where status = 'WAITING' and last_error is not null";
    let doubtful: i64 = scene.world.client.query_one(doubtful, &[]).unwrap().get(0);
    assert!(doubtful <= IN_FLIGHT as i64, "{doubtful} may have been sent:\n{}", scene.relay);
    scene.base.return_to(&scene.relay);
    scene.is_truthful();
    // Several beats later it has not been told again.
    let told = || {
        lines(&scene.relay, "level=error ")
            + lines(&scene.relay, "level=warn ")
            + lines(&scene.relay, "level=info ")
    };
    let before = told();
    thread::sleep(Duration::from_secs(3));
    assert_eq!(told(), before, "{}", scene.relay);
}
