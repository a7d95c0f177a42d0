//! What the commands are told that an operator works on the table with. They know no broker.

use std::time::Duration;

use super::given::{Given, GivenRoute, Problems, Reader};
use super::{Claim, Database, Routing, read_claim, read_database, read_retention, read_routing};

/// What `list`, `show`, `retry`, `skip` and `purge` are told.
#[derive(Debug, Clone)]
pub struct Operator {
    /// Where the events are.
    pub database: Database,
    /// When an event is due.
    pub claim: Claim,
    /// Where an event would go.
    pub routing: Routing,
    /// As [`Config::retention`](super::Config::retention).
    pub retention: Option<Duration>,
}

impl Operator {
    /// Like [`Config::from_given`](super::Config::from_given), without what only a relay needs.
    ///
    /// # Errors
    /// All problems at once.
    pub fn from_given(given: &[Given], routes: &[GivenRoute]) -> Result<Self, Problems> {
        let mut reader = Reader::new(given);
        let database = read_database(&mut reader);
        let claim = read_claim(&mut reader);
        let routing = read_routing(&mut reader, routes);
        let retention = read_retention(&mut reader);
        let operator = match (database, claim, routing, retention) {
            (Some(database), Some(claim), Some(routing), Some(retention)) => {
                Some(Self { database, claim, routing, retention })
            }
            _ => None,
        };
        reader.finish(operator)
    }
}
