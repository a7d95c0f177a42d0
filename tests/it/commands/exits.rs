//! What `once` says and ends with when both servers are there.

use super::ends;
use crate::harness::{Servers, unique, wait_until};
use crate::world::{DEADLINE, World, as_logged};

#[test]
fn nothing_due_is_a_success() {
    let world = World::new();
    assert_eq!(world.once(&[], 0).stdout, "0 due\n");
}

#[test]
fn work_that_is_done_is_a_success() {
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many(&queue, 3);
    let output = world.once(&[], 0);
    assert_eq!(output.stdout, "claimed 3: published 3\n", "{output:?}");
    assert_eq!((world.count("PUBLISHED"), world.broker.queue_len(&queue)), (3, 3));
}

#[test]
fn a_young_event_is_left_and_the_reason_is_told() {
    let mut world = World::new();
    let queue = world.queue();
    let id = world.insert_with(&queue, "{}", "created_at", "clock_timestamp()");
    let output = world.once(&[], 0);
    assert_eq!(output.stdout, "0 due; 1 younger than min_age 30s: --min-age 0s sends it now\n");
    let row = world.row(id);
    assert_eq!((row.status.as_str(), row.attempted), ("WAITING", false), "{row:?}");
    world.once(&["--min-age", "0s"], 0);
    assert_eq!(world.row(id).status, "PUBLISHED");
}

#[test]
fn everything_that_was_left_is_told_with_its_reason() {
    let mut world = World::new();
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
    let key = |status: &str| format!("'{status}', now() - interval '1 hour', 'order-7'");
    world.insert_with("x", "{}", "status, created_at, ordering_key", &key("DEAD"));
    world.insert_with("x", "{}", "status, created_at, ordering_key", &key("WAITING"));
    let expected = "0 due; 1 younger than min_age 30s: --min-age 0s sends it now; 1 failed and backing off; \
        1 scheduled for later; 1 held back by the first event of their key: outboxd status names it\n";
    assert_eq!(world.once(&[], 0).stdout, expected);
}

#[test]
fn a_refusal_in_this_run_ends_with_75_and_an_old_one_does_not() {
    let mut world = World::new();
    let nobody = unique("nobody");
    let id = world.insert(&nobody, "{}");
    let refused = world.once(&["--max-failures", "1"], 75);
    assert_eq!(refused.stdout, "claimed 1: dead 1\n", "{refused:?}");
    let row = world.row(id);
    assert_eq!((row.status.as_str(), row.fail_count), ("DEAD", 1), "{row:?}");
    let lines: Vec<_> = refused.stderr.lines().filter(|line| line.contains(&row.event_id)).collect();
    assert_eq!(lines.len(), 1, "{refused:?}");
    for part in [&nobody, "NO_ROUTE", &format!("there is no queue \"{nobody}\"")] {
        assert!(lines[0].contains(&as_logged(part)), "{part} in {lines:?}");
    }
    assert_eq!(world.once(&[], 0).stdout, "0 due\n");
}

#[test]
fn a_table_that_is_missing_names_init() {
    let world = World::on(Servers::shared().database(), Servers::shared().amqp_url());
    for command in ["once", "enqueue"] {
        let arguments = if command == "once" { vec!["once"] } else { vec!["enqueue", "x"] };
        let environment = [("DATABASE_URL", world.database.url.as_str()), ("AMQP_URL", &world.amqp_url)];
        let output = ends(78, &arguments, &environment);
        let expected = "table event_outbox does not exist: create it with: outboxd init";
        assert!(output.stderr.contains(expected), "{output:?}");
    }
}

#[test]
fn a_table_without_our_columns_names_them_and_init() {
    let mut world = World::new();
    world
        .client
        .batch_execute("alter table event_outbox drop column headers, drop column last_error")
        .unwrap();
    let output = world.once(&[], 78);
    let expected = "table event_outbox lacks headers, last_error: add what is missing with: outboxd init";
    assert!(output.stderr.contains(expected), "{output:?}");
}

#[test]
fn a_table_of_a_foreign_shape_names_what_is_missing() {
    let mut world = World::new();
    world.client.batch_execute("alter table event_outbox drop column payload").unwrap();
    let output = world.once(&[], 78);
    assert!(
        output.stderr.contains("table event_outbox is not an outbox: it has no column payload"),
        "{output:?}"
    );
}

#[test]
fn overlapping_runs_send_each_event_once() {
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many(&queue, 3_000);
    let mut other = world.start(&["--interval", "10ms"]);
    for _ in 0..5 {
        world.once(&[], 0);
    }
    wait_until("all are published", DEADLINE, || (world.count("PUBLISHED") == 3_000).then_some(()));
    other.signal("TERM");
    assert_eq!(other.wait(DEADLINE).code, Some(0));
    assert_eq!(world.broker.queue_len(&queue), 3_000);
}
