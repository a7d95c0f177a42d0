//! Settling: what became of a claim's events is written in bulk, and the claim ends with the commit. Only where the table
//! refuses one of them are they written apart.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postgres::Client;
use postgres::types::{ToSql, Type};

use crate::confirm::Receipt;
use crate::error::{Error, Result};
use crate::event::Tally;
use crate::policy::{self, RESENT, Settlement};

use super::apart::write_apart;
use super::failure::failure;
use super::sql::{READ_WRITE, Statements};
use super::take::count;
use super::{Claim, Outbox};

/// A claim whose settle did not get through: the rows are as they were, and others may send them.
#[derive(Debug)]
pub struct LostClaim {
    /// Why.
    pub error: Error,
    /// The confirms that are not written yet; see [`Outbox::settle_late`].
    pub confirmed: Vec<(i64, Receipt)>,
}

/// What a settle has written, and what not.
#[derive(Debug, Default)]
pub struct Settled {
    /// How many became what.
    pub tally: Tally,
    /// The rows that the table did not let become it, and why: they are as they were.
    pub refused: Vec<(i64, Error)>,
    /// The confirms that are, or may be, unwritten; see [`Outbox::settle_late`].
    pub confirmed: Vec<(i64, Receipt)>,
}

/// A settle's rows by what they become, as the arrays that the statements take.
#[derive(Default)]
struct Batches {
    published: Vec<i64>,
    failed: (Vec<i64>, Vec<i32>, Vec<f64>, Vec<String>),
    dead: (Vec<i64>, Vec<i32>, Vec<String>),
    expired: (Vec<i64>, Vec<String>),
    unconfirmed: (Vec<i64>, Vec<Option<f64>>, Vec<String>),
    released: u64,
}

impl Outbox {
    /// Writes the settlements and commits; the claim's session goes back to rest. Rows that the table refuses do not keep
    /// the others from being written.
    ///
    /// If the process dies in here, the server commits either all of it or nothing. Nothing means that the events
    /// are sent again: what was confirmed arrives twice.
    ///
    /// # Errors
    /// The claim is lost, and its confirms are handed back: they are forgotten only after a commit that holds them.
    pub fn settle(
        &mut self,
        mut claim: Claim,
        settlements: Vec<(i64, Settlement)>,
    ) -> std::result::Result<Settled, LostClaim> {
        let confirmed: Vec<_> = settlements.iter().filter_map(confirm).collect();
        let (statements, claimed) = (Arc::clone(&claim.ready.statements), claim.claimed);
        let written = claim.ready.session.call("settling events", move |client| {
            let together = write(client, &statements, &Batches::new(&settlements))
                .and_then(|tally| commit(client).map(|()| tally));
            match together {
                // Some are gone, or a trigger has kept them as they were without a word: asked for later.
                Ok(tally) if tally.gone > 0 => {
                    let confirmed = settlements.iter().filter_map(confirm).collect();
                    Ok(Settled { tally, confirmed, ..Settled::default() })
                }
                Ok(tally) => Ok(Settled { tally, ..Settled::default() }),
                Err(error) if error.is_transient() || client.is_closed() => Err(error),
                Err(_) => settle_apart(client, &statements, settlements, claimed),
            }
        });
        match written {
            Ok(settled) => {
                self.resting.push(claim.ready);
                Ok(settled)
            }
            Err(error) => Err(LostClaim { error, confirmed }),
        }
    }

    /// The defect of writing what became of events whose claim was lost.
    #[cfg(feature = "mutants")]
    pub(crate) fn settle_unclaimed(&mut self, settlements: &[(i64, Settlement)]) {
        if crate::mutants::is("refusals-without-claim") {
            let _ = self.with_session(|ready| {
                let (batches, statements) = (Batches::new(settlements), Arc::clone(&ready.statements));
                ready.session.call("settling unclaimed", move |client| write(client, &statements, &batches))
            });
        }
    }

    /// Writes confirms whose claim was lost, or which the table refused, on whatever session there is; returns those that
    /// cannot be written yet because someone else holds their rows, and how many were written.
    ///
    /// Only confirms: they are facts, whoever holds the claim. Rows that are finished or gone need nothing more, nor do
    /// those that an operator has sent again since: that stands. `refused` is told of rows that refuse it, and why; their
    /// confirms are kept.
    ///
    /// # Errors
    /// The database cannot be reached; all are unwritten still.
    pub fn settle_late(
        &mut self,
        confirmed: &[(i64, Receipt)],
        mut refused: impl FnMut(i64, &Error),
    ) -> Result<(u64, Vec<(i64, Receipt)>)> {
        const WHAT: &str = "writing late confirms";
        let ids: Vec<i64> = confirmed.iter().map(|(id, _)| *id).collect();
        let (written, refusals, open) = self.with_session(|ready| {
            let (ids, statements, begin) =
                (ids.clone(), Arc::clone(&ready.statements), ready.session.begin());
            ready.session.call(WHAT, move |client| {
                let failed = |error: postgres::Error| failure(WHAT, &error);
                client.batch_execute(&begin).map_err(failed)?;
                client.batch_execute(READ_WRITE).map_err(failed)?;
                let mut written = 0;
                let refusals = write_apart(client, &ids, |client, ids| {
                    let parameters = [(&ids as &(dyn ToSql + Sync), Type::INT8_ARRAY), (&RESENT, Type::TEXT)];
                    written += client.execute_typed(&statements.settle_late, &parameters).map_err(failed)?;
                    Ok(())
                })?;
                let parameters = [(&ids as &(dyn ToSql + Sync), Type::INT8_ARRAY), (&RESENT, Type::TEXT)];
                let rows = client.query_typed(&statements.unfinished, &parameters).map_err(failed)?;
                let open = rows.iter().map(|row| row.try_get(0)).collect::<std::result::Result<_, _>>();
                commit(client)?;
                Ok((written, refusals, open.map_err(failed)?))
            })
        })?;
        refusals.iter().for_each(|(id, error)| refused(*id, error));
        let open: HashSet<i64> = open;
        Ok((written, confirmed.iter().filter(|(id, _)| open.contains(id)).cloned().collect()))
    }
}

/// The confirm among settlements.
fn confirm((id, settlement): &(i64, Settlement)) -> Option<(i64, Receipt)> {
    match settlement {
        Settlement::Published(receipt) => Some((*id, receipt.clone())),
        _ => None,
    }
}

fn commit(client: &mut Client) -> Result<()> {
    client.batch_execute("commit").map_err(|error| failure("the commit of settled events", &error))
}

/// Settles rows which the table does not let settle together, and whose locks are gone with that. Confirms of rows that
/// someone else has taken meanwhile are handed back.
fn settle_apart(
    client: &mut Client,
    statements: &Statements,
    settlements: Vec<(i64, Settlement)>,
    claimed: Instant,
) -> Result<Settled> {
    let failed = |error: postgres::Error| failure("settling events apart", &error);
    client.batch_execute("rollback").map_err(failed)?;
    client.batch_execute(&statements.claim_begin).map_err(failed)?;
    let ids: Vec<i64> = settlements.iter().map(|(id, _)| *id).collect();
    let age = claimed.elapsed().as_secs_f64();
    let rows = client
        .query_typed(&statements.settle_lock, &[(&ids, Type::INT8_ARRAY), (&age, Type::FLOAT8)])
        .map_err(failed)?;
    let ours: HashSet<i64> =
        rows.iter().map(|row| row.try_get(0)).collect::<std::result::Result<_, _>>().map_err(failed)?;
    let confirmed = settlements.iter().filter_map(confirm).collect();
    let is_ours = |(id, it): &(i64, Settlement)| *it == Settlement::Released || ours.contains(id);
    let (ours, others): (Vec<_>, Vec<_>) = settlements.into_iter().partition(is_ours);

    let mut settled = Settled::default();
    settled.tally.gone = u64::try_from(others.len()).unwrap_or(u64::MAX);
    let refused = write_apart(client, &ours, |client, part| {
        settled.tally += write(client, statements, &Batches::new(part))?;
        Ok(())
    })?;
    settled.tally.unwritten = u64::try_from(refused.len()).unwrap_or(u64::MAX);
    // What the table may take instead: so that whoever sends the event again knows, and an operator sees why.
    let mut notes = Vec::new();
    for ((id, settlement), error) in refused {
        if let Some(confirm) = confirm(&(id, settlement)) {
            settled.confirmed.push(confirm);
            notes.push((id, policy::unwritten(&error.to_string())));
        }
        settled.refused.push((id, error));
    }
    write_apart(client, &notes, |client, part| write(client, statements, &Batches::new(part)).map(|_| ()))?;
    commit(client)?;
    if settled.tally.gone > 0 {
        settled.confirmed = confirmed;
    }
    Ok(settled)
}

impl Batches {
    /// Ids in ascending order, so that two settles lock rows in one order.
    fn new(settlements: &[(i64, Settlement)]) -> Self {
        let mut settlements: Vec<_> = settlements.iter().collect();
        settlements.sort_by_key(|(id, _)| *id);
        let mut batches = Self::default();
        for (id, settlement) in settlements {
            let id = *id;
            match settlement {
                Settlement::Published(_) => batches.published.push(id),
                Settlement::Failed { fail_count, backoff, reason } => {
                    let (ids, counts, backoffs, reasons) = &mut batches.failed;
                    ids.push(id);
                    counts.push(count(*fail_count));
                    backoffs.push(backoff.as_secs_f64());
                    reasons.push(storable(reason));
                }
                Settlement::Dead { fail_count, reason } => {
                    let (ids, counts, reasons) = &mut batches.dead;
                    ids.push(id);
                    counts.push(count(*fail_count));
                    reasons.push(storable(reason));
                }
                Settlement::Expired { reason } => {
                    let (ids, reasons) = &mut batches.expired;
                    ids.push(id);
                    reasons.push(storable(reason));
                }
                Settlement::Unconfirmed { backoff, reason } => {
                    let (ids, backoffs, reasons) = &mut batches.unconfirmed;
                    ids.push(id);
                    backoffs.push(backoff.as_ref().map(Duration::as_secs_f64));
                    reasons.push(storable(reason));
                }
                Settlement::Released => batches.released += 1,
            }
        }
        batches
    }
}

/// A text that a column takes: PostgreSQL stores no NUL.
fn storable(reason: &str) -> String {
    reason.replace('\0', "\u{FFFD}")
}

/// Counts what was written. Fewer rows than asked for means that someone deleted or finished them meanwhile.
fn write(client: &mut Client, statements: &Statements, batches: &Batches) -> Result<Tally> {
    let mut tally = Tally { released: batches.released, ..Tally::default() };
    let mut update = |sql: &str, asked: usize, parameters: &[(&(dyn ToSql + Sync), Type)]| -> Result<u64> {
        if asked == 0 {
            return Ok(0);
        }
        let written =
            client.execute_typed(sql, parameters).map_err(|error| failure("settling events", &error))?;
        tally.gone += u64::try_from(asked).unwrap_or(u64::MAX).saturating_sub(written);
        Ok(written)
    };
    let ids = &batches.published;
    let published = update(&statements.settle_published, ids.len(), &[(ids, Type::INT8_ARRAY)])?;
    let (ids, counts, backoffs, reasons) = &batches.failed;
    let failed = update(
        &statements.settle_failed,
        ids.len(),
        &[
            (ids, Type::INT8_ARRAY),
            (counts, Type::INT4_ARRAY),
            (backoffs, Type::FLOAT8_ARRAY),
            (reasons, Type::TEXT_ARRAY),
        ],
    )?;
    let (ids, counts, reasons) = &batches.dead;
    let dead = update(
        &statements.settle_dead,
        ids.len(),
        &[(ids, Type::INT8_ARRAY), (counts, Type::INT4_ARRAY), (reasons, Type::TEXT_ARRAY)],
    )?;
    let (ids, reasons) = &batches.expired;
    let expired = update(
        &statements.settle_expired,
        ids.len(),
        &[(ids, Type::INT8_ARRAY), (reasons, Type::TEXT_ARRAY)],
    )?;
    let (ids, backoffs, reasons) = &batches.unconfirmed;
    let unconfirmed = update(
        &statements.settle_unconfirmed,
        ids.len(),
        &[(ids, Type::INT8_ARRAY), (backoffs, Type::FLOAT8_ARRAY), (reasons, Type::TEXT_ARRAY)],
    )?;
    Ok(Tally { published, failed, dead, expired, unconfirmed, ..tally })
}
