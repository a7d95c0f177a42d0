//! What the table and its server have to tell an operator. Reads only.

use std::time::Duration;

use postgres::types::Type;

use crate::error::Result;

use super::Outbox;
use super::claim::count;
use super::session::failure;
use super::sql::SERVER;

/// How many events have one status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusCount {
    /// As stored.
    pub status: String,
    /// Rows.
    pub count: u64,
}

/// What the unfinished events wait for.
#[derive(Debug, Clone, PartialEq)]
pub struct Backlog {
    /// Due now, those that another relay is sending included.
    pub due: u64,
    /// WAITING and younger than `min_age`.
    pub young: u64,
    /// FAILED and backing off.
    pub backing_off: u64,
    /// WAITING, with a due time to come.
    pub scheduled: u64,
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
        let failed = |error: postgres::Error| failure("counting events", &error);
        self.with_session(|ready| {
            let rows = ready
                .session
                .client()?
                .query_typed(&ready.statements.counts, &[])
                .map_err(failed)?;
            rows.iter()
                .map(|row| {
                    let count: i64 = row.try_get(1)?;
                    Ok(StatusCount {
                        status: row.try_get(0)?,
                        count: unsigned(count),
                    })
                })
                .collect::<std::result::Result<_, postgres::Error>>()
                .map_err(failed)
        })
    }

    /// What the unfinished events wait for.
    ///
    /// # Errors
    /// The database cannot be reached, refuses, or does not hold the table.
    pub fn backlog(&mut self) -> Result<Backlog> {
        let failed = |error: postgres::Error| failure("looking at the backlog", &error);
        let min_age = self.claim.min_age.as_secs_f64();
        let max_age = self.claim.max_age.map(|age| age.as_secs_f64());
        let max_failures = count(self.claim.max_failures);
        self.with_session(|ready| {
            let row = ready
                .session
                .client()?
                .query_typed_one(
                    &ready.statements.backlog,
                    &[
                        (&min_age, Type::FLOAT8),
                        (&max_failures, Type::INT4),
                        (&max_age, Type::FLOAT8),
                    ],
                )
                .map_err(failed)?;
            let number = |column: usize| row.try_get::<_, i64>(column).map(unsigned);
            let read = || {
                Ok(Backlog {
                    due: number(0)?,
                    young: number(1)?,
                    backing_off: number(2)?,
                    scheduled: number(3)?,
                    oldest_due: row
                        .try_get::<_, Option<f64>>(4)?
                        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
                })
            };
            read().map_err(failed)
        })
    }

    /// What the server says of itself.
    ///
    /// # Errors
    /// The database cannot be reached, refuses, or does not hold the table.
    pub fn server(&mut self) -> Result<ServerInfo> {
        let failed = |error: postgres::Error| failure("asking the database about itself", &error);
        self.with_session(|ready| {
            let row = ready
                .session
                .client()?
                .query_typed_one(SERVER, &[])
                .map_err(failed)?;
            let read = || {
                Ok(ServerInfo {
                    version: row.try_get(0)?,
                    read_only: row.try_get(1)?,
                })
            };
            read().map_err(failed)
        })
    }
}

fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
