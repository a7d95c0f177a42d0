//! Where events go, and what their messages carry.

use crate::harness::{AmqpValue, ExchangeType, FieldTable, Message, unique};
use crate::world::World;

/// The one message in the queue.
fn only_message(world: &World, queue: &str) -> Message {
    let mut messages = world.broker.drain_ready(queue);
    assert_eq!(messages.len(), 1, "{messages:?}");
    messages.remove(0)
}

/// A due event with these headers as JSON text is sent; the headers that arrive.
fn headers_sent(headers: &str) -> FieldTable {
    let mut world = World::new();
    let queue = world.queue();
    world.insert_with(&queue, "{}", "created_at, headers", &format!("'2020-01-01', '{headers}'"));
    world.once(&[], 0);
    only_message(&world, &queue).headers
}

#[test]
fn without_any_route_an_event_goes_to_the_queue_named_after_its_type() {
    let mut world = World::new();
    let queue = world.queue();
    let id = world.insert(&queue, "{}");
    world.once(&[], 0);
    let message = only_message(&world, &queue);
    assert_eq!((message.exchange.as_str(), &message.routing_key), ("", &queue));
    assert_eq!(message.id(), world.row(id).event_id);
}

#[test]
fn exchange_and_routing_key_say_where_events_go_that_no_route_names() {
    let mut world = World::new();
    let (queue, exchange) = (world.queue(), unique("exchange"));
    world.broker.declare_exchange(&exchange, ExchangeType::Topic);
    world.broker.bind(&queue, &exchange, "events.#");
    world.insert("order.created", "{}");
    world.once(&["--exchange", &exchange, "--routing-key", "events.{event_type}"], 0);
    let message = only_message(&world, &queue);
    assert_eq!((&message.exchange, message.routing_key.as_str()), (&exchange, "events.order.created"));
}

#[test]
fn the_first_route_that_matches_wins() {
    let mut world = World::new();
    let queues: Vec<String> = (0..3).map(|_| world.queue()).collect();
    let [exact, wildcard, rest] = &queues[..] else { unreachable!() };
    world.configure(&format!(
        r#"
        [[route]]
        event_type = "order.created"
        exchange = ""
        routing_key = "{exact}"

        [[route]]
        event_type = "order.*.created"
        exchange = ""
        routing_key = "{wildcard}"

        [[route]]
        event_type = "order.created"
        exchange = ""
        routing_key = "never"

        [[route]]
        event_type = "*"
        exchange = ""
        routing_key = "{rest}"
        "#
    ));
    for (event_type, queue) in [
        ("order.created", exact),
        ("order.line.created", wildcard),
        ("order.line.item.created", wildcard),
        ("order.created.v2", rest),
        ("Order.created", rest),
        ("ünïcode *", rest),
    ] {
        let id = world.insert(event_type, "{}");
        world.once(&[], 0);
        let message = only_message(&world, queue);
        assert_eq!(message.id(), world.row(id).event_id, "{event_type}");
        assert_eq!(message.kind.as_deref(), Some(event_type));
    }
}

#[test]
fn a_route_fills_its_routing_key_from_the_event() {
    let mut world = World::new();
    let (queue, exchange) = (world.queue(), unique("exchange"));
    world.broker.declare_exchange(&exchange, ExchangeType::Topic);
    world.broker.bind(&queue, &exchange, "#");
    world.configure(&format!(
        "[[route]]\nevent_type = \"order.*\"\nexchange = \"{exchange}\"\n\
         routing_key = \"eu.{{ordering_key}}.{{event_type}}\"\n"
    ));
    world.insert_with("order.paid", "{}", "created_at, ordering_key", "'2020-01-01', 'customer-7'");
    world.once(&[], 0);
    let message = only_message(&world, &queue);
    assert_eq!((&message.exchange, message.routing_key.as_str()), (&exchange, "eu.customer-7.order.paid"));
}

#[test]
fn the_content_type_is_the_routes() {
    let mut world = World::new();
    let (queue, binary) = (world.queue(), unique("binary"));
    world.configure(&format!(
        "[[route]]\nevent_type = \"{binary}\"\nexchange = \"\"\nrouting_key = \"{queue}\"\n\
         content_type = \"application/x-protobuf\"\n"
    ));
    world.insert(&binary, "x");
    world.insert(&queue, "{}");
    world.once(&["--workers", "1"], 0);
    let messages = world.broker.drain_ready(&queue);
    let types: Vec<_> = messages.iter().map(|it| it.content_type.as_deref()).collect();
    assert_eq!(types, [Some("application/x-protobuf"), Some("application/json")]);
}

#[test]
fn a_row_overrides_exchange_and_routing_key_each_by_itself() {
    let mut world = World::new();
    let (queue, routed, own) = (world.queue(), unique("routed"), unique("own"));
    for exchange in [&routed, &own] {
        world.broker.declare_exchange(exchange, ExchangeType::Topic);
        world.broker.bind(&queue, exchange, "#");
    }
    world.configure(&format!(
        "[[route]]\nevent_type = \"t\"\nexchange = \"{routed}\"\nrouting_key = \"by.route\"\n"
    ));
    for (exchange, key, expected) in [
        (String::from("null"), String::from("null"), (routed.as_str(), "by.route")),
        (format!("'{own}'"), "null".into(), (own.as_str(), "by.route")),
        ("null".into(), "'by.row'".into(), (routed.as_str(), "by.row")),
        (format!("'{own}'"), "''".into(), (own.as_str(), "")),
        ("''".into(), format!("'{queue}'"), ("", queue.as_str())),
    ] {
        let values = format!("'2020-01-01', {exchange}, {key}");
        world.insert_with("t", "{}", "created_at, exchange, routing_key", &values);
        world.once(&[], 0);
        let message = only_message(&world, &queue);
        assert_eq!((message.exchange.as_str(), message.routing_key.as_str()), expected, "{values}");
    }
}

#[test]
fn a_message_carries_what_the_contract_says_and_nothing_else() {
    let mut world = World::new();
    let queue = world.queue();
    let created = "to_timestamp(1700000000.999)";
    let id =
        world.insert_with(&queue, r#"{"a":1}"#, "created_at, ordering_key", &format!("{created}, 'key'"));
    world.once(&[], 0);
    let message = only_message(&world, &queue);
    assert_eq!(message.content_type.as_deref(), Some("application/json"));
    assert_eq!(message.delivery_mode, Some(2));
    assert_eq!(message.id(), world.row(id).event_id);
    assert_eq!(message.kind.as_deref(), Some(queue.as_str()));
    assert_eq!(message.timestamp, Some(1_700_000_000));
    assert_eq!(message.app_id.as_deref(), Some("outboxd"));
    assert_eq!(message.text(), r#"{"a":1}"#);
    let unset = (&message.content_encoding, &message.user_id, &message.correlation_id, &message.reply_to);
    assert_eq!(unset, (&None, &None, &None, &None));
    assert_eq!((message.priority, &message.expiration), (None, &None));
    assert!(message.headers.is_empty(), "{:?}", message.headers);
    assert!(!message.redelivered);
}

#[test]
fn headers_arrive_with_their_json_types() {
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = headers_sent(&format!(
        r#"{{"traceparent": "{traceparent}", "text": "é😀", "empty": "", "whole": 9223372036854775807,
            "negative": -42, "fraction": 1.5, "true": true, "false": false, "null": null,
            "object": {{"inner": {{"n": 1}}}}, "list": [1, "two", null, [false]]}}"#
    ));
    let text = |it: &str| AmqpValue::LongString(it.into());
    let table = |name: &str, value| FieldTable::from([(name.to_owned(), value)]);
    let expected = FieldTable::from(
        [
            ("traceparent", text(traceparent)),
            ("text", text("é😀")),
            ("empty", text("")),
            ("whole", AmqpValue::LongLongInt(i64::MAX)),
            ("negative", AmqpValue::LongLongInt(-42)),
            ("fraction", AmqpValue::Double(1.5)),
            ("true", AmqpValue::Boolean(true)),
            ("false", AmqpValue::Boolean(false)),
            ("null", AmqpValue::Void),
            (
                "object",
                AmqpValue::FieldTable(table(
                    "inner",
                    AmqpValue::FieldTable(table("n", AmqpValue::LongLongInt(1))),
                )),
            ),
            (
                "list",
                AmqpValue::FieldArray(vec![
                    AmqpValue::LongLongInt(1),
                    text("two"),
                    AmqpValue::Void,
                    AmqpValue::FieldArray(vec![AmqpValue::Boolean(false)]),
                ]),
            ),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    assert_eq!(headers, expected);
}

#[test]
fn headers_that_are_empty_or_a_json_null_are_no_headers() {
    for headers in ["{}", "null"] {
        assert!(headers_sent(headers).is_empty(), "{headers}");
    }
}

#[test]
fn a_cc_header_sends_the_message_to_further_queues() {
    let mut world = World::new();
    let (queue, copy) = (world.queue(), world.queue());
    let headers = format!("'2020-01-01', '{{\"CC\": [\"{copy}\"]}}'");
    world.insert_with(&queue, "{}", "created_at, headers", &headers);
    world.once(&[], 0);
    assert_eq!(world.arrivals(&queue), world.arrivals(&copy));
    assert_eq!(world.count("PUBLISHED"), 1);
}

#[test]
fn an_event_that_expires_takes_its_remaining_life_along() {
    let mut world = World::new();
    let queue = world.queue();
    for expired_at in
        ["clock_timestamp() + interval '1 hour'", "'infinity'", "clock_timestamp() + interval '60 days'"]
    {
        let values = format!("'2020-01-01', {expired_at}");
        world.insert_with(&queue, "{}", "created_at, expired_at", &values);
    }
    world.once(&["--workers", "1"], 0);
    let messages = world.broker.drain_ready(&queue);
    let lives: Vec<Option<u64>> =
        messages.iter().map(|message| message.expiration.as_deref().map(|ms| ms.parse().unwrap())).collect();
    // A message cannot state more than 49 days.
    let [Some(hour), None, None] = lives[..] else {
        panic!("{lives:?}");
    };
    assert!((3_000_000..=3_600_000).contains(&hour), "{hour} ms");
}

#[test]
fn only_an_event_that_may_have_been_delivered_is_marked_as_a_possible_duplicate() {
    let mut world = World::new();
    let queue = world.queue();
    let cases = [
        ("WAITING", 0, "'unconfirmed x1: connection lost; it may have been delivered'", true),
        ("FAILED", 1, "'unconfirmed x12: no confirm'", true),
        ("FAILED", 1, "'NO_ROUTE (312)'", false),
        ("WAITING", 0, "null", false),
        ("FAILED", 1, "'nacked by the broker'", false),
    ];
    for (status, fail_count, last_error, _) in cases {
        let values = format!("'2020-01-01', '{status}', {fail_count}, {last_error}, '{{\"own\": 1}}'");
        world.insert_with(&queue, "{}", "created_at, status, fail_count, last_error, headers", &values);
    }
    world.once(&["--workers", "1"], 0);
    let messages = world.broker.drain_ready(&queue);
    assert_eq!(messages.len(), cases.len());
    for (message, (status, _, last_error, marked)) in messages.iter().zip(cases) {
        let mark = message.headers.get("x-outboxd-possible-duplicate");
        let expected = marked.then_some(&AmqpValue::Boolean(true));
        assert_eq!(mark, expected, "{status} {last_error}");
        assert_eq!(message.headers.get("own"), Some(&AmqpValue::LongLongInt(1)), "its own stay");
    }
}
