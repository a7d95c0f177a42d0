//! Why an attempt did not end in a confirm, as one of a few classes that can be counted. Reads the reasons that the
//! rows are given, and decides nothing.

use crate::policy::Settlement;

/// The class of the reason why an attempt did not end in a confirm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// No queue is bound for it.
    Unroutable,
    /// Its exchange is missing.
    NoExchange,
    /// The broker's user may not write there.
    Denied,
    /// The broker's back-pressure: a queue is full or not available.
    Nacked,
    /// More bytes than `payload_max`, or than the broker takes.
    TooLarge,
    /// Its route makes no usable routing key of it.
    Route,
    /// It can never be sent over AMQP as it is.
    Invalid,
    /// Sent, and no confirm came in time.
    NoConfirm,
    /// Sent, and its channel or the connection ended before the confirm.
    Connection,
    /// Anything else that the broker says.
    Other,
}

/// What reasons contain, and their class; the first that fits. A test holds them together with those who write them.
const MARKS: [(&str, Reason); 16] = [
    ("payload_max is ", Reason::TooLarge),
    ("message size ", Reason::TooLarge),
    ("NO_ROUTE", Reason::Unroutable),
    ("nacked by the broker", Reason::Nacked),
    ("(404)", Reason::NoExchange),
    ("(403)", Reason::Denied),
    ("its route", Reason::Route),
    ("connection lost", Reason::Connection),
    ("connection was lost", Reason::Connection),
    ("its channel was closed", Reason::Connection),
    ("asking for its exchange", Reason::Connection),
    ("no confirm", Reason::NoConfirm),
    ("payload is null", Reason::Invalid),
    ("header", Reason::Invalid),
    ("is empty", Reason::Invalid),
    ("bytes long", Reason::Invalid),
];

impl Reason {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Unroutable,
        Self::NoExchange,
        Self::Denied,
        Self::Nacked,
        Self::TooLarge,
        Self::Route,
        Self::Invalid,
        Self::NoConfirm,
        Self::Connection,
        Self::Other,
    ];

    /// The class of a settlement's reason; none for one that has no failed attempt behind it.
    pub fn of(settlement: &Settlement) -> Option<Self> {
        match settlement {
            Settlement::Failed { reason, .. } | Settlement::Dead { reason, .. } => {
                // The last attempt of an event that is over its limit may have been another one.
                Some(Self::read(reason)).map(|it| if it.leaves_doubt() { Self::Other } else { it })
            }
            // Whatever its text: it was sent, and nothing was refused.
            Settlement::Unconfirmed { reason, .. } => {
                let connection = Self::read(reason) == Self::Connection;
                Some(if connection { Self::Connection } else { Self::NoConfirm })
            }
            Settlement::Published(_) | Settlement::Expired { .. } | Settlement::Released => None,
        }
    }

    /// Whether the event may have arrived all the same.
    pub fn leaves_doubt(self) -> bool {
        matches!(self, Self::NoConfirm | Self::Connection)
    }

    /// As a word in lower case, such as `no_exchange`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unroutable => "unroutable",
            Self::NoExchange => "no_exchange",
            Self::Denied => "denied",
            Self::Nacked => "nacked",
            Self::TooLarge => "too_large",
            Self::Route => "route",
            Self::Invalid => "invalid",
            Self::NoConfirm => "no_confirm",
            Self::Connection => "connection",
            Self::Other => "other",
        }
    }

    fn read(text: &str) -> Self {
        MARKS.iter().find(|(mark, _)| text.contains(mark)).map_or(Self::Other, |(_, reason)| *reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Given, Origin};
    use crate::event::{Event, Headers, Outcome, Payload};
    use crate::message;

    fn event() -> Event {
        Event::new(1, "01", "t")
    }

    fn dead(reason: &str) -> Settlement {
        Settlement::Dead { fail_count: 3, reason: reason.into() }
    }

    #[test]
    fn what_the_encoder_refuses_has_its_class() {
        let given =
            |name: &str, value: &str| Given { name: name.into(), value: value.into(), origin: Origin::Code };
        let urls = [given("database_url", "postgres://h/d"), given("amqp_url", "amqp://h")];
        let mut config = Config::from_given(&urls, &[]).unwrap();
        config.routing.payload_max = 10;
        let long = || "x".repeat(300);
        let headers = |text: &str| Headers::Json(text.into());
        let stored = |size| Payload::Stored(vec![b'x'; size]);
        let cases = [
            (Event { event_id: String::new(), ..event() }, stored(1), Reason::Invalid),
            (Event { event_type: long(), ..event() }, stored(1), Reason::Invalid),
            (Event { exchange: Some(long()), ..event() }, stored(1), Reason::Invalid),
            (Event { routing_key: Some(long()), ..event() }, stored(1), Reason::Invalid),
            (Event { headers: headers("[]"), ..event() }, stored(1), Reason::Invalid),
            (Event { headers: headers("{"), ..event() }, stored(1), Reason::Invalid),
            (Event { headers: headers("{\"CC\": 1}"), ..event() }, stored(1), Reason::Invalid),
            (Event { headers: Headers::TooLarge(1 << 20), ..event() }, stored(1), Reason::Invalid),
            (event(), Payload::Missing, Reason::Invalid),
            (event(), stored(11), Reason::TooLarge),
            (event(), Payload::TooLarge(11), Reason::TooLarge),
        ];
        for (event, payload, expected) in cases {
            let outcome = message::encode(&event, payload, &config.routing);
            let Err(Outcome::Invalid(reason) | Outcome::Refused(reason)) = outcome else {
                panic!("{event:?}: {outcome:?}")
            };
            assert_eq!(Reason::of(&dead(&reason)), Some(expected), "{reason}");
        }
        let urls = [&urls[..], &[given("routing_key", "{ordering_key}")]].concat();
        let routing = Config::from_given(&urls, &[]).unwrap().routing;
        for key in [None, Some(long())] {
            let outcome = message::encode(&Event { ordering_key: key, ..event() }, stored(1), &routing);
            let Err(Outcome::Refused(reason)) = outcome else { panic!("{outcome:?}") };
            assert_eq!(Reason::of(&dead(&reason)), Some(Reason::Route), "{reason}");
        }
    }

    #[test]
    fn what_the_broker_says_has_its_class() {
        let cases = [
            ("NO_ROUTE (312): there is no queue \"x\"; declare it", Reason::Unroutable),
            ("NOT_FOUND - no exchange 'e' in vhost '/' (404): declare exchange", Reason::NoExchange),
            ("ACCESS_REFUSED - access to exchange 'e' in vhost '/' refused (403)", Reason::Denied),
            (
                "PRECONDITION_FAILED - message size 20 is larger than configured max size 16 (406)",
                Reason::TooLarge,
            ),
            ("nacked by the broker: a queue is full or not available", Reason::Nacked),
            ("PRECONDITION_FAILED - invalid expiration (406)", Reason::Other),
        ];
        for (reason, expected) in cases {
            assert_eq!(Reason::of(&dead(reason)), Some(expected), "{reason}");
        }
        let unconfirmed = |reason: &str| Settlement::Unconfirmed { backoff: None, reason: reason.into() };
        let cases = [
            ("unconfirmed x1: connection lost: reset; it may", Reason::Connection),
            ("unconfirmed x1: the broker's connection was lost: reset; it may", Reason::Connection),
            ("unconfirmed x2: no confirm within 30s, alone; it may", Reason::NoConfirm),
            ("unconfirmed x2: the broker blocks publishers (low on memory); it may", Reason::NoConfirm),
        ];
        for (reason, expected) in cases {
            assert_eq!(Reason::of(&unconfirmed(reason)), Some(expected), "{reason}");
        }
        assert_eq!(Reason::of(&dead("unconfirmed x1: connection lost: reset")), Some(Reason::Other));
        assert_eq!(Reason::of(&Settlement::Released), None);
        assert_eq!(Reason::of(&Settlement::Expired { reason: "max_age".into() }), None);
    }

    #[test]
    fn each_class_has_its_word() {
        let mut words = Reason::ALL.map(Reason::as_str);
        words.sort_unstable();
        assert!(words.windows(2).all(|pair| pair[0] != pair[1]), "{words:?}");
    }
}
