//! A drain: claim, publish, settle, until nothing is due. The order of effects is decided here.
//!
//! Up to two claims are on their way, each on its own database session: while one is settled and the next one
//! taken, the workers go on with the other, so the broker is never waited for alone. Up to two more may be while some
//! only wait for long chains.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use crate::clock;
use crate::config::Config;
use crate::confirm::Receipt;
use crate::error::{Error, Result, Server};
use crate::event::{Event, Outcome, Tally};
use crate::outbox::{Claimed, LostClaim, Settled};
use crate::policy::Settlement;
use crate::publisher::{Job, Key, News, State, blocked, lost};

use super::Stop;
use super::digest::{Digest, SILENCE_MAX};
use super::flight::{Flight, Landed, confirms};
use super::limit::Limit;
use super::link::Link;
use super::observer::Happening;
use super::servers::{Connection, Table};
use super::source::Source;
use super::unwritten::Unwritten;

/// Claims on their way at once, and those of them that keep the workers busy.
const FLIGHTS_MAX: usize = 4;
const WIDE_FLIGHTS_MAX: usize = 2;

/// How often a drain that waits for confirms looks around.
const PATROL: Duration = Duration::from_millis(100);

/// Between two signs of life on a claim's session. Well below any `claim_max_idle`, and short enough to notice
/// soon that a claim is lost and others may be sending its events.
const TOUCH: Duration = Duration::from_secs(1);

/// A drain ends after a beat, or after this when beats are shorter (and after a minute when they are longer): what failed in it is due again only in the next one,
/// and whoever writes all the time must not keep it from ending.
const DRAIN_MIN: Duration = Duration::from_secs(1);

pub(super) struct Drain<'a, T: Table, S> {
    pub(super) config: &'a Config,
    pub(super) outbox: &'a mut T,
    pub(super) session: &'a mut S,
    pub(super) unwritten: &'a mut Unwritten,
    pub(super) claims: &'a mut u64,
    pub(super) digest: &'a mut Digest,
    pub(super) link: &'a mut Link,
    pub(super) source: &'a mut dyn Source,
    pub(super) limit: &'a mut Limit,
    pub(super) tally: Tally,
    pub(super) progress: Progress<T::Claim>,
}

/// How a drain ended that met no trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// A claim from the start came back empty.
    NothingDue,
    /// It was asked to stop before that.
    Stopped,
    /// Its time was over before that: more is due.
    Beat,
}

pub(super) struct Progress<C> {
    flights: Vec<Flight<C>>,
    started: Instant,
    /// Set when only what is in flight is finished, with the time at which waiting for it ends.
    winding_down: Option<Instant>,
    trouble: Option<Error>,
    flights_max: usize,
    told_of_block: bool,
}

impl<C> Progress<C> {
    pub(super) fn new() -> Self {
        Self {
            flights: Vec::new(),
            started: clock::now(),
            winding_down: None,
            trouble: None,
            flights_max: FLIGHTS_MAX,
            told_of_block: false,
        }
    }
}

impl<T: Table, S: Connection> Drain<'_, T, S> {
    /// Drains until nothing is due, its time is over, `stop` is requested, or a server is lost.
    ///
    /// If the process dies in here, the server rolls back the open claims: their events are due again, and those
    /// that the broker had taken arrive twice.
    pub(super) fn run(&mut self, stop: &Stop) -> Result<End> {
        self.source.begin();
        loop {
            if stop.requested() {
                // The confirms of what is sent get half the grace; settling and closing need the rest.
                self.wind_down(self.config.broker.publish_timeout.min(self.config.grace / 2));
            }
            self.claim()?;
            let settled = self.settle_complete();
            self.keep_claims(TOUCH);
            self.watch_broker();
            if settled {
                // There is room for another claim, before anything is waited for.
                continue;
            }
            if self.progress.flights.is_empty() {
                let end = match () {
                    () if self.source.is_over() => Some(End::NothingDue),
                    () if self.progress.winding_down.is_some() => Some(End::Stopped),
                    () if self.is_time_up() => Some(End::Beat),
                    () => None,
                };
                if let Some(end) = end {
                    return self.progress.trouble.take().map_or(Ok(end), Err);
                }
            }
            self.hear();
        }
    }

    /// Takes claims while more is due and the workers can use them.
    fn claim(&mut self) -> Result<()> {
        while self.progress.winding_down.is_none() && !self.is_time_up() && self.has_room() {
            let rows_max = self.limit.rows(self.config.claim.batch_rows);
            self.outbox.pass_over(self.unwritten.rows());
            self.keep_claims(TOUCH);
            let flights = &self.progress.flights;
            let busy: Vec<_> = flights.iter().flat_map(Flight::keys).map(str::to_owned).collect();
            let in_flight = !flights.is_empty();
            let next = self.source.next(self.config.interval, rows_max, in_flight, busy);
            let Some(scope) = next else { break };
            let began = clock::now();
            match self.outbox.claim(&scope, rows_max, clock::since(self.progress.started)) {
                Ok(look) => {
                    let took = clock::since(began);
                    let (claim, look) = look.part();
                    self.source.saw(&scope, &look, took);
                    if let Some(claimed) = &look.claimed {
                        self.limit.take(count(&claimed.events));
                        self.source.told(Happening::Claimed { events: count(&claimed.events), took });
                    }
                    match claim.zip(look.claimed) {
                        Some((claim, claimed)) => self.depart(claim, claimed),
                        // A long way along the table is gone in parts, so that neither what is in flight nor the
                        // request to stop is forgotten.
                        None => return Ok(()),
                    }
                }
                Err(error) if self.progress.flights.is_empty() => return Err(error),
                Err(error) if error.is_transient() => {
                    // The claim that is on its way may well get through; one at a time will do.
                    self.digest.narrowed(&error);
                    self.progress.flights_max = 1;
                    self.source.missed(scope);
                }
                Err(error) => self.fail(error),
            }
        }
        Ok(())
    }

    fn is_time_up(&self) -> bool {
        clock::since(self.progress.started) > self.config.interval.clamp(DRAIN_MIN, SILENCE_MAX)
            || self.limit.is_reached()
    }

    fn has_room(&self) -> bool {
        let flights = &self.progress.flights;
        flights.len() < self.progress.flights_max
            && flights.iter().filter(|it| !it.is_narrow()).count() < WIDE_FLIGHTS_MAX
    }

    /// Sends a claim's events on their way.
    fn depart(&mut self, claim: T::Claim, claimed: Claimed<()>) {
        let Claimed { claim: (), mut events, mut chains, withheld } = claimed;
        *self.claims += 1;
        let number = *self.claims;
        // A claim that was lost, and not missed yet, left its rows to whoever claims next, also to us. They are left to
        // the flight that has them, and so is what follows them.
        if events.iter().any(|(event, _)| self.progress.flights.iter().any(|it| it.holds(event.id))) {
            self.keep_claims(Duration::ZERO);
        }
        let others = &self.progress.flights;
        let is_held = |id: &i64| others.iter().any(|it| it.holds(*id));
        let (held, free): (Vec<_>, Vec<_>) = chains.into_iter().partition(|it| it.ids.iter().any(is_held));
        chains = free;
        let left: HashSet<i64> = held.into_iter().flat_map(|it| it.ids).collect();
        let taken = count(&events);
        events.retain(|(event, _)| !left.contains(&event.id) && !is_held(&event.id));
        self.limit.give_back(taken.saturating_sub(count(&events)));

        let mut flight = Flight::new(number, claim, withheld.is_some());
        let jobs = flight.load(events, chains, self.config);
        tell(flight.news(), self.source, self.digest);
        self.session.forget_missing();
        self.progress.flights.push(flight);
        self.send(jobs);
    }

    /// Sends messages, and those that may follow at once because the broker need not be asked about them.
    fn send(&mut self, jobs: Vec<Job>) {
        if self.progress.winding_down.is_some() {
            // A claim was lost meanwhile, or the end was asked for.
            for job in jobs {
                self.note(job.key, Outcome::Unsent);
            }
            return;
        }
        let mut jobs = VecDeque::from(jobs);
        let mut sendable = Vec::with_capacity(jobs.len());
        while let Some(job) = jobs.pop_front() {
            let outcome = match self.late_confirm_of(job.key) {
                // Its confirm is in hand from a claim that was lost: a fact that need not be made again.
                Some(receipt) => Outcome::Confirmed(receipt),
                None => match self.exchange_of(&job) {
                    Ok(()) => {
                        sendable.push(job);
                        continue;
                    }
                    Err(outcome) => outcome,
                },
            };
            jobs.extend(self.note(job.key, outcome));
        }
        self.session.send(sendable);
    }

    /// The confirm of an event that was sent in an earlier claim. What an operator has sent again since is sent again.
    fn late_confirm_of(&mut self, key: Key) -> Option<Receipt> {
        if !self.unwritten.holds(key.id) {
            return None;
        }
        let flight = self.progress.flights.iter().find(|it| it.number == key.claim)?;
        if flight.was_sent_again(key.id) { None } else { self.unwritten.take(key.id) }
    }

    /// Notes an outcome with its flight; the message that may be sent after it.
    fn note(&mut self, key: Key, outcome: Outcome) -> Option<Job> {
        let flight = self.progress.flights.iter_mut().find(|it| it.number == key.claim)?;
        let next = flight.note(key.id, outcome, self.config);
        tell(flight.news(), self.source, self.digest);
        next
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

    /// Waits for news, and takes in all that there are. What may be sent after them goes together.
    fn hear(&mut self) {
        let deadline = clock::now() + PATROL;
        let mut followers = Vec::new();
        while !self.progress.flights.is_empty() {
            let until = if followers.is_empty() { deadline.max(clock::now()) } else { clock::now() };
            match self.session.wait(until) {
                Some(News::Outcome(key, outcome)) => {
                    // A process that was frozen may have lost the claim, and must not go on with its chains.
                    self.keep_claims(TOUCH);
                    followers.extend(self.note(key, outcome));
                    if self.progress.flights.iter().any(Flight::is_complete) {
                        break;
                    }
                }
                // Its claim was given up before the broker spoke: written like the confirms of a lost claim.
                Some(News::Late(key, receipt)) => self.unwritten.keep([(key.id, receipt)]),
                None if followers.is_empty() => return,
                None => self.send(std::mem::take(&mut followers)),
            }
        }
        if !followers.is_empty() {
            self.send(followers);
        }
    }

    /// Settles the claims whose events all have their outcome; whether there were any.
    fn settle_complete(&mut self) -> bool {
        let (complete, open) = std::mem::take(&mut self.progress.flights)
            .into_iter()
            .partition::<Vec<_>, _>(Flight::is_complete);
        self.progress.flights = open;
        let any = !complete.is_empty();
        for flight in complete {
            self.source.told(flight.completed());
            let Landed { claim, settlements, rests, withheld, left } = flight.land();
            self.limit.give_back(left);
            let Some(claim) = claim else {
                #[cfg(feature = "mutants")]
                self.outbox.settle_unclaimed(&settlements);
                self.unwritten.keep(confirms(settlements));
                continue;
            };
            let (claimed, began) = (count(&settlements), clock::now());
            #[cfg(feature = "mutants")]
            let kept = settlements.clone();
            match self.outbox.settle(claim, settlements) {
                Ok(Settled { tally, refused, confirmed }) => {
                    let tally = Tally { claimed, ..tally };
                    self.source.told(Happening::Settled { tally: &tally, took: clock::since(began) });
                    self.tally += tally;
                    if tally.gone + tally.unwritten > 0 {
                        self.source.be_the_last();
                    }
                    self.source.landed(rests, withheld);
                    self.keep(refused, confirmed);
                }
                Err(LostClaim { error, confirmed }) => {
                    #[cfg(feature = "mutants")]
                    self.outbox.settle_unclaimed(&kept);
                    self.unwritten.keep(confirmed);
                    self.fail(error);
                }
            }
        }
        any
    }

    /// Keeps the confirms that a settle did not write, and says what the table has against them.
    fn keep(&mut self, refused: Vec<(i64, Error)>, confirmed: Vec<(i64, Receipt)>) {
        self.unwritten.keep(confirmed);
        for (row, error) in refused {
            let is_confirmed = self.unwritten.holds(row);
            self.digest.unwritable(row, is_confirmed, &error);
            if is_confirmed {
                self.unwritten.refused(&error);
            }
        }
        if let Err(error) = self.unwritten.are_few() {
            self.fail(error);
        }
    }

    /// Keeps the open claims alive. One that is lost frees its rows, so its unsent events must not be sent.
    fn keep_claims(&mut self, silence: Duration) {
        let mut lost = None;
        for flight in &mut self.progress.flights {
            if let Err(error) = flight.touch(silence) {
                lost = Some(error);
            }
            flight.hand_back_in_time();
        }
        if let Some(error) = lost {
            self.fail(error);
        }
    }

    fn watch_broker(&mut self) {
        self.source.told(Happening::Alive);
        for took in self.session.answers() {
            self.source.told(Happening::Answered { took });
        }
        let state = self.session.state();
        if let Some(contact) = self.link.saw(state) {
            self.source.told(Happening::Contact { server: Server::Broker, contact });
        }
        let trouble = match state {
            State::Open => None,
            State::Lost(reason) => Some(lost(reason)),
            State::Blocked { since, reason } => {
                let error = blocked(reason);
                if !std::mem::replace(&mut self.progress.told_of_block, true) {
                    log::debug!("{error}; waiting for what is in flight");
                }
                (clock::since(*since) > self.config.broker.publish_timeout).then_some(error)
            }
        };
        if let Some(error) = trouble {
            let reason = error.to_string();
            self.fail(error);
            self.session.forsake(&reason);
        }
        if self.progress.winding_down.is_some_and(|until| clock::now() > until) {
            self.session.forsake("no confirm before the relay had to go on");
        }
    }

    /// Finishes what is in flight and claims no more; the first error is the drain's.
    fn fail(&mut self, error: Error) {
        self.progress.trouble.get_or_insert(error);
        self.wind_down(self.config.broker.publish_timeout);
    }

    fn wind_down(&mut self, limit: Duration) {
        let until = clock::now() + limit;
        match self.progress.winding_down {
            Some(before) => self.progress.winding_down = Some(before.min(until)),
            None => {
                self.progress.winding_down = Some(until);
                self.progress.flights.iter_mut().for_each(Flight::hand_back);
                self.session.recall();
            }
        }
    }
}

/// Tells what becomes of events.
fn tell<'e>(
    news: impl Iterator<Item = &'e (Event, Settlement)>,
    source: &mut dyn Source,
    digest: &mut Digest,
) {
    for (event, settlement) in news {
        source.decided(event, settlement);
        digest.decided(event, settlement);
    }
}

fn count<T>(these: &[T]) -> u64 {
    u64::try_from(these.len()).unwrap_or(u64::MAX)
}
