//! Sending again what was delivered to a queue that is gone.

use super::{PUBLISHED, contents, ends, holds, json, listed, says, write};
use crate::harness::AmqpValue;
use crate::world::World;

const HEADER: &str = "x-outboxd-possible-duplicate";

#[test]
fn published_events_are_sent_again_and_say_that_they_may_be_duplicates() {
    let mut world = World::new();
    let queue = world.queue();
    let ids: Vec<i64> = (0..3).map(|_| world.insert(&queue, "{}")).collect();
    world.once(&[], 0);
    assert_eq!(world.arrivals(&queue).len(), 3);
    let old = write(&mut world, PUBLISHED);

    let until = moment(&mut world);
    let line = ["retry", "--status", "published", "--since", "1h", "--until", &until];
    let text = says(&world, &line);
    assert!(text.starts_with("retried 3 events\nmatched 3 events; what was purged"), "{text}");
    for id in &ids {
        assert!(holds(
            &mut world,
            *id,
            "status = 'FAILED' and published_at is null and available_at <= clock_timestamp()"
        ));
        let note = world.row(*id).last_error.unwrap();
        assert!(note.starts_with("re-sent by hand; was PUBLISHED at 2"), "{note}");
    }
    assert_eq!(world.row(old).status, "PUBLISHED");

    world.once(&[], 0);
    let messages = world.broker.drain_ready(&queue);
    assert_eq!(messages.len(), 3);
    for message in &messages {
        assert_eq!(message.headers.get(HEADER), Some(&AmqpValue::Boolean(true)), "{message:?}");
    }
    assert_eq!(world.count("PUBLISHED"), 4);
    assert!(ids.iter().all(|id| world.row(*id).last_error.is_none()));

    // The same again finds nothing of what it sent.
    let text = says(&world, &line);
    assert!(text.starts_with("retried 0 events\n"), "{text}");
}

#[test]
fn a_window_has_both_ends_and_lies_in_the_past() {
    let mut world = World::new();
    let id = write(&mut world, PUBLISHED);
    let before = contents(&mut world);
    for (arguments, hint) in [
        (&["--since", "3h"][..], "--until and a moment"),
        (&["--until", "2026-01-31T12:00:00Z"], "--since TIME"),
        (&["--since", "3h", "--until", "1s"], "--until and a moment"),
        (&["--since", "3h", "--until", "2999-01-31T12:00:00Z"], "still to come"),
        (&["--since", "yesterday"], "expected a duration"),
    ] {
        let refused = ends(&world, 64, &[&["retry", "--status", "published"], arguments].concat());
        assert!(refused.stderr.contains(hint), "{arguments:?}: {refused:?}");
    }
    assert_eq!(contents(&mut world), before);
    for (arguments, found) in [
        (&["--since", "3h", "--until", "1h"][..], true),
        (&["--since", "3h", "--until", "150m"], false),
        (&["--until", "2026-01-31T12:00:00Z"], false),
        (&["--since", "2020-01-31T12:00:00Z"], true),
    ] {
        assert_eq!(listed(&world, arguments).contains(&id), found, "{arguments:?}");
    }
}

/// The database's time, as an operator writes it.
fn moment(world: &mut World) -> String {
    let sql = r#"select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"#;
    world.client.query_one(sql, &[]).unwrap().get(0)
}

#[test]
fn an_event_that_was_refused_is_sent_again_without_that_header() {
    let mut world = World::new();
    let queue = world.queue();
    world.insert_with(&queue, "{}", "status, last_error", "'DEAD', '312 NO_ROUTE'");
    world.insert_with(&queue, "{}", "status, last_error", "'DEAD', 'unconfirmed x2: connection lost'");
    says(&world, &["retry", "--status", "dead"]);
    world.once(&["--min-age", "0s"], 0);
    let marked: Vec<bool> =
        world.broker.drain_ready(&queue).iter().map(|it| it.headers.contains_key(HEADER)).collect();
    assert_eq!(marked.iter().filter(|marked| **marked).count(), 1, "only what may have arrived: {marked:?}");
    assert_eq!(marked.len(), 2);
}

#[test]
fn nothing_published_is_sent_again_unasked() {
    let mut world = World::new();
    let id = write(&mut world, PUBLISHED);
    let before = contents(&mut world);
    let refused = ends(&world, 64, &["retry", "--status", "published"]);
    assert!(refused.stderr.contains("--since"), "{refused:?}");
    ends(&world, 64, &["retry", "--status", "published", "--all"]);
    for arguments in [&["--all"][..], &["--since", "1d"], &["--id", &id.to_string()], &["--type", "*"]] {
        assert_eq!(json(&world, &[&["retry"], arguments].concat())["matched"], 0, "{arguments:?}");
    }
    assert_eq!(contents(&mut world), before);
    assert_eq!(json(&world, &["retry", "--status", "published", "--id", &id.to_string()])["changed"], 1);
}
