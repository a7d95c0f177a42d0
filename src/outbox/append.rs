//! The writer's side: events into the outbox, in the transaction of whoever writes them.

use std::time::Duration;

use postgres::Transaction;
use postgres::error::SqlState;
use postgres::types::Type;

use crate::config::{Database, TableName};
use crate::error::{Error, Kind, Result};
use crate::new_event::{Due, NewEvent};

use super::Ready;
use super::failure::failure;
use super::function;
use super::ids;
use super::session::Opening;
use super::sql::fill_append;

/// The most events that go to the server at once.
const ROWS_MAX: usize = 10_000;

/// The most bytes that go to the server at once; one larger event goes alone.
const BYTES_MAX: usize = 64 << 20;

/// The table that [`append`] writes into.
const DEFAULT_TABLE: &str = "event_outbox";

/// Writes events into an outbox of any name, in the caller's transactions.
///
/// It goes through the function that `outboxd init` makes: `outbox_append` for the table `event_outbox`, else the
/// table's name with `_append`, in the table's schema. The role needs `insert` on the table and `execute` on the
/// function. Statements are unnamed, so transaction poolers are fine.
///
/// ```no_run
/// use outboxd::config::TableName;
/// use outboxd::postgres::{Client, NoTls};
/// use outboxd::{NewEvent, Writer};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let writer = Writer::new(TableName::parse("app.events").ok_or("no table's name")?);
/// let mut client = Client::connect("postgres://app@localhost/app", NoTls)?;
/// let mut tx = client.transaction()?;
/// writer.append(&mut tx, &NewEvent::new("order.paid"))?;
/// tx.commit()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Writer {
    table: TableName,
    statement: String,
}

impl Writer {
    /// A writer for this table. Without a schema the search path of each session decides.
    pub fn new(table: TableName) -> Self {
        let statement = fill_append(&function::name(&table));
        Self { table, statement }
    }

    /// Writes one event, and returns its id.
    ///
    /// # Errors
    /// As [`append`].
    pub fn append(&self, transaction: &mut Transaction<'_>, event: &NewEvent) -> Result<String> {
        let mut ids = self.append_all(transaction, std::slice::from_ref(event))?;
        ids.pop().ok_or_else(|| Error::new(Kind::Internal, "writing an event returned no id"))
    }

    /// Writes events in their order, and returns their ids in the same order.
    ///
    /// # Errors
    /// As [`append_all`].
    pub fn append_all(&self, transaction: &mut Transaction<'_>, events: &[NewEvent]) -> Result<Vec<String>> {
        for (number, event) in events.iter().enumerate() {
            event.check().map_err(|reason| {
                let which = if events.len() == 1 { String::new() } else { format!(" {number}") };
                Error::new(Kind::Invalid, format!("event{which} could never be sent: {reason}"))
            })?;
        }
        let mut ids = Vec::with_capacity(events.len());
        let mut rest = events;
        while !rest.is_empty() {
            let (now, later) = rest.split_at_checked(at_once(rest)).unwrap_or((rest, &[]));
            ids.extend(self.write(transaction, now)?);
            rest = later;
        }
        Ok(ids)
    }

    fn write(&self, transaction: &mut Transaction<'_>, events: &[NewEvent]) -> Result<Vec<String>> {
        let failed =
            |error: postgres::Error| refused(&format!("writing an event into {}", self.table), &error);
        let parts: Vec<_> = events.iter().map(NewEvent::parts).collect();
        let payloads = events.iter().map(NewEvent::payload_text).collect::<std::result::Result<Vec<_>, _>>();
        let payloads = payloads.map_err(|reason| Error::new(Kind::Invalid, reason))?;
        let seconds = |time: Duration| time.as_secs_f64();
        let delay = |due: Due| if let Due::In(delay) = due { Some(seconds(delay)) } else { None };
        // Microseconds up to the year 9999 are not exact in a double, milliseconds are.
        let moment = |due: Due| {
            if let Due::At(time) = due { Some(time.timestamp_millis() as f64 / 1e3) } else { None }
        };
        let ids: Vec<String> =
            parts.iter().map(|it| it.event_id.map_or_else(ids::next, str::to_owned)).collect();
        let rows = transaction
            .query_typed(
                &self.statement,
                &[
                    (&parts.iter().map(|it| it.event_type).collect::<Vec<_>>(), Type::TEXT_ARRAY),
                    (&payloads, Type::TEXT_ARRAY),
                    (&parts.iter().map(|it| it.ordering_key).collect::<Vec<_>>(), Type::TEXT_ARRAY),
                    (&parts.iter().map(|it| it.headers.as_deref()).collect::<Vec<_>>(), Type::TEXT_ARRAY),
                    (
                        &parts.iter().map(|it| it.expires_in.map(seconds)).collect::<Vec<_>>(),
                        Type::FLOAT8_ARRAY,
                    ),
                    (&parts.iter().map(|it| delay(it.due)).collect::<Vec<_>>(), Type::FLOAT8_ARRAY),
                    (&parts.iter().map(|it| moment(it.due)).collect::<Vec<_>>(), Type::FLOAT8_ARRAY),
                    (&parts.iter().map(|it| it.exchange).collect::<Vec<_>>(), Type::TEXT_ARRAY),
                    (&parts.iter().map(|it| it.routing_key).collect::<Vec<_>>(), Type::TEXT_ARRAY),
                    (&ids, Type::TEXT_ARRAY),
                ],
            )
            .map_err(failed)?;
        if rows.len() != events.len() {
            let what = format!("writing {} events wrote {} rows", events.len(), rows.len());
            return Err(Error::new(Kind::Internal, what));
        }
        Ok(ids)
    }
}

/// The error of a statement that writes events. What is wrong with a value is wrong with an event.
fn refused(what: &str, error: &postgres::Error) -> Error {
    let error_of = failure(what, error);
    match error.code().and_then(|it| it.code().get(..2)) {
        Some("22" | "23") => error_of.of_kind(Kind::Invalid),
        // It is the application's role here, and not the relay's.
        _ if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => error_of.with_remedy(
            "grant the role insert on the table and execute on its function; \"The table\" in the README says what it needs",
        ),
        _ if error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => {
            error_of.with_remedy("is the transaction read-only, or the server a standby?")
        }
        _ if error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION) => {
            error_of.with_remedy("an earlier statement of the transaction failed; roll it back")
        }
        _ => error_of,
    }
}

/// How many of the events go to the server at once; at least one.
fn at_once(events: &[NewEvent]) -> usize {
    let mut bytes = 0;
    let fits = |event: &&NewEvent| {
        bytes += event.size();
        bytes <= BYTES_MAX
    };
    events.iter().take(ROWS_MAX).take_while(fits).count().max(1)
}

/// Writes one event into the table `event_outbox`, in the caller's transaction, and returns its id.
///
/// It is published if the transaction commits, and never if it does not. One round trip. For other tables: [`Writer`].
/// The transaction is of this version of the `postgres` crate, which is there as `outboxd::postgres`.
///
/// ```no_run
/// use outboxd::NewEvent;
/// use outboxd::postgres::{Client, NoTls};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut client = Client::connect("postgres://app@localhost/app", NoTls)?;
/// let mut tx = client.transaction()?;
/// tx.execute("update orders set status = 'paid' where id = $1", &[&7])?;
/// let event = NewEvent::new("order.paid").payload(r#"{"order": 7}"#).ordering_key("order-7");
/// let id = outboxd::append(&mut tx, &event)?;
/// tx.commit()?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Kind::Invalid`] when the event could never be sent (see [`NewEvent::check`]): found before anything is written,
/// so the transaction goes on. Also when the table does not take it, such as a payload that is no JSON in a column of
/// that type, or an id that is there already; then, and when the table or its function is missing, when the role has
/// not the rights, or when the session is lost, the transaction is of no use any more, as after any failed statement.
pub fn append(transaction: &mut Transaction<'_>, event: &NewEvent) -> Result<String> {
    default_writer().append(transaction, event)
}

/// Writes events into the table `event_outbox` in their order, and returns their ids in the same order.
///
/// One round trip for up to 10,000 events and 64 MiB, and one more for each that many more. Nothing is written when one
/// of them could never be sent. No events are fine, and cost nothing.
///
/// # Errors
/// As [`append`]; the number of the event that could never be sent counts from 0.
pub fn append_all(transaction: &mut Transaction<'_>, events: &[NewEvent]) -> Result<Vec<String>> {
    default_writer().append_all(transaction, events)
}

fn default_writer() -> Writer {
    Writer::new(TableName { schema: None, name: DEFAULT_TABLE.into() })
}

/// Writes one event on a session and in a transaction of its own, and returns its id: for scripts. An application
/// writes in the transaction that makes its change, with [`append`].
///
/// # Errors
/// As [`append`], and when the database cannot be reached.
pub fn enqueue(database: &Database, event: &NewEvent) -> Result<String> {
    let (writer, event) = (Writer::new(database.table.clone()), event.clone());
    let mut ready = Ready::open(database, None, &mut Opening::default())?;
    let what = format!("writing an event into {}", database.table);
    ready.session.transact(&what, move |transaction| writer.append(transaction, &event))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message to the server has a limit of 1 GiB, and all of an event counts.
    #[test]
    fn what_goes_at_once_is_bounded_by_all_bytes_and_by_rows() {
        let small = NewEvent::new("t");
        assert_eq!(at_once(&vec![small.clone(); ROWS_MAX + 1]), ROWS_MAX);
        let large = "x".repeat(1_000_000);
        for event in [small.clone().header("x", &*large), small.clone().ordering_key(&*large)] {
            assert!(event.size() > 1_000_000);
        }
        assert_eq!(at_once(&vec![small.clone().payload(&*large); 100]), BYTES_MAX / 1_000_001);
        let huge = small.clone().payload("x".repeat(BYTES_MAX + 1));
        assert_eq!([at_once(std::slice::from_ref(&huge)), at_once(&[small, huge])], [1, 1]);
    }
}
