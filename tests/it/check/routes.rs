//! Where each type of event would go, and whether what it goes to is there.

use serde_json::json;

use super::Told;
use crate::harness::{ExchangeType, unique};
use crate::world::World;

#[test]
fn types_in_the_table_and_in_routes_are_shown_with_where_they_go() {
    let mut world = World::new();
    let (queue, exchange) = (world.queue(), unique("orders"));
    world.broker.declare_exchange(&exchange, ExchangeType::Topic);
    world.configure(&format!(
        "[[route]]\nevent_type = \"order.*\"\nexchange = \"{exchange}\"\nrouting_key = \"o.{{event_type}}\"\n\
         [[route]]\nevent_type = \"never\"\nexchange = \"{exchange}\""
    ));
    world.insert_many("order.paid", 3);
    world.insert(&queue, "{}");
    world.insert_with("own", "{}", "exchange, routing_key", &format!("'{exchange}', 'key'"));
    world.insert_with("finished", "{}", "status", "'PUBLISHED'");
    let told = Told::of(&world, &[]);
    told.ends(0).is("exchange", "ok", &[&exchange, "is there"]).lacks("route").lacks("routes");
    let mut routes = told.document["routes"].as_array().unwrap().clone();
    routes.sort_by_key(|it| it["event_type"].as_str().unwrap().to_owned());
    let row = |event_type: &str, unfinished: Option<u64>, route: Option<&str>, exchange: &str, key: &str| {
        json!({
            "event_type": event_type, "unfinished": unfinished, "route": route, "exchange": exchange,
            "routing_key": key, "state": "ok",
        })
    };
    let mut expected = vec![
        row("never", None, Some("route 2, never"), &exchange, "never"),
        row("order.*", None, Some("route 1, order.*"), &exchange, "o.{event_type}"),
        row("order.paid", Some(3), Some("route 1, order.*"), &exchange, "o.order.paid"),
        row("own", Some(1), None, &exchange, "key"),
        row(&queue, Some(1), None, "", &queue),
    ];
    expected.sort_by_key(|it| it["event_type"].as_str().unwrap().to_owned());
    assert_eq!(routes, expected);
    let text = world.outboxd(&["check", "--config", world.config_path()]);
    let line = format!(
        "  order.paid, 3 unfinished: exchange \"{exchange}\", routing key \"o.order.paid\" (route 1, order.*)"
    );
    assert!(text.stdout.lines().any(|it| it == line), "{text:?}");
}

#[test]
fn an_exchange_or_a_queue_that_is_missing_is_an_error() {
    let mut world = World::new();
    let (nobody, exchange) = (unique("nobody"), unique("missing"));
    world.insert(&nobody, "{}");
    let told = Told::of(&world, &[]);
    told.ends(78).is("route", "error", &[&nobody, "no route", "does not exist", "declare the queue"]);
    assert_eq!(told.document["routes"][0]["state"], "error");
    world.broker.declare_queue(&nobody, &[]);
    Told::of(&world, &[]).ends(0).lacks("route");

    world.configure(&format!("[[route]]\nevent_type = \"a.*\"\nexchange = \"{exchange}\""));
    let told = Told::of(&world, &[]);
    told.ends(78).is("exchange", "error", &[&exchange, "404", "declare exchange"]);
    world.broker.declare_exchange(&exchange, ExchangeType::Fanout);
    Told::of(&world, &[]).ends(0).is("exchange", "ok", &[&exchange]);
    // Where events go that no route names counts before there are any.
    world.configure(&format!("exchange = \"{}\"", unique("missing")));
    Told::of(&world, &[]).ends(78).is("exchange", "error", &["404"]);
}

#[test]
fn a_queue_need_not_be_there_where_its_route_accepts_that() {
    let mut world = World::new();
    let nobody = unique("nobody");
    world.insert(&nobody, "{}");
    world.configure(&format!(
        "[[route]]\nevent_type = \"{nobody}\"\nexchange = \"\"\nunroutable = \"accept\""
    ));
    Told::of(&world, &[]).ends(0).lacks("route");
}

#[test]
fn events_that_their_route_cannot_send_are_told_before_they_are_refused() {
    let mut world = World::new();
    let exchange = unique("orders");
    world.broker.declare_exchange(&exchange, ExchangeType::Topic);
    world.configure(&format!(
        "[[route]]\nevent_type = \"order.*\"\nexchange = \"{exchange}\"\nrouting_key = \"{{ordering_key}}\"\n\
         [[route]]\nevent_type = \"order.paid\"\nexchange = \"{exchange}\""
    ));
    world.insert("order.paid", "{}");
    let told = Told::of(&world, &[]);
    told.ends(78).is("route", "error", &["order.paid", "needs {ordering_key}"]);
    told.is("routes", "warning", &["no event comes to route 2, order.paid", "route 1, order.*"]);
    world.insert_with("order.paid", "{}", "ordering_key", "'order-7'");
    Told::of(&world, &[]).ends(0).is("route", "warning", &["1 events", "no ordering key"]);
}

#[test]
fn types_are_found_at_both_ends_of_a_long_backlog_and_are_at_most_50() {
    let mut world = World::new();
    world.configure(&format!("exchange = \"{}\"", "amq.topic"));
    world.insert("first", "{}");
    world.insert_many("many", 20_000);
    for n in 0..60 {
        world.insert(&format!("last-{n}"), "{}");
    }
    let told = Told::of(&world, &[]);
    let routes = told.ends(0).document["routes"].as_array().unwrap();
    assert_eq!(routes.len(), 51);
    assert_eq!(routes[50]["event_type"], "*");
    assert_eq!((&routes[0]["event_type"], &routes[0]["unfinished"]), (&json!("many"), &json!(4_999 + 4_940)));
    assert_eq!(routes[1]["event_type"], "first");
}
