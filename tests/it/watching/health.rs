//! Alive and ready: what follows the servers, and what must not.

use std::time::{Duration, Instant};

use super::{get, metrics, shown, shown_with, wait_for_samples, wait_for_status};
use crate::harness::{Postgres, PostgresOptions, Rabbit, RabbitOptions, Servers, wait_until};
use crate::world::{DEADLINE, World, init};

#[test]
fn a_relay_that_has_ticked_is_ready_and_alive() {
    let world = World::new();
    let (_relay, addr) = shown(&world, &[]);
    assert_eq!(wait_for_status(addr, "/readyz", 200), "ok\n");
    assert_eq!(get(addr, "/healthz").body, "ok\n");
}

#[test]
fn a_relay_whose_table_is_missing_is_alive_and_not_ready() {
    let world = World::new();
    let (_relay, addr) = shown(&world, &["--table", "nowhere"]);
    wait_until("the table is named", DEADLINE, || {
        get(addr, "/readyz").body.contains("nowhere").then_some(())
    });
    assert_eq!((get(addr, "/readyz").status, get(addr, "/healthz").status), (503, 200));
    assert_eq!(metrics(addr)["outboxd_up{server=\"database\"}"], 0.0);
}

#[test]
fn a_broker_that_blocks_is_no_readiness_as_soon_as_it_says_so() {
    let rabbit = Rabbit::start(&RabbitOptions::default());
    let mut world = World::with_broker(&rabbit.url());
    let queue = world.queue();
    let (_relay, addr) = shown(&world, &[]);
    wait_for_status(addr, "/readyz", 200);
    rabbit.memory_alarm(true);
    // It tells of an alarm only who publishes.
    world.insert(&queue, "{}");
    let why = wait_for_status(addr, "/readyz", 503);
    assert!(why.contains("blocks publishers") && why.contains("memory"), "{why}");
    wait_for_samples(addr, &[("outboxd_broker_blocked", 1.0), ("outboxd_up{server=\"broker\"}", 1.0)]);
    assert_eq!(get(addr, "/healthz").status, 200);
    rabbit.memory_alarm(false);
    wait_for_status(addr, "/readyz", 200);
    let known = [("outboxd_broker_blocked", 0.0), ("outboxd_reconnects_total{server=\"broker\"}", 0.0)];
    wait_for_samples(addr, &known);
}

/// Between beats that are an hour apart, too.
#[test]
fn a_broker_that_goes_and_comes_shows_at_once_in_readiness_and_never_in_liveness() {
    let mut rabbit = Rabbit::start(&RabbitOptions::default());
    let world = World::with_broker(&rabbit.url());
    let (_relay, addr) = shown_with(&world, &["--interval", "1h"]);
    wait_for_status(addr, "/readyz", 200);
    rabbit.stop();
    wait_for_status(addr, "/readyz", 503);
    wait_for_samples(
        addr,
        &[("outboxd_up{server=\"broker\"}", 0.0), ("outboxd_up{server=\"database\"}", 1.0)],
    );
    assert_eq!(get(addr, "/healthz").status, 200);
    rabbit.restart();
    wait_for_status(addr, "/readyz", 200);
    let known =
        [("outboxd_up{server=\"broker\"}", 1.0), ("outboxd_reconnects_total{server=\"broker\"}", 1.0)];
    wait_for_samples(addr, &known);
}

#[test]
fn what_the_database_does_shows_in_readiness_and_never_in_liveness() {
    let mut postgres = Postgres::start(&PostgresOptions::default());
    let world = World::on(postgres.database_from("outbox", init), Servers::shared().amqp_url());
    let (relay, addr) = shown(&world, &["--open-timeout", "1s"]);
    wait_for_status(addr, "/readyz", 200);

    postgres.kill();
    wait_for_status(addr, "/readyz", 503);
    wait_for_samples(
        addr,
        &[("outboxd_up{server=\"database\"}", 0.0), ("outboxd_up{server=\"broker\"}", 1.0)],
    );
    assert_eq!(get(addr, "/healthz").status, 200);
    postgres.restart();
    wait_for_status(addr, "/readyz", 200);
    wait_for_samples(addr, &[("outboxd_reconnects_total{server=\"database\"}", 1.0)]);

    // One that says nothing any more holds the relay up for as long as a call may take. That is its life.
    postgres.freeze();
    wait_until(&format!("it is not ready:\n{relay}"), DEADLINE, || {
        let asked = Instant::now();
        assert_eq!(get(addr, "/healthz").status, 200);
        let ready = get(addr, "/readyz").status;
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
        (ready == 503).then_some(())
    });
    postgres.thaw();
    wait_for_status(addr, "/readyz", 200);
}
