//! The main path: broker first, then claim, publish, settle until nothing is due; again at every beat.
//!
//! It orders the effects and logs; what an outcome means is `policy.rs`, how either server is spoken to is
//! `outbox` and `publisher`.

mod chain;
mod drain;
mod flight;
mod health;
mod retention;
mod stop;
mod walk;

use std::time::{Duration, Instant};

use crate::config::Config;
use crate::confirm::Receipt;
use crate::error::{Error, Kind, Result};
use crate::event::Tally;
use crate::outbox::Outbox;
use crate::publisher::{News, Session, State, blocked};

pub use health::Trouble;
pub use stop::Stop;

use drain::{Drain, End, Progress};
use health::{Change, Health};
use retention::Retention;
use walk::Walk;

/// The longest wait for the broker's goodbye.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// How often a tick opens another connection when its own is lost under way. The events that were in flight go
/// alone on the next one, which finds one that ends connections.
const RECONNECTS: u32 = 3;

/// How long late confirms are waited for before their events are claimed again. An alarm that is over lets them all
/// through at once.
const LATE_MAX: Duration = Duration::from_secs(2);

/// What a tick did.
#[derive(Debug, Clone)]
pub struct Tick {
    /// How many events ended how.
    pub tally: Tally,
    /// Whether it was asked to stop before nothing was due any more.
    pub stopped: bool,
    /// What else ended it early.
    pub trouble: Option<Trouble>,
}

/// The relay: one table, one broker.
#[derive(Debug)]
pub struct Relay {
    config: Config,
    outbox: Outbox,
    session: Option<Session>,
    /// Confirms whose claim was lost. They are facts, and are written before anything else is claimed.
    unwritten: Vec<(i64, Receipt)>,
    claims: u64,
    walk: Walk,
    health: Health,
    retention: Retention,
}

impl Relay {
    /// A relay that has not spoken to any server yet.
    pub fn new(config: Config) -> Self {
        let outbox = Outbox::new(config.database.clone(), config.claim.clone());
        Self {
            config,
            outbox,
            session: None,
            unwritten: Vec::new(),
            claims: 0,
            walk: Walk::new(),
            health: Health::default(),
            retention: Retention::default(),
        }
    }

    /// The table, for looking at it.
    pub fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// Ticks at the fixed rate until `stop` is requested: the first time at once, then at every beat. Beats that a
    /// long tick missed are skipped. While a server is in trouble it tries again sooner than at the next beat.
    pub fn run(&mut self, stop: &Stop) -> Tally {
        let mut total = Tally::default();
        let mut beat = Instant::now();
        while !stop.requested() {
            let (tally, stopped, change) = self.beat(stop);
            total += tally;
            if tally.claimed > 0 {
                log::info!("{tally}");
            }
            // Once per change, not once per try.
            change.log();
            let now = Instant::now();
            while beat <= now {
                beat += self.config.interval;
            }
            let next = match self.health.retry_after(self.config.interval) {
                Some(pause) => beat.min(now + pause),
                None => beat,
            };
            if let Some(retention) =
                self.config.retention.filter(|_| !stopped && self.health.trouble().is_none())
            {
                self.retention.purge(&mut self.outbox, retention, stop, next);
            }
            stop.wait_until(next);
        }
        total
    }

    /// One tick: drains what is due.
    pub fn tick(&mut self, stop: &Stop) -> Tick {
        let (tally, stopped, _) = self.beat(stop);
        Tick { tally, stopped, trouble: self.health.trouble().cloned() }
    }

    fn beat(&mut self, stop: &Stop) -> (Tally, bool, Change) {
        let mut tally = Tally::default();
        let mut result = self.drain(stop, &mut tally);
        for _ in 0..RECONNECTS {
            if result.is_ok() || stop.requested() || !self.lost_session() {
                break;
            }
            // What was left over is claimed, and counted, once more.
            tally.claimed -= tally.unconfirmed + tally.released;
            (tally.unconfirmed, tally.released) = (0, 0);
            result = self.drain(stop, &mut tally);
        }
        // Confirms in hand are worth one more try before this process may end.
        if let Err(error) = self.write_late(&mut tally) {
            result = result.and(Err(error));
        }
        let stopped = matches!(result, Ok(End::Stopped));
        (tally, stopped, self.health.note(result.map(|_| ())))
    }

    /// Whether the broker takes messages, for a run that had none to send: it speaks of an alarm only to those who
    /// publish, so this publishes a message to nobody. A user who may not do that learns nothing, and no harm is
    /// done.
    pub fn probe_broker(&mut self) -> Option<Trouble> {
        let probed = self.ready_session().and_then(|()| match self.session.as_mut() {
            Some(session) => session.probe().map(|_| ()),
            None => Ok(()),
        });
        self.health.note(probed);
        self.health.trouble().cloned()
    }

    /// Ends the broker's session in order, within a short time; the database's need no goodbye.
    pub fn close(mut self) {
        if let Some(session) = self.session.take() {
            session.close(CLOSE_MAX.min(self.config.grace / 5));
        }
    }

    fn drain(&mut self, stop: &Stop, tally: &mut Tally) -> Result<End> {
        // Nothing is claimed that could not be sent: no attempt is spent on an outage.
        self.ready_session()?;
        self.hear_late();
        self.write_late(tally)?;
        let Some(session) = self.session.as_mut() else {
            return Err(Error::new(Kind::Internal, "the session that was just opened is gone"));
        };
        let mut drain = Drain {
            config: &self.config,
            outbox: &mut self.outbox,
            session,
            unwritten: &mut self.unwritten,
            claims: &mut self.claims,
            walk: &mut self.walk,
            tally: Tally::default(),
            progress: Progress::new(),
        };
        let result = drain.run(stop);
        *tally += drain.tally;
        result
    }

    /// Takes in the confirms that came after their claim was given up, such as those that an alarm held back.
    fn hear_late(&mut self) {
        let Some(session) = self.session.as_mut() else { return };
        let deadline = Instant::now() + LATE_MAX;
        loop {
            let until = if session.awaits_late() { deadline } else { Instant::now() };
            match session.wait(until) {
                Some(News::Late(key, receipt)) => self.unwritten.push((key.id, receipt)),
                Some(News::Outcome(..)) => {}
                None => return,
            }
        }
    }

    /// Whether the connection was lost under way, which another one may mend at once. One that cannot even be opened
    /// is for the next try.
    fn lost_session(&mut self) -> bool {
        match self.session.as_mut().map(Session::state) {
            Some(State::Lost(reason)) => {
                log::warn!("the broker's connection was lost ({reason}); opening another");
                true
            }
            _ => false,
        }
    }

    /// The live session, or a new one. A blocked one is kept, to hear that it no longer is.
    fn ready_session(&mut self) -> Result<()> {
        if let Some(session) = self.session.as_mut() {
            match session.state() {
                State::Open => return Ok(()),
                State::Blocked { reason, .. } => return Err(blocked(reason)),
                State::Lost(reason) => log::debug!("the broker's connection was lost: {reason}"),
            }
        }
        self.session = None;
        self.session = Some(Session::open(&self.config.broker)?);
        Ok(())
    }

    /// Writes the confirms whose claim was lost. Those whose rows someone else holds are kept for the next time.
    fn write_late(&mut self, tally: &mut Tally) -> Result<()> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        let (written, open) = self.outbox.settle_late(&self.unwritten)?;
        tally.published += written;
        self.unwritten = open;
        Ok(())
    }
}
