//! `list`, and the filters that it shares with the commands that change something.

use serde_json::{Value, json};

use super::{
    DEAD, EXPIRED, FAILED, PUBLISHED, SKIPPED, WAITING, contents, ends, json, listed, says, write,
    write_keyed,
};
use crate::world::World;

#[test]
fn each_filter_finds_its_events() {
    let mut world = World::new();
    let order = world.insert_with("order.paid", "{}", WAITING.0, WAITING.1);
    let odd = world.insert_with("order_paid%", "{}", WAITING.0, "now() - interval '3 days'");
    let keyed = write_keyed(&mut world, "it''s \"k\"", FAILED);
    let dead = write(&mut world, DEAD);
    let published = write(&mut world, PUBLISHED);
    let marked = world.insert_with("x", "{}", "last_error, created_at", "'100% of a_b\\c', now()");
    let event_id = world.row(dead).event_id;
    let (dead_text, keyed_text) = (dead.to_string(), keyed.to_string());
    let cases: &[(&[&str], &[i64])] = &[
        (&[], &[order, odd, keyed, dead, published, marked]),
        (&["--id", &dead_text], &[dead]),
        (&["--id", &event_id, "--id", &keyed_text], &[keyed, dead]),
        (&["--id", "999999999999"], &[]),
        (&["--id", "01JD0000000000000000000000"], &[]),
        (&["--id", &dead_text, "--status", "failed"], &[]),
        (&["--type", "order.paid"], &[order]),
        (&["--type", "order.*"], &[order]),
        (&["--type", "order_*"], &[odd]),
        (&["--type", "*%"], &[odd]),
        (&["--type", "order.paid", "--type", "x"], &[order, marked]),
        (&["--key", "it's \"k\""], &[keyed]),
        (&["--key", "it"], &[]),
        (&["--key", "it's \"k\"", "--status", "failed"], &[keyed]),
        (&["--key", "it's \"k\"", "--status", "dead"], &[]),
        (&["--status", "dead"], &[dead]),
        (&["--status", "DEAD", "--status", "Failed"], &[keyed, dead]),
        (&["--status", "dead,failed"], &[keyed, dead]),
        (&["--status", "waiting", "--status", "failed"], &[order, odd, keyed, marked]),
        (&["--older-than", "2d"], &[odd]),
        (&["--newer-than", "10m"], &[marked]),
        (&["--older-than", "30m", "--newer-than", "2h"], &[order, keyed, dead]),
        (&["--since", "3h"], &[published]),
        (&["--since", "1h"], &[]),
        (&["--error", "NO_ROUTE"], &[dead]),
        (&["--error", "no_route"], &[]),
        (&["--error", "100% of a_b\\c"], &[marked]),
        (&["--error", "1_0%"], &[]),
        (&["--error", "'; drop table event_outbox; --"], &[]),
        (&["--limit", "2"], &[order, odd]),
        (&["--after", &dead_text], &[published, marked]),
    ];
    for (arguments, expected) in cases {
        assert_eq!(listed(&world, arguments), *expected, "{arguments:?}");
    }
}

#[test]
fn a_long_list_goes_on_after_the_last_event() {
    let mut world = World::new();
    world.insert_many("x", 250);
    let mut seen = Vec::new();
    let mut after = Value::Null;
    for expected in [100, 100, 50] {
        let text = after.to_string();
        let more: &[&str] = if after.is_null() { &["list"] } else { &["list", "--after", &text] };
        let document = json(&world, more);
        let events = document["events"].as_array().unwrap();
        assert_eq!(events.len(), expected);
        seen.extend(events.iter().map(|event| event["id"].as_i64().unwrap()));
        after = document["next_after"].clone();
    }
    assert_eq!(after, Value::Null);
    assert_eq!(seen.len(), 250);
    assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
    let text = says(&world, &["list", "--limit", "10"]);
    assert!(text.contains(&format!("there may be more: --after {}", seen[9])), "{text}");
}

#[test]
fn a_list_may_begin_with_the_newest() {
    let mut world = World::new();
    world.insert_many("x", 7_000);
    let ids = listed(&world, &["--limit", "7000"]);
    let newest: Vec<i64> = ids.iter().rev().copied().collect();
    assert_eq!(listed(&world, &["--newest", "--limit", "7000"]), newest);
    assert_eq!(listed(&world, &["--newest", "--limit", "2"]), newest[..2]);
    let after = newest[1].to_string();
    assert_eq!(listed(&world, &["--newest", "--limit", "2", "--after", &after]), newest[2..4]);
    // Behind more rows than one page has.
    let sql = "update event_outbox set status = 'PUBLISHED' where id = $1";
    world.client.execute(sql, &[&ids[0]]).unwrap();
    assert_eq!(listed(&world, &["--newest", "--status", "published"]), ids[..1]);
}

#[test]
fn few_events_among_many_are_found_page_by_page() {
    let mut world = World::new();
    world.insert_many("x", 6_000);
    let first = write(&mut world, DEAD);
    world.insert_many("x", 6_000);
    let last = write(&mut world, DEAD);
    assert_eq!(listed(&world, &["--status", "dead"]), [first, last]);
    assert_eq!(
        listed(&world, &["--type", "some.*", "--status", "waiting", "--status", "dead"]),
        [first, last]
    );
}

#[test]
fn a_list_tells_people_and_programs_what_matters_and_never_a_payload() {
    let mut world = World::new();
    let error = "'line\nbreak \x1b[31m and more'";
    let values = format!("'DEAD', 3, {error}, now() - interval '1 hour', 'order-7'");
    let columns = "status, fail_count, last_error, created_at, ordering_key";
    let id = world.insert_with("order.paid", "\"hidden-payload\"", columns, &values);
    let event_id = world.row(id).event_id;

    let text = says(&world, &["list"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    for part in [&event_id, "order.paid", "order-7", "DEAD", "1h", r"line\nbreak \u{1b}[31m and more"] {
        assert!(lines[1].contains(part), "{part} in {text}");
    }
    let document = json(&world, &["list"]);
    let event = &document["events"][0];
    assert_eq!(
        [&event["id"], &event["event_id"], &event["event_type"], &event["ordering_key"], &event["status"]],
        [&json!(id), &json!(event_id), &json!("order.paid"), &json!("order-7"), &json!("DEAD")]
    );
    assert_eq!((&event["fail_count"], &event["available_at"]), (&json!(3), &Value::Null));
    assert_eq!(event["last_error"], "line\nbreak \u{1b}[31m and more");
    assert!((3599.0..3700.0).contains(&event["age_seconds"].as_f64().unwrap()), "{event}");
    assert!(event["created_at"].as_str().unwrap().ends_with('Z'), "{event}");
    assert!(!format!("{text}{document}").contains("hidden-payload"));
    assert_eq!(says(&world, &["list", "--status", "expired"]), "no events\n");
}

#[test]
fn a_named_event_that_is_left_says_why_and_what_to_add() {
    let mut world = World::new();
    let [published, expired, skipped, waiting, dead] =
        [PUBLISHED, EXPIRED, SKIPPED, WAITING, DEAD].map(|kind| write(&mut world, kind).to_string());
    let retried = world.insert_with("x", "{}", "status, last_error", "'FAILED', 'retried by hand; was DEAD'");
    let retried = retried.to_string();
    let cases: &[(&[&str], &str, &str)] = &[
        (&["retry", "--id"], &published, "it was published: add --status published to send it again"),
        (
            &["retry", "--id"],
            &expired,
            "it expired: add --status expired, with --expires-in TIME or --no-deadline",
        ),
        (&["retry", "--id"], &skipped, "a SKIPPED event cannot be retried"),
        (&["retry", "--id"], &waiting, "it is WAITING, and was not refused"),
        (&["retry", "--id"], &retried, "it was made due already"),
        (&["retry", "--type", "other", "--id"], &dead, "it is DEAD, and another condition does not fit"),
        (&["skip", "--id"], &published, "it is finished: PUBLISHED"),
        (&["purge", "--older-than", "1s", "--id"], &waiting, "it is not finished"),
        (&["purge", "--older-than", "1s", "--id"], &dead, "it is DEAD: add --status dead"),
        (&["purge", "--older-than", "1d", "--id"], &published, "it is PUBLISHED, and not for so long"),
    ];
    for (arguments, id, reason) in cases {
        let line = [arguments, &[*id][..]].concat();
        let text = says(&world, &line);
        assert!(text.contains(&format!("\nleft event {id}: {reason}")), "{line:?}: {text}");
        let left = json(&world, &line)["left"].clone();
        assert_eq!(left[0]["id"].to_string(), **id, "{left}");
        assert!(left[0]["reason"].as_str().unwrap().starts_with(reason), "{left}");
    }
    for command in [&["retry"][..], &["skip"], &["purge", "--older-than", "1d"]] {
        let line = [command, &["--id", "999", "--id", "01JD"]].concat();
        let missing = ends(&world, 66, &line);
        for event in ["there is no event 999 in event_outbox\n", "there is no event 01JD in event_outbox\n"] {
            assert!(missing.stderr.contains(event), "{missing:?}");
        }
    }
    assert_eq!(json(&world, &["retry", "--id", &dead])["left"], json!([]));
}

#[test]
fn a_command_that_changes_something_asks_which_events() {
    let mut world = World::new();
    for kind in [DEAD, FAILED, WAITING, PUBLISHED] {
        write(&mut world, kind);
    }
    let before = contents(&mut world);
    let cases: &[(&[&str], &str)] = &[
        (&["retry"], "--all"),
        (&["retry", "--limit", "5"], "--all"),
        (&["retry", "--dry-run"], "--all"),
        (&["skip"], "--all"),
        (&["skip", "--reason", "x"], "--all"),
        (&["purge"], "--older-than"),
        (&["purge", "--status", "published"], "--older-than"),
        (&["list", "--status", "new"], "expected one of waiting, failed"),
        (&["list", "--older-than", "soon"], "expected a duration"),
        (&["list", "--type", ""], "expected an event type"),
        (&["retry", "--status", "waiting"], "cannot be retried"),
        (&["retry", "--status", "skipped"], "cannot be retried"),
        (&["skip", "--status", "published"], "finished"),
        (&["purge", "--older-than", "1s", "--status", "waiting"], "never purged"),
        (&["purge", "--older-than", "1s", "--status", "failed"], "never purged"),
        (&["skip", "--head", "--all"], "--key"),
        (&["retry", "--all", "--rate", "0"], "expected events a second"),
        (&["retry", "--all", "--expires-in", "1h", "--no-deadline"], "cannot be used with"),
        (&["list", "--limit", "0"], "--limit"),
        (&["list", "--after", "abc"], "expected the row id"),
    ];
    for (arguments, hint) in cases {
        let refused = ends(&world, 64, arguments);
        assert!(refused.stderr.contains(hint), "{arguments:?}: {refused:?}");
        assert_eq!(refused.stdout, "", "{arguments:?}");
    }
    assert_eq!(contents(&mut world), before);
}
