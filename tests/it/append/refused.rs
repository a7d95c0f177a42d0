//! What the relay could never send is refused when it is appended, and nothing of it is written.

use outboxd::error::Kind;
use outboxd::{NewEvent, append, append_all};
use serde_json::json;

use super::rows;
use crate::harness::describe;
use crate::world::World;

fn long(length: usize) -> String {
    "x".repeat(length)
}

#[test]
fn the_library_refuses_it_before_it_asks_the_server() {
    let mut world = World::new();
    let new = || NewEvent::new("t");
    let cases = [
        (NewEvent::new(""), "the event type is empty"),
        (NewEvent::new(long(256)), "the event type has 256 bytes, at most 255 can be sent"),
        (new().event_id(""), "the event id is empty"),
        (new().ordering_key(long(1025)), "the ordering key has 1025 bytes, at most 1024 can be sent"),
        (new().routing_key(long(256)), "the routing key has 256 bytes, at most 255 can be sent"),
        (new().exchange(long(201)), "the exchange has 201 bytes, at most 200 can be sent"),
        (new().headers(json!([1])), "the headers are not a JSON object"),
        (new().header(long(256), 1), "a header's name is over 255 bytes long"),
        (new().payload(b"\xff"), "the payload is not UTF-8"),
        (new().payload("\0"), "the payload holds a NUL, which the database does not store in text"),
    ];
    let mut tx = world.client.transaction().unwrap();
    for (event, reason) in cases {
        let refused = append(&mut tx, &event).unwrap_err();
        assert_eq!(refused.to_string(), format!("event could never be sent: {reason}"));
        assert_eq!(refused.kind(), Kind::Invalid);
        // One that is wrong keeps all others from being written.
        let refused = append_all(&mut tx, &[new(), event]).unwrap_err();
        assert_eq!(refused.to_string(), format!("event 1 could never be sent: {reason}"));
    }
    // The transaction is as good as before.
    let id = append(&mut tx, &new()).unwrap();
    tx.commit().unwrap();
    assert_eq!(rows(&mut world.client, "event_id"), [json!([id])]);
}

#[test]
fn the_function_refuses_it_and_names_the_argument() {
    let mut world = World::new();
    let cases = [
        ("'', '{}'", "event_type is empty"),
        ("null, '{}'", "event_type is empty"),
        ("repeat('x', 256), '{}'", "event_type has more than 255 bytes"),
        ("repeat('é', 128), '{}'", "event_type has more than 255 bytes"),
        ("'t', null", "payload is null"),
        ("'t', '{}', ordering_key => repeat('x', 1025)", "ordering_key has more than 1024 bytes"),
        ("'t', '{}', headers => '[1]'", "headers is not an object"),
        ("'t', '{}', headers => 'null'", "headers is not an object"),
        (
            "'t', '{}', headers => jsonb_build_object(repeat('x', 256), 1)",
            "headers has a name of more than 255 bytes",
        ),
        ("'t', '{}', exchange => repeat('x', 201)", "exchange has more than 200 bytes"),
        ("'t', '{}', routing_key => repeat('x', 256)", "routing_key has more than 255 bytes"),
        ("'t', '{}', event_id => ''", "event_id is empty"),
        ("'t', '{}', event_id => repeat('x', 256)", "event_id has more than 255 bytes"),
    ];
    for (arguments, reason) in cases {
        let refused = world.client.execute(&format!("select outbox_append({arguments})"), &[]).unwrap_err();
        assert_eq!(describe(&refused), format!("the event could never be sent: {reason} (22023)"));
    }
    assert_eq!(rows(&mut world.client, "id").len(), 0);
    // What is just within the bounds is written.
    let longest = "select outbox_append(repeat('x', 255), '', repeat('k', 1024), '{}', \
        exchange => repeat('e', 200), routing_key => repeat('r', 255))";
    world.client.execute(longest, &[]).unwrap();
    assert_eq!(rows(&mut world.client, "id").len(), 1);
}

#[test]
fn what_the_table_does_not_take_says_so_without_the_payload() {
    let mut world = World::new();
    let sql = "alter table event_outbox alter column payload type json using payload::json";
    world.client.batch_execute(sql).unwrap();
    assert_eq!(world.outboxd(&["init"]).stdout, "table event_outbox has what it lacked\n");
    let mut tx = world.client.transaction().unwrap();
    let refused = append(&mut tx, &NewEvent::new("t").payload("{secret")).unwrap_err();
    drop(tx);
    assert_eq!(refused.kind(), Kind::Invalid);
    let expected = "writing an event into event_outbox failed: invalid input syntax for type json (SQLSTATE 22P02): \
        the table takes only JSON there";
    assert_eq!(refused.to_string(), expected);
    let refused = world.outboxd(&["enqueue", "t", "{secret"]);
    assert_eq!((refused.code, refused.stderr), (Some(78), format!("outboxd: {expected}\n")));

    let mut tx = world.client.transaction().unwrap();
    append(&mut tx, &NewEvent::new("t").event_id("01J")).unwrap();
    let refused = append(&mut tx, &NewEvent::new("t").event_id("01J")).unwrap_err();
    assert_eq!(refused.kind(), Kind::Invalid);
    assert!(refused.to_string().contains("duplicate key"), "{refused}");
}

#[test]
fn a_missing_function_is_said_with_its_remedy() {
    let mut world = World::new();
    let drop = "drop function outbox_append(text, text, text, jsonb, interval, interval, text, text, text)";
    world.client.batch_execute(drop).unwrap();
    let mut tx = world.client.transaction().unwrap();
    let refused = append(&mut tx, &NewEvent::new("t")).unwrap_err();
    assert_eq!(refused.kind(), Kind::Configuration);
    assert!(refused.to_string().ends_with("create or complete the table with: outboxd init"), "{refused}");
}
