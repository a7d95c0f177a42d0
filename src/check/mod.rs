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

use crate::config::Parts;
use crate::error::{Error, Kind};
use crate::outbox::Inspector;

pub use routing::{Routed, Seen};

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

/// Looks at everything that the configuration names. Each wait is bounded: that for a session by `open_timeout`, that for
/// an answer by 20 s.
pub fn check(parts: &Parts) -> Report {
    let mut findings = parts.routing.as_ref().map(routing::unreachable).unwrap_or_default();
    findings.extend(broker::short_claim(parts));
    let mut kinds = Vec::new();
    if let (Some(database), Some(claim)) = (&parts.database, &parts.claim) {
        let mut inspector = Inspector::new(database, claim);
        let (seen, role) = database::look(database, &mut inspector);
        findings.extend(seen);
        if let Some(role) = role {
            let (seen, found) = table::look(&database.table, parts.retention, &mut inspector, &role);
            findings.extend(seen);
            kinds = found;
            findings.extend(listen::look(database, parts.listen.as_ref()));
        }
    }
    let mut routes =
        parts.routing.as_ref().map(|routing| routing::routes(routing, &kinds)).unwrap_or_default();
    if let Some(broker) = &parts.broker {
        findings.extend(broker::look(broker, &mut routes));
    }
    findings.extend(routes.iter().filter_map(Routed::finding));
    Report { findings, routes }
}
