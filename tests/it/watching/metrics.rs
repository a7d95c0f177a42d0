//! The figures under `/metrics`, against what happened to events.

use super::{get, metrics, promtool, samples, shown, wait_for_samples};
use crate::harness::{AmqpValue, wait_until};
use crate::world::{DEADLINE, World};

#[test]
fn what_becomes_of_events_is_counted_by_outcome_and_reason() {
    let mut world = World::new();
    let (queue, full) = (world.queue(), crate::harness::unique("full"));
    let limits = [
        ("x-max-length", AmqpValue::LongInt(1)),
        ("x-overflow", AmqpValue::LongString("reject-publish".into())),
    ];
    world.broker.declare_queue(&full, &limits);
    world.insert_many(&queue, 5);
    world.insert_many(&full, 2);
    world.insert("nobody.asks", "{}");
    world.insert_with(&queue, "{}", "created_at, exchange", "now() - interval '1 hour', 'no-such-exchange'");
    world.insert(&queue, &"x".repeat(2000));
    world.insert_with(&queue, "{}", "created_at, headers", "now() - interval '1 hour', '[]'");
    world.insert_with(
        &queue,
        "{}",
        "created_at, expired_at",
        "now() - interval '2 hours', now() - interval '1 hour'",
    );
    let (_relay, addr) = shown(
        &world,
        &["--max-failures", "2", "--payload-max", "1KiB", "--backoff-base", "1h", "--backoff-max", "1h"],
    );
    let samples = wait_for_samples(
        addr,
        &[
            ("outboxd_events_claimed_total", 12.0),
            ("outboxd_events_published_total", 6.0),
            ("outboxd_events_failed_total{reason=\"nacked\"}", 1.0),
            ("outboxd_events_failed_total{reason=\"unroutable\"}", 1.0),
            ("outboxd_events_failed_total{reason=\"no_exchange\"}", 1.0),
            ("outboxd_events_failed_total{reason=\"too_large\"}", 1.0),
            ("outboxd_events_dead_total{reason=\"invalid\"}", 1.0),
            ("outboxd_events_expired_total", 1.0),
            ("outboxd_events_failed_total{reason=\"other\"}", 0.0),
            ("outboxd_up{server=\"database\"}", 1.0),
            ("outboxd_up{server=\"broker\"}", 1.0),
            ("outboxd_broker_blocked", 0.0),
            ("outboxd_reconnects_total{server=\"broker\"}", 0.0),
            // The missing exchange, the payload, the headers and the expired one were never sent.
            ("outboxd_confirm_duration_seconds_count", 8.0),
        ],
    );
    assert!(samples["outboxd_ticks_total{result=\"ok\"}"] >= 1.0, "{samples:?}");
    assert_eq!(samples["outboxd_batch_events_sum"], 12.0);
    for name in ["claim", "publish", "settle", "confirm"] {
        let sum = samples[&format!("outboxd_{name}_duration_seconds_sum")];
        let count = samples[&format!("outboxd_{name}_duration_seconds_count")];
        assert!(count >= 1.0 && sum > 0.0 && sum / count < 10.0, "{name}: {sum} over {count}");
    }
}

#[test]
fn the_text_is_what_promtool_and_its_server_expect() {
    let world = World::new();
    let (_relay, addr) = shown(&world, &[]);
    wait_for_samples(addr, &[("outboxd_events{status=\"dead\"}", 0.0)]);
    let response = get(addr, "/metrics");
    assert!(response.head.contains("Content-Type: text/plain; version=0.0.4"), "{}", response.head);
    // Also its advice about names and help must be none.
    assert_eq!(promtool(&["check", "metrics"], &response.body), "");
    let samples = samples(&response.body);
    for name in ["cpu_seconds_total", "resident_memory_bytes", "open_fds", "max_fds", "start_time_seconds"] {
        assert!(samples[&format!("process_{name}")] > 0.0 || name == "cpu_seconds_total", "{name}");
    }
    let version = format!("outboxd_build_info{{version=\"{}\",tls=\"", env!("CARGO_PKG_VERSION"));
    assert!(samples.keys().any(|name| name.starts_with(&version)), "{samples:?}");
}

#[test]
fn the_backlog_is_told_by_what_it_waits_for() {
    let mut world = World::new();
    let hour = "now() - interval '1 hour'";
    world.insert_with("x", "{}", "status, fail_count", "'DEAD', 3");
    world.insert_with(
        "x",
        "{}",
        "created_at, status, fail_count, ordering_key",
        &format!("{hour}, 'DEAD', 3, 'k'"),
    );
    world.insert_with("x", "{}", "created_at, ordering_key", &format!("{hour}, 'k'"));
    world.insert_with("x", "{}", "created_at, available_at", &format!("{hour}, now() + interval '1 hour'"));
    world.insert_with("x", "{}", "created_at", "now() + interval '1 hour'");
    world.insert_with(
        "x",
        "{}",
        "status, fail_count, available_at",
        "'FAILED', 1, now() + interval '1 hour'",
    );
    for _ in 0..3 {
        world.insert_with("x", "{}", "status, published_at", "'PUBLISHED', now()");
    }
    let (_relay, addr) = shown(&world, &[]);
    wait_for_samples(
        addr,
        &[
            ("outboxd_events{status=\"waiting\"}", 3.0),
            ("outboxd_events{status=\"failed\"}", 1.0),
            ("outboxd_events{status=\"dead\"}", 2.0),
            ("outboxd_backlog_events{state=\"due\"}", 0.0),
            ("outboxd_backlog_events{state=\"young\"}", 1.0),
            ("outboxd_backlog_events{state=\"backing_off\"}", 1.0),
            ("outboxd_backlog_events{state=\"scheduled\"}", 1.0),
            ("outboxd_backlog_events{state=\"held_back\"}", 1.0),
            ("outboxd_blocked_keys", 1.0),
            ("outboxd_oldest_due_age_seconds", 0.0),
        ],
    );
}

#[test]
fn the_age_of_the_oldest_due_event_is_by_the_database_clock() {
    let mut world = World::new();
    // Someone else holds it, so it stays due while it is looked at.
    world.insert_with("x", "{}", "created_at", "now() - interval '90 seconds'");
    world.client.batch_execute("begin; select from event_outbox for update").unwrap();
    let (_relay, addr) = shown(&world, &[]);
    let age = wait_until("the age is known", DEADLINE, || {
        metrics(addr).get("outboxd_oldest_due_age_seconds").copied()
    });
    assert!((60.0..100.0).contains(&age), "{age}");
    world.client.batch_execute("rollback").unwrap();
}

#[test]
fn figures_are_right_while_twenty_thousand_events_are_drained() {
    let mut world = World::new();
    let queue = world.queue();
    let count = 20_000.0;
    world.insert_many(&queue, 20_000);
    let (_relay, addr) = shown(&world, &[]);
    let (mut before, mut looks) = (0.0, 0);
    wait_until("everything is published", DEADLINE, || {
        let samples = metrics(addr);
        assert_eq!(get(addr, "/healthz").status, 200);
        let published = samples["outboxd_events_published_total"];
        assert!(published >= before && published <= count, "{before} {published}");
        assert!(samples["outboxd_events_claimed_total"] >= published);
        (before, looks) = (published, looks + 1);
        (published == count).then_some(())
    });
    let samples = wait_for_samples(
        addr,
        &[
            ("outboxd_events_claimed_total", count),
            ("outboxd_confirm_duration_seconds_count", count),
            ("outboxd_confirm_duration_seconds_bucket{le=\"+Inf\"}", count),
            ("outboxd_batch_events_sum", count),
        ],
    );
    assert!(looks > 3, "{looks}");
    assert!(samples["outboxd_batch_events_count"] >= 40.0, "{samples:?}");
    assert_eq!(world.count("PUBLISHED"), 20_000);
}
