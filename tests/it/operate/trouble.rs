//! What `status` warns of: blocked keys, and snapshots that hold vacuum back.

use std::time::Duration;

use outboxd::config::Config;
use outboxd::outbox::Outbox;
use serde_json::{Value, json};
use url::Url;

use super::{DEAD, FAILED, PUBLISHED, SCHEDULED, WAITING, json, says, write, write_keyed};
use crate::harness::unique;
use crate::world::World;

fn outbox(url: &str) -> Outbox {
    let config = Config::new(url, "amqp://localhost").unwrap();
    Outbox::new(config.database, config.claim)
}

#[test]
fn blocked_keys_are_listed_with_what_blocks_them() {
    let mut world = World::new();
    write(&mut world, DEAD);
    write_keyed(&mut world, "dead", PUBLISHED);
    let dead = write_keyed(&mut world, "dead", DEAD);
    write_keyed(&mut world, "dead", WAITING);
    write_keyed(&mut world, "dead", WAITING);
    let failed = write_keyed(&mut world, "failed", FAILED);
    let scheduled = write_keyed(&mut world, "scheduled", SCHEDULED);
    write_keyed(&mut world, "scheduled", WAITING);
    // These are not blocked: nothing waits, an operator spread them, due, behind a head that is due, ended by the next tick.
    write_keyed(&mut world, "free", WAITING);
    write_keyed(&mut world, "alone", SCHEDULED);
    let spread = "'FAILED', 'retried by hand; was DEAD', now() + interval '1 hour'";
    write_keyed(&mut world, "spread", ("status, last_error, available_at", spread));
    write_keyed(&mut world, "spread", WAITING);
    write_keyed(&mut world, "due", ("status, fail_count, available_at", "'FAILED', 1, now()"));
    write_keyed(&mut world, "first due", WAITING);
    write_keyed(&mut world, "first due", SCHEDULED);
    write_keyed(&mut world, "ending", ("available_at, expired_at", "now() + interval '1 hour', now()"));

    let blocked = json(&world, &["status"])["blocked_keys"].clone();
    assert_eq!((&blocked["count"], &blocked["more"]), (&json!(3), &json!(false)), "{blocked}");
    let heads = blocked["heads"].as_array().unwrap();
    let of = |key: &str| heads.iter().find(|head| head["ordering_key"] == key).unwrap().clone();
    let part = |head: &Value| ["id", "status", "reason", "depth", "deeper"].map(|name| head[name].clone());
    assert_eq!(
        part(&of("dead")),
        [json!(dead), json!("DEAD"), json!("312 NO_ROUTE"), json!(2), json!(false)]
    );
    assert_eq!(part(&of("failed"))[..3], [json!(failed), json!("FAILED"), json!("nack")]);
    assert_eq!(
        part(&of("scheduled"))[..4],
        [json!(scheduled), json!("WAITING"), json!("scheduled"), json!(1)]
    );
    let age = of("dead")["age_seconds"].as_f64().unwrap();
    assert!((3000.0..3100.0).contains(&age), "since its last attempt: {age}");
    assert_eq!(of("dead")["due_at"], Value::Null);
    assert!(of("failed")["due_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(of("dead")["event_id"], json!(world.row(dead).event_id));

    let text = says(&world, &["status"]);
    assert!(text.contains("\nDEAD               2  see: outboxd list --status dead\n"), "{text}");
    assert!(text.contains("\nblocked keys 3, each with the event that holds it back\n"), "{text}");
    let line = format!("  dead: event {dead} ({}, some.type) DEAD for 50m", world.row(dead).event_id);
    assert!(text.contains(&line) && text.contains(", 2 wait: 312 NO_ROUTE\n"), "{text}");
}

#[test]
fn a_quiet_table_has_no_warnings() {
    let mut world = World::new();
    write_keyed(&mut world, "k", WAITING);
    let text = says(&world, &["status"]);
    assert!(!text.contains("blocked") && !text.contains("warning"), "{text}");
    let document = json(&world, &["status"]);
    assert_eq!(document["blocked_keys"], json!({"count": 0, "more": false, "heads": []}));
    assert_eq!(document["old_snapshots"], json!([]));
}

#[test]
fn what_is_counted_has_bounds() {
    let mut world = World::new();
    world.insert_many("x", 1_200);
    world.client.execute("update event_outbox set ordering_key = 'deep'", &[]).unwrap();
    let head = "update event_outbox set status = 'DEAD' where id = (select min(id) from event_outbox)";
    world.client.execute(head, &[]).unwrap();
    let blocked = outbox(&world.database.url).blocked_keys().unwrap();
    assert_eq!((blocked.count, blocked.heads[0].depth), (1, 1_001));
    assert!(says(&world, &["status"]).contains(", 1000+ wait"));

    world.insert_many("x", 5_100);
    let keys = "update event_outbox set ordering_key = 'k' || id, status = 'DEAD' where ordering_key is null";
    world.client.execute(keys, &[]).unwrap();
    let blocked = outbox(&world.database.url).blocked_keys().unwrap();
    assert_eq!((blocked.count, blocked.more, blocked.heads.len()), (5_000, true, 20));
    assert!(says(&world, &["status"]).contains("blocked keys 5000+,"));
}

#[test]
fn many_scheduled_events_hide_no_dead_one() {
    let mut world = World::new();
    world.insert_many("x", 5_500);
    let spread = "update event_outbox set ordering_key = 'a' || id, available_at = now() + interval '1 hour'";
    world.client.execute(spread, &[]).unwrap();
    let seen = json(&world, &["status"])["blocked_keys"].clone();
    assert_eq!((&seen["count"], &seen["more"]), (&json!(0), &json!(true)), "{seen}");
    assert!(says(&world, &["status"]).contains("blocked keys none among the first 5000"));
    let dead = write_keyed(&mut world, "z", DEAD);
    let seen = json(&world, &["status"])["blocked_keys"].clone();
    assert_eq!((&seen["count"], &seen["heads"][0]["id"]), (&json!(1), &json!(dead)), "{seen}");
}

#[test]
fn a_dead_event_blocks_nobody_where_it_is_not_to() {
    let mut world = World::new();
    write_keyed(&mut world, "a", DEAD);
    let follower = write_keyed(&mut world, "a", WAITING);
    let dead = write_keyed(&mut world, "b", DEAD);
    let failed = write_keyed(&mut world, "b", FAILED);
    let blocked = json(&world, &["status", "--on-dead", "skip"])["blocked_keys"].clone();
    assert_eq!((&blocked["count"], &blocked["heads"][0]["id"]), (&json!(1), &json!(failed)), "{blocked}");
    let shown = json(&world, &["show", &follower.to_string(), "--on-dead", "skip"]);
    assert_eq!(shown["due"]["state"], "due");
    // The head that is given up is the one that blocks. By default that is the dead one.
    assert_eq!(json(&world, &["skip", "--key", "b", "--head", "--dry-run"])["examples"][0]["id"], dead);
    let line = ["skip", "--key", "b", "--head", "--dry-run", "--on-dead", "skip"];
    assert_eq!(json(&world, &line)["examples"][0]["id"], failed);
}

#[test]
fn a_snapshot_that_holds_vacuum_back_is_named() {
    let world = World::new();
    let mut holder = world.database.connect();
    let sql = "set application_name = 'a report'; begin isolation level repeatable read; select count(*) from event_outbox";
    holder.batch_execute(sql).unwrap();
    let pid: i32 = holder.query_one("select pg_backend_pid()", &[]).unwrap().get(0);
    let mut outbox = outbox(&world.database.url);
    let old = outbox.old_snapshots(Duration::ZERO, 0).unwrap();
    let session = old.iter().find(|it| it.name == pid.to_string()).unwrap_or_else(|| panic!("{old:?}"));
    assert_eq!((session.kind.as_str(), session.application.as_deref()), ("session", Some("a report")));
    assert!(session.age.is_some());
    assert_eq!(session.state.as_deref(), Some("idle in transaction"));
    // It is too young for `status`.
    assert_eq!(outbox.old_snapshots(Duration::from_secs(300), 1_000_000).unwrap(), []);
    holder.batch_execute("rollback").unwrap();
    let old = outbox.old_snapshots(Duration::ZERO, 0).unwrap();
    assert!(old.iter().all(|it| it.name != pid.to_string()), "{old:?}");
}

#[test]
fn what_a_role_may_not_see_is_not_left_out() {
    let mut world = World::new();
    let role = unique("watcher").replace('-', "_");
    let sql = format!("create role {role} login password 'w'; grant select on event_outbox to {role}");
    world.client.batch_execute(&sql).unwrap();
    let mut holder = world.database.connect();
    holder.batch_execute("begin isolation level repeatable read; select count(*) from event_outbox").unwrap();
    let pid: i32 = holder.query_one("select pg_backend_pid()", &[]).unwrap().get(0);
    let mut url = Url::parse(&world.database.url).unwrap();
    url.set_username(&role).unwrap();
    url.set_password(Some("w")).unwrap();
    let mut watcher = outbox(url.as_str());
    let old = watcher.old_snapshots(Duration::from_secs(300), 0).unwrap();
    let session = old.iter().find(|it| it.name == pid.to_string()).unwrap_or_else(|| panic!("{old:?}"));
    assert_eq!((session.age, session.state.as_deref()), (None, None), "it shows no time");
    // And it can look at the table.
    let id = write(&mut world, WAITING).to_string();
    let environment = [("DATABASE_URL", url.as_str())];
    let shown = crate::harness::Proc::run(
        crate::world::OUTBOXD,
        &["show", &id],
        &environment,
        crate::world::DEADLINE,
    );
    assert!(shown.stdout.ends_with("due now: the next tick takes it\n"), "{shown:?}");
    drop(watcher);
    let sql = format!("drop owned by {role}; drop role {role}");
    world.client.batch_execute(&sql).unwrap();
}
