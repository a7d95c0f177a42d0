//! `outboxd skip`: giving events up.

use serde_json::json;

use super::{
    DEAD, EXPIRED, FAILED, PUBLISHED, SCHEDULED, WAITING, contents, holds, json, says, sending, write,
    write_keyed,
};
use crate::world::World;

#[test]
fn unfinished_events_are_skipped_and_no_others() {
    let mut world = World::new();
    let unfinished = [DEAD, FAILED, WAITING, SCHEDULED].map(|kind| write(&mut world, kind));
    let finished = [PUBLISHED, EXPIRED].map(|kind| write(&mut world, kind));
    let before = contents(&mut world);
    let text = says(&world, &["skip", "--all", "--dry-run"]);
    assert!(text.starts_with("would have skipped 4 events\n"), "{text}");
    assert_eq!(contents(&mut world), before);

    let document = json(&world, &["skip", "--all", "--reason", "cancelled by hand"]);
    assert_eq!((&document["changed"], &document["matched"]), (&json!(4), &json!(4)));
    for id in unfinished {
        let row = world.row(id);
        assert_eq!((row.status.as_str(), row.last_error.as_deref()), ("SKIPPED", Some("cancelled by hand")));
        assert!(holds(
            &mut world,
            id,
            "available_at between now() - interval '1 minute' and clock_timestamp()"
        ));
    }
    assert_eq!(contents(&mut world)[4..], before[4..], "{finished:?}");
    assert_eq!(says(&world, &["skip", "--all"]), "skipped 0 events\n");
}

#[test]
fn without_a_reason_the_last_error_stays_behind_a_word_of_it() {
    let mut world = World::new();
    let id = write(&mut world, DEAD);
    says(&world, &["skip", "--id", &id.to_string()]);
    assert_eq!(world.row(id).last_error.as_deref(), Some("skipped by hand; was: 312 NO_ROUTE"));
}

#[test]
fn skipping_a_head_lets_its_followers_go() {
    let mut world = World::new();
    let done = write_keyed(&mut world, "order-7", PUBLISHED);
    let head = write_keyed(&mut world, "order-7", DEAD);
    let followers = [(); 2].map(|()| write_keyed(&mut world, "order-7", WAITING));
    let other = write_keyed(&mut world, "order-8", DEAD);
    let held = json(&world, &["show", &followers[1].to_string()]);
    assert_eq!(held["due"]["state"], "held_back", "{held}");

    assert_eq!(json(&world, &["skip", "--key", "order-7", "--head", "--dry-run"])["examples"][0]["id"], head);
    let event_id = world.row(head).event_id;
    let text = says(&world, &["skip", "--key", "order-7", "--head"]);
    assert_eq!(text, format!("skipped 1 event\nevent {head}: {event_id}\n"));
    assert_eq!(world.row(head).status, "SKIPPED");
    for follower in followers {
        assert_eq!(world.row(follower).status, "WAITING");
        assert_eq!(json(&world, &["show", &follower.to_string()])["due"]["state"], "due");
    }
    let untouched = [world.row(done).status, world.row(other).status];
    assert_eq!(untouched, ["PUBLISHED", "DEAD"]);
    let blocked = json(&world, &["status"])["blocked_keys"].clone();
    assert_eq!((&blocked["count"], &blocked["heads"][0]["id"]), (&json!(1), &json!(other)), "{blocked}");
}

#[test]
fn a_head_is_skipped_once_and_healthy_events_never() {
    let mut world = World::new();
    for (key, kind) in [("dead", DEAD), ("failed", FAILED), ("scheduled", SCHEDULED)] {
        let head = write_keyed(&mut world, key, kind);
        let followers = [(); 2].map(|()| write_keyed(&mut world, key, WAITING));
        let line = ["skip", "--key", key, "--head"];
        assert_eq!(json(&world, &line)["examples"][0]["id"], head);
        let again = says(&world, &line);
        let why = format!(
            "skipped 0 events\nkey {key} is not blocked: its first event, {}, is due now: the next tick takes it\n",
            followers[0]
        );
        assert_eq!(again, why);
        assert_eq!(followers.map(|id| world.row(id).status), ["WAITING", "WAITING"]);
    }
    write_keyed(&mut world, "young", ("created_at", "now()"));
    let text = says(&world, &["skip", "--key", "young", "--head"]);
    assert!(text.contains("is not due: younger than min_age"), "{text}");
    let text = says(&world, &["skip", "--key", "none", "--head"]);
    assert_eq!(text, "skipped 0 events\nkey none is not blocked: it has no unfinished event\n");
}

#[test]
fn a_head_that_is_not_meant_is_left() {
    let mut world = World::new();
    let head = write_keyed(&mut world, "k", FAILED);
    let dead = write_keyed(&mut world, "k", DEAD);
    let (head_text, dead_text) = (head.to_string(), dead.to_string());
    for arguments in
        [&["--status", "dead"][..], &["--id", &dead_text], &["--type", "other"], &["--error", "NO_ROUTE"]]
    {
        let line = [&["skip", "--key", "k", "--head"], arguments].concat();
        let text = says(&world, &line);
        assert!(text.contains(&format!("is blocked by event {head}, which is not one")), "{line:?}: {text}");
    }
    assert_eq!([world.row(head).status, world.row(dead).status], ["FAILED", "DEAD"]);
    says(&world, &["skip", "--key", "k", "--head", "--id", &head_text]);
    assert_eq!([world.row(head).status, world.row(dead).status], ["SKIPPED", "DEAD"]);
}

#[test]
fn an_event_on_its_way_is_left_to_its_relay() {
    let mut world = World::new();
    let id = write_keyed(&mut world, "k", WAITING);
    let mut relay = sending(&world, id);
    let text = says(&world, &["skip", "--key", "k"]);
    assert!(text.starts_with("skipped 0 events\nleft 1 event: being sent right now"), "{text}");
    relay.batch_execute("rollback").unwrap();
    assert_eq!(says(&world, &["skip", "--key", "k"]), "skipped 1 event\n");
}
