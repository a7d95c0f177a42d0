//! What `init`, `once` and `status` warn of about the table itself.

use super::{json, says};
use crate::harness::Servers;
use crate::world::{World, as_logged};

/// What `status` warns of.
fn warnings(world: &World) -> Vec<String> {
    let document = json(world, &["status"]);
    document["warnings"].as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect()
}

#[test]
fn times_without_a_zone_are_warned_of_until_their_zone_is_named() {
    let mut world = World::on(Servers::shared().database(), Servers::shared().amqp_url());
    let sql = format!(
        "alter database {} set timezone = 'America/New_York';
         create table event_outbox (id bigserial primary key, event_id varchar(26) not null unique, event_type text,
             payload text, status text not null default 'WAITING', created_at timestamp, last_retried_at timestamptz,
             expired_at timestamptz, fail_count integer not null default 0)",
        world.database.name
    );
    world.client.batch_execute(&sql).unwrap();
    let expected = "table event_outbox holds times without a zone (created_at), which are read as those of the session's \
                    zone America/New_York: set time_zone";
    for command in ["init", "once"] {
        let output = world.outboxd(&[command]);
        assert_eq!(output.stderr.matches(expected).count(), 1, "{output:?}");
        assert_eq!(output.code, Some(0));
    }
    assert!(says(&world, &["status"]).contains(&format!("\nwarning: {expected}")));
    assert_eq!(json(&world, &["status", "--time-zone", "Asia/Tokyo"])["warnings"], serde_json::json!([]));
    let output = world.outboxd(&["once", "--time-zone", "Asia/Tokyo"]);
    assert!(!output.stderr.contains("zone"), "{output:?}");

    // Written in Tokyo, and read as if it were New York.
    let insert = "insert into event_outbox (event_id, event_type, payload, created_at)
         values ('e', 'x', '{}', now() at time zone 'Asia/Tokyo')";
    world.client.batch_execute(insert).unwrap();
    let text = says(&world, &["show", "1"]);
    assert!(text.contains("(still to come: is time_zone right?)") && !text.contains("0s ago"), "{text}");
    assert!(json(&world, &["show", "1"])["age_seconds"].is_null());
    assert!(says(&world, &["show", "1", "--time-zone", "Asia/Tokyo"]).contains("s ago)"));
}

#[test]
fn an_index_that_is_missing_unusable_or_another_is_named() {
    let mut world = World::new();
    assert_eq!(warnings(&world), [""; 0]);
    world.client.batch_execute("drop index event_outbox_held").unwrap();
    assert_eq!(
        warnings(&world),
        ["table event_outbox lacks the index \"event_outbox_held\": run outboxd init"]
    );
    let output = world.outboxd(&["once"]);
    assert!(output.stderr.contains("lacks the index"), "{output:?}");
    world.client.batch_execute("create index event_outbox_held on event_outbox (id)").unwrap();
    assert!(warnings(&world)[0].contains("is not the index that outboxd makes"));
    assert!(world.outboxd(&["init"]).stderr.contains("is not the index that outboxd makes"));
    world.client.batch_execute("drop index event_outbox_held").unwrap();
    assert_eq!(says(&world, &["init"]), "table event_outbox has what it lacked\n");
    assert_eq!(warnings(&world), [""; 0]);
    let broken = "update pg_index set indisvalid = false where indexrelid = 'event_outbox_keys'::regclass";
    world.client.batch_execute(broken).unwrap();
    assert!(warnings(&world)[0].contains("is not valid"));
}

#[test]
fn a_status_that_only_skip_writes_may_be_missing() {
    let mut world = World::new();
    let sql = "alter table event_outbox drop constraint event_outbox_status_is_known,
         add constraint \"my check\" check (status in ('WAITING', 'FAILED', 'PUBLISHED', 'DEAD', 'EXPIRED'))";
    world.client.batch_execute(sql).unwrap();
    let made = world.outboxd(&["init"]);
    assert_eq!(made.code, Some(0));
    for part in ["does not take SKIPPED", "drop constraint \"my check\"", "outboxd skip needs it"] {
        assert!(made.stderr.contains(&as_logged(part)), "{part}: {made:?}");
    }
}

#[test]
fn an_older_table_gets_its_autovacuum_too() {
    let mut world = World::new();
    let options = |world: &mut World| -> Option<String> {
        let sql = "select reloptions::text from pg_class where oid = 'event_outbox'::regclass";
        world.client.query_one(sql, &[]).unwrap().get(0)
    };
    let made = options(&mut world);
    let reset = "alter table event_outbox reset (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold,
         autovacuum_vacuum_insert_scale_factor, autovacuum_analyze_scale_factor, autovacuum_vacuum_cost_delay)";
    world.client.batch_execute(reset).unwrap();
    assert_eq!(options(&mut world), None);
    assert_eq!(says(&world, &["init"]), "table event_outbox has what it lacked\n");
    assert_eq!(options(&mut world), made);
    world
        .client
        .batch_execute(&format!("{reset}; alter table event_outbox set (autovacuum_enabled = true)"))
        .unwrap();
    assert_eq!(says(&world, &["init"]), "table event_outbox is complete already\n");
}
