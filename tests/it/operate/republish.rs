//! Sending again what was delivered to a queue that is gone.

use super::{PUBLISHED, contents, ends, holds, json, says, write};
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

    let text = says(&world, &["retry", "--status", "published", "--since", "1h"]);
    assert!(text.starts_with("retried 3 events\nmatched 3 events; what was purged"), "{text}");
    for id in &ids {
        assert!(holds(
            &mut world,
            *id,
            "status = 'WAITING' and published_at is null and available_at is null"
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
    assert_eq!(json(&world, &["retry", "--status", "published", "--since", "1h"])["matched"], 0);
    assert_eq!(contents(&mut world), before);
    assert_eq!(json(&world, &["retry", "--status", "published", "--id", &id.to_string()])["changed"], 1);
}
