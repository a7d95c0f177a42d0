//! Claiming: events that are this relay's alone for a while, on a session of their own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::event::{Event, Payload};

use super::ask::Asker;
use super::failure::failure;
use super::take::{DrainAge, Taken, take};
use super::{Chain, Outbox, Ready};

/// Events that are this relay's alone while it holds the claim.
///
/// Not `Clone`, and consumed by settling: what became of it is decided once. Dropped instead, it closes its
/// session, and the server frees the rows.
pub struct Claim {
    pub(super) ready: Ready,
    /// After its rows were locked.
    pub(super) claimed: Instant,
    pub(super) touched: Instant,
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("claim")
    }
}

/// Where a claim looks for due events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Along the table in id order.
    Walk {
        /// Behind this row.
        after: i64,
        /// Whether this is the first look of a walk, which looks for keys that are held back, too.
        fresh: bool,
        /// But for the events of these keys.
        barred: Vec<String>,
    },
    /// The next events of these keys.
    Keys(Vec<String>),
    /// These events, by their event ids.
    Events(Vec<String>),
}

/// What a claim saw.
#[derive(Debug)]
pub struct Look<C = Claim> {
    /// What it took, if there was anything.
    pub claimed: Option<Claimed<C>>,
    /// Keys that it found out to have nothing that may be sent now, however many due events they have: their first
    /// one is in other hands, not due, or dead.
    pub barred: Vec<String>,
    /// Keys or events that it was asked for and did not come to, because of the byte bound.
    pub unasked: Vec<String>,
    /// Of the events that it was asked for, those that it did not take, and why.
    pub left: Vec<(String, Left)>,
    /// Where the walk goes on: the last row that it looked at, when a bound and not the table's end stopped it.
    pub more_after: Option<i64>,
}

/// Why a claim did not take an event that it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Left {
    /// There is none of this id.
    NotFound,
    /// It is not to be sent any more: its status.
    Finished(String),
    /// Its `available_at` is to come.
    Later,
    /// An earlier event of its key, which this is, has not gone through.
    Held(String),
    /// Another claim has it; its key.
    Locked(Option<String>),
}

/// What a claim took.
#[derive(Debug)]
pub struct Claimed<C = Claim> {
    /// The claim to settle.
    pub claim: C,
    /// Its events in `id` order, with their payloads.
    pub events: Vec<(Event, Payload)>,
    /// Those of them that have a key: each key's are to be sent one after the other.
    pub chains: Vec<Chain>,
    /// The first of the events that it has locked and may not send, if there are any. Whoever has those before them cannot
    /// go on with them until this claim ends.
    pub withheld: Option<i64>,
}

impl<C> Look<C> {
    /// The claim, and what was seen without it.
    pub(crate) fn part(self) -> (Option<C>, Look<()>) {
        let Self { claimed, barred, unasked, left, more_after } = self;
        let (claim, claimed) = claimed
            .map(|Claimed { claim, events, chains, withheld }| {
                (claim, Claimed { claim: (), events, chains, withheld })
            })
            .unzip();
        (claim, Look { claimed, barred, unasked, left, more_after })
    }
}

impl Outbox {
    /// Has the next claims take at most so many events, whatever `batch_rows` is.
    pub(crate) fn claim_at_most(&mut self, rows: usize) {
        self.claim.batch_rows = rows;
    }

    /// Has the next claims pass over these rows, of which a confirm is in hand that cannot be written: they are not sent
    /// again, and hold back nobody of their key.
    pub(crate) fn pass_over(&mut self, rows: Vec<i64>) {
        self.passed_over = rows;
    }

    /// Claims due events, up to `batch_rows` and `batch_bytes`. A single event over `batch_bytes` is claimed alone.
    /// Events that were tried within the last `drain_age` are left for the next drain.
    ///
    /// If the process dies in here, or before the claim is settled, the server rolls back and the rows are due as
    /// before.
    ///
    /// # Errors
    /// The database cannot be reached, refuses, or does not hold the table.
    pub fn claim(&mut self, scope: &Scope, drain_age: Duration) -> Result<Look> {
        // Opening a session takes its time.
        let asked_at = DrainAge::now(drain_age);
        let reused = !self.resting.is_empty();
        let ready = self.ready()?;
        match self.claim_on(ready, scope, asked_at) {
            // A session at rest may have been closed meanwhile; that shows only now, and a new one is worth a try.
            Err(error) if reused && error.is_transient() => {
                self.resting.clear();
                let ready = Ready::open(&self.database, Some(&self.claim), &mut self.opening)?;
                self.claim_on(ready, scope, asked_at)
            }
            other => other,
        }
    }

    /// Any error drops the session, and with it the transaction: after a failed statement a commit would report
    /// success although the server rolled back.
    fn claim_on(&mut self, mut ready: Ready, scope: &Scope, asked_at: DrainAge) -> Result<Look> {
        let (statements, config) = (Arc::clone(&ready.statements), self.claim.clone());
        let (scope, rows_max) = (scope.clone(), ready.rows_max.min(config.batch_rows));
        let passed_over = self.passed_over.clone();
        let taken: Taken = ready.session.call("claiming events", move |client| {
            let mut asker =
                Asker { client, statements: &statements, config: &config, passed_over: &passed_over };
            take(&mut asker, &config, scope, asked_at, rows_max)
        })?;
        ready.rows_max = taken.rows_max;
        let Taken { events, chains, withheld, barred, unasked, left, more_after, .. } = taken;
        if events.is_empty() {
            self.resting.push(ready);
            return Ok(Look { claimed: None, barred, unasked, left, more_after });
        }
        let now = Instant::now();
        let claim = Claim { ready, claimed: now, touched: now };
        Ok(Look {
            claimed: Some(Claimed { claim, events, chains, withheld }),
            barred,
            unasked,
            left,
            more_after,
        })
    }
}

impl Claim {
    /// Gives the events back as they were, for who only looked. Dropping the claim does the same, some time later.
    ///
    /// # Errors
    /// The session is lost: the server gives them back by itself.
    pub fn give_back(mut self) -> Result<()> {
        let what = "giving events back";
        self.ready
            .session
            .call(what, move |client| client.batch_execute("rollback").map_err(|error| failure(what, &error)))
    }

    /// Keeps the server from taking the claim for abandoned: speaks to it when it has heard nothing for `after`.
    ///
    /// # Errors
    /// The session is lost, and with it the rows: others may send them from now on.
    pub fn touch(&mut self, after: Duration) -> Result<()> {
        if self.touched.elapsed() < after {
            return Ok(());
        }
        self.touched = Instant::now();
        self.ready.session.call("keeping a claim alive", |client| {
            client.batch_execute("select").map_err(|error| failure("keeping a claim alive", &error))
        })
    }
}
