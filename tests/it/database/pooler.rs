//! PgBouncer in transaction mode: each transaction may meet another session of the server, and what one of them was told
//! is gone or somebody else's.

use std::sync::LazyLock;

use super::{EVENTS, RUN, goes_on};
use crate::harness::{Pooler, Servers, wait_until};
use crate::world::{DEADLINE, World};

/// One pooler for the tests here; none of them breaks it.
fn pooler() -> &'static Pooler {
    static POOLER: LazyLock<Pooler> =
        LazyLock::new(|| Pooler::to(super::port(&Servers::shared().database().url), &[]));
    &POOLER
}

/// A world whose relays reach the database through the pooler.
fn pooled() -> World {
    let mut world = World::new();
    world.database.url = pooler().url(&world.database.name);
    world
}

#[test]
fn once_run_enqueue_and_status_work_through_it() {
    let mut world = pooled();
    let queue = world.queue();
    world.insert_many(&queue, EVENTS);
    world.insert(&crate::harness::unique("unbound"), "{}");
    let output = world.once(&[], 75);
    assert!(output.stdout.contains(&format!("published {EVENTS}")), "{output:?}");
    let enqueued = world.outboxd(&["enqueue", &queue]);
    assert_eq!(enqueued.code, Some(0), "{enqueued:?}");
    let status = world.outboxd(&["status", "--min-age", "0s"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    let relay = world.start(&RUN);
    wait_until(&format!("it is published:\n{relay}"), DEADLINE, || {
        (world.count("PUBLISHED") == EVENTS + 1).then_some(())
    });
    goes_on(&mut world, &queue, &relay);
    assert_eq!(world.arrivals(&queue).len() as i64, EVENTS + 2);
    assert_eq!(world.count("FAILED") + world.count("DEAD"), 1);
    let log = relay.output().1;
    assert!(!log.contains("level=error ") && !log.contains("level=warn "), "{log}");
}

#[test]
fn relays_behind_it_share_a_table_without_a_duplicate() {
    const MANY: i64 = 3_000;
    let mut world = pooled();
    let queue = world.queue();
    world.insert_many(&queue, MANY);
    let relays: Vec<_> =
        (0..3).map(|_| world.start(&[&RUN[..], &["--batch-rows", "100"]].concat())).collect();
    wait_until("all are published", DEADLINE, || (world.count("PUBLISHED") == MANY).then_some(()));
    assert_eq!(world.arrivals(&queue).len() as i64, MANY);
    for relay in &relays {
        assert!(!relay.output().1.contains("level=error "), "{relay}");
    }
}

/// Two claims at once need two of its connections. With one, the second claim waits for the first, which is only settled
/// when that wait is given up.
#[test]
fn a_pool_of_one_is_slow_and_nothing_worse() {
    let pooler = Pooler::to(super::port(&Servers::shared().database().url), &["default_pool_size = 1"]);
    let mut world = World::new();
    world.database.url = pooler.url(&world.database.name);
    let queue = world.queue();
    world.insert_many(&queue, 10 * EVENTS);
    let output = world.once(&["--batch-rows", "60"], 0);
    assert!(output.stderr.contains("going on with one claim at a time"), "{output:?}");
    assert_eq!(world.count("PUBLISHED"), 10 * EVENTS);
    assert_eq!(world.arrivals(&queue).len() as i64, 10 * EVENTS);
}

/// The zone and the limits are the transaction's, so nothing of them stays on the server's session.
#[test]
fn nothing_is_left_behind_on_the_servers_sessions() {
    let mut world = pooled();
    let queue = world.queue();
    world.insert_many(&queue, EVENTS);
    world.once(&["--time-zone", "Asia/Tokyo"], 0);
    assert_eq!(world.count("PUBLISHED"), EVENTS);
    let mut client = world.database.connect();
    let settings = "select current_setting('TimeZone') = 'Asia/Tokyo', current_setting('enable_sort'), \
        current_setting('statement_timeout')";
    let row = client.simple_query(settings).unwrap();
    let row = row.iter().find_map(|it| match it {
        postgres::SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let row = row.unwrap();
    assert_eq!((row.get(0), row.get(1), row.get(2)), (Some("f"), Some("on"), Some("0")));
}

/// Its lock is a session's, and an index that is built beside writers cannot be built in a transaction.
#[test]
fn init_works_through_it_or_says_why_not() {
    let database = Servers::shared().database();
    let url = pooler().url(&database.name);
    let environment = [("DATABASE_URL", url.as_str())];
    let output = crate::harness::Proc::run(crate::world::OUTBOXD, &["init"], &environment, DEADLINE);
    let made: bool =
        database.connect().query_one("select to_regclass('event_outbox') is not null", &[]).unwrap().get(0);
    let refused = output.code == Some(78) && output.stderr.contains("directly");
    assert!(refused && !made, "{output:?}");
}
