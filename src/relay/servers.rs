//! What a drain needs of either server, and that ours are such. The simulation of the relay has others.

use std::time::{Duration, Instant};

use crate::config;
use crate::confirm::Receipt;
use crate::error::{Error, Result};
use crate::outbox::{self, Claim, Look, LostClaim, Outbox, Scope};
use crate::policy::Settlement;
use crate::publisher::{Job, News, Session, State};

/// What a settle comes to.
pub(super) type Settled = std::result::Result<outbox::Settled, LostClaim>;

/// The table: as [`Outbox`] does it.
pub(super) trait Table {
    type Claim: Lease;

    /// Has the next claims leave these rows alone, of which a confirm is in hand.
    fn pass_over(&mut self, rows: Vec<i64>);

    fn claim(&mut self, scope: &Scope, rows_max: usize, drain_age: Duration) -> Result<Look<Self::Claim>>;

    fn settle(&mut self, claim: Self::Claim, settlements: Vec<(i64, Settlement)>) -> Settled;

    /// A defect, which only the real table has.
    #[cfg(feature = "mutants")]
    fn settle_unclaimed(&mut self, _: &[(i64, Settlement)]) {}

    fn settle_late(
        &mut self,
        confirmed: &[(i64, Receipt)],
        refused: impl FnMut(i64, &Error),
    ) -> Result<(u64, Vec<(i64, Receipt)>)>;
}

/// A claim: as [`Claim`] does it. Dropped, it frees its rows.
pub(super) trait Lease {
    fn touch(&mut self, after: Duration) -> Result<()>;
}

/// Where sessions on the broker come from.
pub(super) trait Broker {
    type Session: Connection;

    fn open(&self, config: &config::Broker) -> Result<Self::Session>;
}

/// A session on the broker: as [`Session`] does it.
pub(super) trait Connection {
    fn state(&mut self) -> &State;
    fn check_exchange(&mut self, exchange: &str) -> Result<std::result::Result<(), String>>;
    fn forget_missing(&mut self);
    fn send(&mut self, jobs: Vec<Job>);
    fn wait(&mut self, deadline: Instant) -> Option<News>;
    fn answers(&mut self) -> Vec<Duration>;
    fn recall(&mut self);
    fn forsake(&mut self, reason: &str);
    fn awaits_late(&self) -> bool;
}

impl Table for Outbox {
    type Claim = Claim;

    fn pass_over(&mut self, rows: Vec<i64>) {
        Self::pass_over(self, rows);
    }

    fn claim(&mut self, scope: &Scope, rows_max: usize, drain_age: Duration) -> Result<Look> {
        self.claim_at_most(rows_max);
        Self::claim(self, scope, drain_age)
    }

    fn settle(&mut self, claim: Claim, settlements: Vec<(i64, Settlement)>) -> Settled {
        Self::settle(self, claim, settlements)
    }

    #[cfg(feature = "mutants")]
    fn settle_unclaimed(&mut self, settlements: &[(i64, Settlement)]) {
        Self::settle_unclaimed(self, settlements);
    }

    fn settle_late(
        &mut self,
        confirmed: &[(i64, Receipt)],
        refused: impl FnMut(i64, &Error),
    ) -> Result<(u64, Vec<(i64, Receipt)>)> {
        Self::settle_late(self, confirmed, refused)
    }
}

impl Lease for Claim {
    fn touch(&mut self, after: Duration) -> Result<()> {
        Self::touch(self, after)
    }
}

/// RabbitMQ, as `publisher` speaks to it.
#[derive(Debug)]
pub(super) struct Rabbit;

impl Broker for Rabbit {
    type Session = Session;

    fn open(&self, config: &config::Broker) -> Result<Session> {
        Session::open(config)
    }
}

impl Connection for Session {
    fn state(&mut self) -> &State {
        Self::state(self)
    }

    fn check_exchange(&mut self, exchange: &str) -> Result<std::result::Result<(), String>> {
        Self::check_exchange(self, exchange)
    }

    fn forget_missing(&mut self) {
        Self::forget_missing(self);
    }

    fn send(&mut self, jobs: Vec<Job>) {
        Self::send(self, jobs);
    }

    fn wait(&mut self, deadline: Instant) -> Option<News> {
        Self::wait(self, deadline)
    }

    fn answers(&mut self) -> Vec<Duration> {
        Self::answers(self)
    }

    fn recall(&mut self) {
        Self::recall(self);
    }

    fn forsake(&mut self, reason: &str) {
        Self::forsake(self, reason);
    }

    fn awaits_late(&self) -> bool {
        Self::awaits_late(self)
    }
}
