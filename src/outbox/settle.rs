//! Settling: what became of a claim's events is written in bulk, and the claim ends with the commit.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use postgres::Client;
use postgres::types::{ToSql, Type};

use crate::confirm::Receipt;
use crate::error::{Error, Result};
use crate::event::Tally;
use crate::policy::{RESENT, Settlement};

use super::failure::failure;
use super::sql::Statements;
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

/// A settle's rows by what they become, as the arrays that the statements take.
#[derive(Default)]
struct Batches {
    published: Vec<(i64, Receipt)>,
    failed: (Vec<i64>, Vec<i32>, Vec<f64>, Vec<String>),
    dead: (Vec<i64>, Vec<i32>, Vec<String>),
    expired: (Vec<i64>, Vec<String>),
    unconfirmed: (Vec<i64>, Vec<Option<f64>>, Vec<String>),
    released: u64,
}

impl Outbox {
    /// Writes the settlements and commits; the claim's session goes back to rest.
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
    ) -> std::result::Result<Tally, LostClaim> {
        let batches = Batches::new(settlements);
        let confirmed = batches.published.clone();
        let statements = Arc::clone(&claim.ready.statements);
        let written = claim.ready.session.call("settling events", move |client| {
            let tally = write(client, &statements, &batches)?;
            client
                .batch_execute("commit")
                .map_err(|error| failure("the commit of settled events", &error))?;
            Ok(tally)
        });
        match written {
            Ok(tally) => {
                self.resting.push(claim.ready);
                Ok(tally)
            }
            Err(error) => Err(LostClaim { error, confirmed }),
        }
    }

    /// The defect of writing what became of events whose claim was lost.
    #[cfg(feature = "mutants")]
    pub(crate) fn settle_unclaimed(&mut self, settlements: &[(i64, Settlement)]) {
        if crate::mutants::is("refusals-without-claim") {
            let _ = self.with_session(|ready| {
                let (batches, statements) =
                    (Batches::new(settlements.to_vec()), Arc::clone(&ready.statements));
                ready.session.call("settling unclaimed", move |client| write(client, &statements, &batches))
            });
        }
    }

    /// Writes confirms whose claim was lost, on whatever session there is; returns those that cannot be written yet
    /// because someone else holds their rows, and how many were written.
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
        refused: impl FnMut(i64, &Error),
    ) -> Result<(u64, Vec<(i64, Receipt)>)> {
        let ids: Vec<i64> = confirmed.iter().map(|(id, _)| *id).collect();
        let (written, open) = match self.write_late(&ids) {
            Err(error) if !error.is_transient() => self.write_late_one_by_one(&ids, refused)?,
            other => other?,
        };
        let open = confirmed.iter().filter(|(id, _)| open.contains(id)).cloned().collect();
        Ok((written, open))
    }

    /// How many were written, and which are unfinished still.
    fn write_late(&mut self, ids: &[i64]) -> Result<(u64, HashSet<i64>)> {
        self.with_session(|ready| {
            let (ids, statements) = (ids.to_vec(), Arc::clone(&ready.statements));
            ready.session.write_within_limits("writing late confirms", move |client| {
                let parameters: [(&(dyn ToSql + Sync), Type); 2] =
                    [(&ids, Type::INT8_ARRAY), (&RESENT, Type::TEXT)];
                let written = client.execute_typed(&statements.settle_late, &parameters)?;
                let rows = client.query_typed(&statements.unfinished, &parameters)?;
                let open = rows.iter().map(|row| row.try_get(0));
                Ok((written, open.collect::<std::result::Result<HashSet<i64>, _>>()?))
            })
        })
    }

    /// A row that refuses its update, by a trigger or a constraint of its own, must not keep the others from theirs.
    fn write_late_one_by_one(
        &mut self,
        ids: &[i64],
        mut refused: impl FnMut(i64, &Error),
    ) -> Result<(u64, HashSet<i64>)> {
        let (mut written, mut open) = (0, HashSet::new());
        for id in ids {
            match self.write_late(&[*id]) {
                Ok((count, left)) => {
                    written += count;
                    open.extend(left);
                }
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => {
                    // Kept in hand, or the event would be sent again at each beat.
                    refused(*id, &error);
                    open.insert(*id);
                }
            }
        }
        Ok((written, open))
    }
}

impl Batches {
    /// Ids in ascending order, so that two settles lock rows in one order.
    fn new(mut settlements: Vec<(i64, Settlement)>) -> Self {
        settlements.sort_by_key(|(id, _)| *id);
        let mut batches = Self::default();
        for (id, settlement) in settlements {
            match settlement {
                Settlement::Published(receipt) => batches.published.push((id, receipt)),
                Settlement::Failed { fail_count, backoff, reason } => {
                    let (ids, counts, backoffs, reasons) = &mut batches.failed;
                    ids.push(id);
                    counts.push(count(fail_count));
                    backoffs.push(backoff.as_secs_f64());
                    reasons.push(storable(reason));
                }
                Settlement::Dead { fail_count, reason } => {
                    let (ids, counts, reasons) = &mut batches.dead;
                    ids.push(id);
                    counts.push(count(fail_count));
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
fn storable(reason: String) -> String {
    if reason.contains('\0') { reason.replace('\0', "\u{FFFD}") } else { reason }
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
    let published: Vec<i64> = batches.published.iter().map(|(id, _)| *id).collect();
    let published = update(&statements.settle_published, published.len(), &[(&published, Type::INT8_ARRAY)])?;
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
