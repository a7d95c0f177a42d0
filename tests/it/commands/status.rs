//! `outboxd status`.

use serde_json::{Value, json};

use super::{ends, no_broker, no_database};
use crate::harness::Output;
use crate::world::World;

/// One event of each kind: due since half an hour, too young, backing off, scheduled, and finished ones.
fn filled() -> World {
    let mut world = World::new();
    world.insert_with("x", "{}", "created_at", "now() - interval '30 minutes 30 seconds'");
    world.insert_with("x", "{}", "created_at", "now()");
    world.insert_with(
        "x",
        "{}",
        "status, fail_count, available_at",
        "'FAILED', 1, now() + interval '1 hour'",
    );
    world.insert_with(
        "x",
        "{}",
        "created_at, available_at",
        "now() - interval '1 hour', now() + interval '1 hour'",
    );
    world.insert_with("x", "{}", "status, fail_count", "'DEAD', 3");
    for _ in 0..2 {
        world.insert_with("x", "{}", "status, published_at", "'PUBLISHED', now()");
    }
    world.insert_with("x", "{}", "status", "'SKIPPED'");
    world
}

fn environment(world: &World) -> [(&str, &str); 2] {
    [("DATABASE_URL", &world.database.url), ("AMQP_URL", &world.amqp_url)]
}

fn parsed(output: &Output) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn people_read_counts_the_backlog_and_both_servers() {
    let world = filled();
    let output = ends(0, &["status"], &environment(&world));
    let lines: Vec<String> =
        output.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for expected in [
        "table event_outbox",
        "WAITING 3",
        "FAILED 1",
        "DEAD 1 see: outboxd list --status dead",
        "PUBLISHED 2",
        "EXPIRED 0",
        "SKIPPED 1",
        "too young 1 (min_age 30s)",
        "back-off 1",
        "scheduled 1",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected:?} in {output:?}");
    }
    let has =
        |start: &str, part: &str| lines.iter().any(|line| line.starts_with(start) && line.contains(part));
    assert!(has("due now 1, the oldest for 30m", ""), "{output:?}");
    assert!(has("database ", &format!("/{} ok, PostgreSQL 1", world.database.name)), "{output:?}");
    assert!(has("broker ", " reachable, takes messages, RabbitMQ "), "{output:?}");
    assert_eq!(output.stderr, "");
}

#[test]
fn programs_read_the_same_as_json() {
    let world = filled();
    let status = parsed(&ends(0, &["status", "--json"], &environment(&world)));
    let counts = json!({"WAITING": 3, "FAILED": 1, "DEAD": 1, "PUBLISHED": 2, "EXPIRED": 0, "SKIPPED": 1});
    assert_eq!(status["table"], "event_outbox");
    assert_eq!(status["counts"], counts);
    let backlog =
        ["due", "younger_than_min_age", "backing_off", "scheduled"].map(|name| status[name].clone());
    assert_eq!(backlog, [json!(1), json!(1), json!(1), json!(1)]);
    let oldest = status["oldest_due_age_seconds"].as_f64().unwrap();
    assert!((1800.0..2400.0).contains(&oldest), "{oldest}");
    assert_eq!(status["database"]["state"], "ok");
    assert_eq!(status["broker"]["state"], "reachable");
    assert_eq!(status["broker"]["alarms"], "none");
}

#[test]
fn nothing_due_has_no_age() {
    let world = World::new();
    let status = parsed(&ends(0, &["status", "--json"], &environment(&world)));
    assert_eq!((&status["due"], &status["oldest_due_age_seconds"]), (&json!(0), &Value::Null));
    let text = ends(0, &["status"], &environment(&world));
    assert!(!text.stdout.contains("oldest"), "{text:?}");
}

#[test]
fn a_server_that_is_down_does_not_hide_the_other() {
    let world = filled();
    let (database, broker) = (no_database(), no_broker());

    let no_broker = [("DATABASE_URL", world.database.url.as_str()), ("AMQP_URL", &broker)];
    let text = ends(69, &["status"], &no_broker);
    assert!(text.stdout.contains("WAITING            3"), "{text:?}");
    let json = parsed(&ends(69, &["status", "--json"], &no_broker));
    assert_eq!((&json["broker"]["state"], &json["counts"]["WAITING"]), (&json!("unusable"), &json!(3)));
    assert!(json["broker"]["error"].as_str().unwrap().contains("refused"), "{json}");

    let no_database = [("DATABASE_URL", database.as_str()), ("AMQP_URL", &world.amqp_url)];
    let text = ends(69, &["status"], &no_database);
    assert!(text.stdout.contains("reachable, takes messages"), "{text:?}");
    let json = parsed(&ends(69, &["status", "--json"], &no_database));
    let states = (&json["database"]["state"], &json["broker"]["state"], &json["counts"]);
    assert_eq!(states, (&json!("unusable"), &json!("reachable"), &Value::Null));
}

#[test]
fn a_missing_table_is_named() {
    let world = World::new();
    let arguments = ["status", "--table", "app.nowhere"];
    let output = ends(78, &arguments, &environment(&world));
    assert!(
        output.stdout.contains("table app.nowhere does not exist: create it with: outboxd init"),
        "{output:?}"
    );
}
