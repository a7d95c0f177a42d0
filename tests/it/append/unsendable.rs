//! The function and the library refuse the same headers, and the relay none that they let through.

use std::time::Duration;

use outboxd::error::Kind;
use outboxd::{NewEvent, append};
use serde_json::{Value, json};

use super::rows;
use crate::harness::describe;
use crate::world::World;

/// An array in an array, so many deep.
fn nested(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

#[test]
fn the_function_and_the_library_draw_the_same_line_and_the_relay_sends_what_is_within() {
    let long = |length: usize| "x".repeat(length);
    let many = |item: &str, count: usize| format!("[{}]", vec![item; count].join(","));
    // For each, what is just within, and what is just beyond.
    let pairs = [
        ("a name", format!(r#"{{"{}": 1}}"#, long(255)), format!(r#"{{"{}": 1}}"#, long(256))),
        (
            "a name further down",
            format!(r#"{{"a": [{{"b": {{"{}": 1}}}}]}}"#, "é".repeat(127)),
            format!(r#"{{"a": [{{"b": {{"{}": 1}}}}]}}"#, "é".repeat(128)),
        ),
        ("depth", format!(r#"{{"a": {}}}"#, nested(126)), format!(r#"{{"a": {}}}"#, nested(127))),
        ("a text", format!(r#"{{"a": "{}"}}"#, long(129_861)), format!(r#"{{"a": "{}"}}"#, long(129_862))),
        (
            "values",
            format!(r#"{{"a": {}}}"#, many(r#"{"b":1e300,"c":[-1.5]}"#, 499)),
            format!(r#"{{"a": {}}}"#, many(r#"{"b":1e300,"c":[-1.5]}"#, 500)),
        ),
        (
            "everything together",
            format!(r#"{{"a": [null,true,-1.5,{{"bé":"{}"}}]}}"#, long(129_835)),
            format!(r#"{{"a": [null,true,-1.5,{{"bé":"{}"}}]}}"#, long(129_836)),
        ),
        ("CC", r#"{"CC": ["a", ""]}"#.into(), r#"{"CC": "a"}"#.into()),
        ("CC's types", r#"{"CC": []}"#.into(), r#"{"CC": ["a", 1]}"#.into()),
        (
            "BCC's lengths",
            format!(r#"{{"BCC": ["{}"]}}"#, long(255)),
            format!(r#"{{"BCC": ["{}"]}}"#, long(256)),
        ),
        ("a large number", r#"{"a": -1.7e308}"#.into(), r#"{"a": 1e400}"#.into()),
    ];
    let mut world = World::new();
    let queue = world.queue();
    let mut written = 0;
    for (what, within, beyond) in pairs {
        let mut tx = world.client.transaction().unwrap();
        let sql = "select outbox_append($1, '{}', headers => $2::text::jsonb)";
        tx.execute(sql, &[&queue, &within]).unwrap_or_else(|error| panic!("{what}: {}", describe(&error)));
        let headers: Value = serde_json::from_str(&within).unwrap();
        append(&mut tx, &NewEvent::new(&queue).headers(headers))
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        written += 2;
        tx.commit().unwrap();
        let refused = world.client.execute(sql, &[&queue, &beyond]);
        let refused = refused.expect_err(what);
        assert!(
            describe(&refused).starts_with("the event could never be sent: header"),
            "{}",
            describe(&refused)
        );
        // JSON that the library cannot even hold needs no refusal.
        if let Ok(headers) = serde_json::from_str::<Value>(&beyond) {
            assert!(NewEvent::new(&queue).headers(headers).check().is_err(), "{what}");
        }
    }
    assert_eq!(rows(&mut world.client, "id").len(), written);
    world.once(&["--min-age", "0s"], 0);
    let left = rows(&mut world.client, "case when status <> 'PUBLISHED' then last_error end");
    let left: Vec<_> = left.into_iter().filter(|it| *it != json!([null])).collect();
    assert!(left.is_empty(), "{left:?}");
    // Those with CC are in the queue once; its names lead nowhere else.
    assert_eq!(world.arrivals(&queue).len(), written);
}

#[test]
fn a_life_that_is_over_before_it_begins_is_refused() {
    let mut world = World::new();
    let second = Duration::from_secs(1);
    let cases = [
        (NewEvent::new("t").expires_in(Duration::ZERO), "expires_in is zero"),
        (
            NewEvent::new("t").expires_in(second).available_in(second),
            "it would expire before it is available",
        ),
    ];
    let mut tx = world.client.transaction().unwrap();
    for (event, reason) in cases {
        let refused = append(&mut tx, &event).unwrap_err();
        assert_eq!(
            (refused.kind(), refused.to_string()),
            (Kind::Invalid, format!("event could never be sent: {reason}"))
        );
    }
    tx.commit().unwrap();
    // The clock that a moment is compared with is the database's.
    let later = std::time::SystemTime::now() + 60 * second;
    let mut tx = world.client.transaction().unwrap();
    let refused = append(&mut tx, &NewEvent::new("t").expires_in(second).available_at(later)).unwrap_err();
    assert_eq!(refused.kind(), Kind::Invalid);
    drop(tx);
    for (arguments, reason) in [
        ("expires_in => '0'", "expires_in is not positive"),
        ("expires_in => '-1 s'", "expires_in is not positive"),
        ("expires_in => '1 s', available_in => '1 s'", "it would expire before it is available"),
    ] {
        let refused = world.client.execute(&format!("select outbox_append('t', '{{}}', {arguments})"), &[]);
        assert_eq!(
            describe(&refused.unwrap_err()),
            format!("the event could never be sent: {reason} (22023)")
        );
    }
    // A due time that has passed is no more than due.
    let event = NewEvent::new("t").available_at(std::time::SystemTime::UNIX_EPOCH).expires_in(60 * second);
    let mut tx = world.client.transaction().unwrap();
    append(&mut tx, &event).unwrap();
    tx.commit().unwrap();
    assert_eq!(rows(&mut world.client, "available_at < clock_timestamp()"), [json!([true])]);
}
