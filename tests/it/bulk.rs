//! Many events: over several workers, over several relays, and with every bound at its extremes.

use std::collections::HashSet;
use std::thread;

use crate::harness::{Output, Proc, unique, wait_until};
use crate::world::{DEADLINE, World};

/// Every event arrived once, and every row says so.
fn assert_each_exactly_once(world: &mut World, queue: &str, count: i64) {
    assert_eq!(world.count("PUBLISHED"), count);
    let arrived = world.arrivals(queue);
    assert_eq!(arrived.len() as i64, count, "messages");
    let distinct: HashSet<String> = arrived.into_iter().collect();
    let rows = world.client.query("select event_id::text from event_outbox", &[]).unwrap();
    let expected: HashSet<String> = rows.iter().map(|row| row.get(0)).collect();
    assert!(distinct == expected, "{} of {} events arrived", distinct.len(), expected.len());
}

/// The number behind a word in a relay's last sum, such as `claimed 7: published 5`, or `claimed=7 published=5` in a log.
fn summed(output: &Output, word: &str) -> i64 {
    let text = format!("{}\n{}", output.stdout, output.stderr.replace('=', " "));
    // `run` logs several sums; the last line is the whole.
    let line = text.lines().rfind(|line| line.contains("claimed "));
    let line = line.unwrap_or_else(|| panic!("no sum: {output:?}"));
    let after = line.split(&format!("{word} ")).nth(1).unwrap_or("0");
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{word} in {line:?}"))
}

#[test]
fn ten_thousand_events_over_four_workers_arrive_once_each() {
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many(&queue, 10_000);
    let output = world.once(&["--workers", "4"], 0);
    assert_eq!(summed(&output, "published"), 10_000);
    assert_each_exactly_once(&mut world, &queue, 10_000);
}

#[test]
fn two_running_relays_share_a_table_without_a_duplicate() {
    let mut world = World::new();
    let queue = world.queue();
    let mut relays: Vec<Proc> =
        (0..2).map(|_| world.start(&["--interval", "100ms", "--batch-rows", "100"])).collect();
    for relay in &mut relays {
        relay.wait_for_line("msg=started", DEADLINE);
    }
    world.insert_many(&queue, 10_000);
    wait_until("all are PUBLISHED", DEADLINE, || (world.count("PUBLISHED") == 10_000).then_some(()));
    let outputs: Vec<Output> = relays
        .into_iter()
        .map(|mut relay| {
            relay.signal("TERM");
            relay.wait(DEADLINE)
        })
        .collect();
    for output in &outputs {
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(!output.stderr.contains("gone"), "{output:?}");
    }
    let published: Vec<i64> = outputs.iter().map(|output| summed(output, "published")).collect();
    assert_eq!(published.iter().sum::<i64>(), 10_000, "{published:?}");
    assert_each_exactly_once(&mut world, &queue, 10_000);
}

#[test]
fn two_runs_of_once_that_overlap_share_a_table_without_a_duplicate() {
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many(&queue, 10_000);
    let (database_url, amqp_url) = (&world.database.url, &world.amqp_url);
    let outputs: Vec<Output> = thread::scope(|scope| {
        let runs: Vec<_> = (0..2).map(|_| scope.spawn(|| once(database_url, amqp_url))).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    for output in &outputs {
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(!output.stdout.contains("gone"), "{output:?}");
    }
    assert_each_exactly_once(&mut world, &queue, 10_000);
}

/// `once` without the world, whose sessions are not for several threads.
fn once(database_url: &str, amqp_url: &str) -> Output {
    let environment = [("DATABASE_URL", database_url), ("AMQP_URL", amqp_url)];
    Proc::run(crate::world::OUTBOXD, &["once", "--batch-rows", "100"], &environment, DEADLINE)
}

#[test]
fn every_bound_may_be_as_small_as_it_gets_or_larger_than_the_batch() {
    for bounds in [
        &["--batch-rows", "1"][..],
        &["--window", "1", "--workers", "1"],
        &["--window", "1", "--workers", "8"],
        &["--window", "5000", "--batch-rows", "10"],
        &["--window-bytes", "1KiB"],
        &["--batch-rows", "1", "--window", "1", "--workers", "1", "--batch-bytes", "1KiB"],
    ] {
        let mut world = World::new();
        let queue = world.queue();
        world.insert_many(&queue, 150);
        let output = world.once(bounds, 0);
        assert_eq!(summed(&output, "published"), 150, "{bounds:?}");
        assert_each_exactly_once(&mut world, &queue, 150);
    }
}

#[test]
fn events_larger_than_the_bytes_of_a_batch_or_a_window_go_one_by_one() {
    let mut world = World::new();
    let queue = world.queue();
    for length in [3000, 1, 1024, 5000, 1025, 10, 200_000] {
        world.insert(&queue, &"x".repeat(length));
    }
    world.once(&["--batch-bytes", "1KiB", "--window-bytes", "1KiB"], 0);
    assert_each_exactly_once(&mut world, &queue, 7);
}

#[test]
fn one_run_takes_as_many_claims_as_it_needs() {
    let mut world = World::new();
    let (queue, nowhere) = (world.queue(), unique("nowhere"));
    world.insert_many(&queue, 1_200);
    // Refused ones in between must not stop the walk.
    world.insert_many(&nowhere, 600);
    world.insert_many(&queue, 1_200);
    let output = world.once(&[], 75);
    assert_eq!(summed(&output, "claimed"), 3_000, "{output:?}");
    assert_eq!((world.count("PUBLISHED"), world.count("FAILED")), (2_400, 600));
    assert_eq!(world.arrivals(&queue).len(), 2_400);
}

#[test]
fn events_written_while_it_drains_are_sent_by_the_same_run() {
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many(&queue, 3_000);
    let mut relay =
        world.start(&["--interval", "1h", "--batch-rows", "10", "--workers", "1", "--window", "1"]);
    world.broker.drain(&queue, 1, DEADLINE);
    // The next beat is an hour away, so what arrives now arrives by this drain.
    world.insert_many(&queue, 100);
    wait_until("all are PUBLISHED", DEADLINE, || (world.count("PUBLISHED") == 3_100).then_some(()));
    relay.signal("TERM");
    let output = relay.wait(DEADLINE);
    assert_eq!((output.code, summed(&output, "published")), (Some(0), 3_100), "{output:?}");
}

#[test]
fn rows_that_are_gone_when_they_are_settled_are_counted_and_no_error() {
    let mut world = World::new();
    let (queue, kept) = (world.queue(), world.queue());
    // A claim locks its rows, so only what runs within the settle itself can take them away: some applications
    // delete what is published by a trigger.
    let sql = format!(
        "create function forget() returns trigger language plpgsql as \
             $$ begin delete from event_outbox where id = old.id; return null; end $$; \
         create trigger forget before update on event_outbox for each row \
             when (new.status = 'PUBLISHED' and old.event_type = '{queue}') execute function forget()"
    );
    world.client.batch_execute(&sql).unwrap();
    world.insert_many(&queue, 20);
    world.insert_many(&kept, 30);
    let output = world.once(&[], 0);
    assert_eq!(summed(&output, "published"), 30, "{output:?}");
    assert_eq!(summed(&output, "gone meanwhile"), 20, "{output:?}");
    assert_eq!((world.arrivals(&queue).len(), world.arrivals(&kept).len()), (20, 30));
    assert_eq!((world.count("PUBLISHED"), world.count("WAITING")), (30, 0));
}
