//! The commands on any table that a relay can work on: odd names, large ids, other zones, original columns.

use serde_json::Value;

use super::{json, listed, says};
use crate::harness::Servers;
use crate::world::World;

/// The arguments with those that name the table.
fn on<'a>(table: &[&'a str], arguments: &[&'a str]) -> Vec<&'a str> {
    [arguments, table].concat()
}

/// Runs every command on this table, which holds a DEAD, a PUBLISHED and a WAITING event, each two days old.
fn work_on(world: &World, table: &[&str], dead: i64, published: i64, waiting: i64) {
    let list = listed(world, table);
    assert_eq!(list, [dead, published, waiting]);
    for (age, expected) in [("47h", 3), ("49h", 0)] {
        let found = listed(world, &on(table, &["--older-than", age]));
        assert_eq!(found.len(), expected, "{age}");
    }
    let shown = json(world, &on(table, &["show", &dead.to_string()]));
    assert_eq!(shown["due"]["state"], "dead");
    let age = shown["age_seconds"].as_f64().unwrap();
    assert!((172_000.0..174_000.0).contains(&age), "{age}");
    assert_eq!(json(world, &on(table, &["retry", "--id", &dead.to_string()]))["changed"], 1);
    assert_eq!(json(world, &on(table, &["retry", "--status", "dead"]))["changed"], 0);
    assert_eq!(says(world, &on(table, &["skip", "--id", &waiting.to_string()])), "skipped 1 event\n");
    assert_eq!(says(world, &on(table, &["purge", "--older-than", "49h"])), "purged 0 events\n");
    assert_eq!(says(world, &on(table, &["purge", "--older-than", "47h"])), "purged 1 event\n");
    let statuses = |document: &Value| -> Vec<String> {
        let events = document["events"].as_array().unwrap();
        events.iter().map(|it| it["status"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(statuses(&json(world, &on(table, &["list"]))), ["FAILED", "SKIPPED"]);
}

const ROWS: [&str; 3] = [
    "'DEAD', 3, now() - interval '2 days', null",
    "'PUBLISHED', 0, now() - interval '2 days', now() - interval '2 days'",
    "'WAITING', 0, now() - interval '2 days', null",
];

#[test]
fn quoted_names_and_ids_beyond_32_bits() {
    let mut world = World::new();
    let table = r#""odd.schema"."it's ""quoted""""#;
    says(&world, &["init", "--table", table]);
    let first = 5_000_000_000_i64;
    for (n, values) in (0..).zip(ROWS) {
        let sql = format!(
            "insert into {table} (id, event_id, event_type, payload, status, fail_count, created_at, published_at)
             overriding system value values ({}, 'e{n}', 'x', '{{}}', {values})",
            first + n
        );
        world.client.batch_execute(&sql).unwrap();
    }
    work_on(&world, &["--table", table], first, first + 1, first + 2);
    let status = json(&world, &["status", "--table", table]);
    assert_eq!(status["blocked_keys"]["count"], 0, "{status}");
}

#[test]
fn another_zone_changes_no_age() {
    let mut world = World::new();
    let sql = format!("alter database {} set timezone = 'Pacific/Auckland'", world.database.name);
    world.client.batch_execute(&sql).unwrap();
    let ids = ROWS
        .map(|values| world.insert_with("x", "{}", "status, fail_count, created_at, published_at", values));
    world.client.batch_execute("set timezone = 'America/Lima'").unwrap();
    let created: String = world
        .client
        .query_one(
            "select to_char(created_at at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI') from event_outbox where id = $1",
            &[&ids[0]],
        )
        .unwrap()
        .get(0);
    let shown = json(&world, &["show", &ids[0].to_string()]);
    assert!(shown["created_at"].as_str().unwrap().starts_with(&created), "{created}: {shown}");
    work_on(&world, &[], ids[0], ids[1], ids[2]);
}

#[test]
fn an_original_table_with_loose_columns_and_an_enum() {
    let database = Servers::shared().database();
    let mut world = World::on(database, Servers::shared().amqp_url());
    let sql =
        "create type outbox_status as enum ('WAITING', 'FAILED', 'PUBLISHED', 'DEAD', 'EXPIRED', 'SKIPPED');
        create table event_outbox (
            id serial primary key, event_id varchar(26), event_type varchar(400), payload bytea,
            status outbox_status, created_at timestamp, last_retried_at timestamp, expired_at timestamp,
            fail_count bigint)";
    world.client.batch_execute(sql).unwrap();
    let made = world.outboxd(&["init"]);
    assert!(made.code == Some(0) && made.stderr.contains("without a zone"), "{made:?}");
    for (n, values) in ROWS.iter().enumerate() {
        let sql = format!(
            "insert into event_outbox (event_id, event_type, payload, status, fail_count, created_at, published_at)
             values ('e{n}', 'x', '\\x00ff', {values})"
        );
        world.client.batch_execute(&sql).unwrap();
    }
    let blocked = json(&world, &["status"])["blocked_keys"].clone();
    assert_eq!(blocked["count"], 0, "{blocked}");
    work_on(&world, &[], 1, 2, 3);
    let nothing = "insert into event_outbox (status) values ('FAILED')";
    world.client.batch_execute(nothing).unwrap();
    assert_eq!(json(&world, &["show", "4"])["payload_bytes"], Value::Null);
    let line = ["retry", "--id", "4", "--status", "failed", "--expires-in", "1h"];
    assert_eq!(json(&world, &line)["changed"], 1);
}
