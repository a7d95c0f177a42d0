//! Looking before anything is sent: each item ok, a warning or an error, with the remedy. It goes on past failures: a
//! broker that is down does not hide the table's state. Publishes no event and changes nothing.
//!
//! Here is the order of the looking, and what a finding is. What is asked for is in `outbox` and `publisher`; what an
//! answer means is decided in the files of this folder.

mod broker;
mod database;
mod listen;
mod routing;
mod table;

use std::time::Duration;

use crate::config::{Broker, Claim, Config, Database, Operator, Routing, Secret};
use crate::error::{Error, Kind};
use crate::outbox::Inspector;

pub use routing::{Routed, Seen};

/// What is looked at.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Where the outbox is.
    pub database: Database,
    /// What a claim takes.
    pub claim: Claim,
    /// Where events go.
    pub routing: Routing,
    /// Whether the relay is to purge.
    pub retention: Option<Duration>,
    /// Where messages go; none when that is not known.
    pub broker: Option<Broker>,
    /// Whether the relay is to listen, and where, if not at the database.
    pub listen: Option<Option<Secret>>,
}

impl From<Config> for Subject {
    fn from(config: Config) -> Self {
        Self {
            database: config.database,
            claim: config.claim,
            routing: config.routing,
            retention: config.retention,
            broker: Some(config.broker),
            listen: config.listen.then_some(config.listen_url),
        }
    }
}

/// What is left to look at when the broker's part of a configuration is wrong.
impl From<Operator> for Subject {
    fn from(operator: Operator) -> Self {
        Self {
            database: operator.database,
            claim: operator.claim,
            routing: operator.routing,
            retention: operator.retention,
            broker: None,
            listen: None,
        }
    }
}

/// How an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// As it should be.
    Ok,
    /// It works, but not as well as it might, or not for long.
    Warning,
    /// Events would not be sent; and who can mend it.
    Error(Kind),
}

/// What was found about one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at, such as `database`. These names stay.
    pub item: &'static str,
    /// How it is.
    pub state: State,
    /// In words, one line without a secret.
    pub text: String,
    /// What to do, where that is known.
    pub remedy: Option<String>,
}

impl Finding {
    /// It is as it should be.
    pub fn ok(item: &'static str, text: impl Into<String>) -> Self {
        Self { item, state: State::Ok, text: text.into(), remedy: None }
    }

    /// It might be better.
    pub fn warning(item: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { item, state: State::Warning, text: text.into(), remedy: Some(remedy.into()) }
    }

    /// It is wrong.
    pub fn error(item: &'static str, kind: Kind, text: impl Into<String>) -> Self {
        Self { item, state: State::Error(kind), text: text.into(), remedy: None }
    }

    /// The look itself failed.
    pub fn of(item: &'static str, error: &Error) -> Self {
        Self { remedy: error.remedy().map(Into::into), ..Self::error(item, error.kind(), error.what()) }
    }

    /// Adds what to do.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

/// Everything that was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// In the order in which it was looked at.
    pub findings: Vec<Finding>,
    /// Where each type of event would go; those of them that cannot go are among the findings, too.
    pub routes: Vec<Routed>,
}

/// Looks at everything. Each wait is bounded: that for a session by `open_timeout`, that for an answer by 20 s.
pub fn check(subject: &Subject) -> Report {
    let mut findings = routing::unreachable(&subject.routing);
    findings.extend(broker::short_claim(subject));
    let mut inspector = Inspector::new(&subject.database, &subject.claim);
    let (seen, role) = database::look(subject, &mut inspector);
    findings.extend(seen);
    let mut kinds = Vec::new();
    if let Some(role) = role {
        let (seen, found) = table::look(subject, &mut inspector, &role);
        findings.extend(seen);
        kinds = found;
        findings.extend(listen::look(subject));
    }
    let mut routes = routing::routes(&subject.routing, &kinds);
    if let Some(broker) = &subject.broker {
        findings.extend(broker::look(broker, &mut routes));
    }
    findings.extend(routes.iter().filter_map(Routed::finding));
    Report { findings, routes }
}
