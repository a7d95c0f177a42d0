//! Which rows a run takes: every due rule at its borders, by the database's clock.

use crate::world::World;

/// A row, and what a run must make of it.
struct Case {
    name: &'static str,
    /// `status, fail_count, created_at, available_at, expired_at`, as SQL.
    values: &'static str,
    /// The status after the run.
    becomes: &'static str,
    /// Whether its message arrives.
    sent: bool,
}

const COLUMNS: &str = "status, fail_count, created_at, available_at, expired_at";

fn sent(name: &'static str, values: &'static str) -> Case {
    Case { name, values, becomes: "PUBLISHED", sent: true }
}

fn unsent(name: &'static str, values: &'static str, becomes: &'static str) -> Case {
    Case { name, values, becomes, sent: false }
}

/// Writes the cases' rows, runs once, and compares every row and every message.
fn check(world: &mut World, arguments: &[&str], code: i32, cases: &[Case]) {
    let queue = world.queue();
    let ids: Vec<i64> =
        cases.iter().map(|case| world.insert_with(&queue, "{}", COLUMNS, case.values)).collect();
    world.once(arguments, code);
    let rows: Vec<_> = ids.iter().map(|id| world.row(*id)).collect();
    for (case, row) in cases.iter().zip(&rows) {
        assert_eq!(row.status, case.becomes, "{}: {row:?}", case.name);
    }
    let mut arrived = world.arrivals(&queue);
    arrived.sort();
    let mut expected: Vec<String> =
        cases.iter().zip(&rows).filter(|(case, _)| case.sent).map(|(_, row)| row.event_id.clone()).collect();
    expected.sort();
    assert_eq!(arrived, expected, "the rows: {rows:#?}");
}

#[test]
fn a_waiting_event_is_due_from_min_age_on() {
    let cases = [
        sent("exactly as old as min_age", "'WAITING', 0, clock_timestamp() - interval '1 hour', null, null"),
        unsent("younger", "'WAITING', 0, clock_timestamp() - interval '57 minutes', null, null", "WAITING"),
        unsent("just written", "'WAITING', 0, clock_timestamp(), null, null", "WAITING"),
    ];
    check(&mut World::new(), &["--min-age", "1h"], 0, &cases);
}

#[test]
fn without_a_min_age_an_event_is_due_as_soon_as_it_is_written() {
    let cases = [
        sent("just written", "'WAITING', 0, clock_timestamp(), null, null"),
        unsent(
            "created in the future",
            "'WAITING', 0, clock_timestamp() + interval '1 hour', null, null",
            "WAITING",
        ),
    ];
    check(&mut World::new(), &["--min-age", "0s"], 0, &cases);
}

#[test]
fn a_failed_event_is_due_when_its_back_off_is_over_whatever_its_age() {
    let cases = [
        sent("no back-off", "'FAILED', 1, clock_timestamp(), null, null"),
        sent("back-off over", "'FAILED', 1, clock_timestamp(), clock_timestamp(), null"),
        sent("long over", "'FAILED', 2, clock_timestamp(), '-infinity', null"),
        unsent(
            "back-off ahead",
            "'FAILED', 1, clock_timestamp() - interval '1 day', clock_timestamp() + interval '3 minutes', null",
            "FAILED",
        ),
        unsent("never again", "'FAILED', 1, '-infinity', 'infinity', null", "FAILED"),
    ];
    check(&mut World::new(), &[], 0, &cases);
}

#[test]
fn a_scheduled_event_waits_for_its_time() {
    let cases = [
        sent("time reached", "'WAITING', 0, clock_timestamp() - interval '1 hour', clock_timestamp(), null"),
        unsent(
            "time ahead",
            "'WAITING', 0, clock_timestamp() - interval '1 hour', clock_timestamp() + interval '3 minutes', null",
            "WAITING",
        ),
        unsent(
            "time reached but younger than min_age",
            "'WAITING', 0, clock_timestamp(), clock_timestamp() - interval '1 hour', null",
            "WAITING",
        ),
    ];
    check(&mut World::new(), &["--min-age", "5m"], 0, &cases);
}

#[test]
fn an_event_whose_deadline_passed_is_expired_unsent_whatever_it_waited_for() {
    let cases = [
        unsent(
            "old",
            "'WAITING', 0, clock_timestamp() - interval '1 hour', null, clock_timestamp()",
            "EXPIRED",
        ),
        unsent("too young", "'WAITING', 0, clock_timestamp(), null, clock_timestamp()", "EXPIRED"),
        unsent(
            "scheduled for later",
            "'WAITING', 0, clock_timestamp(), clock_timestamp() + interval '1 day', clock_timestamp()",
            "EXPIRED",
        ),
        unsent("failed", "'FAILED', 1, clock_timestamp(), null, clock_timestamp()", "EXPIRED"),
        unsent(
            "failed and backing off",
            "'FAILED', 1, clock_timestamp(), 'infinity', '-infinity'",
            "EXPIRED",
        ),
        // Its deadline is what counts: an event that is over is not worth an operator's look.
        unsent("failed at the limit", "'FAILED', 3, clock_timestamp(), null, clock_timestamp()", "EXPIRED"),
    ];
    let mut world = World::new();
    check(&mut world, &[], 0, &cases);
    let sql = "select count(*) from event_outbox where last_error is null or fail_count > 3 or published_at is not null";
    let odd: i64 = world.client.query_one(sql, &[]).unwrap().get(0);
    assert_eq!(odd, 0, "each says why, counts no failure and has no time of publishing");
}

#[test]
fn a_deadline_ahead_or_at_infinity_does_not_keep_an_event_back() {
    let cases = [
        sent("an hour ahead", "'WAITING', 0, '2020-01-01', null, clock_timestamp() + interval '1 hour'"),
        sent("at infinity", "'WAITING', 0, '2020-01-01', null, 'infinity'"),
        sent("the year 290000", "'WAITING', 0, '2020-01-01', null, '290000-01-01'"),
        sent("failed before", "'FAILED', 1, '2020-01-01', null, 'infinity'"),
    ];
    check(&mut World::new(), &[], 0, &cases);
}

#[test]
fn max_age_ends_waiting_events_only() {
    let cases = [
        unsent("over", "'WAITING', 0, clock_timestamp() - interval '1 hour', null, null", "EXPIRED"),
        unsent("over but scheduled", "'WAITING', 0, '2020-01-01', 'infinity', null", "EXPIRED"),
        unsent("since ever", "'WAITING', 0, '-infinity', null, null", "EXPIRED"),
        sent("within", "'WAITING', 0, clock_timestamp() - interval '57 minutes', null, null"),
        sent("failed, however old", "'FAILED', 1, '2020-01-01', null, null"),
    ];
    check(&mut World::new(), &["--max-age", "1h"], 0, &cases);
}

#[test]
fn without_max_age_no_event_is_too_old() {
    let cases = [sent("old", "'WAITING', 0, '1999-01-01', null, null")];
    check(&mut World::new(), &[], 0, &cases);
}

#[test]
fn a_failed_event_at_a_limit_lowered_since_is_dead_unsent() {
    let cases = [
        unsent("at the limit", "'FAILED', 2, '2020-01-01', null, null", "DEAD"),
        unsent("above it", "'FAILED', 7, '2020-01-01', null, null", "DEAD"),
        unsent("backing off", "'FAILED', 2, '2020-01-01', 'infinity', null", "DEAD"),
        sent("below it", "'FAILED', 1, '2020-01-01', null, null"),
        // An operator's re-drive: it waits again, so it has its next attempt.
        sent("waiting again", "'WAITING', 2, '2020-01-01', null, null"),
    ];
    let mut world = World::new();
    check(&mut world, &["--max-failures", "2"], 75, &cases);
    let sql = "select fail_count from event_outbox where status = 'DEAD' order by id";
    let counts: Vec<i32> = world.client.query(sql, &[]).unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(counts, [2, 7, 2], "an event that is not sent costs no attempt");
}

#[test]
fn finished_rows_and_foreign_statuses_are_never_touched() {
    let mut world = World::new();
    world
        .client
        .batch_execute("alter table event_outbox drop constraint event_outbox_status_is_known")
        .unwrap();
    let queue = world.queue();
    for status in ["PUBLISHED", "DEAD", "EXPIRED", "SKIPPED", "waiting", "Failed", "NEW", "WAITING "] {
        let values = format!("'{status}', 9, '2020-01-01', '2020-01-01', '2020-01-01'");
        world.insert_with(&queue, "{}", COLUMNS, &values);
    }
    let rows = "select string_agg(event_outbox::text, ';' order by id) from event_outbox";
    let before: String = world.client.query_one(rows, &[]).unwrap().get(0);
    let output = world.once(&["--min-age", "0s", "--max-age", "1s", "--max-failures", "1"], 0);
    let after: String = world.client.query_one(rows, &[]).unwrap().get(0);
    assert_eq!(after, before);
    assert!(output.stdout.starts_with("0 due"), "{output:?}");
    assert_eq!(world.broker.queue_len(&queue), 0);
}

#[test]
fn one_worker_with_a_window_of_one_sends_in_the_order_of_ids() {
    let mut world = World::new();
    let queue = world.queue();
    // Ages that run against the ids, so that an order by time would show.
    let ids: Vec<i64> = (1..=40)
        .map(|n| {
            let created = format!("clock_timestamp() - interval '1 hour' - {n} * interval '1 minute'");
            world.insert_with(&queue, "{}", "created_at", &created)
        })
        .collect();
    world.once(&["--workers", "1", "--window", "1", "--batch-rows", "7"], 0);
    let expected: Vec<String> = ids.iter().map(|id| world.row(*id).event_id).collect();
    assert_eq!(world.arrivals(&queue), expected);
}

#[test]
fn ids_use_all_their_64_bits() {
    let mut world = World::new();
    let queue = world.queue();
    let mut ids = Vec::new();
    for start in [2_147_483_647, 4_294_967_295, i64::MAX - 1] {
        let sql = format!("alter table event_outbox alter column id restart with {start}");
        world.client.batch_execute(&sql).unwrap();
        ids.extend([world.insert(&queue, "{}"), world.insert(&queue, "{}")]);
    }
    assert_eq!(ids.last(), Some(&i64::MAX));
    // One row per claim, so that each id is also where the next claim goes on.
    world.once(&["--batch-rows", "1"], 0);
    assert_eq!(world.count("PUBLISHED"), 6);
    assert_eq!(world.arrivals(&queue).len(), 6);
}

#[test]
fn odd_creation_times_are_compared_like_any_other_and_sent_when_a_message_can_carry_them() {
    let mut world = World::new();
    let queue = world.queue();
    let mut timestamps = Vec::new();
    for (status, created_at, sent, timestamp) in [
        ("WAITING", "'infinity'", false, None),
        ("WAITING", "'5000-01-01 00:00:00Z'", false, None),
        ("WAITING", "'-infinity'", true, None),
        ("WAITING", "'1969-12-31 23:59:59Z'", true, None),
        ("WAITING", "'1970-01-01 00:00:00Z'", true, Some(0)),
        ("FAILED", "'infinity'", true, None),
        ("FAILED", "'5000-01-01 00:00:00Z'", true, Some(95_617_584_000)),
    ] {
        let values = format!("'{status}', 0, {created_at}, null, null");
        let id = world.insert_with(&queue, "{}", COLUMNS, &values);
        if sent {
            timestamps.push((world.row(id).event_id, timestamp));
        }
    }
    world.once(&["--workers", "1"], 0);
    let arrived = world.broker.drain_ready(&queue);
    let arrived: Vec<_> = arrived.iter().map(|it| (it.id().to_owned(), it.timestamp)).collect();
    assert_eq!(arrived, timestamps);
    assert_eq!(world.count("WAITING"), 2);
}

/// What must hold in every time zone: an event of a known moment, one too young, one scheduled, one over.
fn check_in_time_zone(world: &mut World, zone: &str) {
    let name = world.database.name.clone();
    world.client.batch_execute(&format!("alter database {name} set timezone = '{zone}'")).unwrap();
    world.client = world.database.connect();
    let shown: String = world.client.query_one("show timezone", &[]).unwrap().get(0);
    assert_eq!(shown, zone);
    let queue = world.queue();
    let sent = world.insert_with(&queue, "{}", "created_at", "to_timestamp(1700000000)");
    let old = world.insert_with(&queue, "{}", "created_at", "clock_timestamp() - interval '1 hour'");
    let cases = [
        (sent, "PUBLISHED"),
        (old, "PUBLISHED"),
        (
            world.insert_with(&queue, "{}", "created_at", "clock_timestamp() - interval '57 minutes'"),
            "WAITING",
        ),
        (
            world.insert_with(
                &queue,
                "{}",
                "created_at, available_at",
                "'2020-01-01', clock_timestamp() + interval '3 minutes'",
            ),
            "WAITING",
        ),
        (
            world.insert_with(&queue, "{}", "created_at, expired_at", "'2020-01-01', clock_timestamp()"),
            "EXPIRED",
        ),
    ];
    world.once(&["--min-age", "1h", "--workers", "1"], 0);
    for (id, status) in cases {
        let row = world.row(id);
        assert_eq!(row.status, status, "{zone}: {row:?}");
    }
    let arrived = world.broker.drain_ready(&queue);
    let timestamps: Vec<_> = arrived.iter().map(|it| it.timestamp).collect();
    assert_eq!(timestamps.len(), 2, "{zone}");
    assert_eq!(timestamps.first(), Some(&Some(1_700_000_000)), "{zone}");
    let recent = "select published_at > clock_timestamp() - interval '10 minutes' \
             and published_at <= clock_timestamp() and last_retried_at <= clock_timestamp() \
         from event_outbox where id = $1";
    let recent: bool = world.client.query_one(recent, &[&sent]).unwrap().get(0);
    assert!(recent, "{zone}: the times that the relay wrote");
}

#[test]
fn due_rules_and_timestamps_hold_in_a_database_that_is_not_in_utc() {
    for zone in ["Asia/Kathmandu", "America/St_Johns"] {
        check_in_time_zone(&mut World::new(), zone);
    }
}

#[test]
fn they_hold_for_a_table_whose_times_are_without_time_zone_too() {
    for zone in ["Asia/Kathmandu", "America/St_Johns"] {
        let mut world = World::new();
        world
            .client
            .batch_execute(
                "alter table event_outbox alter created_at type timestamp, alter available_at type timestamp, \
                 alter expired_at type timestamp, alter last_retried_at type timestamp, \
                 alter published_at type timestamp",
            )
            .unwrap();
        check_in_time_zone(&mut world, zone);
    }
}
