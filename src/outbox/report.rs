//! What the table and its server have to tell an operator. Reads only.

use std::sync::Arc;
use std::time::Duration;

use postgres::Row;
use postgres::types::{ToSql, Type};

use crate::error::Result;

use super::Outbox;
use super::sql::SERVER;
use super::take::count;

/// How many events have one status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusCount {
    /// As stored.
    pub status: String,
    /// Rows.
    pub count: u64,
}

/// How many events are unfinished, or would be if nobody had given up on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unfinished {
    /// WAITING.
    pub waiting: u64,
    /// FAILED.
    pub failed: u64,
    /// DEAD.
    pub dead: u64,
}

/// What the unfinished events wait for.
#[derive(Debug, Clone, PartialEq)]
pub struct Backlog {
    /// May be sent now, those that another relay is sending included.
    pub due: u64,
    /// WAITING and younger than `min_age`.
    pub young: u64,
    /// FAILED and backing off.
    pub backing_off: u64,
    /// WAITING, with a due time to come.
    pub scheduled: u64,
    /// Due, but for an earlier event of their key that is dead, backs off or is scheduled.
    pub held_back: u64,
    /// How long the oldest due event has been due; none when nothing is.
    pub oldest_due: Option<Duration>,
}

/// What the server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerInfo {
    /// Such as `15.18`.
    pub version: String,
    /// Whether it takes no writes: a standby, or read-only by setting.
    pub read_only: bool,
}

impl Outbox {
    /// How many events have which status. Scans the table.
    ///
    /// # Errors
    /// The database cannot be reached, refuses, or does not hold the table.
    pub fn counts(&mut self) -> Result<Vec<StatusCount>> {
        self.with_session(|ready| {
            let statements = Arc::clone(&ready.statements);
            ready.session.within_limits("counting events", move |client| {
                client.query_typed(&statements.counts, &[])?.iter().map(status_count).collect()
            })
        })
    }

    /// How many events wait, have failed, and are dead. Unlike [`Outbox::counts`] it does not look at finished ones.
    ///
    /// # Errors
    /// The database cannot be reached, refuses, or does not hold the table.
    pub fn unfinished(&mut self) -> Result<Unfinished> {
        self.with_session(|ready| {
            let statements = Arc::clone(&ready.statements);
            ready.session.within_limits("counting unfinished events", move |client| {
                let row = client.query_typed_one(&statements.unfinished_counts, &[])?;
                let count = |at| row.try_get(at).map(unsigned);
                Ok(Unfinished { waiting: count(0)?, failed: count(1)?, dead: count(2)? })
            })
        })
    }

    /// What the unfinished events wait for.
    ///
    /// # Errors
    /// The database cannot be reached, refuses, or does not hold the table.
    pub fn backlog(&mut self) -> Result<Backlog> {
        let min_age = self.claim.min_age.as_secs_f64();
        let max_age = self.claim.max_age.map(|age| age.as_secs_f64());
        let max_failures = count(self.claim.max_failures);
        // All of them: the figure is for a person.
        let keys_max = i32::MAX;
        self.with_session(|ready| {
            let statements = Arc::clone(&ready.statements);
            ready.session.within_limits("looking at the backlog", move |client| {
                let parameters: &[(&(dyn ToSql + Sync), Type)] = &[
                    (&max_age, Type::FLOAT8),
                    (&max_failures, Type::INT4),
                    (&keys_max, Type::INT4),
                    (&min_age, Type::FLOAT8),
                ];
                backlog(&client.query_typed_one(&statements.backlog, parameters)?)
            })
        })
    }

    /// What the server says of itself.
    ///
    /// # Errors
    /// The database cannot be reached, refuses, or does not hold the table.
    pub fn server(&mut self) -> Result<ServerInfo> {
        self.with_session(|ready| {
            ready.session.within_limits("asking the database about itself", |client| {
                let row = client.query_typed_one(SERVER, &[])?;
                Ok(ServerInfo { version: row.try_get(0)?, read_only: row.try_get(1)? })
            })
        })
    }
}

fn status_count(row: &Row) -> std::result::Result<StatusCount, postgres::Error> {
    Ok(StatusCount { status: row.try_get(0)?, count: unsigned(row.try_get(1)?) })
}

fn backlog(row: &Row) -> std::result::Result<Backlog, postgres::Error> {
    let oldest_due: Option<f64> = row.try_get(5)?;
    Ok(Backlog {
        due: unsigned(row.try_get(0)?),
        young: unsigned(row.try_get(1)?),
        backing_off: unsigned(row.try_get(2)?),
        scheduled: unsigned(row.try_get(3)?),
        held_back: unsigned(row.try_get(4)?),
        oldest_due: oldest_due.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
    })
}

fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
