//! The world: what happens next, in virtual time. Each relay runs until it waits for something; between any two such
//! steps others act, servers fail, and the relay may die.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use corosensei::CoroutineResult;

use crate::config::{Config, OnDead};
use crate::outbox::tests::rows::Rows;
use crate::publisher::tests::session::Hub;
use crate::relay::Stop;
use crate::simulated::{Chance, Wish, set_clock};

use super::checks;
use super::faults::{self, Faults, Kind};
use super::relays::{Life, Servers, life};
use super::traffic::{Writers, meddle, tidy_up};

/// What a second is.
pub(super) const SECOND: u64 = 1_000_000;

/// No history needs more, and what is not done then is stuck for ever.
const HEALED_BY: u64 = 900 * SECOND;

/// One of the relays.
pub(super) struct Relay {
    pub(super) life: Option<Life>,
    pub(super) stop: Stop,
    config: Config,
    wakes_at: u64,
    /// News of its connection wake it before that.
    hears: bool,
    pub(super) frozen_until: u64,
    /// Its clock's speed, in thousandths of the database's.
    pace: u64,
}

pub(super) struct World {
    pub(super) chance: Chance,
    pub(super) now: u64,
    pub(super) servers: Servers,
    pub(super) writers: Writers,
    pub(super) relays: Vec<Relay>,
    pub(super) faults: Faults,
    pub(super) on_dead: OnDead,
    /// How many second copies faults may have made so far.
    pub(super) copies_max: u64,
    connections_act_at: u64,
    ghosts_at: u64,
    start: Instant,
    pub(super) is_healed: bool,
    pub(super) steps: u64,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let kind = Kind::of(seed);
        let on_dead = if chance.one_in(3) { OnDead::Skip } else { OnDead::Block };
        let idle = chance.between(3, 10) * SECOND;
        let rows = Rc::new(RefCell::new(Rows::new(seed, idle)));
        let hub = Rc::new(RefCell::new(Hub::new(seed)));
        let servers = Servers { rows, hub };
        let to_come = chance.between(3, 14);
        let mut world = Self {
            writers: Writers::new(to_come, !kind.has_guilty()),
            faults: Faults::new(kind),
            relays: Vec::new(),
            now: SECOND,
            on_dead,
            copies_max: 0,
            connections_act_at: 0,
            ghosts_at: 0,
            start: Instant::now(),
            is_healed: false,
            steps: 0,
            servers,
            chance,
        };
        let relays = if kind.has_one_relay() { 1 } else { world.chance.between(1, 3) };
        for _ in 0..relays {
            let config = world.config();
            let pace = world.chance.between(900, 1_100);
            let mut relay = Relay {
                life: None,
                stop: Stop::new(),
                config,
                wakes_at: 0,
                hears: false,
                frozen_until: 0,
                pace,
            };
            relay.wakes_at = world.chance.between(0, 2 * SECOND);
            world.relays.push(relay);
        }
        if kind.has_guilty() {
            world.servers.hub.borrow_mut().broker.is_well = false;
        }
        world
    }

    fn config(&mut self) -> Config {
        let mut config = Config::new("postgres://u@h/d", "amqp://u@h").unwrap();
        let chance = &mut self.chance;
        let mut count = |least, most| usize::try_from(chance.between(least, most)).unwrap();
        config.claim.batch_rows = count(1, 12);
        config.claim.batch_bytes = count(40, 600);
        config.broker.workers = count(1, 2);
        config.broker.window = count(1, 5);
        config.claim.on_dead = self.on_dead;
        config.claim.min_age = Duration::from_millis(chance.between(0, 1) * 500);
        config.claim.max_age = chance.one_in(10).then(|| Duration::from_secs(20));
        config.interval = Duration::from_millis(chance.between(2, 40) * 100);
        config.broker.publish_timeout = Duration::from_millis(chance.between(10, 40) * 100);
        config.grace = Duration::from_secs(2);
        config.retry.backoff_base = Duration::from_secs(1);
        config.retry.backoff_max = Duration::from_secs(8);
        config.retry.max_failures = 3;
        config.claim.max_failures = 3;
        config
    }

    /// Plays the history to its end: first with faults, then all is well and everything drains.
    pub(super) fn play(&mut self) {
        while !self.is_over() {
            self.step();
        }
        let stopped: Vec<Life> = self.relays.iter_mut().filter_map(|it| it.life.take()).collect();
        drop(stopped);
    }

    fn is_over(&mut self) -> bool {
        if !self.is_healed {
            if self.writers.acts_at().is_none() && self.now > self.faults.until {
                self.heal();
            }
            return false;
        }
        assert!(self.now < HEALED_BY, "{:#?} are stuck", self.unfinished());
        let mut rows = self.servers.rows.borrow_mut();
        tidy_up(&mut rows);
        let is_done = !rows.rows.iter().any(|it| it.holds(OnDead::Block));
        is_done && self.servers.hub.borrow().broker.ghosts.is_empty()
    }

    fn unfinished(&self) -> Vec<crate::outbox::tests::rows::Row> {
        let rows = self.servers.rows.borrow();
        rows.rows.iter().filter(|it| it.holds(OnDead::Block)).cloned().collect()
    }

    fn heal(&mut self) {
        self.is_healed = true;
        let mut rows = self.servers.rows.borrow_mut();
        (rows.is_up, rows.loses_one_in) = (true, 0);
        let mut hub = self.servers.hub.borrow_mut();
        (hub.broker.is_up, hub.broker.has_alarm) = (true, false);
        hub.broker.set_slow(false);
        hub.broker.is_well = true;
    }

    /// The next thing that happens.
    fn step(&mut self) {
        self.steps += 1;
        let relay = (0..self.relays.len())
            .min_by_key(|it| self.relays[*it].wakes_at.max(self.relays[*it].frozen_until));
        let relay = relay.unwrap();
        let relay_at = self.relays[relay].wakes_at.max(self.relays[relay].frozen_until);
        let is_busy = self.servers.hub.borrow().is_busy();
        let connections_at = if is_busy { self.connections_act_at.max(self.now) } else { u64::MAX };
        let writers_at = self.writers.acts_at().unwrap_or(u64::MAX);
        let faults_at = if self.is_healed { u64::MAX } else { self.faults.next_at };
        let has_ghosts = !self.servers.hub.borrow().broker.ghosts.is_empty();
        let ghosts_at = if has_ghosts { self.ghosts_at.max(self.now) } else { u64::MAX };
        let at = relay_at.min(connections_at).min(writers_at).min(faults_at).min(ghosts_at);
        self.now = self.now.max(at);
        self.set_time();
        if at == relay_at {
            self.run(relay);
        } else if at == connections_at {
            self.connections_act();
        } else if at == writers_at {
            self.writers.act(self.now, &mut self.chance, &mut self.servers.rows.borrow_mut());
        } else if at == faults_at {
            faults::strike(self);
        } else {
            self.servers.hub.borrow_mut().broker.let_ghosts_arrive();
            self.ghosts_at = self.now + self.chance.between(1, 2 * SECOND);
        }
        checks::after_each_step(self);
    }

    fn set_time(&mut self) {
        self.servers.hub.borrow_mut().now = self.now;
        let mut rows = self.servers.rows.borrow_mut();
        rows.now = self.now;
        rows.enforce_limits();
        self.copies_max += std::mem::take(&mut rows.lost_rows);
        self.copies_max += std::mem::take(&mut self.servers.hub.borrow_mut().broker.copies_max);
    }

    fn clock_of(&self, relay: usize) -> Instant {
        self.start + Duration::from_micros(self.now / 1000 * self.relays[relay].pace + self.now % 1000)
    }

    /// When the world reaches what a relay's clock shows then.
    fn time_of(&self, relay: usize, shown: Instant) -> u64 {
        let micros = u64::try_from(shown.saturating_duration_since(self.start).as_micros()).unwrap();
        (micros / self.relays[relay].pace + 1) * 1000
    }

    fn run(&mut self, number: usize) {
        set_clock(Some(self.clock_of(number)));
        let relay = &mut self.relays[number];
        if relay.life.is_none() {
            relay.stop = Stop::new();
            relay.life = Some(life(number, &self.servers, &relay.config, &relay.stop));
        }
        let Some(life) = relay.life.as_mut() else { return };
        let wish = match life.resume(()) {
            CoroutineResult::Yield(wish) => wish,
            // It was asked to stop, and starts again after a while.
            CoroutineResult::Return(()) => {
                relay.life = None;
                Wish::Time(Duration::from_secs(1))
            }
        };
        let (at, hears) = match wish {
            Wish::Time(time) => (self.now + u64::try_from(time.as_micros()).unwrap().max(1), false),
            Wish::News(until) => (self.time_of(number, until).max(self.now + 1), true),
        };
        let relay = &mut self.relays[number];
        (relay.wakes_at, relay.hears) = (at, hears);
        if self.faults.kills_now(&mut self.chance) {
            self.kill(number);
        }
    }

    /// The process is gone; its sessions end, and what was on its wire may arrive or not.
    pub(super) fn kill(&mut self, number: usize) {
        self.copies_max += self.at_stake();
        set_clock(Some(self.clock_of(number)));
        let again_at = self.now + self.chance.between(1, 5 * SECOND);
        let relay = &mut self.relays[number];
        relay.life = None;
        (relay.wakes_at, relay.frozen_until) = (again_at, 0);
    }

    /// How many events have been sent and are not PUBLISHED, at most: what a fault now may have sent again.
    pub(super) fn at_stake(&self) -> u64 {
        let rows = self.servers.rows.borrow();
        let unfinished = rows.rows.iter().filter(|it| it.is_unfinished());
        let hub = self.servers.hub.borrow();
        let ghosts = u64::try_from(hub.broker.ghosts.len() + hub.broker.held()).unwrap();
        let in_flight: u64 = hub.connections.values().map(|it| it.in_flight()).sum();
        let received = unfinished.filter(|it| hub.broker.received.contains(&it.event_id()));
        ghosts + in_flight + u64::try_from(received.count()).unwrap()
    }

    fn connections_act(&mut self) {
        let hub = Rc::clone(&self.servers.hub);
        let mut hub = hub.borrow_mut();
        let Hub { broker, connections, .. } = &mut *hub;
        let mut is_quick = false;
        for connection in connections.values_mut() {
            if !connection.is_busy(broker) {
                continue;
            }
            let number = connection.relay;
            set_clock(Some(self.clock_of(number)));
            let relay = &mut self.relays[number];
            for _ in 0..=broker.chance.below(4) {
                connection.step(broker, self.now, relay.frozen_until > self.now);
            }
            is_quick |= connection.is_quick(broker);
            if relay.hears && connection.has_news() {
                relay.wakes_at = relay.wakes_at.min(self.now + 1);
            }
        }
        // Where all wait, time goes faster.
        let rest = if is_quick { 6_000 } else { 200_000 };
        self.connections_act_at = self.now + self.chance.between(50, rest);
    }

    pub(super) fn meddle(&mut self) {
        self.copies_max += meddle(&mut self.chance, &mut self.servers.rows.borrow_mut());
    }
}
