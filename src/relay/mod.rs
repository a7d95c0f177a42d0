//! The main path: broker first, then claim, publish, settle until nothing is due; again at every beat.
//!
//! It orders the effects and logs; what an outcome means is `policy.rs`, how either server is spoken to is
//! `outbox` and `publisher`.

mod background;
mod chain;
mod deadline;
mod drain;
mod engine;
mod flight;
mod health;
mod observer;
mod requests;
mod retention;
mod source;
mod stage1;
mod stop;
mod wake;
mod walk;

use std::time::{Duration, Instant};

use crate::config::Config;
use crate::event::Tally;
use crate::outbox::Outbox;

pub use background::{RelayHandle, Status, Stopped};
pub use health::Trouble;
pub use observer::Happening;
pub use stage1::{Answer, Stage1};
pub use stop::Stop;
pub use wake::WakeUp;

use drain::End;
use engine::Engine;
use health::Change;
use observer::{Observer, Watched};
use retention::Retention;
use walk::Walk;

/// How long a server in trouble is left alone, however often someone nudges.
const NUDGED_AGAIN: Duration = Duration::from_secs(5);

/// What a tick did.
#[derive(Debug, Clone)]
pub struct Tick {
    /// How many events ended how.
    pub tally: Tally,
    /// Whether it was asked to stop before nothing was due any more.
    pub stopped: bool,
    /// Whether its time was over before nothing was due any more: the next one goes on.
    pub more: bool,
    /// What else ended it early.
    pub trouble: Option<Trouble>,
}

/// The relay: one table, one broker.
#[derive(Debug)]
pub struct Relay {
    engine: Engine,
    walk: Walk,
    retention: Retention,
    observer: Observer,
}

impl Relay {
    /// A relay that has not spoken to any server yet.
    pub fn new(config: Config) -> Self {
        Self {
            engine: Engine::new(config),
            walk: Walk::new(),
            retention: Retention::default(),
            observer: Observer::default(),
        }
    }

    /// The table, for looking at it.
    pub fn outbox(&mut self) -> &mut Outbox {
        &mut self.engine.outbox
    }

    /// Has `watch` told what happens, on the thread that the relay works on; it must be quick.
    #[must_use]
    pub fn observed_by(mut self, watch: impl FnMut(Happening<'_>) + Send + 'static) -> Self {
        self.observer = Observer::new(watch);
        self
    }

    /// Ticks at the fixed rate until `stop` is requested: the first time at once, then at every beat, and when it is
    /// nudged, which [`Config::listen`] has a commit do. Beats that a long tick missed are skipped. While a server is in trouble it tries again sooner than at
    /// the next beat.
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
            let (tick, change) = self.beat(stop);
            total += tick.tally;
            if tick.tally.claimed > 0 {
                log::info!("{}", tick.tally);
            }
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
                self.retention.purge(&mut self.engine.outbox, retention, stop, next);
            }
            if is_idle {
                stop.wait_for_nudge(next);
            } else {
                // Whoever nudges does not make a server well, but may know that it is.
                stop.wait_until(next.min(now + NUDGED_AGAIN));
                stop.wait_for_nudge(next);
            }
        }
        total
    }

    /// What nudges it when an event is committed, if it is to listen.
    fn wake_up(&self, stop: &Stop) -> Option<WakeUp> {
        let config = Some(&self.engine.config).filter(|it| it.listen)?;
        WakeUp::start(config, stop).inspect_err(|error| log::error!("{error}; the relay polls")).ok()
    }

    /// Drains what is due, as often as it takes until nothing is.
    pub fn tick(&mut self, stop: &Stop) -> Tick {
        let mut total = Tally::default();
        loop {
            let (tick, _) = self.beat(stop);
            total += tick.tally;
            if !tick.more {
                return Tick { tally: total, ..tick };
            }
        }
    }

    /// Ticks until nothing is due, also over trouble that passes; at most for about `limit`, or until `stop` is requested.
    /// The last tick's trouble, if it is in any still, and what all of them did.
    pub fn drain(&mut self, stop: &Stop, limit: Duration) -> Tick {
        let until = deadline::after(limit);
        let mut total = Tally::default();
        loop {
            let (tick, change) = self.beat(stop);
            total += tick.tally;
            change.log();
            let pause = match self.engine.health.retry_after(limit) {
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
        self.observer.tell(Happening::Ticked { tally: &tally, took: began.elapsed() });
        let (stopped, more) = (end == Some(End::Stopped), end == Some(End::Beat));
        (Tick { tally, stopped, more, trouble: self.engine.health.trouble().cloned() }, change)
    }

    /// Whether the broker takes messages, for a run that had none to send: it speaks of an alarm only to those who
    /// publish, so this publishes a message to nobody. A user who may not do that learns nothing, and no harm is
    /// done.
    pub fn probe_broker(&mut self) -> Option<Trouble> {
        self.engine.probe_broker()
    }

    /// Ends the broker's session in order, within a short time; the database's need no goodbye.
    pub fn close(self) {
        self.engine.close();
    }
}
