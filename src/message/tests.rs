//! Events into messages, and what cannot be one.

use super::*;
use crate::route::{CONTENT_TYPE, Destination, Pattern, Route, Template, Unroutable};

fn event() -> Event {
    Event {
        ordering_key: Some("order-7".into()),
        created_at: Some(1_700_000_000),
        ..Event::new(1, "01JD0000000000000000000000", "order.created")
    }
}

fn to(exchange: &str, key: &str, unroutable: Unroutable) -> Destination {
    Destination {
        exchange: exchange.into(),
        routing_key: Template::parse(key).unwrap(),
        content_type: CONTENT_TYPE.into(),
        unroutable,
    }
}

fn routing() -> Routing {
    let route =
        |pattern: &str, destination| Route { event_type: Pattern::parse(pattern).unwrap(), destination };
    Routing {
        routes: vec![
            route("keyed.*", to("keys", "{ordering_key}", Unroutable::Fail)),
            route("news.*", to("news", "{event_type}", Unroutable::Accept)),
        ],
        fallback: to("", "{event_type}", Unroutable::Fail),
        payload_max: 10,
    }
}

fn encoded(event: &Event) -> Result<Message, Outcome> {
    encode(event, Payload::Stored(b"{}".to_vec()), &routing())
}

fn with_headers(json: &str) -> Event {
    Event { headers: Headers::Json(json.into()), ..event() }
}

#[test]
fn an_event_goes_by_its_type_to_the_default_exchange() {
    let message = encoded(&event()).unwrap();
    assert_eq!((message.exchange.as_str(), message.routing_key.as_str()), ("", "order.created"));
    assert_eq!(message.content_type, "application/json");
    assert_eq!(message.message_id, "01JD0000000000000000000000");
    assert_eq!(message.timestamp, Some(1_700_000_000));
    assert!(message.mandatory);
    assert!(message.headers.is_empty());
}

#[test]
fn a_row_overrides_its_route() {
    let event = Event {
        event_type: "news.sport".into(),
        exchange: Some("own".into()),
        routing_key: Some("key".into()),
        ..event()
    };
    let message = encoded(&event).unwrap();
    assert_eq!((message.exchange.as_str(), message.routing_key.as_str()), ("own", "key"));
    assert!(!message.mandatory, "what unroutable means stays the route's");
}

#[test]
fn what_amqp_cannot_carry_is_invalid() {
    let long = || "x".repeat(256);
    let cases = [
        Event { event_id: long(), ..event() },
        Event { event_type: long(), ..event() },
        Event { event_id: String::new(), ..event() },
        Event { event_type: String::new(), ..event() },
        Event { routing_key: Some(long()), ..event() },
        Event { exchange: Some("x".repeat(EXCHANGE_MAX + 1)), ..event() },
        Event { headers: Headers::TooLarge(9_999_999), ..event() },
        with_headers("[]"),
        with_headers("3"),
        with_headers("{"),
        with_headers(&format!(r#"{{"{}": 1}}"#, long())),
        with_headers(&format!(r#"{{"a": [{{"{}": 1}}]}}"#, long())),
        with_headers(r#"{"CC": "key"}"#),
        with_headers(r#"{"BCC": [1]}"#),
        with_headers(&format!(r#"{{"a": "{}"}}"#, "x".repeat(131_064))),
        with_headers(&format!(r#"{{"a": [1{}]}}"#, ",1".repeat(VALUES_MAX - 1))),
    ];
    for event in cases {
        assert!(matches!(encoded(&event), Err(Outcome::Invalid(_))), "{:.300}", format!("{event:?}"));
    }
    assert!(matches!(encode(&event(), Payload::Missing, &routing()), Err(Outcome::Invalid(_))));
}

#[test]
fn what_the_configuration_decides_is_refused() {
    let no_key = Event { event_type: "keyed.a".into(), ordering_key: None, ..event() };
    let long_key = Event { event_type: "keyed.a".into(), ordering_key: Some("x".repeat(256)), ..event() };
    for event in [no_key, long_key] {
        assert!(matches!(encoded(&event), Err(Outcome::Refused(_))), "{event:?}");
    }
    for payload in [Payload::Stored(vec![0; 11]), Payload::TooLarge(11)] {
        let outcome = encode(&event(), payload, &routing());
        let Err(Outcome::Refused(reason)) = outcome else { panic!("{outcome:?}") };
        assert!(reason.contains("11 bytes") && reason.contains("payload_max is 10"), "{reason}");
    }
}

#[test]
fn the_borders_themselves_are_fine() {
    let event = Event {
        event_id: "x".repeat(255),
        event_type: "x".repeat(255),
        exchange: Some("x".repeat(EXCHANGE_MAX)),
        routing_key: Some("x".repeat(255)),
        ..event()
    };
    assert!(encoded(&event).is_ok());
    assert!(encode(&event, Payload::Stored(vec![0; 10]), &routing()).is_ok());
}

#[test]
fn headers_keep_their_json_types() {
    let json = r#"{"a":"x","b":1,"c":1.5,"d":true,"e":null,"f":[1],"g":{"h":"i"},"CC":["k"]}"#;
    let message = encoded(&with_headers(json)).unwrap();
    assert_eq!(Value::Object(message.headers), serde_json::from_str::<Value>(json).unwrap());
    assert!(encoded(&with_headers("null")).unwrap().headers.is_empty());
}

#[test]
fn a_message_that_may_be_a_second_one_says_so() {
    for last_error in ["unconfirmed x1: connection lost", "re-sent by hand; was PUBLISHED"] {
        let event = Event { last_error: Some(last_error.into()), ..event() };
        let message = encoded(&event).unwrap();
        assert_eq!(message.headers.get(POSSIBLE_DUPLICATE), Some(&Value::Bool(true)), "{last_error}");
    }
}

#[test]
fn an_event_that_expires_soon_says_when() {
    let cases = [
        (Duration::from_millis(1500), Some(1500)),
        (Duration::from_micros(10), Some(1)),
        (Duration::from_millis(u64::from(u32::MAX)), Some(u32::MAX)),
        (Duration::from_millis(u64::from(u32::MAX) + 1), None),
    ];
    for (left, expected) in cases {
        let event = Event { expires_in: Some(left), ..event() };
        assert_eq!(encoded(&event).unwrap().expiration_ms, expected, "{left:?}");
    }
}
