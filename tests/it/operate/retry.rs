//! `outboxd retry`: what is made due again, and how.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    DEAD, EXPIRED, FAILED, PUBLISHED, SCHEDULED, SKIPPED, WAITING, contents, ends, holds, json, says,
    sending, write,
};
use crate::world::World;

const FRESH: &str =
    "status = 'FAILED' and fail_count = 0 and available_at <= clock_timestamp() and published_at is null";

#[test]
fn dead_events_and_those_that_back_off_are_due_again_once() {
    let mut world = World::new();
    let (dead, failed) = (write(&mut world, DEAD), write(&mut world, FAILED));
    let others: Vec<i64> = [WAITING, SCHEDULED, EXPIRED, PUBLISHED, SKIPPED]
        .into_iter()
        .map(|kind| write(&mut world, kind))
        .collect();
    let due = world.insert_with("x", "{}", "status, fail_count, available_at", "'FAILED', 1, now()");
    let before: Vec<String> = contents(&mut world).split_off(2);

    let document = json(&world, &["retry", "--all"]);
    let counts = ["matched", "changed", "being_sent", "past_deadline"].map(|name| document[name].clone());
    assert_eq!(counts, [json!(2), json!(2), json!(0), json!(0)], "{document}");
    assert_eq!((&document["dry_run"], &document["command"]), (&json!(false), &json!("retry")));
    assert!(holds(&mut world, dead, FRESH) && holds(&mut world, failed, FRESH));
    assert_eq!(world.row(dead).last_error.unwrap(), "retried by hand; was DEAD: 312 NO_ROUTE");
    assert_eq!(world.row(failed).last_error.unwrap(), "retried by hand; was FAILED: nack");
    assert_eq!(contents(&mut world).split_off(2), before, "{others:?}");

    let after = contents(&mut world);
    assert_eq!(says(&world, &["retry", "--all"]), "retried 0 events\n");
    assert_eq!(contents(&mut world), after);

    // Named, those that are due already start anew, too.
    assert_eq!(says(&world, &["retry", "--status", "failed"]), "retried 1 event\n");
    assert!(holds(&mut world, due, FRESH));
    assert_eq!(says(&world, &["retry", "--status", "failed"]), "retried 0 events\n");
}

#[test]
fn a_dry_run_changes_nothing_and_says_what_it_would_do() {
    let mut world = World::new();
    let ids: Vec<i64> = (0..12).map(|_| write(&mut world, DEAD)).collect();
    write(&mut world, EXPIRED);
    let before = contents(&mut world);
    let text = says(&world, &["retry", "--status", "dead", "--dry-run"]);
    assert!(text.starts_with("would have retried 12 events\n"), "{text}");
    assert!(text.contains(" 312 NO_ROUTE\n") && text.ends_with("and 2 more\n"), "{text}");
    let document = json(&world, &["retry", "--status", "dead", "--dry-run"]);
    let found = ["dry_run", "matched", "changed", "being_sent"].map(|name| document[name].clone());
    assert_eq!(found, [json!(true), json!(12), json!(0), Value::Null], "{document}");
    let examples: Vec<i64> =
        document["examples"].as_array().unwrap().iter().map(|it| it["id"].as_i64().unwrap()).collect();
    assert_eq!(examples, ids[..10]);
    assert_eq!(contents(&mut world), before);
}

#[test]
fn a_limit_is_kept_across_batches() {
    let mut world = World::new();
    let first = write(&mut world, DEAD);
    world.insert_many("x", 2_500);
    world.client.execute("update event_outbox set status = 'DEAD'", &[]).unwrap();
    let document = json(&world, &["retry", "--all", "--limit", "1500"]);
    assert_eq!((&document["changed"], &document["stopped_at"]), (&json!(1500), &json!(first + 1499)));
    assert_eq!((world.count("FAILED"), world.count("DEAD")), (1500, 1001));
    assert_eq!(says(&world, &["retry", "--all"]), "retried 1001 events\n");
}

#[test]
fn expired_events_need_a_new_deadline() {
    let mut world = World::new();
    let (expired, other) = (write(&mut world, EXPIRED), write(&mut world, EXPIRED));
    let refused = ends(&world, 64, &["retry", "--status", "expired"]);
    assert!(
        refused.stderr.contains("--expires-in") && refused.stderr.contains("--no-deadline"),
        "{refused:?}"
    );

    let id = expired.to_string();
    says(&world, &["retry", "--id", &id, "--status", "expired", "--expires-in", "2h"]);
    assert!(holds(&mut world, expired, FRESH));
    let soon = "expired_at - now() between interval '1 hour 58 minutes' and interval '2 hours'";
    assert!(holds(&mut world, expired, soon));
    assert_eq!(world.row(other).status, "EXPIRED");

    says(&world, &["retry", "--status", "expired", "--no-deadline"]);
    assert!(holds(&mut world, other, FRESH) && holds(&mut world, other, "expired_at is null"));
}

#[test]
fn a_dead_event_whose_deadline_has_passed_is_left_unless_it_gets_another() {
    let mut world = World::new();
    let columns = "status, fail_count, expired_at";
    let over = world.insert_with("x", "{}", columns, "'DEAD', 3, now() - interval '1 minute'");
    let open = world.insert_with("x", "{}", columns, "'DEAD', 3, now() + interval '1 hour'");
    let text = says(&world, &["retry", "--status", "dead"]);
    assert!(text.starts_with("retried 1 event\nleft 1 event: past the deadline"), "{text}");
    assert_eq!((world.row(over).status, world.row(open).status), ("DEAD".into(), "FAILED".into()));
    assert!(holds(&mut world, open, "expired_at > now() + interval '50 minutes'"));
    assert_eq!(json(&world, &["retry", "--status", "dead"])["past_deadline"], 1);
    assert_eq!(says(&world, &["retry", "--status", "dead", "--no-deadline"]), "retried 1 event\n");
    assert!(holds(&mut world, over, FRESH));
}

#[test]
fn a_rate_spreads_due_times_in_id_order_and_starves_no_new_event() {
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many(&queue, 2_500);
    let sql = "update event_outbox set status = 'DEAD', fail_count = 3, ordering_key = 'k' || id % 7";
    world.client.execute(sql, &[]).unwrap();
    let document = json(&world, &["retry", "--status", "dead", "--rate", "0.5/s"]);
    assert_eq!((&document["changed"], &document["last_due_in_seconds"]), (&json!(2500), &json!(4998.0)));

    let sql = "select bool_and(later), max(due) - min(due) from (
            select available_at >= lag(available_at, 1, available_at) over (order by id) as later,
                extract(epoch from available_at)::float8 as due
            from event_outbox) as t";
    let row = world.client.query_one(sql, &[]).unwrap();
    let (ordered, span): (bool, f64) = (row.get(0), row.get(1));
    assert!(ordered);
    // One rate across all three batches.
    assert!((span - 4998.0).abs() < 0.001, "{span}");

    let new = world.insert(&queue, "{}");
    world.once(&[], 0);
    assert!(world.arrivals(&queue).contains(&world.row(new).event_id));
    assert_eq!(world.row(new).status, "PUBLISHED");
    assert!(world.count("FAILED") > 2_000, "the others wait for their time");
}

#[test]
fn an_event_on_its_way_is_left_to_its_relay() {
    let mut world = World::new();
    let (held, free) = (write(&mut world, FAILED), write(&mut world, FAILED));
    let before = contents(&mut world);
    let started = std::time::Instant::now();
    let mut relay = sending(&world, held);
    let text = says(&world, &["retry", "--all"]);
    assert!(text.starts_with("retried 1 event\nleft 1 event: being sent right now"), "{text}");
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!((&contents(&mut world)[0], holds(&mut world, free, FRESH)), (&before[0], true));
    assert_eq!(json(&world, &["retry", "--all"])["being_sent"], 1);
    // What the relay decides stands.
    relay
        .execute("update event_outbox set status = 'PUBLISHED', published_at = now() where id = $1", &[&held])
        .unwrap();
    relay.batch_execute("commit").unwrap();
    assert_eq!(says(&world, &["retry", "--all"]), "retried 0 events\n");
    assert_eq!(world.row(held).status, "PUBLISHED");
}

#[test]
fn neither_max_age_nor_min_age_concerns_what_was_just_retried() {
    let mut world = World::new();
    let queue = world.queue();
    let id = world.insert_with(&queue, "{}", DEAD.0, DEAD.1);
    // The operator's configuration has no max_age, the relay's has.
    says(&world, &["retry", "--status", "dead"]);
    let status = json(&world, &["status"]);
    assert!(status["oldest_due_age_seconds"].as_f64().unwrap() < 60.0, "due since the retry: {status}");
    assert_eq!(json(&world, &["show", &id.to_string()])["due"]["state"], "due");
    assert_eq!(says(&world, &["retry", "--status", "failed"]), "retried 0 events\n");
    world.once(&["--max-age", "1m", "--min-age", "30s"], 0);
    assert_eq!(world.row(id).status, "PUBLISHED");
}

#[test]
fn what_is_spread_is_scheduled_and_does_not_back_off() {
    let mut world = World::new();
    write(&mut world, DEAD);
    let last = write(&mut world, DEAD);
    says(&world, &["retry", "--status", "dead", "--rate", "0.001"]);
    let due = json(&world, &["show", &last.to_string()])["due"].clone();
    assert_eq!(due["state"], "scheduled", "{due}");
}
