//! The server: who it is, what it takes, and what stands in between.

use std::time::{Duration, Instant, SystemTime};

use postgres::Client;

use crate::config::Database;
use crate::error::Result;

use super::super::operate::{OldSnapshot, read_old_snapshots};
use super::super::session::Opening;
use super::super::sql::{CHECK_SERVER, DIRECT, NOW, READ_WRITE, SESSION_ZONE, limits_begin};
use super::Inspector;

/// How often the clock is asked: the quickest answer tells the most.
const CLOCK_LOOKS: usize = 3;

/// What a server says of itself and of us.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerFacts {
    /// Such as `15.18`.
    pub version: String,
    /// Its first part, such as 15.
    pub major: i32,
    /// The role that we are.
    pub role: String,
    /// Whether it is a standby.
    pub is_standby: bool,
    /// The shortest time between a question and its answer.
    pub round_trip: Duration,
    /// By how many seconds its clock is ahead of ours; negative when it is behind. As exact as half the round trip.
    pub clock_ahead_s: f64,
}

impl Inspector {
    /// Who the server is.
    ///
    /// # Errors
    /// It cannot be reached, or refuses.
    pub fn server(&mut self) -> Result<ServerFacts> {
        self.ask("asking the database about itself", |client| {
            let row = client.query_typed_one(CHECK_SERVER, &[])?;
            let (round_trip, clock_ahead_s) = clock(client)?;
            Ok(ServerFacts {
                version: row.try_get(0)?,
                major: row.try_get::<_, i32>(1)? / 10_000,
                role: row.try_get(2)?,
                is_standby: row.try_get(3)?,
                round_trip,
                clock_ahead_s,
            })
        })
    }

    /// Begins a transaction that might write, and ends it.
    ///
    /// # Errors
    /// Why it takes no writes.
    pub fn try_writing(&mut self) -> Result<()> {
        self.ask("beginning to write", |client| client.batch_execute(READ_WRITE))
    }

    /// The zone in which times without one are read.
    ///
    /// # Errors
    /// The server does not know the zone that is configured.
    pub fn zone(&mut self) -> Result<String> {
        let begin = limits_begin(&self.database);
        let what = "setting the time zone";
        self.on_session(what, move |client, _| {
            super::within_limits(client, &begin, what, |client| {
                client.query_typed_one(SESSION_ZONE, &[])?.try_get(0)
            })
        })
    }

    /// Whether our sessions are the server's own. Opens another one to find out.
    ///
    /// # Errors
    /// It cannot be reached, or refuses.
    pub fn is_direct(&mut self) -> Result<bool> {
        let database = Database { time_zone: None, ..self.database.clone() };
        let mut session = match Opening::default().open_marked(&database) {
            Ok(session) => session,
            // A pooler refuses the mark.
            Err(error) if error.what().contains("startup parameter") => return Ok(false),
            Err(error) => return Err(error),
        };
        session.within_limits("asking whether the session is the server's own", |client| {
            client.query_typed_one(DIRECT, &[])?.try_get(0)
        })
    }

    /// What has kept vacuum from removing dead rows, as [`Outbox::old_snapshots`](crate::outbox::Outbox::old_snapshots).
    ///
    /// # Errors
    /// The database cannot be reached, or refuses.
    pub fn old_snapshots(&mut self, age: Duration, transactions: u64) -> Result<Vec<OldSnapshot>> {
        self.ask("looking for old snapshots", move |client| read_old_snapshots(client, age, transactions))
    }
}

/// The round trip, and by how many seconds the server's clock is ahead.
fn clock(client: &mut Client) -> std::result::Result<(Duration, f64), postgres::Error> {
    let mut best = (Duration::MAX, 0.0);
    for _ in 0..CLOCK_LOOKS {
        let (asked, ours) = (Instant::now(), SystemTime::now());
        let theirs: f64 = client.query_typed_one(NOW, &[])?.try_get(0)?;
        let took = asked.elapsed();
        let ours = ours.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() + took / 2;
        if took < best.0 {
            best = (took, theirs - ours.as_secs_f64());
        }
    }
    Ok(best)
}
