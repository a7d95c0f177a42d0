//! `outboxd enqueue`.

use serde_json::{Value, json};

use super::ends;
use crate::harness::Proc;
use crate::world::{DEADLINE, OUTBOXD, World};

#[test]
fn an_event_is_written_with_all_its_options_and_its_id_is_printed() {
    let mut world = World::new();
    let arguments = [
        "enqueue",
        "order.paid",
        "{ \"n\": 1.50 }",
        "--ordering-key",
        "order-7",
        "--headers",
        "{\"traceparent\": \"00-1\", \"n\": 1}",
        "--exchange",
        "orders",
        "--routing-key",
        "paid.{event_type}",
        "--expires-in",
        "1h",
        "--delay",
        "5m",
    ];
    let written = world.outboxd(&arguments);
    assert_eq!((written.code, written.stderr.as_str()), (Some(0), ""), "{written:?}");
    let id = written.stdout.trim_end();
    assert!(ulid::Ulid::from_string(id).is_ok(), "{id:?} is no ULID");
    let sql = "select jsonb_build_array(event_id, event_type, payload, status, ordering_key, headers, exchange, \
            routing_key, expired_at between now() + '59 minutes' and now() + '61 minutes', \
            available_at between now() + '4 minutes' and now() + '6 minutes', fail_count)::text \
        from event_outbox";
    let row: String = world.client.query_one(sql, &[]).unwrap().get(0);
    let row: Value = serde_json::from_str(&row).unwrap();
    let expected = json!([
        id,
        "order.paid",
        "{ \"n\": 1.50 }",
        "WAITING",
        "order-7",
        {"traceparent": "00-1", "n": 1},
        "orders",
        "paid.{event_type}",
        true,
        true,
        0
    ]);
    assert_eq!(row, expected);
}

#[test]
fn a_dash_reads_the_payload_from_standard_input_as_it_is() {
    let mut world = World::new();
    let payload = " {\"text\": \"näh 🐘\"}\n";
    let script = "printf '%s' \"$1\" | exec \"$0\" enqueue report.ready -";
    let environment = [("DATABASE_URL", world.database.url.as_str())];
    let written = Proc::run("sh", &["-c", script, OUTBOXD, payload], &environment, DEADLINE);
    assert_eq!(written.code, Some(0), "{written:?}");
    let stored = "select payload from event_outbox where event_id = $1";
    let stored: String = world.client.query_one(stored, &[&written.stdout.trim_end()]).unwrap().get(0);
    assert_eq!(stored, payload);
}

#[test]
fn without_a_payload_it_is_an_empty_object() {
    let mut world = World::new();
    let written = world.outboxd(&["enqueue", "ping"]);
    assert_eq!(written.code, Some(0), "{written:?}");
    let row = world.client.query_one("select payload, available_at is null from event_outbox", &[]).unwrap();
    assert_eq!((row.get::<_, String>(0), row.get::<_, bool>(1)), ("{}".into(), true));
}

#[test]
fn what_could_never_be_sent_is_refused_and_not_written() {
    let mut world = World::new();
    let long = "x".repeat(256);
    let cases = [
        (&["x", "--headers", "[1]"][..], "the headers are not a JSON object"),
        (&["x", "--headers", "{"], "the headers are not a JSON object"),
        (&[&long], "the event type has 256 bytes, at most 255 can be sent"),
        (&[""], "the event type is empty"),
        (&["x", "--routing-key", &long], "the routing key has 256 bytes, at most 255 can be sent"),
        (&["x", "--exchange", &long], "the exchange has 256 bytes, at most 200 can be sent"),
    ];
    for (arguments, reason) in cases {
        let arguments = [&["enqueue"], arguments].concat();
        let refused = ends(64, &arguments, &[("DATABASE_URL", &world.database.url)]);
        assert_eq!(refused.stderr, format!("outboxd: the event could never be sent: {reason}\n"));
        assert_eq!(refused.stdout, "");
    }
    assert_eq!(world.count("WAITING"), 0);
}

#[test]
fn a_payload_that_is_not_text_is_refused() {
    let mut world = World::new();
    let script = "printf '\\377' | exec \"$0\" enqueue x -";
    let environment = [("DATABASE_URL", world.database.url.as_str())];
    let refused = Proc::run("sh", &["-c", script, OUTBOXD], &environment, DEADLINE);
    assert_eq!(refused.code, Some(64), "{refused:?}");
    assert!(refused.stderr.contains("payload from standard input"), "{refused:?}");
    assert_eq!(world.count("WAITING"), 0);
}
