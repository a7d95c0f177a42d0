//! A relay's sessions on the modelled rows: claims, and how a statement may fail before it, or after it with nobody told.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::clock;
use crate::config::Claim as ClaimConfig;
use crate::confirm::Receipt;
use crate::error::{Error, Kind, Result, Server};
use crate::event::Tally;
use crate::policy::Settlement;
use crate::simulated::{Pause, Wish};

use super::super::take::{DrainAge, Taken, take};
use super::super::{Claimed, Look, LostClaim, Scope, Settled};
use super::rows::{Backend, Rows};
use super::statements::Asker;

/// The way to the database.
#[derive(Clone)]
pub(crate) struct Wire<'y> {
    pub(crate) rows: Rc<RefCell<Rows>>,
    pub(crate) pause: &'y Pause<'y>,
    pub(crate) config: ClaimConfig,
    pub(crate) relay: usize,
}

/// The outbox with its sessions at rest.
pub(crate) struct Table<'y> {
    wire: Wire<'y>,
    resting: Vec<Session<'y>>,
    rows_max: usize,
    passed_over: Vec<i64>,
}

struct Session<'y> {
    wire: Wire<'y>,
    number: u64,
}

/// A claim. Dropped, its session closes; the server may take its time to notice.
pub(crate) struct Claim<'y> {
    session: Session<'y>,
    touched: Instant,
    rows: Vec<i64>,
}

fn gone(what: &str) -> Error {
    Error::new(Kind::Unavailable(Server::Database), format!("{what}: the modelled session is gone"))
}

impl Wire<'_> {
    fn delay(&self) -> Duration {
        Duration::from_micros(self.rows.borrow_mut().chance.between(200, 4_000))
    }

    fn lose_by_chance(&self, session: u64) {
        let mut rows = self.rows.borrow_mut();
        let one_in = rows.loses_one_in;
        if rows.chance.one_in(one_in) {
            rows.end(session);
        }
    }

    /// A statement up to the moment at which it is done on the server.
    pub(super) fn begin_to_ask<T>(&self, session: u64, what: impl FnOnce(&mut Rows) -> T) -> Result<T> {
        self.lose_by_chance(session);
        if let Some(it) = self.rows.borrow_mut().backends.get_mut(&session) {
            it.idle_since = None;
        }
        (self.pause)(Wish::Time(self.delay()));
        let mut rows = self.rows.borrow_mut();
        if !rows.backends.contains_key(&session) {
            return Err(gone("before it was done"));
        }
        Ok(what(&mut rows))
    }

    /// A statement, and the way back of its answer.
    pub(super) fn ask<T>(&self, session: u64, what: impl FnOnce(&mut Rows) -> T) -> Result<T> {
        let answer = self.begin_to_ask(session, what)?;
        self.lose_by_chance(session);
        (self.pause)(Wish::Time(self.delay()));
        let mut rows = self.rows.borrow_mut();
        let now = rows.now;
        match rows.backends.get_mut(&session) {
            Some(it) => it.idle_since = Some(now),
            None => return Err(gone("after it was done")),
        }
        Ok(answer)
    }
}

impl<'y> Table<'y> {
    pub(crate) fn new(wire: Wire<'y>) -> Self {
        let rows_max = wire.config.batch_rows;
        Self { wire, resting: Vec::new(), rows_max, passed_over: Vec::new() }
    }

    fn open(&self) -> Result<Session<'y>> {
        (self.wire.pause)(Wish::Time(self.wire.delay() * 3));
        let mut rows = self.wire.rows.borrow_mut();
        if !rows.is_up {
            return Err(gone("opening"));
        }
        rows.last_session += 1;
        let number = rows.last_session;
        rows.backends.insert(number, Backend { relay: self.wire.relay, idle_since: None });
        Ok(Session { wire: self.wire.clone(), number })
    }

    /// On a session at rest, which may be gone; then on a new one. As `Outbox` does it.
    fn with_session<T>(&mut self, work: impl Fn(&Session<'y>) -> Result<T>) -> Result<(Session<'y>, T)> {
        if let Some(session) = self.resting.pop() {
            match work(&session) {
                Ok(done) => return Ok((session, done)),
                Err(_) => self.resting.clear(),
            }
        }
        let session = self.open()?;
        let done = work(&session)?;
        Ok((session, done))
    }

    fn rest(&mut self, session: Session<'y>) {
        if let Some(it) = self.wire.rows.borrow_mut().backends.get_mut(&session.number) {
            it.idle_since = None;
        }
        self.resting.push(session);
    }

    pub(crate) fn pass_over(&mut self, rows: Vec<i64>) {
        self.passed_over = rows;
    }

    pub(crate) fn claim(
        &mut self,
        scope: &Scope,
        rows_max: usize,
        drain_age: Duration,
    ) -> Result<Look<Claim<'y>>> {
        let asked_at = DrainAge::now(drain_age);
        let config = ClaimConfig { batch_rows: rows_max, ..self.wire.config.clone() };
        let (rows_max, passed_over) = (self.rows_max.min(rows_max), self.passed_over.clone());
        let (session, taken) = self.with_session(|session| {
            let mut asker = Asker { wire: &session.wire, session: session.number, passed_over: &passed_over };
            take(&mut asker, &config, scope.clone(), asked_at, rows_max)
        })?;
        self.rows_max = taken.rows_max;
        let Taken { events, chains, withheld, barred, unasked, left, more_after, .. } = taken;
        let claimed = if events.is_empty() {
            self.rest(session);
            None
        } else {
            let rows = events.iter().map(|(event, _)| event.id).collect();
            let claim = Claim { session, touched: clock::now(), rows };
            Some(Claimed { claim, events, chains, withheld })
        };
        Ok(Look { claimed, barred, unasked, left, more_after })
    }

    pub(crate) fn settle(
        &mut self,
        claim: Claim<'y>,
        settlements: Vec<(i64, Settlement)>,
    ) -> std::result::Result<Settled, LostClaim> {
        let confirmed = settlements.iter().filter_map(|(id, it)| match it {
            Settlement::Published(receipt) => Some((*id, receipt.clone())),
            _ => None,
        });
        let confirmed: Vec<(i64, Receipt)> = confirmed.collect();
        let mut ids: Vec<i64> = settlements.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), settlements.len(), "an event has two outcomes in one claim");
        assert!(ids.iter().all(|id| claim.rows.contains(id)), "an event is settled that is not the claim's");
        let session = claim.session.number;
        // The updates are nobody's business before the commit, and the commit is all of them or nothing.
        let written = self.wire.ask(session, |_| ()).and_then(|()| {
            self.wire.ask(session, |rows| {
                let mut tally = Tally::default();
                for (id, settlement) in &settlements {
                    let written = u64::from(rows.settle(session, *id, settlement));
                    match settlement {
                        Settlement::Released => tally.released += 1,
                        Settlement::Published(_) => tally.published += written,
                        Settlement::Unconfirmed { .. } => tally.unconfirmed += written,
                        _ => tally.failed += written,
                    }
                    if !matches!(settlement, Settlement::Released) {
                        tally.gone += 1 - written;
                    }
                }
                rows.rows.iter_mut().filter(|it| it.lock == Some(session)).for_each(|it| it.lock = None);
                tally
            })
        });
        match written {
            Ok(tally) => {
                self.rest(claim.session);
                // Those that are gone are looked at again, as `Outbox` does it.
                let confirmed = if tally.gone > 0 { confirmed } else { Vec::new() };
                Ok(Settled { tally, confirmed, ..Settled::default() })
            }
            Err(error) => Err(LostClaim { error, confirmed }),
        }
    }

    pub(crate) fn settle_late(&mut self, confirmed: &[(i64, Receipt)]) -> Result<(u64, Vec<(i64, Receipt)>)> {
        let ids: Vec<i64> = confirmed.iter().map(|(id, _)| *id).collect();
        let (session, (written, open)) =
            self.with_session(|it| it.wire.ask(it.number, |rows| rows.settle_late(&ids)))?;
        self.rest(session);
        Ok((written, confirmed.iter().filter(|(id, _)| open.contains(id)).cloned().collect()))
    }
}

impl Claim<'_> {
    pub(crate) fn touch(&mut self, after: Duration) -> Result<()> {
        if clock::since(self.touched) < after {
            return Ok(());
        }
        self.touched = clock::now();
        self.session.wire.ask(self.session.number, |_| ())
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let mut rows = self.wire.rows.borrow_mut();
        // A host that vanishes closes nothing: its claims live until the server's limit ends them.
        let is_claim = rows.backends.get(&self.number).is_some_and(|it| it.idle_since.is_some());
        if !(is_claim && rows.chance.one_in(4)) {
            rows.end(self.number);
        }
    }
}
