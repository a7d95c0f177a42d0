//! A drain: claim, publish, settle, until nothing is due. The order of effects is decided here.
//!
//! Up to two claims are on their way, each on its own database session: while one is settled and the next one
//! taken, the workers go on with the other, so the broker is never waited for alone.

use std::time::{Duration, Instant};

use crate::config::Config;
use crate::confirm::Receipt;
use crate::error::{Error, Result};
use crate::event::{Outcome, Tally};
use crate::outbox::{Claimed, LostClaim, Outbox};
use crate::publisher::{Job, News, Session, State, blocked, lost};

use super::Stop;
use super::flight::{Flight, confirms};

/// Claims on their way at once.
const FLIGHTS_MAX: usize = 2;

/// How often a drain that waits for confirms looks around.
const PATROL: Duration = Duration::from_millis(100);

/// Between two signs of life on a claim's session. Well below any `claim_max_idle`, and short enough to notice
/// soon that a claim is lost and others may be sending its events.
const TOUCH: Duration = Duration::from_secs(1);

pub(super) struct Drain<'a> {
    pub(super) config: &'a Config,
    pub(super) outbox: &'a mut Outbox,
    pub(super) session: &'a mut Session,
    pub(super) unwritten: &'a mut Vec<(i64, Receipt)>,
    pub(super) claims: &'a mut u64,
    pub(super) tally: Tally,
    pub(super) progress: Progress,
}

/// How a drain ended that met no trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// A claim from the start came back empty.
    NothingDue,
    /// It was asked to stop before that.
    Stopped,
}

pub(super) struct Progress {
    flights: Vec<Flight>,
    /// The next claim looks behind this row.
    after: i64,
    /// A claim from the start came back empty, or none is to be taken any more.
    ended: bool,
    /// The table is not walked through from its start again.
    last_walk: bool,
    started: Instant,
    walk_started: Instant,
    /// Set when only what is in flight is finished, with the time at which waiting for it ends.
    winding_down: Option<Instant>,
    trouble: Option<Error>,
    flights_max: usize,
    told_of_block: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            flights: Vec::new(),
            after: 0,
            ended: false,
            last_walk: false,
            started: Instant::now(),
            walk_started: Instant::now(),
            winding_down: None,
            trouble: None,
            flights_max: FLIGHTS_MAX,
            told_of_block: false,
        }
    }
}

impl Drain<'_> {
    /// Drains until nothing is due, `stop` is requested, or a server is lost.
    ///
    /// If the process dies in here, the server rolls back the open claims: their events are due again, and those
    /// that the broker had taken arrive twice.
    pub(super) fn run(&mut self, stop: &Stop) -> Result<End> {
        loop {
            if stop.requested() {
                // The confirms of what is sent get half the grace; settling and closing need the rest.
                self.wind_down(self.config.broker.publish_timeout.min(self.config.grace / 2));
            }
            self.claim()?;
            self.settle_complete();
            let progress = &mut self.progress;
            if progress.flights.is_empty() && (progress.ended || progress.winding_down.is_some()) {
                let end = if progress.ended { End::NothingDue } else { End::Stopped };
                return progress.trouble.take().map_or(Ok(end), Err);
            }
            self.hear();
            self.keep_claims();
            self.watch_broker();
        }
    }

    /// Takes claims while more is due and the workers can use them.
    fn claim(&mut self) -> Result<()> {
        while !self.progress.ended
            && self.progress.winding_down.is_none()
            && self.progress.flights.len() < self.progress.flights_max
        {
            // Whoever came in before, or is due again, gets its turn at every beat, however long the walk is.
            if self.progress.walk_started.elapsed() > self.config.interval && !self.progress.last_walk {
                self.progress.after = 0;
            }
            if self.progress.after == 0 {
                self.progress.walk_started = Instant::now();
            }
            match self.outbox.claim(self.progress.after, self.progress.started.elapsed()) {
                Ok(Some(claimed)) => self.depart(claimed),
                // Behind the last claim nothing is due; what came in before it meanwhile is looked for once more.
                Ok(None) if self.progress.after > 0 && !self.progress.last_walk => self.progress.after = 0,
                Ok(None) => self.progress.ended = true,
                Err(error) if self.progress.flights.is_empty() => return Err(error),
                Err(error) if error.is_transient() => {
                    // The claim that is on its way may well get through; one at a time will do.
                    log::warn!("going on with one claim at a time: {error}");
                    self.progress.flights_max = 1;
                }
                Err(error) => self.fail(error),
            }
        }
        Ok(())
    }

    /// Sends a claim's events on their way.
    fn depart(&mut self, claimed: Claimed) {
        *self.claims += 1;
        self.tally.claimed += u64::try_from(claimed.events.len()).unwrap_or(u64::MAX);
        self.progress.after = claimed.more_after.unwrap_or(0);
        self.progress.ended = self.progress.last_walk && claimed.more_after.is_none();
        let mut flight = Flight::new(*self.claims, claimed.claim);
        // A claim that was lost, and not missed yet, left its rows to whoever claims next, also to us.
        let others = &self.progress.flights;
        let (taken, events): (Vec<_>, Vec<_>) =
            claimed.events.into_iter().partition(|(event, _)| others.iter().any(|it| it.holds(event.id)));
        for (event, _) in taken {
            flight.pass_over(event.id);
        }
        let jobs = flight.load(events, self.config);
        self.session.forget_missing();
        let mut sendable = Vec::with_capacity(jobs.len());
        for job in jobs {
            // Its confirm is in hand from a claim that was lost: a fact that need not be made again.
            if let Some(at) = self.unwritten.iter().position(|(id, _)| *id == job.key.id) {
                let (id, receipt) = self.unwritten.swap_remove(at);
                flight.note(id, Outcome::Confirmed(receipt), self.config);
                continue;
            }
            match self.exchange_of(&job) {
                Ok(()) => sendable.push(job),
                Err(outcome) => flight.note(job.key.id, outcome, self.config),
            }
        }
        self.session.send(sendable);
        self.progress.flights.push(flight);
    }

    /// Whether the job's exchange is there; the event's outcome when not.
    fn exchange_of(&mut self, job: &Job) -> std::result::Result<(), Outcome> {
        let was_open = matches!(self.session.state(), State::Open);
        match self.session.check_exchange(&job.message.exchange) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(reason)) => Err(Outcome::Refused(reason)),
            // The question itself may have ended the connection, and would again: it must not stay the first.
            Err(error) if was_open => Err(Outcome::Unknown(format!("asking for its exchange: {error}"))),
            Err(_) => Err(Outcome::Unsent), // lost before; `watch_broker` sees it
        }
    }

    /// Waits for news, and takes in all that there are.
    fn hear(&mut self) {
        let mut deadline = Instant::now() + PATROL;
        while !self.progress.flights.is_empty() {
            match self.session.wait(deadline) {
                Some(News::Outcome(key, outcome)) => {
                    let flights = &mut self.progress.flights;
                    let Some(flight) = flights.iter_mut().find(|it| it.number == key.claim) else {
                        continue;
                    };
                    flight.note(key.id, outcome, self.config);
                    if flight.is_complete() {
                        return;
                    }
                }
                // Its claim was given up before the broker spoke: written like the confirms of a lost claim.
                Some(News::Late(key, receipt)) => self.unwritten.push((key.id, receipt)),
                None => return,
            }
            deadline = deadline.max(Instant::now());
        }
    }

    /// Settles the claims whose events all have their outcome.
    fn settle_complete(&mut self) {
        let (complete, open) = std::mem::take(&mut self.progress.flights)
            .into_iter()
            .partition::<Vec<_>, _>(Flight::is_complete);
        self.progress.flights = open;
        for flight in complete {
            let (claim, settlements) = flight.land();
            let Some(claim) = claim else {
                self.unwritten.extend(confirms(settlements));
                continue;
            };
            match self.outbox.settle(claim, settlements) {
                Ok(tally) => {
                    self.tally += tally;
                    // What the settle could not write may be due still, and would be claimed again and again.
                    self.progress.last_walk |= tally.gone > 0;
                }
                Err(LostClaim { error, confirmed }) => {
                    self.unwritten.extend(confirmed);
                    self.fail(error);
                }
            }
        }
    }

    /// Keeps the open claims alive. One that is lost frees its rows, so its unsent events must not be sent.
    fn keep_claims(&mut self) {
        let mut lost = None;
        for flight in &mut self.progress.flights {
            if let Some(Err(error)) = flight.claim.as_mut().map(|claim| claim.touch(TOUCH)) {
                flight.claim = None;
                lost = Some(error);
            }
        }
        if let Some(error) = lost {
            self.fail(error);
        }
    }

    fn watch_broker(&mut self) {
        let trouble = match self.session.state() {
            State::Open => None,
            State::Lost(reason) => Some(lost(reason)),
            State::Blocked { since, reason } => {
                let error = blocked(reason);
                if !std::mem::replace(&mut self.progress.told_of_block, true) {
                    log::debug!("{error}; waiting for what is in flight");
                }
                (since.elapsed() > self.config.broker.publish_timeout).then_some(error)
            }
        };
        if let Some(error) = trouble {
            let reason = error.to_string();
            self.fail(error);
            self.session.forsake(&reason);
        }
        if self.progress.winding_down.is_some_and(|until| Instant::now() > until) {
            self.session.forsake("no confirm before the relay had to go on");
        }
    }

    /// Finishes what is in flight and claims no more; the first error is the drain's.
    fn fail(&mut self, error: Error) {
        self.progress.trouble.get_or_insert(error);
        self.wind_down(self.config.broker.publish_timeout);
    }

    fn wind_down(&mut self, limit: Duration) {
        let until = Instant::now() + limit;
        match self.progress.winding_down {
            Some(before) => self.progress.winding_down = Some(before.min(until)),
            None => {
                self.progress.winding_down = Some(until);
                self.session.recall();
            }
        }
    }
}
