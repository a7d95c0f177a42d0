//! Where an event goes: the first route whose pattern matches its type.
//!
//! Pure. A route is valid by construction; what a row overrides is decided in `message.rs`.

use std::fmt;

/// The content type of a message that no route says otherwise about.
pub const CONTENT_TYPE: &str = "application/json";

/// One `[[route]]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Which event types it is for.
    pub event_type: Pattern,
    /// Where they go.
    pub destination: Destination,
}

/// Exchange, routing key and what belongs to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// Name of the exchange; empty is the default exchange, which delivers to the queue named by the routing key.
    pub exchange: String,
    /// The routing key, with `{event_type}` and `{ordering_key}` filled in per event.
    pub routing_key: Template,
    /// The message's content type. Default: `application/json`.
    pub content_type: String,
    /// What a message means that no queue is bound for. Default: [`Unroutable::Fail`].
    pub unroutable: Unroutable,
}

/// What happens to an event whose message the broker routes to no queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unroutable {
    /// It is refused: published as `mandatory`, and a return counts as a failure.
    #[default]
    Fail,
    /// It is fine: publish/subscribe that may have no subscriber yet. Not published as `mandatory`.
    Accept,
}

impl Unroutable {
    /// Reads `fail` or `accept`.
    ///
    /// # Errors
    /// The accepted forms, when it is neither.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "fail" => Ok(Self::Fail),
            "accept" => Ok(Self::Accept),
            _ => Err("expected fail or accept".into()),
        }
    }
}

/// The destination for `event_type`: that of the first matching route, else `fallback`.
pub fn find<'a>(routes: &'a [Route], fallback: &'a Destination, event_type: &str) -> &'a Destination {
    routes
        .iter()
        .find(|route| route.event_type.matches(event_type))
        .map_or(fallback, |route| &route.destination)
}

/// An exact event type, or one with `*` for any run of characters, the empty one and dots included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// What is wrong, when it is empty.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("expected an event type, where * stands for any run of characters".into());
        }
        Ok(Self(text.into()))
    }

    /// Whether `event_type` is one that the pattern names. Case matters.
    pub fn matches(&self, event_type: &str) -> bool {
        let mut parts = self.0.split('*');
        // `split` yields at least one part, so `head` is what stands before the first `*`.
        let head = parts.next().unwrap_or_default();
        let Some(mut rest) = event_type.strip_prefix(head) else {
            return false;
        };
        let Some(tail) = parts.next_back() else {
            return rest.is_empty(); // no `*` at all
        };
        for part in parts {
            match rest.find(part) {
                Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
                None => return false,
            }
        }
        rest.ends_with(tail)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Text with the placeholders `{event_type}` and `{ordering_key}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    EventType,
    OrderingKey,
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// What is wrong, when a brace is unpaired or a placeholder unknown.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            pieces.push(Piece::Text(before.into()));
            let (name, after) = after.split_once('}').ok_or("a { without its }")?;
            pieces.push(match name {
                "event_type" => Piece::EventType,
                "ordering_key" => Piece::OrderingKey,
                _ => {
                    return Err(format!(
                        "unknown placeholder {{{name}}}: expected {{event_type}} or {{ordering_key}}"
                    ));
                }
            });
            rest = after;
        }
        pieces.push(Piece::Text(rest.into()));
        if pieces.iter().any(|piece| matches!(piece, Piece::Text(text) if text.contains('}'))) {
            return Err("a } without its {".into());
        }
        pieces.retain(|piece| !matches!(piece, Piece::Text(text) if text.is_empty()));
        Ok(Self { pieces })
    }

    /// Fills the placeholders in.
    ///
    /// # Errors
    /// The placeholder's name, when the event has no value for it.
    pub fn fill(&self, event_type: &str, ordering_key: Option<&str>) -> Result<String, &'static str> {
        let mut text = String::new();
        for piece in &self.pieces {
            text.push_str(match piece {
                Piece::Text(literal) => literal,
                Piece::EventType => event_type,
                Piece::OrderingKey => ordering_key.ok_or("ordering_key")?,
            });
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_types() {
        let cases = [
            ("order.created", "order.created", true),
            ("order.created", "order.created.v2", false),
            ("order.created", "Order.created", false),
            ("order.*", "order.created", true),
            ("order.*", "order.", true),
            ("order.*", "order", false),
            ("*.created", "order.line.created", true),
            ("*.created", "created", false),
            ("a*b*c", "abc", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "acb", false),
            ("a*b*c", "abcb", false),
            ("ab*ba", "aba", false),
            ("*", "", true),
            ("*", "anything", true),
            ("**", "x", true),
            ("é*", "été", true),
        ];
        for (pattern, event_type, expected) in cases {
            let pattern = Pattern::parse(pattern).unwrap();
            assert_eq!(pattern.matches(event_type), expected, "{pattern} on {event_type}");
        }
        assert!(Pattern::parse("").is_err());
    }

    #[test]
    fn the_first_matching_route_wins() {
        let to = |exchange: &str| Destination {
            exchange: exchange.into(),
            routing_key: Template::parse("{event_type}").unwrap(),
            content_type: CONTENT_TYPE.into(),
            unroutable: Unroutable::Fail,
        };
        let route = |pattern: &str, exchange: &str| Route {
            event_type: Pattern::parse(pattern).unwrap(),
            destination: to(exchange),
        };
        let routes =
            [route("order.created", "first"), route("order.*", "second"), route("order.created", "never")];
        let fallback = to("fallback");
        for (event_type, exchange) in
            [("order.created", "first"), ("order.paid", "second"), ("user.created", "fallback")]
        {
            assert_eq!(find(&routes, &fallback, event_type).exchange, exchange);
        }
    }

    #[test]
    fn templates_fill_what_the_event_has() {
        let cases = [
            ("{event_type}", Some("k"), Ok("order.paid")),
            ("orders.{ordering_key}.{event_type}", Some("k"), Ok("orders.k.order.paid")),
            ("fixed", None, Ok("fixed")),
            ("", None, Ok("")),
            ("{ordering_key}", Some(""), Ok("")),
            ("{ordering_key}", None, Err("ordering_key")),
        ];
        for (template, key, expected) in cases {
            let filled = Template::parse(template).unwrap().fill("order.paid", key);
            assert_eq!(filled, expected.map(String::from), "{template}");
        }
    }

    #[test]
    fn templates_refuse_what_they_cannot_fill() {
        for bad in ["{", "}", "{event_type", "a}b", "{key}", "{}", "{{event_type}}"] {
            assert!(Template::parse(bad).is_err(), "{bad}");
        }
    }
}
