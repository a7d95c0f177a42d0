//! The table: rights, columns, indexes, and the claim's plan.

use super::Told;
use crate::harness::{Database, Postgres, PostgresOptions, Servers};
use crate::world::{World, init};

/// A server of its own, since roles are the whole server's.
fn world_of_app() -> (Postgres, World) {
    let server = Postgres::start(&PostgresOptions::default());
    let world = World::on(server.database_from("outbox", init), Servers::shared().amqp_url());
    (server, world)
}

fn as_app(database: &Database) -> String {
    database.url.replace("postgres@", "app@")
}

#[test]
fn each_right_that_is_missing_is_named_with_the_grant_that_gives_it() {
    let (_server, mut world) = world_of_app();
    world.client.batch_execute("create role app login").unwrap();
    let url = as_app(&world.database);
    let environment = [("DATABASE_URL", url.as_str()), ("AMQP_URL", &world.amqp_url.clone())];
    let purging = ["--retention", "1d"];
    let mut grants = Vec::new();
    // What it says is enough: each round does what the one before asked for.
    for expected in ["select", "update (status, fail_count", "delete"] {
        let told = Told::by(&purging, &environment);
        told.ends(77);
        let found = told.about("grants");
        assert!(found.iter().all(|it| it.0 == "error"), "{found:?}");
        let of = found.iter().find(|it| it.1.starts_with(&format!("role app lacks {expected}"))).unwrap();
        assert!(of.2.starts_with(&format!("grant {expected}")), "{of:?}");
        assert!(of.2.ends_with("on \"public\".\"event_outbox\" to \"app\""), "{of:?}");
        world.client.batch_execute(&of.2).unwrap();
        grants.push(of.2.clone());
        told.is("table", "ok", &[]).is("indexes", "ok", &[]);
    }
    Told::by(&purging, &environment).ends(0).is("grants", "ok", &["may select, update and delete"]);
    assert_eq!(grants.len(), 3);
    world.client.batch_execute("revoke delete on event_outbox from app").unwrap();
    Told::by(&[], &environment).ends(0).is("grants", "ok", &["may select, update the table"]);
}

#[test]
fn a_schema_that_the_role_may_not_use_is_named() {
    let (_server, mut world) = world_of_app();
    let sql = "create role app login; create schema shop; alter table event_outbox set schema shop";
    world.client.batch_execute(sql).unwrap();
    let url = as_app(&world.database);
    let environment = [("DATABASE_URL", url.as_str()), ("AMQP_URL", &world.amqp_url.clone())];
    let told = Told::by(&["--table", "shop.event_outbox"], &environment);
    told.ends(77).lacks("table");
    let found = told.about("grants");
    assert!(found.iter().any(|it| it.2 == "grant usage on schema \"shop\" to \"app\""), "{found:?}");
    assert!(found.iter().any(|it| it.1 == "role app lacks usage on the table's schema"), "{found:?}");
    // A name that leads elsewhere is told from a table that is not there.
    let told = Told::by(&[], &environment);
    told.ends(78).is("table", "error", &["one is in shop", "--table 'shop.event_outbox'", "grant usage"]);
    let grants = "grant usage on schema shop to app; grant select, update on shop.event_outbox to app";
    world.client.batch_execute(grants).unwrap();
    Told::by(&["--table", "shop.event_outbox"], &environment).is("grants", "ok", &[]).ends(0);
}

#[test]
fn row_security_that_may_hide_events_is_a_warning() {
    let (_server, mut world) = world_of_app();
    let sql = "create role app login; grant select, update on event_outbox to app;
        alter table event_outbox enable row level security";
    world.client.batch_execute(sql).unwrap();
    let url = as_app(&world.database);
    let told = Told::by(&[], &[("DATABASE_URL", &url), ("AMQP_URL", &world.amqp_url)]);
    let found = told.ends(0).about("grants");
    assert!(found.iter().any(|it| it.0 == "warning" && it.1.contains("row security")), "{found:?}");
}

#[test]
fn a_table_that_is_missing_incomplete_or_foreign_names_what_mends_it() {
    let world = World::on(Servers::shared().database(), Servers::shared().amqp_url());
    let told = Told::of(&world, &[]);
    told.ends(78).is("table", "error", &["event_outbox does not exist", "outboxd init"]).lacks("indexes");
    told.is("alarms", "ok", &[]);
    let mut world = World::new();
    world.client.batch_execute("alter table event_outbox drop column last_error").unwrap();
    Told::of(&world, &[]).ends(78).is("table", "error", &["lacks last_error", "outboxd init"]);
    world.client.batch_execute("alter table event_outbox alter payload type varchar[] using null").unwrap();
    Told::of(&world, &[]).ends(78).is("table", "error", &["is not an outbox", "column payload is"]);
}

#[test]
fn a_payload_that_is_not_kept_byte_by_byte_is_a_warning() {
    let mut world = World::new();
    world
        .client
        .batch_execute("alter table event_outbox alter payload type jsonb using payload::jsonb")
        .unwrap();
    Told::of(&world, &[]).ends(0).is("table", "warning", &["jsonb", "the very bytes"]);
}

#[test]
fn a_status_that_is_not_taken_and_indexes_that_are_missing_are_warnings() {
    let mut world = World::new();
    let sql = "alter table event_outbox drop constraint event_outbox_status_is_known;
        alter table event_outbox add constraint few
            check (status in ('WAITING', 'FAILED', 'PUBLISHED', 'DEAD', 'EXPIRED'));
        drop index event_outbox_keys, event_outbox_refused";
    world.client.batch_execute(sql).unwrap();
    let told = Told::of(&world, &[]);
    told.ends(0).is("status", "warning", &["SKIPPED", "drop constraint few"]);
    let found = told.about("indexes");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|it| it.0 == "warning" && it.2 == "run outboxd init"), "{found:?}");
    told.is("plan", "ok", &["goes along"]);
}

#[test]
fn a_claim_that_would_read_a_large_table_is_a_warning() {
    let mut world = World::new();
    world.client.batch_execute("drop index event_outbox_unfinished").unwrap();
    Told::of(&world, &[]).ends(0).is("plan", "ok", &["the table is small"]);
    let sql = "insert into event_outbox (event_id, event_type, payload, status)
        select lpad(n::text, 26, '0'), 'x', repeat('x', 1000), 'PUBLISHED' from generate_series(1, 10000) as n";
    world.client.batch_execute(sql).unwrap();
    Told::of(&world, &[]).ends(0).is("plan", "warning", &["may read all", "MiB", "outboxd init"]);
    let output = world.outboxd(&["init"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    Told::of(&world, &[]).ends(0).is("plan", "ok", &["goes along"]);
}

#[test]
fn looking_changes_nothing() {
    let mut world = World::new();
    let id = world.insert("x", "{}");
    let read = "select xmin::text, ctid::text from event_outbox where id = $1";
    let before = world.client.query_one(read, &[&id]).unwrap();
    let before: (String, String) = (before.get(0), before.get(1));
    Told::of(&world, &["--listen"]);
    world.once(&["--dry-run"], 0);
    let after = world.client.query_one(read, &[&id]).unwrap();
    assert_eq!(before, (after.get(0), after.get(1)));
}
