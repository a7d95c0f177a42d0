//! The pattern's own table, with the old application still at work on it: it writes WAITING rows by its own clock, and
//! reads WAITING, PUBLISHED and FAILED.

use super::World;
use crate::harness::{Servers, wait_until};
use crate::world::DEADLINE;

/// Where the old application lives.
const ZONE: &str = "Asia/Tokyo";

const OPTIONS: [&str; 8] = ["--time-zone", ZONE, "--interval", "200ms", "--min-age", "0s", "--grace", "5s"];

/// The nine columns, with this type of status and payload.
fn table(status: &str, payload: &str) -> String {
    format!(
        "create table event_outbox (
            id bigserial primary key, event_id varchar(26) not null unique, event_type varchar(100) not null,
            payload {payload} not null, status {status} not null default 'WAITING',
            created_at timestamp not null, last_retried_at timestamp, expired_at timestamp,
            fail_count integer not null default 0)"
    )
}

const THREE: &str = "create type outbox_status as enum ('WAITING', 'PUBLISHED', 'FAILED')";

/// A database with the old application's session in it.
fn world(sql: &str) -> World {
    let mut world = World::on(Servers::shared().database(), Servers::shared().amqp_url());
    world.client.batch_execute(&format!("set timezone = '{ZONE}'; {sql}")).unwrap();
    world
}

/// What the old application does after its own change.
fn write(world: &mut World, event_type: &str, status: &str, fail_count: i32) -> i64 {
    let event_id = ulid::Ulid::generate().to_string();
    let sql = format!(
        "insert into event_outbox (event_id, event_type, payload, status, created_at, fail_count) \
         values ('{event_id}', '{event_type}', '{{\"n\":  1.50}}', '{status}', localtimestamp, {fail_count}) \
         returning id"
    );
    world.client.query_one(&sql, &[]).unwrap().get(0)
}

#[test]
fn every_usual_type_of_its_columns_is_relayed_and_the_old_statement_goes_on_working() {
    let widened = format!(
        "{THREE}; alter type outbox_status add value 'DEAD'; alter type outbox_status add value 'EXPIRED'; \
         alter type outbox_status add value 'SKIPPED'"
    );
    for (status, payload) in [("varchar(20)", "text"), ("outbox_status", "json"), ("text", "jsonb")] {
        // The values of an enum cannot be added and used in one transaction.
        let mut world = world("select 1");
        for statement in widened.split("; ") {
            world.client.batch_execute(statement).unwrap();
        }
        world.client.batch_execute(&table(status, payload)).unwrap();
        let queue = world.queue();
        let before = write(&mut world, &queue, "WAITING", 0);
        let given_up = write(&mut world, &queue, "FAILED", 3);
        let once_failed = write(&mut world, &queue, "FAILED", 1);
        assert_eq!(world.outboxd(&["init"]).code, Some(0));
        let relay = world.start(&OPTIONS);
        let after = write(&mut world, &queue, "WAITING", 0);
        wait_until(&format!("{status}, {payload}: three are published:\n{relay}"), DEADLINE, || {
            (world.count("PUBLISHED") == 3).then_some(())
        });
        let found = [before, given_up, once_failed, after].map(|id| world.row(id).status);
        assert_eq!(found, ["PUBLISHED", "DEAD", "PUBLISHED", "PUBLISHED"], "{status}, {payload}");
        let messages = world.broker.drain_ready(&queue);
        assert_eq!(messages.len(), 3);
        if payload != "jsonb" {
            assert_eq!(messages[0].text(), "{\"n\":  1.50}");
        }
        // What the old application asks for its own pages.
        let sql = "select count(*) from event_outbox where status::text in ('WAITING', 'FAILED') \
            or (status::text = 'PUBLISHED' and last_retried_at between localtimestamp - interval '5 minutes' \
                and localtimestamp + interval '5 minutes')";
        assert_eq!(world.client.query_one(sql, &[]).unwrap().get::<_, i64>(0), 3, "{status}, {payload}");
    }
}

#[test]
fn an_enum_of_three_statuses_is_refused_with_what_it_lacks_and_nothing_is_changed() {
    let mut world = world(&format!("{THREE}; {}", table("outbox_status", "json")));
    let output = world.outboxd(&["init"]);
    assert_eq!(output.code, Some(78), "{output:?}");
    assert!(output.stderr.contains("its column status does not take DEAD, EXPIRED"), "{output:?}");
    let columns = "select count(*) from pg_attribute \
        where attrelid = 'event_outbox'::regclass and attnum > 0";
    assert_eq!(world.client.query_one(columns, &[]).unwrap().get::<_, i64>(0), 9);
}

/// The old application sends too, right after its commit, and marks what it has sent.
#[test]
fn what_the_old_application_marks_meanwhile_is_not_sent() {
    let mut world = world(&table("varchar(20)", "text"));
    assert_eq!(world.outboxd(&["init"]).code, Some(0));
    let queue = world.queue();
    let relay = world.start(&["--time-zone", ZONE, "--interval", "200ms", "--min-age", "3s"]);
    let ids: Vec<i64> = (0..20).map(|_| write(&mut world, &queue, "WAITING", 0)).collect();
    let sql =
        "update event_outbox set status = 'PUBLISHED', last_retried_at = localtimestamp where id = any($1)";
    world.client.execute(sql, &[&&ids[..10]]).unwrap();
    wait_until(&format!("the rest is published:\n{relay}"), DEADLINE, || {
        (world.count("PUBLISHED") == 20).then_some(())
    });
    assert_eq!(world.arrivals(&queue).len(), 10);
}
