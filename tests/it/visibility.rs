//! Only what is committed is sent, and what commits late is not forgotten.

use postgres::Transaction;

use crate::world::World;

/// Writes a due event within a transaction of the application, and returns its event id.
fn insert_in(transaction: &mut Transaction<'_>, event_type: &str) -> String {
    let event_id = ulid::Ulid::generate().to_string();
    let sql = "insert into event_outbox (event_id, event_type, payload, created_at) \
         values ($1, $2, '{}', '2020-01-01')";
    transaction.execute(sql, &[&event_id, &event_type]).unwrap();
    event_id
}

#[test]
fn an_event_is_sent_only_after_its_transaction_committed() {
    let world = World::new();
    let queue = world.queue();
    let mut application = world.database.connect();
    let mut transaction = application.transaction().unwrap();
    let event_id = insert_in(&mut transaction, &queue);

    world.once(&[], 0);
    assert_eq!(world.broker.queue_len(&queue), 0);

    transaction.commit().unwrap();
    world.once(&[], 0);
    assert_eq!(world.arrivals(&queue), [event_id]);
}

#[test]
fn an_event_that_was_rolled_back_is_never_sent() {
    let mut world = World::new();
    let queue = world.queue();
    let mut application = world.database.connect();
    let mut transaction = application.transaction().unwrap();
    insert_in(&mut transaction, &queue);
    transaction.rollback().unwrap();
    let mut transaction = application.transaction().unwrap();
    let mut nested = transaction.transaction().unwrap();
    insert_in(&mut nested, &queue);
    nested.rollback().unwrap();
    let kept = insert_in(&mut transaction, &queue);
    transaction.commit().unwrap();

    world.once(&[], 0);
    assert_eq!(world.arrivals(&queue), [kept]);
    assert_eq!(world.count("PUBLISHED"), 1);
}

#[test]
fn an_event_that_commits_after_later_ones_were_sent_is_sent_by_the_next_run() {
    let mut world = World::new();
    let queue = world.queue();
    let mut application = world.database.connect();
    let mut transaction = application.transaction().unwrap();
    let late = insert_in(&mut transaction, &queue);
    let id = world.insert(&queue, "{}");
    let early = world.row(id).event_id;

    world.once(&[], 0);
    assert_eq!(world.arrivals(&queue), [early]);

    transaction.commit().unwrap();
    world.once(&[], 0);
    assert_eq!(world.arrivals(&queue), [late]);
    assert_eq!(world.count("PUBLISHED"), 2);
}

#[test]
fn a_running_relay_sends_what_commits_behind_its_back() {
    let mut world = World::new();
    let queue = world.queue();
    let mut relay = world.start(&["--interval", "50ms", "--min-age", "0s"]);
    let mut application = world.database.connect();
    let mut transaction = application.transaction().unwrap();
    let late = insert_in(&mut transaction, &queue);
    let id = world.insert(&queue, "{}");
    let early = world.row(id).event_id;
    let arrived = world.broker.drain(&queue, 1, crate::world::DEADLINE);
    assert_eq!(arrived[0].id(), early);

    transaction.commit().unwrap();
    let arrived = world.broker.drain(&queue, 1, crate::world::DEADLINE);
    assert_eq!(arrived[0].id(), late);
    relay.signal("TERM");
    assert_eq!(relay.wait(crate::world::DEADLINE).code, Some(0));
    assert_eq!(world.broker.queue_len(&queue), 0);
}
