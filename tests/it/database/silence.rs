//! A database that is there and does not answer: a network that swallows everything, a frozen backend, a commit that
//! waits for a standby. Every call has its deadline, and what is known by then is written afterwards.

use std::thread;

use super::{Batch, EVENTS, RUN, amqp_url, backends, behind_a_proxy, goes_on, locked, signal};
use crate::harness::{Direction, Postgres, PostgresOptions, wait_until};
use crate::world::{DEADLINE, World, init};

/// These wait for most of their time, so they do it together.
#[test]
fn a_network_that_swallows_everything_is_noticed_and_costs_nothing_but_time() {
    together(&[
        a_black_hole_in_a_claim_is_noticed_and_the_server_frees_the_rows_by_itself,
        a_commit_whose_answer_is_lost_is_no_lost_event_and_no_second_one,
        a_session_at_rest_behind_a_black_hole_is_replaced,
    ]);
}

#[test]
fn a_server_that_stays_silent_is_not_waited_for() {
    together(&[
        a_backend_frozen_at_rest_is_left_and_another_one_used,
        a_backend_frozen_in_a_claim_holds_its_rows_and_nothing_else,
        a_frozen_backend_does_not_keep_the_relay_from_ending,
        a_commit_that_waits_for_a_missing_standby_is_not_waited_for_and_counts_in_the_end,
    ]);
}

fn together(cases: &[fn()]) {
    thread::scope(|scope| {
        for case in cases {
            scope.spawn(case);
        }
    });
}

/// What the relay says of a call that was not answered in time.
const UNANSWERED: &str = "did not answer within";

fn a_black_hole_in_a_claim_is_noticed_and_the_server_frees_the_rows_by_itself() {
    let (world, database) = behind_a_proxy();
    let mut batch = Batch::unconfirmed(world, &["--claim-max-idle", "5s"]);
    database.swallow(Direction::ToServer, true);
    database.swallow(Direction::ToClient, true);
    // The server knows nothing of the network; it only hears nothing.
    wait_until("the rows are free", DEADLINE, || (locked(&mut batch.world.client) == 0).then_some(()));
    batch.broker.heal();
    batch.relay.wait_for_line(UNANSWERED, DEADLINE);
    database.heal();
    // What was begun meanwhile has lost its first words, which a real network would send again.
    database.reset();
    batch.recovers(0);
}

fn a_commit_whose_answer_is_lost_is_no_lost_event_and_no_second_one() {
    let (world, database) = behind_a_proxy();
    let mut batch = Batch::unconfirmed(world, &[]);
    database.swallow(Direction::ToClient, true);
    batch.broker.heal();
    batch.relay.wait_for_line(UNANSWERED, DEADLINE);
    database.heal();
    // What was begun meanwhile has lost its first words, which a real network would send again.
    database.reset();
    batch.recovers(0);
}

fn a_session_at_rest_behind_a_black_hole_is_replaced() {
    let (mut world, database) = behind_a_proxy();
    let queue = world.queue();
    world.insert(&queue, "{}");
    let mut relay = world.start(&RUN);
    relay.wait_for_line("claimed=1 published=1", DEADLINE);
    database.swallow(Direction::ToServer, true);
    database.swallow(Direction::ToClient, true);
    let line = relay.wait_for_line("nothing is claimed and no attempt is spent", DEADLINE);
    assert!(line.contains("opening a session on database"), "{line}");
    database.heal();
    database.reset();
    goes_on(&mut world, &queue, &relay);
    assert_eq!(world.arrivals(&queue).len(), 2);
}

/// A server of the test's own, because a frozen backend must not outlive it.
fn own() -> (Postgres, World) {
    let config = vec!["synchronous_commit = on".to_owned()];
    let server = Postgres::start(&PostgresOptions { config, ..PostgresOptions::default() });
    let world = World::on(server.database_from("outbox", init), amqp_url());
    (server, world)
}

fn a_backend_frozen_at_rest_is_left_and_another_one_used() {
    let (_server, mut world) = own();
    let queue = world.queue();
    world.insert(&queue, "{}");
    // The beat is long, so that the session is caught at rest.
    let mut relay = world.start(&["--interval", "3s", "--min-age", "0s"]);
    relay.wait_for_line("claimed=1 published=1", DEADLINE);
    let frozen = wait_until("a session at rest", DEADLINE, || backends(&mut world.client, "idle").pop());
    signal(frozen, "STOP");
    goes_on(&mut world, &queue, &relay);
    signal(frozen, "CONT");
    assert_eq!(world.arrivals(&queue).len(), 2);
}

fn a_backend_frozen_in_a_claim_holds_its_rows_and_nothing_else() {
    let (_server, world) = own();
    let mut batch = Batch::unconfirmed(world, &[]);
    let frozen = backends(&mut batch.world.client, "idle in transaction")[0];
    signal(frozen, "STOP");
    batch.broker.heal();
    batch.relay.wait_for_line(UNANSWERED, DEADLINE);
    // Others are sent, although the confirms of those behind the frozen backend cannot be written yet.
    goes_on(&mut batch.world, &batch.queue, &batch.relay);
    assert_eq!(batch.world.count("PUBLISHED"), 2);
    assert_eq!(batch.world.arrivals(&batch.queue).len() as i64, EVENTS + 1);
    signal(frozen, "CONT");
    wait_until(&format!("all are published:\n{}", batch.relay), DEADLINE, || {
        (batch.world.count("PUBLISHED") == EVENTS + 2).then_some(())
    });
    assert!(batch.world.arrivals(&batch.queue).is_empty());
}

fn a_frozen_backend_does_not_keep_the_relay_from_ending() {
    let (_server, world) = own();
    let mut batch = Batch::unconfirmed(world, &["--grace", "3s"]);
    let frozen = backends(&mut batch.world.client, "idle in transaction")[0];
    signal(frozen, "STOP");
    batch.broker.heal();
    batch.relay.signal("TERM");
    let Batch { mut world, queue, relay, broker: _broker } = batch;
    let told = std::time::Instant::now();
    let ended = relay.wait(DEADLINE);
    assert!(told.elapsed().as_secs() < 12, "{:?}", told.elapsed());
    assert!([Some(0), Some(75)].contains(&ended.code), "{ended:?}");
    // Killed or continued: the rows are due again.
    signal(frozen, "CONT");
    wait_until("the rows are free", DEADLINE, || (locked(&mut world.client) == 0).then_some(()));
    let missing = EVENTS + 1 - world.count("PUBLISHED");
    world.once(&["--min-age", "0s"], 0);
    assert_eq!(world.count("PUBLISHED"), EVENTS + 1);
    assert_eq!(world.arrivals(&queue).len() as i64, EVENTS + missing);
}

/// `statement_timeout` does not end this wait.
fn a_commit_that_waits_for_a_missing_standby_is_not_waited_for_and_counts_in_the_end() {
    let (_server, world) = own();
    let mut batch = Batch::unconfirmed(world, &[]);
    let mut admin = batch.world.database.connect();
    let set = |admin: &mut postgres::Client, standby: &str| {
        admin.batch_execute("set synchronous_commit = local").unwrap();
        admin.batch_execute(&format!("alter system set synchronous_standby_names = '{standby}'")).unwrap();
        admin.batch_execute("select pg_reload_conf()").unwrap();
    };
    batch.world.client.batch_execute("set synchronous_commit = local").unwrap();
    set(&mut admin, "nobody");
    let shown = "show synchronous_standby_names";
    wait_until("it is in effect", DEADLINE, || {
        (admin.query_one(shown, &[]).unwrap().get::<_, String>(0) == "nobody").then_some(())
    });
    batch.broker.heal();
    batch.relay.wait_for_line(UNANSWERED, DEADLINE);
    assert!(batch.relay.is_running(), "{}", batch.relay);
    assert_eq!(batch.world.count("PUBLISHED"), 1);
    set(&mut admin, "");
    batch.recovers(0);
}
