//! What an operator does with events by hand: `list`, `show`, `retry`, `skip`, `purge`, and the warnings of `status`.

mod advice;
mod anywhere;
mod filters;
mod purge;
mod republish;
mod retention;
mod retry;
mod show;
mod skip;
mod trouble;
mod underway;

use postgres::Client;
use serde_json::Value;

use crate::harness::Output;
use crate::world::World;

/// Runs a command that must end with this code, with nothing but errors on standard error.
fn ends(world: &World, code: i32, arguments: &[&str]) -> Output {
    let output = world.outboxd(arguments);
    assert_eq!(output.code, Some(code), "{arguments:?}: {output:?}");
    assert_eq!(output.stderr.is_empty(), code == 0, "{arguments:?}: {output:?}");
    output
}

/// What it prints.
fn says(world: &World, arguments: &[&str]) -> String {
    ends(world, 0, arguments).stdout
}

/// What it prints with `--json`.
fn json(world: &World, arguments: &[&str]) -> Value {
    let output = ends(world, 0, &[arguments, &["--json"]].concat());
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The ids of the events that `list` finds.
fn listed(world: &World, arguments: &[&str]) -> Vec<i64> {
    let document = json(world, &[&["list"], arguments].concat());
    document["events"].as_array().unwrap().iter().map(|event| event["id"].as_i64().unwrap()).collect()
}

/// Everything that the table holds, as text.
fn contents(world: &mut World) -> Vec<String> {
    let rows = world.client.query("select t::text from event_outbox as t order by id", &[]).unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// An SQL expression of one row; true or false.
fn holds(world: &mut World, id: i64, condition: &str) -> bool {
    let sql = format!("select coalesce({condition}, false) from event_outbox where id = $1");
    world.client.query_one(&sql, &[&id]).unwrap().get(0)
}

/// A session that holds this row as a relay does while it sends it; until it is dropped.
fn sending(world: &World, id: i64) -> Client {
    let mut client = world.database.connect();
    client.batch_execute("begin").unwrap();
    client.query("select 1 from event_outbox where id = $1 for no key update", &[&id]).unwrap();
    client
}

const DEAD: (&str, &str) = (
    "status, fail_count, last_error, created_at, last_retried_at",
    "'DEAD', 3, '312 NO_ROUTE', now() - interval '1 hour', now() - interval '50 minutes'",
);
const FAILED: (&str, &str) = (
    "status, fail_count, last_error, created_at, available_at",
    "'FAILED', 1, 'nack', now() - interval '1 hour', now() + interval '1 hour'",
);
const EXPIRED: (&str, &str) = (
    "status, created_at, expired_at, available_at",
    "'EXPIRED', now() - interval '3 hours', now() - interval '2 hours', now() - interval '2 hours'",
);
const PUBLISHED: (&str, &str) = (
    "status, created_at, published_at",
    "'PUBLISHED', now() - interval '3 hours', now() - interval '2 hours'",
);
const SKIPPED: (&str, &str) =
    ("status, created_at, available_at", "'SKIPPED', now() - interval '3 hours', now() - interval '2 hours'");
const WAITING: (&str, &str) = ("created_at", "now() - interval '1 hour'");
const SCHEDULED: (&str, &str) =
    ("created_at, available_at", "now() - interval '1 hour', now() + interval '1 hour'");

/// Writes an event of one of these kinds.
fn write(world: &mut World, kind: (&str, &str)) -> i64 {
    world.insert_with("some.type", "{}", kind.0, kind.1)
}

/// The same with an ordering key.
fn write_keyed(world: &mut World, key: &str, kind: (&str, &str)) -> i64 {
    let (columns, values) = (format!("ordering_key, {}", kind.0), format!("'{key}', {}", kind.1));
    world.insert_with("some.type", "{}", &columns, &values)
}
