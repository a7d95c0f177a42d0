//! `once` within bounds, and its summary as JSON.

use serde_json::{Value, json};

use super::no_broker;
use crate::harness::{Proc, unique};
use crate::world::{DEADLINE, OUTBOXD, World};

/// Runs it with `--json`; the document, which is all of standard output.
fn summary(world: &World, arguments: &[&str], code: i32) -> Value {
    let output = world.once(&[&["--json"], arguments].concat(), code);
    assert_eq!(output.stdout.lines().count(), 1, "{output:?}");
    let document: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(document["exit_code"], json!(code), "{document}");
    document
}

fn fields<const N: usize>(document: &Value, names: [&str; N]) -> [Value; N] {
    names.map(|name| document.get(name).unwrap_or_else(|| panic!("no {name} in {document}")).clone())
}

#[test]
fn no_more_events_are_claimed_than_were_allowed() {
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many(&queue, 30);
    // Several claims at once, and the last one smaller.
    let output = world.once(&["--max-events", "17", "--batch-rows", "5"], 75);
    assert_eq!(output.stdout, "claimed 17: published 17; --max-events 17 ended it, more is due\n");
    assert_eq!((world.count("PUBLISHED"), world.count("WAITING")), (17, 13));
    assert_eq!(world.broker.queue_len(&queue), 17);
    let touched = "select count(*) from event_outbox where id > 17 and last_retried_at is not null";
    assert_eq!(world.client.query_one(touched, &[]).unwrap().get::<_, i64>(0), 0);
    // The bound is met, and nothing is left.
    let output = world.once(&["--max-events", "13"], 0);
    assert_eq!(output.stdout, "claimed 13: published 13; --max-events 13 ended it, nothing more is due\n");
    assert_eq!(world.once(&["--max-events", "13"], 0).stdout, "0 due\n");
}

#[test]
fn the_bound_holds_for_events_with_keys_and_for_refused_ones() {
    let mut world = World::new();
    let (queue, nobody) = (world.queue(), unique("nobody"));
    for n in 0..20 {
        let key = format!("clock_timestamp() - interval '1 hour', 'key-{}'", n % 3);
        world.insert_with(&queue, "{}", "created_at, ordering_key", &key);
        world.insert(&nobody, "{}");
    }
    let document = summary(&world, &["--max-events", "11", "--batch-rows", "3"], 75);
    assert_eq!(document["claimed"], json!(11), "{document}");
    let sql =
        "select count(*) from event_outbox where last_retried_at is not null or published_at is not null";
    assert_eq!(world.client.query_one(sql, &[]).unwrap().get::<_, i64>(0), 11);
}

/// What is handed back with a key whose first event was refused has had no attempt, and leaves room for others.
#[test]
fn events_that_are_handed_back_do_not_count() {
    let mut world = World::new();
    let (queue, nobody) = (world.queue(), unique("nobody"));
    let keyed = "clock_timestamp() - interval '1 hour', 'key'";
    world.insert_with(&nobody, "{}", "created_at, ordering_key", keyed);
    for _ in 0..10 {
        world.insert_with(&queue, "{}", "created_at, ordering_key", keyed);
    }
    world.insert_many(&queue, 30);
    let document = summary(&world, &["--max-events", "15"], 75);
    let found = fields(&document, ["claimed", "published", "failed", "released", "limit"]);
    assert_eq!(found, [json!(15), json!(14), json!(1), json!(0), json!("max_events")], "{document}");
    assert_eq!((world.count("PUBLISHED"), world.count("FAILED"), world.count("WAITING")), (14, 1, 26));
}

#[test]
fn nothing_is_claimed_once_the_time_is_over() {
    const MANY: i64 = 20_000;
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many(&queue, MANY);
    let slowly = ["--max-duration", "1s", "--workers", "1", "--window", "1", "--batch-rows", "100"];
    let document = summary(&world, &slowly, 75);
    let found = fields(&document, ["limit", "leaves_work", "stopped", "error", "not_due", "failed"]);
    assert_eq!(found, [json!("max_duration"), json!(true), json!(false), Value::Null, Value::Null, json!(0)]);
    let published = world.count("PUBLISHED");
    assert!(published > 0 && published < MANY, "{document}");
    assert_eq!(fields(&document, ["claimed", "published"]), [json!(published), json!(published)]);
    // What was in flight is finished, and none is held any more.
    assert_eq!(i64::from(world.broker.queue_len(&queue)), published);
    assert!(document["seconds"].as_f64().is_some_and(|it| (1.0..30.0).contains(&it)), "{document}");
}

#[test]
fn the_summary_says_how_a_run_went_and_why_nothing_was_due() {
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many(&queue, 3);
    world.insert_with(&queue, "{}", "created_at", "clock_timestamp() + interval '1 hour'");
    let document = summary(&world, &[], 0);
    let found = fields(&document, ["claimed", "published", "limit", "leaves_work", "not_due"]);
    assert_eq!(found, [json!(3), json!(3), Value::Null, json!(false), Value::Null]);
    let document = summary(&world, &[], 0);
    let expected = json!({"young": 1, "backing_off": 0, "scheduled": 0, "held_back": 0, "being_sent": 0});
    assert_eq!((&document["not_due"], &document["claimed"]), (&expected, &json!(0)), "{document}");
}

#[test]
fn a_server_that_is_down_is_told_on_both_outputs_and_by_the_code() {
    let world = World::new();
    let environment = [("DATABASE_URL", world.database.url.clone()), ("AMQP_URL", no_broker())];
    let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
    let output = Proc::run(OUTBOXD, &["once", "--json"], &environment, DEADLINE);
    let document: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!((output.code, &document["exit_code"]), (Some(69), &json!(69)), "{output:?}");
    let error = document["error"].as_str().unwrap();
    assert!(error.contains("opening a session on broker 127.0.0.1:"), "{error}");
    assert!(output.stderr.contains(&format!("outboxd: {error}\n")), "{output:?}");
}
