//! What `check` asks of the database: one look each, on a session of its own. Writes nothing, decides nothing.
//!
//! Unlike the outbox itself it does not need the table to be there, or complete.

mod server;
mod table;

use postgres::Client;

use crate::config::{Claim, Database};
use crate::error::Result;

use super::session::{Opening, Session, within_limits};
use super::shape::PayloadType;

pub use super::advice::Suggestion;
pub use server::ServerFacts;
pub use table::{Grants, Kind, Plan};

/// Looks at a database, its server and the outbox in it. Each look may fail for itself; the next one has a new session
/// then.
pub struct Inspector {
    database: Database,
    claim: Claim,
    opening: Opening,
    session: Option<Session>,
    /// As it was found, once it was.
    payload: PayloadType,
}

impl Inspector {
    /// One without a session.
    pub fn new(database: &Database, claim: &Claim) -> Self {
        Self {
            database: database.clone(),
            claim: claim.clone(),
            opening: Opening::default(),
            session: None,
            payload: PayloadType::Text,
        }
    }

    fn session(&mut self) -> Result<&mut Session> {
        let session = match self.session.take() {
            Some(session) => session,
            // A zone that the server does not know would fail each look; it has one of its own.
            None => self.opening.open(&Database { time_zone: None, ..self.database.clone() })?,
        };
        Ok(self.session.insert(session))
    }

    /// Asks something in a transaction of its own, within limits.
    fn ask<T: Send + 'static>(
        &mut self,
        what: &'static str,
        work: impl FnOnce(&mut Client) -> std::result::Result<T, postgres::Error> + Send + 'static,
    ) -> Result<T> {
        self.on_session(what, move |client, begin| within_limits(client, begin, what, work))
    }

    fn on_session<T: Send + 'static>(
        &mut self,
        what: &'static str,
        work: impl FnOnce(&mut Client, &str) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let session = self.session()?;
        let begin = session.begin();
        let asked = session.call(what, move |client| work(client, &begin));
        if asked.is_err() {
            // It may be in the middle of a transaction.
            self.session = None;
        }
        asked
    }
}
