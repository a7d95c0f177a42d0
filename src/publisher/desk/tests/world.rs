//! One connection to the modelled broker, and what comes out of its desk.

use std::collections::{HashMap, HashSet};

use super::super::News;
use crate::event::Outcome;
use crate::message::Message;
use crate::publisher::tests::broker::{Broker, FULL, GONE, MALFORMED, Nature, UNBOUND};
use crate::publisher::tests::connection::Connection;
use crate::publisher::{Job, Key};
use crate::simulated::Chance;

const WORKERS: usize = 2;
const WINDOW: usize = 4;

/// No time passes here, so that no lane ever stalls.
const NOW: u64 = 0;
const TIMEOUT: u64 = 1;

pub(super) struct World {
    pub(super) connection: Connection,
    broker: Broker,
    pub(super) chance: Chance,
    pub(super) natures: HashMap<Key, Nature>,
    pub(super) outcomes: HashMap<Key, Outcome>,
    pub(super) late: u64,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut broker = Broker::new(seed);
        broker.is_well = false;
        Self {
            connection: Connection::new(0, WORKERS, WINDOW, TIMEOUT, NOW),
            broker,
            chance: Chance::new(seed),
            natures: HashMap::new(),
            outcomes: HashMap::new(),
            late: 0,
        }
    }

    pub(super) fn hand_over(&mut self, claim: u64) {
        let count = 1 + self.chance.below(8);
        let jobs = (0..count).map(|n| {
            let key = Key { claim, id: i64::try_from(n).unwrap() };
            let (exchange, routing_key) = match self.chance.below(12) {
                0 => ("there", FULL),
                1 => ("there", UNBOUND),
                2 => (GONE, "fine"),
                3 => ("there", MALFORMED),
                _ => ("there", "fine"),
            };
            let message = Message {
                exchange: exchange.into(),
                routing_key: routing_key.into(),
                message_id: id(key),
                mandatory: true,
                ..Message::probe()
            };
            self.natures.insert(key, self.broker.nature(&message));
            let mut job = Job::new(key, message);
            job.alone = self.chance.one_in(6);
            job.risky = job.alone && self.chance.one_in(2);
            job
        });
        let jobs = jobs.collect();
        self.connection.send(&mut self.broker, jobs, NOW);
    }

    pub(super) fn step(&mut self) {
        self.connection.step(&mut self.broker, NOW, false);
        self.hear();
    }

    /// Goes on until nothing is on its way; what is stuck then is stuck for ever.
    pub(super) fn come_to_rest(&mut self) {
        for _ in 0..5_000 {
            if !self.connection.desk.is_waiting() {
                break;
            }
            self.step();
        }
        self.hear();
    }

    pub(super) fn set_blocked(&mut self, blocked: bool) {
        self.broker.has_alarm = blocked;
        if !self.connection.is_lost() {
            self.connection.set_blocked(&mut self.broker, blocked, NOW);
        }
    }

    pub(super) fn recall(&mut self) {
        self.connection.recall();
    }

    pub(super) fn forsake(&mut self) {
        self.connection.forsake(&mut self.broker, "given up");
    }

    pub(super) fn lose(&mut self) {
        self.connection.lose(&mut self.broker, "reset");
    }

    fn hear(&mut self) {
        let taken: HashSet<&str> = self.broker.received.iter().map(String::as_str).collect();
        while let Some(news) = self.connection.news() {
            match news {
                News::Outcome(key, outcome) => {
                    check(key, self.natures[&key], &outcome, taken.contains(id(key).as_str()));
                    let before = self.outcomes.insert(key, outcome);
                    assert!(before.is_none(), "{key:?} has two outcomes, the first {before:?}");
                }
                News::Late(key, _) => {
                    self.late += 1;
                    assert!(taken.contains(id(key).as_str()), "{key:?} is confirmed late and was not taken");
                    let was_unknown = matches!(self.outcomes[&key], Outcome::Unknown(_));
                    assert!(was_unknown, "{key:?} is late and had an outcome");
                }
            }
        }
    }
}

fn id(key: Key) -> String {
    format!("{}/{}", key.claim, key.id)
}

/// An outcome must be true of the message.
fn check(key: Key, nature: Nature, outcome: &Outcome, is_taken: bool) {
    let is_true = match outcome {
        Outcome::Confirmed(_) => is_taken,
        Outcome::Refused(_) => {
            matches!(nature, Nature::Unroutable | Nature::NoExchange | Nature::Malformed)
        }
        Outcome::Busy(_) => nature == Nature::Full,
        Outcome::Unknown(_) => true,
        Outcome::Unsent => !is_taken,
        Outcome::Invalid(_) => false,
    };
    assert!(is_true, "{key:?}, {nature:?}, is {outcome:?}");
}
