//! A server that ends as an administrator can end it, with a batch on its way.

use super::{Batch, RUN, amqp_url, goes_on};
use crate::harness::{Postgres, PostgresOptions, Servers, wait_until};
use crate::world::{DEADLINE, World, init};

/// Ends the sessions that keep a server from ending, but for the relay's.
const TERMINATE_OTHERS: &str = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
    where application_name <> 'outboxd' and backend_type = 'client backend' and pid <> pg_backend_pid()";

fn restarted_by(signal: &str) {
    let durable = vec!["synchronous_commit = on".to_owned()];
    let options = PostgresOptions { config: durable, ..PostgresOptions::default() };
    let mut server = Postgres::start(&options);
    let world = World::on(server.database_from("outbox", init), amqp_url());
    let mut batch = Batch::unconfirmed(world, &[]);
    server.stop_by(signal);
    batch.broker.heal();
    batch.relay.wait_for_line("nothing is claimed and no attempt is spent", DEADLINE);
    server.restart();
    batch.world.client = batch.world.database.connect();
    batch.relay.wait_for_line("the database is usable again after", DEADLINE);
    batch.recovers(0);
}

#[test]
fn a_fast_restart_before_the_confirms_come_costs_nothing_but_time() {
    restarted_by("INT");
}

#[test]
fn an_immediate_restart_before_the_confirms_come_costs_nothing_but_time() {
    restarted_by("QUIT");
}

/// A smart shutdown waits for every session, also for one at rest.
#[test]
fn an_idle_relay_does_not_keep_a_server_from_shutting_down_smartly() {
    shuts_down_smartly(&RUN);
}

#[test]
fn a_relay_that_listens_does_not_keep_a_server_from_shutting_down_smartly() {
    shuts_down_smartly(&[&RUN[..], &["--listen"]].concat());
}

fn shuts_down_smartly(arguments: &[&str]) {
    let mut server = Postgres::start(&PostgresOptions::default());
    let mut world = World::on(server.database_from("outbox", init), amqp_url());
    let queue = world.queue();
    world.insert(&queue, "{}");
    let mut relay = world.start(arguments);
    relay.wait_for_line("claimed=1 published=1", DEADLINE);
    world.client.query_one(TERMINATE_OTHERS, &[]).unwrap();
    let elsewhere = Servers::shared().database();
    world.client = elsewhere.connect();
    // Waits for a minute at most.
    server.stop_by("TERM");
    relay.wait_for_line("nothing is claimed and no attempt is spent", DEADLINE);
    server.restart();
    world.client = wait_until("a session", DEADLINE, || Some(world.database.connect()));
    goes_on(&mut world, &queue, &relay);
    assert_eq!(world.arrivals(&queue).len(), 2);
}
