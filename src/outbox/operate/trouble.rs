//! What `status` warns of: keys that are blocked, and snapshots that hold vacuum back. Reads only.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use postgres::types::Type;
use postgres::{Client, Row};

use crate::config::OnDead;
use crate::error::Result;
use crate::policy::{RESENT, RETRIED};

use super::super::Outbox;
use super::super::sql::OLD_SNAPSHOTS;
use super::super::take::count;
use super::filter::seconds;
use super::page::{Parameters, unsigned};

/// Most keys that are looked at for a scheduled event, and most refused events whose keys are.
pub const KEYS_MAX: u64 = 5_000;

/// Most blocked keys that are described.
const DESCRIBED: i64 = 20;

/// Most events that are counted behind one.
pub const DEPTH_MAX: u64 = 1_000;

/// Keys whose first unfinished event cannot be sent now.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockedKeys {
    /// How many, among those of the first [`KEYS_MAX`] refused events and the first [`KEYS_MAX`] keys that may be.
    pub count: u64,
    /// Whether there may be more than were looked at.
    pub more: bool,
    /// The first twenty: those of refused events before those of scheduled ones, the longest blocked first.
    pub heads: Vec<BlockedKey>,
}

/// A blocked key, and the event that blocks it.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockedKey {
    /// The ordering key.
    pub key: String,
    /// The event's row.
    pub id: i64,
    /// Its event id.
    pub event_id: String,
    /// Its type.
    pub event_type: String,
    /// DEAD, FAILED (it backs off) or WAITING (it is scheduled).
    pub status: String,
    /// Its last error; none when it was never tried.
    pub last_error: Option<String>,
    /// Its due time in UTC, unless it is DEAD.
    pub due_at: Option<String>,
    /// How long ago its last attempt was, or its creation when there was none.
    pub age: Option<Duration>,
    /// Unfinished events behind it, counted up to [`DEPTH_MAX`] and one.
    pub depth: u64,
}

/// Something that keeps vacuum from removing dead rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldSnapshot {
    /// `session`, `prepared transaction` or `replication slot`.
    pub kind: String,
    /// The process id, or the name of the transaction or the slot.
    pub name: String,
    /// The session's application; none when it says none.
    pub application: Option<String>,
    /// How long it has been there; none when that is not visible to us.
    pub age: Option<Duration>,
    /// Transactions that began since.
    pub transactions: u64,
    /// What a session is doing, such as `idle in transaction`; none when that is not visible to us.
    pub state: Option<String>,
}

impl Outbox {
    /// Which keys are blocked, by DEAD events too where `on_dead` says so.
    ///
    /// # Errors
    /// The database cannot be reached, refuses, or does not hold the table.
    pub fn blocked_keys(&mut self) -> Result<BlockedKeys> {
        let claim = self.claim.clone();
        self.with_session(|ready| {
            let mut parameters = Parameters::default();
            parameters.add(i32::try_from(KEYS_MAX).unwrap_or(i32::MAX), Type::INT4);
            parameters.add(DESCRIBED, Type::INT8);
            parameters.add(i64::try_from(DEPTH_MAX + 1).unwrap_or(i64::MAX), Type::INT8);
            parameters.add(claim.on_dead == OnDead::Block, Type::BOOL);
            parameters.add(claim.max_age.map(seconds), Type::FLOAT8);
            parameters.add(count(claim.max_failures), Type::INT4);
            parameters.add(RETRIED, Type::TEXT);
            parameters.add(RESENT, Type::TEXT);
            let sql = Arc::clone(&ready.statements);
            ready.session.within_limits("looking for blocked keys", move |client| {
                let rows = client.query_typed(&sql.blocked_keys, &parameters.as_refs())?;
                let mut keys = BlockedKeys { count: 0, more: false, heads: Vec::new() };
                if let Some(row) = rows.first() {
                    keys.more = row.try_get(0)?;
                    keys.count = unsigned(row.try_get(1)?);
                }
                for row in &rows {
                    keys.heads.extend(blocked_key(row)?);
                }
                Ok(keys)
            })
        })
    }

    /// What has kept vacuum from removing dead rows for at least `age`. Of what shows no time (sessions of others,
    /// without the rights of `pg_read_all_stats`; replication slots) that which is at least `transactions` old.
    ///
    /// # Errors
    /// The database cannot be reached or refuses.
    pub fn old_snapshots(&mut self, age: Duration, transactions: u64) -> Result<Vec<OldSnapshot>> {
        self.with_session(|ready| {
            ready.session.within_limits("looking for old snapshots", move |client| {
                read_old_snapshots(client, age, transactions)
            })
        })
    }
}

pub(in crate::outbox) fn read_old_snapshots(
    client: &mut Client,
    age: Duration,
    transactions: u64,
) -> std::result::Result<Vec<OldSnapshot>, postgres::Error> {
    let mut parameters = Parameters::default();
    parameters.add(seconds(age), Type::FLOAT8);
    parameters.add(i64::try_from(transactions).unwrap_or(i64::MAX), Type::INT8);
    client.query_typed(OLD_SNAPSHOTS, &parameters.as_refs())?.iter().map(old_snapshot).collect()
}

/// A snapshot is old when vacuum had to wait for it for this long.
pub const SNAPSHOT_AGE: Duration = Duration::from_secs(5 * 60);

/// The same in transactions, for those whose time is not visible.
pub const SNAPSHOT_TRANSACTIONS: u64 = 100_000;

/// The kind of snapshot that a session has.
const SESSION: &str = "session";

impl OldSnapshot {
    /// What ends it.
    pub fn remedy(&self) -> String {
        let name = &self.name;
        match self.kind.as_str() {
            SESSION => format!("end it with: select pg_terminate_backend({name})"),
            "replication slot" => format!("if nobody needs it: select pg_drop_replication_slot('{name}')"),
            _ => format!("end it with: rollback prepared '{name}'"),
        }
    }
}

impl fmt::Display for OldSnapshot {
    /// What it does, and whose it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, transactions, .. } = self;
        let application = self.application.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        let state = self.state.as_ref().map(|state| format!(", {state}")).unwrap_or_default();
        let age = match self.age {
            Some(age) => {
                format!("for {}", humantime::format_duration(Duration::from_secs(age.as_secs())))
            }
            None if kind == SESSION => "its age is not visible: grant pg_read_all_stats to the role".into(),
            None => "its age is not known".into(),
        };
        write!(
            f,
            "an old snapshot keeps vacuum from removing dead rows, and the relay slows down: {kind} \
             {name}{application}{state}, {age}, {transactions} transactions"
        )
    }
}

fn blocked_key(row: &Row) -> std::result::Result<Option<BlockedKey>, postgres::Error> {
    let Some(id) = row.try_get(3)? else {
        return Ok(None);
    };
    let text = |at: usize| row.try_get::<_, Option<String>>(at);
    let status = text(6)?.unwrap_or_default();
    Ok(Some(BlockedKey {
        key: text(2)?.unwrap_or_default(),
        id,
        event_id: text(4)?.unwrap_or_default(),
        event_type: text(5)?.unwrap_or_default(),
        due_at: text(8)?.filter(|_| status != "DEAD"),
        status,
        last_error: text(7)?,
        age: age(row.try_get(9)?),
        depth: unsigned(row.try_get(10)?),
    }))
}

fn old_snapshot(row: &Row) -> std::result::Result<OldSnapshot, postgres::Error> {
    Ok(OldSnapshot {
        kind: row.try_get(0)?,
        name: row.try_get(1)?,
        application: row.try_get(2)?,
        age: age(row.try_get(3)?),
        transactions: unsigned(row.try_get(4)?),
        state: row.try_get(5)?,
    })
}

fn age(seconds: Option<f64>) -> Option<Duration> {
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok())
}
