//! Tables as other programs made them: integer ids, columns that may be null.

mod beside;

use crate::harness::Servers;
use crate::world::World;

/// The nine columns, as loosely as they can be declared.
const LOOSE: &str = "create table event_outbox (
    id serial primary key, event_id varchar(26), event_type varchar(400), payload text, status varchar(20),
    created_at timestamptz, last_retried_at timestamptz, expired_at timestamptz, fail_count bigint)";

fn world() -> World {
    let database = Servers::shared().database();
    let mut world = World::on(database, Servers::shared().amqp_url());
    world.client.batch_execute(LOOSE).unwrap();
    assert_eq!(world.outboxd(&["init"]).code, Some(0));
    world
}

/// Writes a row with these values for event id, type, payload and creation, and returns its id.
fn write(world: &mut World, values: &str) -> i64 {
    let sql = format!(
        "insert into event_outbox (event_id, event_type, payload, created_at, status) values ({values}, 'WAITING') \
         returning id::bigint"
    );
    world.client.query_one(&sql, &[]).unwrap().get(0)
}

fn state(world: &mut World, id: i64) -> (String, Option<String>) {
    let sql = "select status, last_error from event_outbox where id::bigint = $1";
    let row = world.client.query_one(sql, &[&id]).unwrap();
    (row.get(0), row.get(1))
}

#[test]
fn ids_of_32_bits_counts_of_64_and_missing_counts_are_relayed() {
    let mut world = world();
    let queue = world.queue();
    let id = write(&mut world, &format!("'a', '{queue}', '{{}}', now() - interval '1 hour'"));
    let failed = write(&mut world, &format!("'b', '{queue}', '{{}}', now()"));
    let sql = "update event_outbox set status = 'FAILED', fail_count = 2 where id = $1";
    world.client.execute(sql, &[&i32::try_from(failed).unwrap()]).unwrap();
    world.once(&[], 0);
    assert_eq!(state(&mut world, id), ("PUBLISHED".into(), None));
    assert_eq!(state(&mut world, failed), ("PUBLISHED".into(), None));
}

#[test]
fn a_row_without_id_type_or_payload_is_dead_and_its_neighbours_are_published() {
    let mut world = world();
    let queue = world.queue();
    let bad = [
        (format!("null, '{queue}', '{{}}', now() - interval '1 hour'"), "event_id is empty"),
        ("'c', null, '{}', now() - interval '1 hour'".into(), "event_type is empty"),
        (format!("'d', '{queue}', null, now() - interval '1 hour'"), "payload is null"),
    ]
    .map(|(values, reason)| (write(&mut world, &values), reason));
    let good = write(&mut world, &format!("'e', '{queue}', '{{}}', now() - interval '1 hour'"));
    world.once(&[], 75);
    for (id, reason) in bad {
        assert_eq!(state(&mut world, id), ("DEAD".into(), Some(reason.into())));
    }
    assert_eq!(state(&mut world, good), ("PUBLISHED".into(), None));
}

#[test]
fn a_row_without_a_time_of_creation_is_due() {
    let mut world = world();
    let queue = world.queue();
    let id = write(&mut world, &format!("'f', '{queue}', '{{}}', null"));
    world.once(&[], 0);
    assert_eq!(state(&mut world, id), ("PUBLISHED".into(), None));
}
