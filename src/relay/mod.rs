//! The main path: broker first, then claim, publish, settle until nothing is due; again at every beat.
//!
//! It orders the effects and logs; what an outcome means is `policy.rs`, how either server is spoken to is
//! `outbox` and `publisher`.

mod chain;
mod drain;
mod engine;
mod flight;
mod health;
mod requests;
mod retention;
mod source;
mod stage1;
mod stop;
mod walk;

use std::time::Instant;

use crate::config::Config;
use crate::event::Tally;
use crate::outbox::Outbox;

pub use health::Trouble;
pub use stage1::{Answer, Stage1};
pub use stop::Stop;

use engine::Engine;
use retention::Retention;
use walk::Walk;

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
    engine: Engine,
    walk: Walk,
    retention: Retention,
}

impl Relay {
    /// A relay that has not spoken to any server yet.
    pub fn new(config: Config) -> Self {
        Self { engine: Engine::new(config), walk: Walk::new(), retention: Retention::default() }
    }

    /// The table, for looking at it.
    pub fn outbox(&mut self) -> &mut Outbox {
        &mut self.engine.outbox
    }

    /// Ticks at the fixed rate until `stop` is requested: the first time at once, then at every beat. Beats that a
    /// long tick missed are skipped. While a server is in trouble it tries again sooner than at the next beat.
    pub fn run(&mut self, stop: &Stop) -> Tally {
        let interval = self.engine.config.interval;
        let mut total = Tally::default();
        let mut beat = Instant::now();
        while !stop.requested() {
            let (tally, stopped, change) = self.engine.beat(stop, &mut self.walk);
            total += tally;
            if tally.claimed > 0 {
                log::info!("{tally}");
            }
            // Once per change, not once per try.
            change.log();
            let now = Instant::now();
            while beat <= now {
                beat += interval;
            }
            let next = match self.engine.health.retry_after(interval) {
                Some(pause) => beat.min(now + pause),
                None => beat,
            };
            let is_idle = !stopped && self.engine.health.trouble().is_none();
            if let Some(retention) = self.engine.config.retention.filter(|_| is_idle) {
                self.retention.purge(&mut self.engine.outbox, retention, stop, next);
            }
            stop.wait_until(next);
        }
        total
    }

    /// One tick: drains what is due.
    pub fn tick(&mut self, stop: &Stop) -> Tick {
        let (tally, stopped, _) = self.engine.beat(stop, &mut self.walk);
        Tick { tally, stopped, trouble: self.engine.health.trouble().cloned() }
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
