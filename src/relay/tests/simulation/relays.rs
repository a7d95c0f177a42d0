//! A relay of the simulation: the real engine, walk and drain, on modelled servers. It blocks as it does in life, and
//! whenever it does the world goes on; dropped there, it has died there.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use corosensei::{Coroutine, Yielder};

use crate::config::{self, Config};
use crate::confirm::Receipt;
use crate::error::{Error, Result};
use crate::outbox::tests::rows::Rows;
use crate::outbox::tests::sessions::{Claim, Table as ModelledTable, Wire};
use crate::outbox::{Look, Scope};
use crate::policy::Settlement;
use crate::publisher::tests::session::{Door, Hub, Session};
use crate::publisher::{Job, News, State};
use crate::relay::Stop;
use crate::relay::drain::End;
use crate::relay::engine::Engine;
use crate::relay::observer::{Observer, Watched};
use crate::relay::servers::{Broker, Connection, Lease, Settled, Table};
use crate::relay::walk::Walk;
use crate::simulated::{Pause, Wish};

/// The servers that all relays share.
#[derive(Clone)]
pub(super) struct Servers {
    pub(super) rows: Rc<RefCell<Rows>>,
    pub(super) hub: Rc<RefCell<Hub>>,
}

pub(super) type Life = Coroutine<(), Wish, ()>;

/// Begins a relay's life.
pub(super) fn life(relay: usize, servers: &Servers, config: &Config, stop: &Stop) -> Life {
    let (servers, config, stop) = (servers.clone(), config.clone(), stop.clone());
    Coroutine::new(move |yielder: &Yielder<(), Wish>, ()| {
        let pause = |wish| yielder.suspend(wish);
        run(relay, servers, config, &stop, &pause);
    })
}

/// What `Relay::run` does, without logging, purging and waiting for nudges.
fn run(relay: usize, servers: Servers, config: Config, stop: &Stop, pause: &Pause<'_>) {
    let interval = config.interval;
    let wire = Wire { rows: servers.rows, pause, config: config.claim.clone(), relay };
    let table = ModelledTable::new(wire);
    let door = Door { hub: servers.hub, pause, relay };
    let mut engine = Engine::on(table, door, config);
    let (mut walk, mut observer) = (Walk::new(), Observer::default());
    while !stop.requested() {
        let mut source = Watched { walk: &mut walk, observer: &mut observer };
        let (_, end, _) = engine.beat(stop, &mut source);
        let rest = match engine.health.retry_after(interval) {
            _ if end == Some(End::Beat) => continue,
            Some(rest) => rest,
            None => interval,
        };
        if end != Some(End::Stopped) {
            pause(Wish::Time(rest / 2));
            engine.look_at_broker(&mut source);
            pause(Wish::Time(rest / 2));
        }
    }
}

impl<'y> Table for ModelledTable<'y> {
    type Claim = Claim<'y>;

    fn pass_over(&mut self, rows: Vec<i64>) {
        Self::pass_over(self, rows);
    }

    fn claim(&mut self, scope: &Scope, rows_max: usize, drain_age: Duration) -> Result<Look<Claim<'y>>> {
        Self::claim(self, scope, rows_max, drain_age)
    }

    fn settle(&mut self, claim: Claim<'y>, settlements: Vec<(i64, Settlement)>) -> Settled {
        Self::settle(self, claim, settlements)
    }

    fn settle_late(
        &mut self,
        confirmed: &[(i64, Receipt)],
        _: impl FnMut(i64, &Error),
    ) -> Result<(u64, Vec<(i64, Receipt)>)> {
        Self::settle_late(self, confirmed)
    }
}

impl Lease for Claim<'_> {
    fn touch(&mut self, after: Duration) -> Result<()> {
        Self::touch(self, after)
    }
}

impl<'y> Broker for Door<'y> {
    type Session = Session<'y>;

    fn open(&self, config: &config::Broker) -> Result<Session<'y>> {
        Self::open(self, config)
    }
}

impl Connection for Session<'_> {
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
        Vec::new()
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
