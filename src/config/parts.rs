//! What is right of a configuration, for who looks at all of it although a part is wrong.

use std::time::Duration;

use super::given::{Given, GivenRoute, Reader};
use super::{
    Broker, Claim, Config, Database, Routing, Secret, read_broker, read_claim, read_database,
    read_listen_url, read_retention, read_routing, value,
};

/// The parts of a configuration, each of them there or not. What is wrong says [`Config::from_given`].
#[derive(Debug, Clone)]
pub struct Parts {
    /// Where the outbox is.
    pub database: Option<Database>,
    /// What a claim takes; the defaults where what was given is wrong.
    pub claim: Option<Claim>,
    /// Where messages go.
    pub broker: Option<Broker>,
    /// Where events go.
    pub routing: Option<Routing>,
    /// Whether the relay is to purge.
    pub retention: Option<Duration>,
    /// Whether the relay is to listen, and where, if not at the database.
    pub listen: Option<Option<Secret>>,
}

impl Parts {
    /// Like [`Config::from_given`], and what is wrong is left out.
    pub fn from_given(given: &[Given], routes: &[GivenRoute]) -> Self {
        let mut reader = Reader::new(given);
        let listens = reader.read("listen", value::switch).unwrap_or_default();
        Self {
            database: read_database(&mut reader),
            claim: read_claim(&mut reader).or_else(|| read_claim(&mut Reader::new(&[]))),
            broker: read_broker(&mut reader),
            routing: read_routing(&mut reader, routes),
            retention: read_retention(&mut reader).flatten(),
            listen: read_listen_url(&mut reader).filter(|_| listens),
        }
    }
}

impl From<Config> for Parts {
    fn from(config: Config) -> Self {
        Self {
            database: Some(config.database),
            claim: Some(config.claim),
            broker: Some(config.broker),
            routing: Some(config.routing),
            retention: config.retention,
            listen: config.listen.then_some(config.listen_url),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Origin;
    use super::*;

    #[test]
    fn what_is_wrong_takes_nothing_else_along() {
        let right = [
            ("database_url", "postgres://h/d"),
            ("amqp_url", "amqp://h"),
            ("workers", "3"),
            ("exchange", "x"),
            ("max_age", "1h"),
            ("retention", "30d"),
            ("listen", "on"),
        ];
        let there = |wrong: &[(&str, &str)]| {
            let given: Vec<_> = right
                .iter()
                .filter(|(name, _)| !wrong.iter().any(|(it, _)| it == name))
                .chain(wrong.iter().filter(|(_, value)| !value.is_empty()))
                .map(|(name, value)| Given {
                    name: (*name).into(),
                    value: (*value).into(),
                    origin: Origin::Code,
                })
                .collect();
            let it = Parts::from_given(&given, &[]);
            let claim = it.claim.is_some_and(|claim| claim.max_age.is_some());
            let (retention, listen) = (it.retention.is_some(), it.listen.is_some());
            [it.database.is_some(), claim, it.broker.is_some(), it.routing.is_some(), retention, listen]
        };
        assert_eq!(there(&[]), [true; 6]);
        for (wrong, place) in [
            (("database_url", ""), 0),
            (("database_url", "mysql://h"), 0),
            (("batch_rows", "0"), 1),
            (("amqp_url", ""), 2),
            (("workers", "none"), 2),
            (("routing_key", "{x}"), 3),
            (("retention", "never"), 4),
            (("listen_url", "mysql://h"), 5),
        ] {
            let mut expected = [true; 6];
            expected[place] = false;
            assert_eq!(there(&[wrong]), expected, "{wrong:?}");
        }
    }
}
