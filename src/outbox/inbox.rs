//! The consumer's side: an inbox, so that each event is handled once although it may be received twice.
//!
//! The table `event_inbox` is made by `outboxd init --inbox` in the consumer's database, in the first schema of the
//! search path. It has a row for each event that a consumer has handled, and grows until it is [purged](purge).
//!
//! The order of effects is what makes it work: the question, the work, the commit, and only then the acknowledgement. A
//! consumer that dies before the commit has done nothing, and receives the message again; one that dies after it
//! receives the message again and is told that it is a copy. What the work does outside of this database is not covered.
//!
//! ```no_run
//! use outboxd::inbox;
//! use outboxd::postgres::{Client, NoTls};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let message_id = "01JD5Z6Z3Y1Q2W3E4R5T6Y7V8W";
//! let mut client = Client::connect("postgres://billing@localhost/billing", NoTls)?;
//! // For each message that arrives:
//! let mut tx = client.transaction()?;
//! if inbox::first_time(&mut tx, "billing", message_id)? {
//!     tx.execute("insert into invoices (order_id) values ($1)", &[&7])?;
//! }
//! tx.commit()?;
//! // Only now acknowledge the message.
//! # Ok(())
//! # }
//! ```

use std::time::Duration;

use postgres::types::Type;
use postgres::{Client, Transaction};

use crate::config::Database;
use crate::error::{Error, Kind, Result};
use crate::message::SHORT_STRING_MAX;

use super::failure::failure;
use super::session::Opening;
use super::sql::{INBOX, INBOX_FIRST_TIME, INBOX_LOCK, INBOX_PURGE};

/// The most rows that one transaction of a purge deletes.
const BATCH: u64 = 1_000;

/// Nothing was received longer ago, and the database can compute with it: a thousand years.
const AGE_MAX: Duration = Duration::from_secs(365_250 * 24 * 60 * 60);

/// The SQL that `init` would apply.
pub fn schema_sql() -> &'static str {
    INBOX
}

/// Creates the table, if it is not there. The outbox need not be. Several may do so at once.
///
/// # Errors
/// The database cannot be reached, or refuses.
pub fn init(database: &Database) -> Result<()> {
    let mut session = Opening::default().open(database)?;
    session.write_within_limits("creating the inbox", |client| {
        client.query_typed(INBOX_LOCK, &[])?;
        client.batch_execute(INBOX)
    })
}

/// Whether `consumer` handles this event for the first time; if so, the caller's transaction now says that it has.
///
/// Do the work in the same transaction, and acknowledge the message after its commit: then a copy, whenever it comes,
/// is not the first, and what is rolled back is. Where two transactions ask for the same event at once, the second
/// waits for the first, and is told `true` if that is rolled back. `consumer` names what is to be done once, so that
/// several may share a table; `event_id` is the message's `message_id`. Each has 1 to 255 bytes. Unnamed statement, one
/// round trip.
///
/// # Errors
/// [`Kind::Invalid`] when a name is empty, too long or holds a NUL: nothing was asked then. Else the database's, after
/// which the transaction is of no use any more; above READ COMMITTED that includes a serialization failure for a copy
/// that was handled meanwhile.
pub fn first_time(transaction: &mut Transaction<'_>, consumer: &str, event_id: &str) -> Result<bool> {
    for (what, text) in [("consumer", consumer), ("event id", event_id)] {
        if text.is_empty() || text.len() > SHORT_STRING_MAX || text.contains('\0') {
            let what = format!("the {what} must have 1 to {SHORT_STRING_MAX} bytes and no NUL");
            return Err(Error::new(Kind::Invalid, what));
        }
    }
    transaction
        .execute_typed(INBOX_FIRST_TIME, &[(&consumer, Type::TEXT), (&event_id, Type::TEXT)])
        .map(|written| written == 1)
        .map_err(|error| with_inbox_remedy(failure("looking into event_inbox", &error), &error))
}

/// Forgets what was received longer ago than `older_than`, `limit` rows at most, and returns how many that were.
///
/// A copy that arrives after its row is gone is handled again, so leave more time than a message can take: its time in
/// queues, and a `retry` of published events by hand. Works in transactions of 1,000 rows, and passes over rows that
/// someone else holds. It needs `select`, `delete` and `update` on the table, and is the same for all consumers.
///
/// # Errors
/// The database's; what was deleted by then stays deleted.
pub fn purge(client: &mut Client, older_than: Duration, limit: u64) -> Result<u64> {
    let age = older_than.min(AGE_MAX).as_secs_f64();
    let mut purged = 0;
    while purged < limit {
        let batch = BATCH.min(limit - purged);
        let rows = i64::try_from(batch).unwrap_or(i64::MAX);
        let deleted = client
            .execute_typed(INBOX_PURGE, &[(&age, Type::FLOAT8), (&rows, Type::INT8)])
            .map_err(|error| with_inbox_remedy(failure("purging event_inbox", &error), &error))?;
        purged += deleted;
        if deleted < batch {
            break;
        }
    }
    Ok(purged)
}

/// The remedy for a missing table is another one here than for the outbox.
fn with_inbox_remedy(ours: Error, error: &postgres::Error) -> Error {
    match error.code() {
        Some(code) if *code == postgres::error::SqlState::UNDEFINED_TABLE => {
            ours.with_remedy("create it with: outboxd init --inbox")
        }
        _ => ours,
    }
}
