//! Where each type of event would go, by which route, and which routes no event comes to. Pure.

use crate::config::Routing;
use crate::error::Kind;
use crate::event::{Event, Outcome, Payload};
use crate::message::encode;
use crate::outbox::EventKind;
use crate::route::{Destination, Route, Unroutable};

use super::{Finding, State};

/// What stands for an ordering key, and for a type that a pattern may name.
const KEY: &str = "{ordering_key}";
const TYPE: &str = "{event_type}";

/// The pattern of all types.
const ANY: &str = "*";

/// Where a type of event was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// In the table: so many unfinished events, of those that were looked at.
    Table(u64),
    /// In a route.
    Route,
}

/// Whether what a route leads to is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum There {
    /// It is.
    Yes,
    /// It is not.
    No,
    /// It was not asked, or cannot be.
    NotKnown,
}

/// Where events of a type would go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routed {
    /// The type, or a route's pattern.
    pub event_type: String,
    /// Where it was met.
    pub seen: Seen,
    /// The route that decides, such as `route 2, order.*`; none when no route names the type.
    pub by: Option<String>,
    /// Exchange and routing key; or why no such event can be sent.
    pub to: std::result::Result<(String, String), String>,
    /// Whether the exchange is there; for the default exchange, whether the queue is.
    pub there: There,
    /// Whether it is fine when nothing is bound.
    pub accepts_unroutable: bool,
    /// How many of the events lack an ordering key that the routing key needs.
    pub without_key: u64,
}

/// Where all known types would go: those in the table, those that routes name, and those that none does.
pub(super) fn routes(routing: &Routing, kinds: &[EventKind]) -> Vec<Routed> {
    let of_table = kinds.iter().map(|it| of_kind(routing, it));
    let of_routes = routing.routes.iter().zip(1..).map(|(route, number)| {
        named(routing, &route.event_type.to_string(), &route.destination, Some(name(route, number)))
    });
    let rest = named(routing, ANY, &routing.fallback, None);
    // A queue for each type is nothing that can be looked at.
    let rest = (rest.queue().is_some() || !routing.fallback.exchange.is_empty()).then_some(rest);
    let mut all: Vec<Routed> = of_table.collect();
    for routed in of_routes.chain(rest) {
        // The events of that very type are there already.
        if !all.iter().any(|it| it.event_type == routed.event_type && it.to == routed.to) {
            all.push(routed);
        }
    }
    all
}

fn of_kind(routing: &Routing, kind: &EventKind) -> Routed {
    let found = routing.routes.iter().zip(1..).find(|(route, _)| route.event_type.matches(&kind.event_type));
    let by = found.map(|(route, number)| name(route, number));
    let destination = found.map_or(&routing.fallback, |(route, _)| &route.destination);
    let goes = |key: Option<&str>| {
        let event = event(&kind.event_type, key, kind.exchange.as_deref(), kind.routing_key.as_deref());
        way(&event, routing)
    };
    let all_lack = kind.keyless == kind.count;
    let needs_key = kind.keyless > 0 && goes(None).is_err() && goes(Some(KEY)).is_ok();
    Routed {
        event_type: kind.event_type.clone(),
        seen: Seen::Table(kind.count),
        by,
        to: goes(if all_lack { None } else { Some(KEY) }),
        there: There::NotKnown,
        accepts_unroutable: destination.unroutable == Unroutable::Accept,
        without_key: if needs_key && !all_lack { kind.keyless } else { 0 },
    }
}

/// Where events of a pattern go.
fn named(routing: &Routing, pattern: &str, destination: &Destination, by: Option<String>) -> Routed {
    let event_type = if pattern.contains(ANY) { TYPE } else { pattern };
    let key = destination.routing_key.fill(event_type, Some(KEY));
    let event = event(event_type, Some(KEY), Some(&destination.exchange), key.as_deref().ok());
    Routed {
        event_type: pattern.into(),
        seen: Seen::Route,
        by,
        to: way(&event, routing),
        there: There::NotKnown,
        accepts_unroutable: destination.unroutable == Unroutable::Accept,
        without_key: 0,
    }
}

fn name(route: &Route, number: usize) -> String {
    format!("route {number}, {}", route.event_type)
}

fn event(event_type: &str, key: Option<&str>, exchange: Option<&str>, routing_key: Option<&str>) -> Event {
    Event {
        ordering_key: key.map(Into::into),
        exchange: exchange.map(Into::into),
        routing_key: routing_key.map(Into::into),
        ..Event::new(0, "-", event_type)
    }
}

fn way(event: &Event, routing: &Routing) -> std::result::Result<(String, String), String> {
    match encode(event, Payload::Stored(Vec::new()), routing) {
        Ok(message) => Ok((message.exchange, message.routing_key)),
        Err(Outcome::Invalid(reason) | Outcome::Refused(reason)) => Err(reason),
        Err(_) => Err("it cannot be sent".into()),
    }
}

impl Routed {
    /// Exchange and routing key, if it can be sent.
    pub fn to(&self) -> Option<(&str, &str)> {
        self.to.as_ref().ok().map(|(exchange, key)| (exchange.as_str(), key.as_str()))
    }

    /// What decides where it goes, in words.
    pub fn by(&self) -> &str {
        self.by.as_deref().unwrap_or("no route")
    }

    /// The queue that it goes to by the default exchange, where the name is known in full.
    pub(super) fn queue(&self) -> Option<&str> {
        let known = |key: &&str| !key.contains(KEY) && !key.contains(TYPE);
        self.to().filter(|(exchange, _)| exchange.is_empty()).map(|(_, key)| key).filter(known)
    }

    /// How it is.
    pub fn state(&self) -> State {
        self.finding().map_or(State::Ok, |it| it.state)
    }

    /// What is wrong with it, if anything is.
    pub(super) fn finding(&self) -> Option<Finding> {
        let (event_type, by) = (&self.event_type, self.by());
        let error = |text: String| Some(Finding::error("route", Kind::Configuration, text));
        match (&self.to, self.there) {
            (Err(reason), _) => {
                let found = error(format!("events of type {event_type:?} ({by}) cannot be sent: {reason}"));
                found.map(|it| it.with_remedy("mend the route, or what writes them"))
            }
            (Ok((exchange, key)), There::No) if exchange.is_empty() && !self.accepts_unroutable => {
                let text = format!(
                    "events of type {event_type:?} ({by}) go to the queue {key:?}, which does not exist"
                );
                let remedy = format!("declare the queue {key:?}, or route the type to an exchange");
                error(text).map(|it| it.with_remedy(remedy))
            }
            _ if self.without_key > 0 => Some(Finding::warning(
                "route",
                format!(
                    "{} events of type {event_type:?} have no ordering key, and the routing key of {by} needs it: they are \
                     refused",
                    self.without_key
                ),
                "write them with one, or take {ordering_key} out of the routing key",
            )),
            // A missing exchange is a finding of its own.
            (Ok((exchange, _)), There::No) if !exchange.is_empty() => error(format!(
                "events of type {event_type:?} ({by}) go to exchange {exchange:?}, which does not exist"
            )),
            _ => None,
        }
    }
}

/// Routes that no event comes to, because an earlier one takes all of theirs.
pub(super) fn unreachable(routing: &Routing) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, route) in routing.routes.iter().enumerate() {
        let pattern = route.event_type.to_string();
        // A star stands for any text, so a pattern that takes it as text takes all that it stands for.
        let taker = routing.routes.iter().take(at).zip(1..).find(|(it, _)| it.event_type.matches(&pattern));
        if let Some((earlier, number)) = taker {
            findings.push(Finding::warning(
                "routes",
                format!(
                    "no event comes to {}: {} takes them all",
                    name(route, at + 1),
                    name(earlier, number)
                ),
                "put the narrower route first, or take it out",
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::{CONTENT_TYPE, Pattern, Template};

    fn routing(routes: &[(&str, &str, &str)]) -> Routing {
        let to = |exchange: &str, key: &str| Destination {
            exchange: exchange.into(),
            routing_key: Template::parse(key).unwrap(),
            content_type: CONTENT_TYPE.into(),
            unroutable: Unroutable::Fail,
        };
        let route = |(pattern, exchange, key): &(&str, &str, &str)| Route {
            event_type: Pattern::parse(pattern).unwrap(),
            destination: to(exchange, key),
        };
        Routing {
            routes: routes.iter().map(route).collect(),
            fallback: to("", "{event_type}"),
            payload_max: 10,
        }
    }

    fn kind(event_type: &str, count: u64, keyless: u64) -> EventKind {
        EventKind { event_type: event_type.into(), exchange: None, routing_key: None, count, keyless }
    }

    fn routed(routes: &[(&str, &str, &str)], kind: EventKind) -> Routed {
        super::routes(&routing(routes), &[kind]).remove(0)
    }

    #[test]
    fn a_type_goes_by_its_first_route_or_to_its_queue() {
        let routes = [("order.*", "orders", "o.{event_type}.{ordering_key}")];
        let it = routed(&routes, kind("order.paid", 3, 0));
        assert_eq!(it.to(), Some(("orders", "o.order.paid.{ordering_key}")));
        assert_eq!((it.by(), it.queue(), it.without_key), ("route 1, order.*", None, 0));
        let it = routed(&routes, kind("user.made", 1, 1));
        assert_eq!((it.to(), it.queue()), (Some(("", "user.made")), Some("user.made")));
        let own =
            EventKind { exchange: Some("x".into()), routing_key: Some("k".into()), ..kind("order.a", 1, 1) };
        assert_eq!(routed(&routes, own).to(), Some(("x", "k")));
    }

    #[test]
    fn events_without_the_key_that_their_route_needs_are_told_of() {
        let routes = [("order.*", "orders", "{ordering_key}")];
        let some = routed(&routes, kind("order.a", 5, 2));
        assert_eq!((some.without_key, some.state()), (2, State::Warning));
        let all = routed(&routes, kind("order.a", 5, 5));
        assert!(all.to.is_err() && all.state() == State::Error(Kind::Configuration), "{all:?}");
        assert_eq!(routed(&routes, kind("order.a", 5, 0)).state(), State::Ok);
    }

    #[test]
    fn routes_without_events_are_listed_once() {
        let routes = [("order.*", "orders", "{event_type}"), ("a", "", "q"), ("b", "x", "{ordering_key}")];
        let all = super::routes(&routing(&routes), &[kind("a", 1, 1)]);
        let shown: Vec<_> = all.iter().map(|it| (it.event_type.as_str(), it.to().unwrap())).collect();
        let expected =
            [("a", ("", "q")), ("order.*", ("orders", "{event_type}")), ("b", ("x", "{ordering_key}"))];
        assert_eq!(shown, expected);
        assert_eq!(all[0].queue(), Some("q"));
        let mut rest = routing(&[]);
        rest.fallback.exchange = "rest".into();
        let all = super::routes(&rest, &[]);
        assert_eq!(
            (all[0].event_type.as_str(), all[0].to(), all[0].by()),
            ("*", Some(("rest", TYPE)), "no route")
        );
    }

    #[test]
    fn a_route_behind_a_wider_one_is_told_of() {
        let told = |patterns: &[&str]| {
            let routes: Vec<_> = patterns.iter().map(|it| (*it, "x", "k")).collect();
            unreachable(&routing(&routes)).len()
        };
        assert_eq!(told(&["order.*", "order.paid"]), 1);
        assert_eq!(told(&["order.paid", "order.*"]), 0);
        assert_eq!(told(&["*", "a", "b.*"]), 2);
        assert_eq!(told(&["a*c", "a*b*c"]), 1);
        assert_eq!(told(&["a*b*c", "a*c"]), 0);
        assert_eq!(told(&["a", "a"]), 1);
    }

    #[test]
    fn a_missing_queue_is_an_error_unless_that_is_fine() {
        let mut it = routed(&[], kind("a", 1, 1));
        assert_eq!(it.state(), State::Ok);
        it.there = There::No;
        assert_eq!(it.state(), State::Error(Kind::Configuration));
        it.accepts_unroutable = true;
        assert_eq!(it.state(), State::Ok);
    }
}
