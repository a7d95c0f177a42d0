//! A database that ends sessions, restarts, or is busy with someone's DDL.

use super::{EVENTS, IN_FLIGHT, RUN, all_arrive, draining, goes_on, is_draining};
use crate::harness::{Postgres, PostgresOptions, Servers, wait_until};
use crate::world::{DEADLINE, World, init};

const TERMINATE: &str = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
    where datname = current_database() and application_name = 'outboxd'";

#[test]
fn a_session_that_ends_between_ticks_is_replaced_without_a_word() {
    let mut world = World::new();
    let queue = world.queue();
    world.insert(&queue, "{}");
    let mut relay = world.start(&["--interval", "1s", "--min-age", "0s"]);
    relay.wait_for_line("claimed=1 published=1", DEADLINE);
    for round in 2..5 {
        let ended: i64 = world.client.query_one(TERMINATE, &[]).unwrap().get(0);
        assert!(ended > 0, "no session to end:\n{relay}");
        world.insert(&queue, "{}");
        wait_until("it is published", DEADLINE, || (world.count("PUBLISHED") == round).then_some(()));
    }
    let (_, log) = relay.output();
    assert!(!log.contains("level=error ") && !log.contains("level=warn "), "{log}");
    assert_eq!(world.broker.drain_ready(&queue).len(), 4);
}

/// The rows of a lost claim are due again. What the broker has confirmed meanwhile must be written all the same.
#[test]
fn confirms_outlive_the_claim_whose_session_ended() {
    let (mut world, queue, relay) = draining(Servers::shared().amqp_url());
    let mut ended = 0;
    while ended < 5 && world.count("PUBLISHED") < EVENTS - 2000 {
        let sessions: i64 = world.client.query_one(TERMINATE, &[]).unwrap().get(0);
        ended += usize::from(sessions > 0);
        goes_on(&mut world);
    }
    assert!(ended > 0);
    all_arrive(&mut world, &relay, &queue, IN_FLIGHT * ended);
}

#[test]
fn a_database_that_restarts_in_a_drain_costs_nothing_but_time() {
    let mut server = Postgres::start(&PostgresOptions::default());
    let mut world = World::on(server.database_from("outbox", init), Servers::shared().amqp_url());
    let queue = world.queue();
    world.insert_many(&queue, EVENTS);
    let mut relay = world.start(&RUN);
    is_draining(&mut world);
    server.restart();
    world.client = world.database.connect();
    relay.wait_for_line("the database is usable again after", DEADLINE);
    all_arrive(&mut world, &relay, &queue, IN_FLIGHT);
}

#[test]
fn a_database_that_is_killed_in_a_drain_loses_nothing() {
    // A crash may take commits with it that were not flushed, and their events are sent again.
    let config = ["synchronous_commit = on".to_owned(), "full_page_writes = on".to_owned()];
    let options = PostgresOptions { config: config.into(), ..PostgresOptions::default() };
    let mut server = Postgres::start(&options);
    let mut world = World::on(server.database_from("outbox", init), Servers::shared().amqp_url());
    let queue = world.queue();
    world.insert_many(&queue, EVENTS);
    let mut relay = world.start(&RUN);
    is_draining(&mut world);
    server.kill();
    relay.wait_for_line("nothing is claimed and no attempt is spent until that is over", DEADLINE);
    server.restart();
    world.client = world.database.connect();
    relay.wait_for_line("the database is usable again after", DEADLINE);
    all_arrive(&mut world, &relay, &queue, IN_FLIGHT);
}

/// DDL waits for the open claims, and what comes after it waits behind it.
#[test]
fn ddl_behind_an_open_claim_goes_through_and_so_does_the_drain() {
    let (mut world, queue, relay) = draining(Servers::shared().amqp_url());
    let mut other = world.database.connect();
    for ddl in [
        "create index by_type on event_outbox (event_type)",
        "alter table event_outbox add column note text",
        "drop index by_type",
        "lock table event_outbox in access exclusive mode",
    ] {
        let done = other.batch_execute(&format!("begin; set local lock_timeout = '30s'; {ddl}; commit"));
        assert!(done.is_ok(), "{ddl}: {done:?}\n{relay}");
    }
    all_arrive(&mut world, &relay, &queue, IN_FLIGHT * 4);
}
