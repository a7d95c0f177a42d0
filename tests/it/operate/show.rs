//! `outboxd show`: everything about one event, and why it is or is not due.

use serde_json::{Value, json};

use super::{
    DEAD, EXPIRED, FAILED, PUBLISHED, SCHEDULED, SKIPPED, WAITING, contents, ends, json, says, sending,
    write, write_keyed,
};
use crate::world::World;

/// The state, and that the sentence for people holds this.
fn state(world: &World, id: i64, part: &str) -> String {
    let id = id.to_string();
    let document = json(world, &["show", &id]);
    let why = document["due"]["why"].as_str().unwrap().to_owned();
    assert!(why.contains(part), "{part:?} in {why:?}");
    // A second may have passed since: what is left is not compared.
    let (start, _) = why.split_once(" (in ").unwrap_or((&why, ""));
    let text = says(world, &["show", &id]);
    assert!(text.contains(&format!("\n\n{start}")), "{why:?} in {text}");
    document["due"]["state"].as_str().unwrap().to_owned()
}

#[test]
fn every_event_says_why_it_is_or_is_not_due() {
    let mut world = World::new();
    let cases = [
        (WAITING, "due", "due now"),
        (("created_at", "now()"), "young", "younger than min_age, due at 2"),
        (FAILED, "backing_off", "backs off after its last attempt, due at 2"),
        (SCHEDULED, "scheduled", "its available_at is to come, due at 2"),
        (("available_at", "'infinity'"), "scheduled", "due at infinity"),
        (DEAD, "dead", "outboxd retry --id"),
        (PUBLISHED, "finished", "finished: PUBLISHED"),
        (EXPIRED, "finished", "finished: EXPIRED"),
        (SKIPPED, "finished", "finished: SKIPPED"),
        (("expired_at, available_at", "now(), now() + interval '1 hour'"), "ending", "marks it EXPIRED"),
        (("status, fail_count", "'FAILED', 3"), "ending", "marks it DEAD"),
    ];
    let before: Vec<i64> = cases.iter().map(|(kind, ..)| write(&mut world, *kind)).collect();
    let contents_before = contents(&mut world);
    for (id, (_, expected, part)) in before.iter().zip(cases) {
        assert_eq!(state(&world, *id, part), expected);
    }
    let old = before[0].to_string();
    let document = json(&world, &["show", &old, "--max-age", "10m"]);
    assert_eq!(document["due"]["state"], "ending", "{document}");
    assert_eq!(contents(&mut world), contents_before);
}

#[test]
fn an_event_that_is_being_sent_says_so() {
    let mut world = World::new();
    let (head, follower) = (write_keyed(&mut world, "k", WAITING), write_keyed(&mut world, "k", WAITING));
    assert_eq!(state(&world, follower, "due now"), "due");
    let relay = sending(&world, head);
    assert_eq!(state(&world, head, "another session holds its row"), "sending");
    assert_eq!(
        state(&world, follower, &format!("event {head} of its key (WAITING), which is being sent")),
        "held_back"
    );
    drop(relay);
}

#[test]
fn a_follower_names_what_holds_it_back() {
    let mut world = World::new();
    for (key, head, part) in [
        ("a", DEAD, "(DEAD), which is dead and holds its key back"),
        ("b", FAILED, "(FAILED), which is not due: backs off"),
        ("c", SCHEDULED, "(WAITING), which is not due: its available_at is to come"),
        ("d", ("created_at", "now()"), "(WAITING), which is not due: younger than min_age"),
    ] {
        write_keyed(&mut world, key, PUBLISHED);
        let head = write_keyed(&mut world, key, head);
        let follower = write_keyed(&mut world, key, WAITING);
        assert_eq!(
            state(&world, follower, &format!("held back by event {head} of its key {part}")),
            "held_back"
        );
    }
    let free = write_keyed(&mut world, "e", WAITING);
    assert_eq!(state(&world, free, "due now"), "due");
}

#[test]
fn everything_but_the_payload_is_shown() {
    let mut world = World::new();
    let columns = "ordering_key, headers, exchange, routing_key, created_at, expired_at, status, fail_count, last_error";
    let values = "'order-7', '{\"trace\": [1, true]}', 'own', 'key.7', '2024-02-03 04:05:06+00', 'infinity', 'DEAD', 3, 'why'";
    let payload = "\"hidden-payload é\"";
    let id = world.insert_with("order.paid", payload, columns, values);
    let event_id = world.row(id).event_id;
    let document = json(&world, &["show", &event_id]);
    for (name, expected) in [
        ("id", json!(id)),
        ("event_id", json!(event_id)),
        ("event_type", json!("order.paid")),
        ("ordering_key", json!("order-7")),
        ("status", json!("DEAD")),
        ("fail_count", json!(3)),
        ("last_error", json!("why")),
        ("created_at", json!("2024-02-03T04:05:06.000Z")),
        ("expired_at", json!("infinity")),
        ("available_at", Value::Null),
        ("published_at", Value::Null),
        ("last_retried_at", Value::Null),
        ("headers", json!({"trace": [1, true]})),
        ("exchange", json!("own")),
        ("routing_key", json!("key.7")),
        ("payload_bytes", json!(payload.len())),
        ("route", json!({"exchange": "own", "routing_key": "key.7", "mandatory": true})),
    ] {
        assert_eq!(document[name], expected, "{name}");
    }
    let text = says(&world, &["show", &id.to_string()]);
    for part in ["order-7", "{\"trace\": [1, true]}", "19 bytes", "exchange \"own\", routing key \"key.7\""] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!format!("{text}{document}").contains("hidden-payload"));
    assert!(says(&world, &["show", &id.to_string(), "--payload"]).ends_with(&format!("\n{payload}\n")));
    assert_eq!(json(&world, &["show", &event_id, "--payload"])["payload"], payload);
}

#[test]
fn the_route_is_that_of_the_configuration_or_says_what_is_wrong() {
    let mut world = World::new();
    world.configure(
        "[[route]]\nevent_type = \"order.*\"\nexchange = \"orders\"\nrouting_key = \"{event_type}.{ordering_key}\"\nunroutable = \"accept\"",
    );
    let keyed = world.insert_with("order.paid", "{}", "ordering_key", "'7'");
    let keyless = world.insert_with("order.paid", "{}", "created_at", "now()");
    let odd = world.insert_with("x", "{}", "headers", "'[]'");
    let config = world.config_path().to_owned();
    let route = |id: i64| json(&world, &["show", &id.to_string(), "--config", &config])["route"].clone();
    assert_eq!(
        route(keyed),
        json!({"exchange": "orders", "routing_key": "order.paid.7", "mandatory": false})
    );
    assert!(route(keyless)["error"].as_str().unwrap().contains("needs {ordering_key}"));
    assert!(route(odd)["error"].as_str().unwrap().contains("not a JSON object"));
}

#[test]
fn an_event_that_is_not_there_is_code_66() {
    let world = World::new();
    for id in ["4711", "01JD0000000000000000000000", "99999999999999999999"] {
        let missing = ends(&world, 66, &["show", id]);
        assert!(missing.stderr.contains(&format!("there is no event {id} in event_outbox")), "{missing:?}");
        assert_eq!(missing.stdout, "");
    }
}
