//! The relay's session or the relay itself ends in each phase of a batch. What the broker has confirmed is written all the
//! same, so a lost session alone makes nothing come twice.

use super::{Batch, EVENTS, RUN, TERMINATE_CLAIMS, amqp_url, backends, goes_on, signal};
use crate::harness::{Postgres, PostgresOptions, wait_until};
use crate::world::{DEADLINE, World, init};

/// Makes writing the first `PUBLISHED` take its time.
const SLOW_SETTLE: &str = "create sequence calls;
    create function slow() returns trigger language plpgsql as $$
        begin
            if nextval('calls') = 1 then perform pg_sleep(600); end if;
            return new;
        end $$;
    create trigger slow before update on event_outbox for each row
        when (new.status = 'PUBLISHED' and old.status <> 'PUBLISHED') execute function slow()";

fn terminate(world: &mut World) {
    let ended: i64 = world.client.query_one(TERMINATE_CLAIMS, &[]).unwrap().get(0);
    assert!(ended > 0, "no claim to end");
}

#[test]
fn a_session_that_ends_before_anything_is_sent_costs_nothing() {
    let mut batch = Batch::unsent(World::new(), &[]);
    terminate(&mut batch.world);
    batch.broker.heal();
    batch.recovers(0);
}

#[test]
fn a_session_that_ends_before_the_confirms_come_costs_nothing() {
    let mut batch = Batch::unconfirmed(World::new(), &[]);
    terminate(&mut batch.world);
    batch.broker.heal();
    batch.recovers(0);
}

#[test]
fn a_session_that_ends_while_it_settles_costs_nothing() {
    let mut batch = Batch::unconfirmed(World::new(), &[]);
    batch.world.client.batch_execute(SLOW_SETTLE).unwrap();
    batch.broker.heal();
    wait_until("it settles", DEADLINE, || {
        (!backends(&mut batch.world.client, "active").is_empty()).then_some(())
    });
    terminate(&mut batch.world);
    batch.recovers(0);
}

/// One backend that dies takes all sessions with it: the server cannot know what it left in the shared memory.
#[test]
fn a_backend_that_is_killed_costs_nothing_but_time() {
    // What was committed without it may be gone with the shared memory.
    let config = vec!["synchronous_commit = on".to_owned()];
    let server = Postgres::start(&PostgresOptions { config, ..PostgresOptions::default() });
    let world = World::on(server.database_from("outbox", init), amqp_url());
    let mut batch = Batch::unconfirmed(world, &[]);
    let claims = backends(&mut batch.world.client, "idle in transaction");
    signal(claims[0], "KILL");
    // For a moment after the death the others go on.
    wait_until("the server has noticed", DEADLINE, || batch.world.client.batch_execute("select").err());
    batch.world.client = wait_until("the server is back", DEADLINE, || {
        postgres::Client::connect(&batch.world.database.url, postgres::NoTls).ok()
    });
    batch.broker.heal();
    batch.recovers(0);
}

#[test]
fn a_relay_killed_before_anything_is_sent_frees_its_rows_at_once_and_nothing_comes_twice() {
    let batch = Batch::unsent(World::new(), &[]);
    taken_over(batch, 0);
}

#[test]
fn a_relay_killed_before_the_confirms_come_frees_its_rows_at_once() {
    let batch = Batch::unconfirmed(World::new(), &[]);
    taken_over(batch, EVENTS as usize);
}

#[test]
fn a_relay_killed_while_it_settles_has_settled_all_or_nothing() {
    let mut batch = Batch::unconfirmed(World::new(), &[]);
    batch.world.client.batch_execute(SLOW_SETTLE).unwrap();
    batch.broker.heal();
    wait_until("it settles", DEADLINE, || {
        (!backends(&mut batch.world.client, "active").is_empty()).then_some(())
    });
    let Batch { mut world, queue, relay, broker: _broker } = batch;
    relay.kill();
    // The server does not look at the connection while it sleeps; what it does is not committed by anyone.
    let ended: i64 = world.client.query_one(TERMINATE_CLAIMS, &[]).unwrap().get(0);
    assert_eq!((ended, world.count("PUBLISHED")), (1, 1));
    let next = world.start(&RUN);
    wait_until("all are published", DEADLINE, || (world.count("PUBLISHED") == EVENTS + 1).then_some(()));
    assert!(world.arrivals(&queue).len() as i64 <= 2 * EVENTS);
    goes_on(&mut world, &queue, &next);
}

/// Kills the relay, and lets another one finish; `twice` bounds what comes again.
fn taken_over(batch: Batch, twice: usize) {
    let Batch { mut world, queue, relay, broker } = batch;
    relay.kill();
    broker.reset();
    broker.heal();
    let output = world.once(&["--min-age", "0s"], 0);
    assert!(output.stdout.contains(&format!("published {EVENTS}")), "{output:?}");
    assert_eq!(world.count("PUBLISHED"), EVENTS + 1);
    let arrived = world.arrivals(&queue);
    let surplus = arrived.len() - EVENTS as usize;
    assert!(surplus <= twice, "{surplus} came twice");
}

/// In every phase; in the last ones nothing but the end of its grace ends it.
#[test]
fn sigterm_ends_a_relay_within_its_grace_in_every_phase() {
    for phase in ["unsent", "unconfirmed", "settling"] {
        let mut batch = match phase {
            "unsent" => Batch::unsent(World::new(), &["--grace", "4s"]),
            _ => Batch::unconfirmed(World::new(), &["--grace", "4s"]),
        };
        if phase == "settling" {
            batch.world.client.batch_execute(SLOW_SETTLE).unwrap();
            batch.broker.heal();
            wait_until("it settles", DEADLINE, || {
                (!backends(&mut batch.world.client, "active").is_empty()).then_some(())
            });
        }
        let Batch { mut world, queue, mut relay, broker } = batch;
        let told = std::time::Instant::now();
        relay.signal("TERM");
        let ended = relay.wait(DEADLINE);
        // A busy machine may need a little more than the grace.
        assert!(told.elapsed().as_secs() < 12, "{phase}: {:?}", told.elapsed());
        assert!([Some(0), Some(75)].contains(&ended.code), "{phase}: {ended:?}");
        let _ = world.client.query_one(TERMINATE_CLAIMS, &[]).unwrap();
        broker.reset();
        broker.heal();
        world.once(&["--min-age", "0s"], 0);
        assert_eq!(world.count("PUBLISHED"), EVENTS + 1, "{phase}");
        let arrived = world.arrivals(&queue).len() as i64;
        assert!((EVENTS..=2 * EVENTS).contains(&arrived), "{phase}: {arrived}");
    }
}
