//! The main path: broker first, then claim, publish, settle until nothing is due; again at every beat.
//!
//! It orders the effects and logs; what an outcome means is `policy.rs`, how either server is spoken to is
//! `outbox` and `publisher`.
//!
//! # With a loop of one's own
//! [`Relay::run`] and [`Relay::start`] keep the beat. A host that has a beat already calls [`Relay::tick`] in it:
//! ```no_run
//! use std::time::{Duration, Instant};
//! use outboxd::config::Config;
//! use outboxd::relay::{Relay, Stop};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::new("postgres://shop@localhost/shop", "amqp://shop@localhost")?;
//! let stop = Stop::new(); // a clone of it is for whoever ends the host
//! let mut relay = Relay::new(config);
//! while !stop.requested() {
//!     // The host's other work, and then:
//!     let tick = relay.tick(&stop);
//!     if let Some(trouble) = tick.trouble {
//!         eprintln!("{}", trouble.error); // nothing is lost; the next tick tries again
//!     }
//!     stop.wait_until(Instant::now() + Duration::from_secs(30));
//! }
//! relay.close();
//! # Ok(())
//! # }
//! ```
//! [`Relay::drain`] is for a host that runs, works off what is due, and ends: it also goes on over trouble that passes.
//!
//! A panic of the [observer](Relay::observed_by) is the caller's in these two and in `run`; a caller that catches it may
//! go on with the relay. On a thread of ours it ends the relay, and is told.

mod background;
mod chain;
mod deadline;
mod digest;
mod drain;
mod engine;
mod flight;
mod fold;
mod health;
mod limit;
mod line;
mod link;
mod observer;
mod preview;
mod reason;
mod requests;
mod retention;
mod servers;
mod source;
mod stage1;
mod stop;
mod summary;
mod unwritten;
mod wake;
mod walk;

use std::time::{Duration, Instant};

use crate::config::Config;
use crate::event::Tally;
use crate::outbox::Outbox;

pub use background::{RelayHandle, Status, Stopped};
pub use health::Trouble;
pub use link::Contact;
pub use observer::Happening;
pub use preview::{Plan, Preview, Previewed, preview};
pub use reason::Reason;
pub use stage1::{Answer, Stage1};
pub use stop::Stop;
pub use wake::WakeUp;

use drain::End;
use engine::Engine;
use health::Change;
use limit::Limit;
use observer::{Observer, Watched};
use retention::Retention;
use walk::Walk;

/// How long a server in trouble is left alone, however often someone nudges.
const NUDGED_AGAIN: Duration = Duration::from_secs(5);

/// How often a relay that waits looks at the broker's connection, and shows that it is alive.
const LOOK_AROUND: Duration = Duration::from_secs(1);

/// What a tick did, or a drain.
#[derive(Debug, Clone)]
pub struct Tick {
    /// How many events ended how.
    pub tally: Tally,
    /// Whether it was asked to stop before nothing was due any more.
    pub stopped: bool,
    /// Whether its time was over before nothing was due any more: the next one goes on. Only a drain leaves it so, and a
    /// tick within bounds.
    pub more: bool,
    /// What else ended it early. Nothing is lost by it: whatever was not settled is due again.
    pub trouble: Option<Trouble>,
}

/// The relay: one table, one broker, and the sessions on both, which it keeps from tick to tick.
///
/// Any number of them may work on one table, in one process or in many, with equal or different configurations. Nothing
/// is shared between them.
#[derive(Debug)]
pub struct Relay {
    engine: Engine,
    walk: Walk,
    retention: Retention,
    observer: Observer,
}

impl Relay {
    /// A relay that has not spoken to any server yet, and has no thread. It opens its sessions when it first ticks.
    pub fn new(config: Config) -> Self {
        Self {
            engine: Engine::new(config),
            walk: Walk::new(),
            retention: Retention::default(),
            observer: Observer::default(),
        }
    }

    /// The table, for looking at it, and for what an operator does by hand.
    pub fn outbox(&mut self) -> &mut Outbox {
        &mut self.engine.outbox
    }

    /// Has `watch` told what happens, on the thread that the relay works on. Default: nobody.
    ///
    /// It must be quick: while it is busy, no confirm is taken in and no claim is kept alive, and a claim that nobody
    /// keeps alive is lost after `claim_max_idle`. So it counts, or hands on. Whoever was given before is told, too.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use outboxd::config::Config;
    /// use outboxd::policy::Settlement;
    /// use outboxd::relay::{Happening, Relay};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = Config::new("postgres://shop@localhost/shop", "amqp://shop@localhost")?;
    /// let dead = Arc::new(AtomicU64::new(0));
    /// let counter = Arc::clone(&dead);
    /// let relay = Relay::new(config).observed_by(move |happening| {
    ///     if let Happening::Decided { settlement: Settlement::Dead { .. }, .. } = happening {
    ///         counter.fetch_add(1, Ordering::Relaxed);
    ///     }
    /// });
    /// let handle = relay.spawn()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn observed_by(mut self, watch: impl FnMut(Happening<'_>) + Send + 'static) -> Self {
        self.observer.add(watch);
        self
    }

    /// Ticks at the fixed rate until `stop` is requested: the first time at once, then at every beat, and when it is
    /// nudged, which [`Config::listen`] has a commit do. Beats that a long tick missed are skipped. While a server is in
    /// trouble it tries again sooner than at the next beat. What it has done, all in all.
    ///
    /// It also logs what a tick did, and purges where `retention` is set. After the request it finishes or hands back
    /// what is in flight, which takes `grace` at most, as long as the database answers.
    pub fn run(&mut self, stop: &Stop) -> Tally {
        self.run_telling(stop, |_| {})
    }

    /// The same, with word of each tick.
    fn run_telling(&mut self, stop: &Stop, mut tell: impl FnMut(&Tick)) -> Tally {
        let interval = self.engine.config.interval;
        let _wake_up = self.wake_up(stop);
        let mut total = Tally::default();
        let mut beat = Instant::now();
        while !stop.requested() {
            let began = Instant::now();
            let (tick, change) = self.beat(stop);
            total += tick.tally;
            self.engine.digest.ticked(&tick.tally, began);
            // Once per change, not once per try.
            change.log();
            tell(&tick);
            let now = Instant::now();
            while beat <= now {
                beat += interval;
            }
            let next = match self.engine.health.retry_after(interval) {
                _ if tick.more => now,
                Some(pause) => beat.min(now + pause),
                None => beat,
            };
            let is_idle = !tick.stopped && tick.trouble.is_none();
            if let Some(retention) = self.engine.config.retention.filter(|_| is_idle) {
                let alive = || self.observer.tell(Happening::Alive);
                self.retention.purge(&mut self.engine.outbox, retention, stop, next, alive);
            }
            if !is_idle {
                // Whoever nudges does not make a server well, but may know that it is.
                self.rest(stop, next.min(now + NUDGED_AGAIN), |until| stop.wait_until(until));
            }
            if self.rest(stop, next, |until| stop.wait_for_nudge(until)) {
                self.observer.tell(Happening::Woken);
            }
        }
        total
    }

    /// Waits, a little at a time, until `wait` says that it is over, or `until`; what it said last. Meanwhile it hears
    /// what becomes of the broker: a connection that is lost is worth a beat, which opens another.
    fn rest(&mut self, stop: &Stop, until: Instant, wait: impl Fn(Instant) -> bool) -> bool {
        loop {
            let mut source = Watched { walk: &mut self.walk, observer: &mut self.observer };
            let is_lost = self.engine.look_at_broker(&mut source);
            self.observer.tell(Happening::Alive);
            self.engine.digest.tell_due();
            if is_lost {
                return false;
            }
            if wait(until.min(Instant::now() + LOOK_AROUND)) {
                return true;
            }
            if stop.requested() || Instant::now() >= until {
                return false;
            }
        }
    }

    /// What nudges it when an event is committed, if it is to listen.
    fn wake_up(&self, stop: &Stop) -> Option<WakeUp> {
        let config = Some(&self.engine.config).filter(|it| it.listen)?;
        WakeUp::start(config, stop).inspect_err(|error| log::error!("{error}; the relay polls")).ok()
    }

    /// Drains what is due, as often as it takes until nothing is, a server is in trouble, or `stop` is requested. For a
    /// host with a loop of its own.
    ///
    /// It has no other limit: whoever writes faster than it sends keeps it busy. It is the host's to wait between ticks,
    /// also while there is [trouble](Tick::trouble), of which it logs nothing.
    pub fn tick(&mut self, stop: &Stop) -> Tick {
        self.tick_within(stop, None, None)
    }

    /// The same, but it claims nothing once `time` is over, and at most `events` events; what is in flight then is
    /// finished. [`Tick::more`] says that it ended for one of these.
    ///
    /// An event that is claimed a second time, because its connection was lost before it was sent, counts once.
    pub fn tick_within(&mut self, stop: &Stop, time: Option<Duration>, events: Option<u64>) -> Tick {
        self.engine.limit = Limit::new(time, events);
        let mut total = Tally::default();
        let tick = loop {
            let (tick, _) = self.beat(stop);
            total += tick.tally;
            if !tick.more || self.engine.limit.is_reached() {
                break Tick { tally: total, ..tick };
            }
        };
        self.engine.limit = Limit::default();
        tick
    }

    /// Ticks until nothing is due, also over trouble that passes; claims nothing after `limit`, or once `stop` is
    /// requested, and finishes what is in flight then. For a host that works off what is due and ends.
    ///
    /// The last tick's trouble, if it is in any still, and what all of them did.
    pub fn drain(&mut self, stop: &Stop, limit: Duration) -> Tick {
        self.engine.limit = Limit::new(Some(limit), None);
        let tick = self.drain_until(stop, self.engine.limit.until().unwrap_or_else(Instant::now));
        self.engine.limit = Limit::default();
        tick
    }

    fn drain_until(&mut self, stop: &Stop, until: Instant) -> Tick {
        let mut total = Tally::default();
        loop {
            let (tick, change) = self.beat(stop);
            total += tick.tally;
            change.log();
            let left = until.saturating_duration_since(Instant::now());
            let pause = match self.engine.health.retry_after(left) {
                _ if tick.more => Some(Duration::ZERO),
                pause => pause.filter(|_| !tick.stopped),
            };
            let next = pause.map(|pause| Instant::now() + pause).filter(|next| *next < until);
            match next {
                Some(next) if !stop.wait_until(next) => {}
                _ => return Tick { tally: total, ..tick },
            }
        }
    }

    fn beat(&mut self, stop: &Stop) -> (Tick, Change) {
        let began = Instant::now();
        let mut source = Watched { walk: &mut self.walk, observer: &mut self.observer };
        let (tally, end, change) = self.engine.beat(stop, &mut source);
        match &change {
            Change::Began(error) => self.observer.tell(Happening::TroubleBegan(error)),
            Change::Ended(..) => self.observer.tell(Happening::TroubleEnded),
            Change::None | Change::Goes(_) => {}
        }
        let (took, trouble) = (began.elapsed(), self.engine.health.trouble().map(|it| &it.error));
        self.observer.tell(Happening::Ticked { tally: &tally, took, trouble });
        let (stopped, more) = (end == Some(End::Stopped), end == Some(End::Beat));
        (Tick { tally, stopped, more, trouble: self.engine.health.trouble().cloned() }, change)
    }

    /// Whether the broker takes messages, for a run that had none to send: it speaks of an alarm only to those who
    /// publish, so this publishes a message to nobody. A user who may not do that learns nothing, and no harm is
    /// done. What keeps it from taking them, if anything does; the answer is waited for two seconds, after what opening
    /// a session takes.
    pub fn probe_broker(&mut self) -> Option<Trouble> {
        self.engine.probe_broker()
    }

    /// Ends the broker's session in order, within two seconds; the database's need no goodbye. A relay that is dropped
    /// instead ends it by force, which the broker notes in its log.
    pub fn close(self) {
        self.engine.close();
    }
}

#[cfg(test)]
mod tests;
