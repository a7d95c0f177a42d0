//! Modelled lanes and a modelled broker around a desk, driven by chance that repeats with its seed.

use std::collections::{HashMap, HashSet, VecDeque};

use super::super::{Desk, Lesson, News};
use crate::confirm::{Ledger, Verdict};
use crate::event::Outcome;
use crate::message::Message;
use crate::publisher::{Job, Key};

const WINDOW: usize = 4;

/// Numbers that look like chance and repeat with their seed (xorshift).
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What the modelled broker does with a message, decided when the job is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nature {
    Fine,
    Full,
    Unroutable,
    /// Ends its channel; the broker's text names the exchange.
    NoExchange,
    /// Ends its channel; the text names nothing.
    Malformed,
}

/// A lane: what it published, what the broker has not looked at, and what it has decided and not told.
pub(super) struct Lane {
    ledger: Ledger<Job>,
    on_the_wire: VecDeque<(u64, Key)>,
    last_tag: u64,
    verdicts: Vec<(u64, bool)>,
    window: usize,
}

impl Lane {
    pub(super) fn new(window: usize) -> Self {
        Self {
            ledger: Ledger::default(),
            on_the_wire: VecDeque::new(),
            last_tag: 0,
            verdicts: Vec::new(),
            window,
        }
    }

    pub(super) fn publish(&mut self, job: Job) {
        self.last_tag += 1;
        self.on_the_wire.push_back((self.last_tag, job.key));
        self.ledger.sent(job);
    }
}

pub(super) struct World {
    pub(super) desk: Desk,
    pub(super) chance: Chance,
    pub(super) natures: HashMap<Key, Nature>,
    /// Which messages the broker has taken, at least once.
    pub(super) taken: HashSet<Key>,
    pub(super) unusable: HashMap<String, String>,
    pub(super) feed: VecDeque<Job>,
    pub(super) lanes: Vec<Lane>,
    pub(super) trial: Option<(Lane, VecDeque<Job>)>,
    pub(super) outcomes: HashMap<Key, Outcome>,
    pub(super) void_below: u64,
    pub(super) blocked: bool,
    pub(super) late: u64,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            desk: Desk::new(),
            chance: Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            natures: HashMap::new(),
            taken: HashSet::new(),
            unusable: HashMap::new(),
            feed: VecDeque::new(),
            lanes: vec![Lane::new(WINDOW), Lane::new(WINDOW)],
            trial: None,
            outcomes: HashMap::new(),
            void_below: 0,
            blocked: false,
            late: 0,
        }
    }

    pub(super) fn hand_over(&mut self, claim: u64) {
        let count = 1 + self.chance.below(8);
        let jobs = (0..count)
            .map(|n| {
                let key = Key { claim, id: i64::try_from(n).unwrap() };
                let nature = match self.chance.below(12) {
                    0 => Nature::Full,
                    1 => Nature::Unroutable,
                    2 => Nature::NoExchange,
                    3 => Nature::Malformed,
                    _ => Nature::Fine,
                };
                self.natures.insert(key, nature);
                let mut message = Message::probe();
                message.message_id = format!("{key:?}");
                message.exchange = if nature == Nature::NoExchange { "gone".into() } else { "there".into() };
                let mut job = Job::new(key, message);
                job.alone = self.chance.one_in(6);
                job.risky = job.alone && self.chance.one_in(2);
                job
            })
            .collect();
        self.desk.take(jobs);
        if self.desk.is_careful() {
            let unsent = self.feed.drain(..).collect();
            self.desk.put_back(unsent);
        }
        self.flow();
    }

    /// What `dispatch.rs` does after everything that may have changed something.
    pub(super) fn flow(&mut self) {
        let jobs = self.desk.begin_trial();
        if !jobs.is_empty() {
            let mut queue = VecDeque::new();
            for job in jobs {
                match self.unusable.get(&job.message.exchange) {
                    Some(reason) => self.desk.decide(job.key, Outcome::Refused(reason.clone())),
                    None => queue.push_back(job),
                }
            }
            if queue.is_empty() {
                self.desk.end_trial([]);
                return self.flow();
            }
            self.trial = Some((Lane::new(1), queue));
        }
        while let Some(job) = self.desk.next(|exchange| self.unusable.get(exchange).cloned()) {
            self.feed.push_back(job);
        }
    }

    /// Each lane may publish, be looked at, and hear something, or not.
    pub(super) fn step(&mut self) {
        for number in 0..3 {
            // Publishing is the most frequent, so that windows fill up.
            match self.chance.below(6) {
                0..=2 => self.publish(number),
                3 => self.broker_works(number),
                4 => self.broker_tells(number),
                _ => {}
            }
        }
        while let Some(news) = self.desk.news() {
            self.hear(news);
        }
    }

    pub(super) fn publish(&mut self, number: usize) {
        let void_below = self.void_below;
        if let Some(lane) = self.lanes.get_mut(number) {
            if lane.ledger.len() < lane.window {
                if let Some(job) = self.feed.pop_front() {
                    if job.key.claim >= void_below {
                        lane.publish(job);
                    }
                }
            }
            return;
        }
        let Some((lane, queue)) = &mut self.trial else { return };
        if lane.ledger.is_empty() {
            match queue.pop_front() {
                Some(job) if job.key.claim >= void_below => lane.publish(job),
                Some(_) => {}
                None => {
                    self.trial = None;
                    self.desk.end_trial([]);
                    self.flow();
                }
            }
        }
    }

    pub(super) fn lane(&mut self, number: usize) -> Option<&mut Lane> {
        match number {
            2 => self.trial.as_mut().map(|(lane, _)| lane),
            _ => self.lanes.get_mut(number),
        }
    }

    /// The broker looks at the lane's next message.
    pub(super) fn broker_works(&mut self, number: usize) {
        if self.blocked {
            return;
        }
        let Some((tag, key)) = self.lane(number).and_then(|lane| lane.on_the_wire.pop_front()) else {
            return;
        };
        match self.natures[&key] {
            nature @ (Nature::Fine | Nature::Full) => {
                if nature == Nature::Fine {
                    self.taken.insert(key);
                }
                self.lane(number).unwrap().verdicts.push((tag, nature == Nature::Fine));
            }
            Nature::Unroutable => {
                let lane = self.lane(number).unwrap();
                lane.ledger.returned(|job| job.key == key, "NO_ROUTE");
                lane.verdicts.push((tag, true));
            }
            Nature::NoExchange => {
                self.close_channel(number, 404, "NOT_FOUND - no exchange 'gone' in vhost '/'")
            }
            Nature::Malformed => self.close_channel(number, 406, "PRECONDITION_FAILED"),
        }
    }

    /// What the broker had decided on the channel and not told is never told.
    pub(super) fn close_channel(&mut self, number: usize, code: u16, text: &str) {
        let mut in_flight = match number {
            2 => {
                let (mut lane, queue) = self.trial.take().unwrap();
                let in_flight = lane.ledger.abandon();
                let lessons = self.desk.blame(in_flight, code, text);
                self.learn(lessons);
                self.desk.end_trial(queue);
                return self.flow();
            }
            _ => std::mem::replace(&mut self.lanes[number], Lane::new(WINDOW)),
        };
        let lessons = self.desk.blame(in_flight.ledger.abandon(), code, text);
        self.learn(lessons);
        self.flow();
    }

    pub(super) fn learn(&mut self, lessons: Vec<Lesson>) {
        for lesson in lessons {
            if let Lesson::Unusable(exchange, reason) = lesson {
                self.unusable.insert(exchange, reason);
            }
        }
    }

    /// The broker tells one of its verdicts, or with one all up to it that are of its kind.
    pub(super) fn broker_tells(&mut self, number: usize) {
        let pick = self.chance.below(8);
        let multiple = self.chance.one_in(3);
        let Some(lane) = self.lane(number) else { return };
        if lane.verdicts.is_empty() {
            return;
        }
        let at = usize::try_from(pick).unwrap() % lane.verdicts.len();
        let (tag, ack) = lane.verdicts.remove(at);
        // `multiple` speaks for every tag below that is without a verdict, so it must be true of them.
        let true_of_all = lane.verdicts.iter().all(|(other, kind)| *other > tag || *kind == ack)
            && lane.on_the_wire.iter().all(|(other, _)| *other > tag);
        let multiple = multiple && true_of_all;
        if multiple {
            lane.verdicts.retain(|(other, _)| *other > tag);
        }
        let verdicts = if ack { lane.ledger.ack(tag, multiple) } else { lane.ledger.nack(tag, multiple) };
        let outcomes = verdicts
            .into_iter()
            .map(|(job, verdict)| {
                let outcome = match verdict {
                    Verdict::Confirmed(receipt) => Outcome::Confirmed(receipt),
                    Verdict::Returned(reason) => Outcome::Refused(reason),
                    Verdict::Nacked => Outcome::Busy("nacked".into()),
                };
                (job.key, outcome)
            })
            .collect();
        self.desk.note(outcomes);
        self.flow();
    }

    pub(super) fn set_blocked(&mut self, blocked: bool) {
        self.blocked = blocked;
        self.desk.set_open(!blocked);
        if blocked {
            let unsent = self.feed.drain(..).collect();
            self.desk.put_back(unsent);
        } else {
            self.flow();
        }
    }

    pub(super) fn recall(&mut self) {
        let unsent = self.feed.drain(..).collect();
        self.desk.put_back(unsent);
        let untried = self.trial.as_mut().map(|(_, queue)| queue.drain(..).collect()).unwrap_or_default();
        self.desk.withdraw(untried);
    }

    pub(super) fn forsake(&mut self) {
        self.recall();
        self.void_below = self.void_below.max(self.desk.forsake("given up"));
    }

    pub(super) fn lose(&mut self) {
        self.recall();
        self.desk.lose("reset");
    }

    pub(super) fn hear(&mut self, news: News) {
        match news {
            News::Outcome(key, outcome) => {
                self.check(key, &outcome);
                let before = self.outcomes.insert(key, outcome);
                assert!(before.is_none(), "{key:?} has two outcomes, the first {before:?}");
            }
            News::Late(key, _) => {
                self.late += 1;
                assert!(self.taken.contains(&key), "{key:?} is confirmed late and was not taken");
                assert!(
                    matches!(self.outcomes[&key], Outcome::Unknown(_)),
                    "{key:?} is late and had an outcome"
                );
            }
        }
    }

    /// An outcome must be true of the message.
    pub(super) fn check(&self, key: Key, outcome: &Outcome) {
        let nature = self.natures[&key];
        let is_true = match outcome {
            Outcome::Confirmed(_) => self.taken.contains(&key),
            Outcome::Refused(_) => {
                matches!(nature, Nature::Unroutable | Nature::NoExchange | Nature::Malformed)
            }
            Outcome::Busy(_) => nature == Nature::Full,
            Outcome::Unknown(_) => true,
            Outcome::Unsent => !self.taken.contains(&key),
            Outcome::Invalid(_) => false,
        };
        assert!(is_true, "{key:?}, {nature:?}, is {outcome:?}");
    }
}
