//! The table: claim, settle, append, status, and what an operator does by hand. The only user of the `postgres` crate; decides nothing.
//!
//! A claim is one transaction. Its row locks are the lease: nobody else sends these events while it is open, a
//! relay that dies frees them at once, and one that freezes or vanishes loses them to the server's time limits.
//! Settling writes what became of them and commits.
//!
//! # For an application
//! [`append`] and [`append_all`] write events in the application's own transaction, to the table `event_outbox`; a
//! [`Writer`] to one of another name. [`inbox`] is for consumers. [`init()`] makes the table, or completes one that is
//! there: in a deployment `outboxd init` does it, with a role that owns the table; tests call the function.
//!
//! # For an operator
//! An [`Outbox`] has what the commands do: `list`, `show`, `retry`, `skip`, `purge`, `backlog` and the like. It opens a
//! session when it is first asked, and waits 20 s at most for each answer of the server, besides what opening takes. A
//! [`Relay`](crate::relay::Relay::outbox) lends its own.

mod address;
mod advice;
mod apart;
mod append;
mod ask;
mod bytes;
mod claim;
mod failure;
mod function;
mod ids;
pub mod inbox;
mod inspect;
#[cfg(feature = "tls")]
mod late_tls;
mod listen;
mod notify;
mod operate;
mod order;
mod parameters;
mod parts;
mod passfile;
mod report;
mod schema;
mod session;
mod settle;
mod shape;
mod sql;
mod take;
mod tls;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::{Claim as ClaimConfig, Database, Fallback, TableName};
use crate::error::Result;

pub use advice::advice;
pub use append::{Writer, append, append_all, enqueue};
pub use claim::{Claim, Claimed, Left, Look, Scope};
pub use inspect::{Grants, Inspector, Kind as EventKind, Plan, ServerFacts, Suggestion};
pub use listen::Listener;
pub use notify::notify_sql;
pub use operate::{
    BlockedKey, BlockedKeys, Changes, DEPTH_MAX, Deadline, Filter, KEYS_MAX, List, Listed, Listing, Moment,
    OldSnapshot, PURGEABLE, Purge, RETRYABLE, Redrive, Reference, SKIPPABLE, SNAPSHOT_AGE,
    SNAPSHOT_TRANSACTIONS, Show, Shown, Skip, Standing, Status, Way, When,
};
pub use order::Chain;
pub use report::{Backlog, ServerInfo, StatusCount, Unfinished};
pub use schema::{Initialised, init, init_notify, schema_sql};
pub use settle::{LostClaim, Settled};

/// The client whose transactions [`append`] takes: hosts that use it from here have the same version.
pub use postgres;

use address::Address;
use session::{Opening, Session};
use sql::Statements;

/// How long a session is used again. A server that is asked to shut down (smartly) waits until it is free of sessions, and
/// one that became read-only, or whose name leads elsewhere since, is noticed when the next one is opened.
const SESSION_LIFE: Duration = Duration::from_secs(30);

/// The outbox, with the sessions that are open on it and at rest.
pub struct Outbox {
    database: Database,
    claim: ClaimConfig,
    /// Rows that claims leave alone.
    passed_over: Vec<i64>,
    resting: Vec<Ready>,
    opening: Opening,
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox").field("database", &self.database).finish_non_exhaustive()
    }
}

/// A session on a table that was looked at, with the statements that fit it.
struct Ready {
    session: Session,
    statements: Arc<Statements>,
    opened: Instant,
    /// How many rows the next claim asks for: `batch_rows`, or fewer while rows are large.
    rows_max: usize,
}

impl Outbox {
    /// An outbox without a session; each is opened when it is needed.
    pub fn new(database: Database, claim: ClaimConfig) -> Self {
        Self { database, claim, passed_over: Vec::new(), resting: Vec::new(), opening: Opening::default() }
    }

    /// The table's name.
    pub fn table(&self) -> &TableName {
        &self.database.table
    }

    /// A session: one at rest, else a new one.
    fn ready(&mut self) -> Result<Ready> {
        match self.rested() {
            Some(ready) => Ok(ready),
            None => Ready::open(&self.database, Some(&self.claim), &mut self.opening),
        }
    }

    /// A session at rest that is not too old.
    fn rested(&mut self) -> Option<Ready> {
        self.resting.retain(|ready| ready.opened.elapsed() < SESSION_LIFE);
        self.resting.pop()
    }

    /// Does `work` on a session. One that was at rest may have been closed meanwhile, which shows only when it is
    /// used: then `work` is done again on a new one. It must be something that may be done twice.
    fn with_session<T>(&mut self, work: impl Fn(&mut Ready) -> Result<T>) -> Result<T> {
        if let Some(mut ready) = self.rested() {
            match work(&mut ready) {
                Ok(done) => {
                    self.resting.push(ready);
                    return Ok(done);
                }
                Err(error) if !error.is_transient() => return Err(error),
                // Its siblings are as old; none of them is worth a try.
                Err(_) => self.resting.clear(),
            }
        }
        let mut ready = Ready::open(&self.database, Some(&self.claim), &mut self.opening)?;
        let done = work(&mut ready)?;
        self.resting.push(ready);
        Ok(done)
    }
}

impl Ready {
    /// Without a claim's configuration it is not for claiming.
    fn open(database: &Database, claim: Option<&ClaimConfig>, opening: &mut Opening) -> Result<Self> {
        let mut session = opening.open(database)?;
        let table = database.table.clone();
        let begin = session.begin();
        let payload =
            session.call("looking at the table", move |client| shape::complete(client, &begin, &table))?;
        let on_dead = claim.map(|it| it.on_dead).unwrap_or_default();
        let statements = Arc::new(Statements::new(database, on_dead, payload));
        let rows_max = claim.map_or(1, |it| it.batch_rows);
        Ok(Self { session, statements, opened: Instant::now(), rows_max })
    }
}

/// Checks a database URL without using it; the fallbacks stand for what it leaves out.
///
/// # Errors
/// What is wrong with it, without repeating any of it.
pub fn check_url(url: &str, fallbacks: &[Fallback]) -> std::result::Result<(), String> {
    Address::parse(url, fallbacks).map(|_| ())
}

/// The servers that the configuration names, as `host:port/database`.
pub fn describe(database: &Database) -> String {
    Address::of(database).map(|address| address.to_string()).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests;
