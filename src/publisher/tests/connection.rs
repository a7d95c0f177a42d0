//! A connection to the modelled broker, with the real desk and a real ledger for each of its lanes. What lanes and
//! session do with them, in `lane.rs` and `dispatch.rs`, is modelled here without threads and sockets.

use std::collections::{HashMap, VecDeque};

use crate::confirm::{Ledger, Verdict};
use crate::event::Outcome;
use crate::message::Message;

use super::super::desk::{Desk, Lesson, News};
use super::super::{Job, State};
use super::broker::{Broker, Nature};

/// How many times its timeout a lane waits while others have confirms; as in `lane.rs`.
const PATIENCE: u64 = 8;

/// A lane: what it published, what the broker has not looked at, and what it has decided and not told.
pub(crate) struct Lane {
    ledger: Ledger<Job>,
    wire: VecDeque<(u64, Message)>,
    last_tag: u64,
    verdicts: Vec<(u64, bool, String)>,
    returns: Vec<(u64, String)>,
    window: usize,
    last_news: u64,
}

impl Lane {
    fn new(window: usize, now: u64) -> Self {
        Self {
            ledger: Ledger::default(),
            wire: VecDeque::new(),
            last_tag: 0,
            verdicts: Vec::new(),
            returns: Vec::new(),
            window,
            last_news: now,
        }
    }

    fn publish(&mut self, job: Job, now: u64) {
        if self.ledger.is_empty() {
            self.last_news = now;
        }
        self.last_tag += 1;
        self.wire.push_back((self.last_tag, job.message.clone()));
        self.ledger.sent(job);
    }
}

pub(crate) struct Connection {
    pub(crate) relay: usize,
    pub(in crate::publisher) desk: Desk,
    news: VecDeque<News>,
    /// The state has changed since somebody waited last.
    pub(crate) has_changed: bool,
    pub(crate) state: State,
    /// What is known of exchanges.
    pub(crate) exchanges: HashMap<String, Result<(), String>>,
    feed: VecDeque<Job>,
    lanes: Vec<Lane>,
    trial: Option<(Lane, VecDeque<Job>)>,
    void_below: u64,
    window: usize,
    /// In microseconds.
    publish_timeout: u64,
    last_confirm: u64,
    has_published: bool,
}

impl Connection {
    pub(crate) fn new(relay: usize, workers: usize, window: usize, publish_timeout: u64, now: u64) -> Self {
        Self {
            relay,
            desk: Desk::new(),
            news: VecDeque::new(),
            has_changed: false,
            state: State::Open,
            exchanges: HashMap::new(),
            feed: VecDeque::new(),
            lanes: (0..workers).map(|_| Lane::new(window, now)).collect(),
            trial: None,
            void_below: 0,
            window,
            publish_timeout,
            last_confirm: now,
            has_published: false,
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost(_))
    }

    /// Whether anything may happen on it without anyone's doing.
    pub(crate) fn is_busy(&self, broker: &Broker) -> bool {
        if matches!(self.state, State::Blocked { .. }) {
            return !broker.has_alarm || self.lanes.iter().any(|it| !it.verdicts.is_empty());
        }
        !self.is_lost()
            && (!self.feed.is_empty()
                || self.trial.is_some()
                || self.lanes.iter().any(|it| !it.ledger.is_empty()))
    }

    /// Whether the broker has something to do or to tell, and does it soon.
    pub(crate) fn is_quick(&self, broker: &Broker) -> bool {
        let tells = |it: &Lane| it.verdicts.iter().any(|(_, _, key)| broker.answers_to(key));
        let is_quick = |it: &Lane| tells(it) || (!it.wire.is_empty() && !broker.has_alarm);
        !self.feed.is_empty() || self.lanes.iter().chain(self.trial.iter().map(|(it, _)| it)).any(is_quick)
    }

    /// How many messages are without a verdict that was told.
    pub(crate) fn in_flight(&self) -> u64 {
        let lanes = self.lanes.iter().chain(self.trial.iter().map(|(lane, _)| lane));
        lanes.map(|it| u64::try_from(it.ledger.len()).unwrap()).sum()
    }

    pub(crate) fn send(&mut self, broker: &mut Broker, jobs: Vec<Job>, now: u64) {
        self.desk.take(jobs);
        if let State::Lost(reason) = &self.state {
            self.desk.withdraw(Vec::new());
            return self.desk.lose(reason);
        }
        if self.desk.is_careful() {
            self.take_back_unsent();
        }
        self.flow(broker, now);
    }

    pub(crate) fn take_back_unsent(&mut self) {
        let unsent = self.feed.drain(..).collect();
        self.desk.put_back(unsent);
    }

    /// What `dispatch.rs` does after everything that may have changed something.
    pub(crate) fn flow(&mut self, broker: &mut Broker, now: u64) {
        loop {
            let jobs = self.desk.begin_trial();
            if jobs.is_empty() {
                break;
            }
            let mut queue = VecDeque::new();
            for job in jobs {
                match self.check_exchange(broker, &job.message) {
                    Err(reason) => self.desk.decide(job.key, Outcome::Refused(reason)),
                    Ok(()) => queue.push_back(job),
                }
            }
            if !queue.is_empty() {
                self.trial = Some((Lane::new(1, now), queue));
                break;
            }
            self.desk.end_trial([]);
        }
        let exchanges = &self.exchanges;
        let refusal = |name: &str| exchanges.get(name).and_then(|known| known.as_ref().err().cloned());
        while let Some(job) = self.desk.next(refusal) {
            self.feed.push_back(job);
        }
    }

    /// What the broker says of a message's exchange, unless that is known.
    pub(crate) fn check_exchange(&mut self, broker: &Broker, message: &Message) -> Result<(), String> {
        let exchange = &message.exchange;
        if exchange.is_empty() {
            return Ok(());
        }
        let known = self.exchanges.entry(exchange.clone());
        let ask = || match broker.nature(message) {
            Nature::NoExchange => Err(format!("NOT_FOUND - no exchange '{exchange}' in vhost '/' (404)")),
            _ => Ok(()),
        };
        known.or_insert_with(ask).clone()
    }

    /// Each lane may publish, be looked at, and hear something, or not. A relay that is frozen does nothing; its broker
    /// goes on.
    pub(crate) fn step(&mut self, broker: &mut Broker, now: u64, is_frozen: bool) {
        if self.is_lost() {
            return;
        }
        if !is_frozen && self.has_published && !broker.chance.one_in(4) {
            self.hear_of_alarm(broker, now);
        }
        for number in 0..=self.lanes.len() {
            // Publishing is the most frequent, so that windows fill up.
            match broker.chance.below(6) {
                0..=2 if !is_frozen => self.publish(broker, number, now),
                3 => self.broker_works(broker, number, now),
                4 if !is_frozen => self.broker_tells(broker, number, now),
                _ => {}
            }
            if self.is_lost() {
                return;
            }
        }
        if !is_frozen {
            self.look_for_stalls(broker, now);
        }
    }

    fn hear_of_alarm(&mut self, broker: &mut Broker, now: u64) {
        if broker.has_alarm != matches!(self.state, State::Blocked { .. }) {
            self.set_blocked(broker, broker.has_alarm, now);
        }
    }

    pub(crate) fn set_blocked(&mut self, broker: &mut Broker, blocked: bool, now: u64) {
        self.state = match blocked {
            true => State::Blocked { since: crate::clock::now(), reason: "low on memory".into() },
            false => State::Open,
        };
        self.has_changed = true;
        self.desk.set_open(!blocked);
        self.lanes.iter_mut().for_each(|it| it.last_news = now);
        if blocked {
            self.take_back_unsent();
        } else {
            self.flow(broker, now);
        }
    }

    fn publish(&mut self, broker: &mut Broker, number: usize, now: u64) {
        let void_below = self.void_below;
        if let Some(lane) = self.lanes.get_mut(number) {
            if lane.ledger.len() < lane.window {
                if let Some(job) = self.feed.pop_front().filter(|job| job.key.claim >= void_below) {
                    self.has_published = true;
                    broker.sent.push((self.relay, job.message.message_id.clone()));
                    lane.publish(job, now);
                }
            }
            return;
        }
        let Some((lane, queue)) = &mut self.trial else { return };
        if lane.ledger.is_empty() {
            match queue.pop_front() {
                Some(job) if job.key.claim >= void_below => {
                    self.has_published = true;
                    broker.sent.push((self.relay, job.message.message_id.clone()));
                    lane.publish(job, now);
                }
                Some(_) => {}
                None => {
                    self.trial = None;
                    self.desk.end_trial([]);
                    self.flow(broker, now);
                }
            }
        }
    }

    fn lane(&mut self, number: usize) -> Option<&mut Lane> {
        match self.lanes.get_mut(number) {
            Some(lane) => Some(lane),
            None => self.trial.as_mut().map(|(lane, _)| lane),
        }
    }

    /// The broker looks at the lane's next message.
    fn broker_works(&mut self, broker: &mut Broker, number: usize, now: u64) {
        if broker.has_alarm {
            return;
        }
        let Some((tag, message)) = self.lane(number).and_then(|lane| lane.wire.pop_front()) else {
            return;
        };
        let nature = broker.look_at(&message);
        let Some(lane) = self.lane(number) else { return };
        match nature {
            Nature::Fine | Nature::Full => {
                lane.verdicts.push((tag, nature == Nature::Fine, message.routing_key));
            }
            Nature::Unroutable => {
                lane.returns.push((tag, message.message_id));
                lane.verdicts.push((tag, true, message.routing_key));
            }
            Nature::NoExchange => {
                let text = format!("NOT_FOUND - no exchange '{}' in vhost '/'", message.exchange);
                self.close_channel(broker, number, 404, &text, now);
            }
            Nature::Malformed => self.close_channel(broker, number, 406, "PRECONDITION_FAILED", now),
            Nature::Killer => self.lose(broker, "INTERNAL_ERROR (541)"),
        }
    }

    /// What the broker had decided on the channel and not told is never told.
    fn close_channel(&mut self, broker: &mut Broker, number: usize, code: u16, text: &str, now: u64) {
        let window = self.window;
        let (mut lane, queue) = match self.lanes.get_mut(number) {
            Some(lane) => (std::mem::replace(lane, Lane::new(window, now)), None),
            None => match self.trial.take() {
                Some((lane, queue)) => (lane, Some(queue)),
                None => return,
            },
        };
        broker.copies_max += u64::try_from(lane.ledger.len()).unwrap();
        for lesson in self.desk.blame(lane.ledger.abandon(), code, text) {
            match lesson {
                Lesson::Ask(exchange) => self.exchanges.remove(&exchange),
                Lesson::Unusable(exchange, reason) => self.exchanges.insert(exchange, Err(reason)),
            };
        }
        if let Some(queue) = queue {
            self.desk.end_trial(queue);
        }
        self.flow(broker, now);
    }

    /// The broker tells one of its verdicts, or with one all up to it that are of its kind.
    fn broker_tells(&mut self, broker: &mut Broker, number: usize, now: u64) {
        let (pick, multiple) = (broker.chance.below(1 << 20), broker.chance.one_in(3));
        let Some(lane) = self.lane(number) else { return };
        if lane.verdicts.is_empty() {
            return;
        }
        let at = usize::try_from(pick).unwrap() % lane.verdicts.len();
        if !broker.answers_to(&lane.verdicts[at].2) {
            return;
        }
        let (tag, ack, _) = lane.verdicts.remove(at);
        // `multiple` speaks for every tag below that is without a verdict, so it must be true of them.
        let is_true = |(other, kind, key): &(u64, bool, String)| {
            *other > tag || (*kind == ack && broker.answers_to(key))
        };
        let true_of_all =
            lane.verdicts.iter().all(is_true) && lane.wire.iter().all(|(other, _)| *other > tag);
        let multiple = multiple && true_of_all;
        if multiple {
            lane.verdicts.retain(|(other, _, _)| *other > tag);
        }
        lane.last_news = now;
        // Returns come before the acks of what was returned, and are taken in first.
        let (told, kept) = std::mem::take(&mut lane.returns)
            .into_iter()
            .partition::<Vec<_>, _>(|(other, _)| if multiple { *other <= tag } else { *other == tag });
        lane.returns = kept;
        for (_, id) in told {
            lane.ledger.returned(|job| job.message.message_id == id, "NO_ROUTE");
        }
        let verdicts = if ack { lane.ledger.ack(tag, multiple) } else { lane.ledger.nack(tag, multiple) };
        let outcomes = verdicts.into_iter().map(|(job, verdict)| {
            let outcome = match verdict {
                Verdict::Confirmed(receipt) => Outcome::Confirmed(receipt),
                Verdict::Returned(reason) => Outcome::Refused(reason),
                Verdict::Nacked => Outcome::Busy("nacked".into()),
            };
            (job.key, outcome)
        });
        self.last_confirm = now;
        self.desk.note(outcomes.collect());
        self.flow(broker, now);
    }

    fn look_for_stalls(&mut self, broker: &mut Broker, now: u64) {
        if matches!(self.state, State::Blocked { .. }) {
            self.lanes.iter_mut().for_each(|it| it.last_news = now);
            self.trial.iter_mut().for_each(|(lane, _)| lane.last_news = now);
            return;
        }
        let (timeout, silence) = (self.publish_timeout, now - self.last_confirm);
        let is_stalled = |lane: &Lane, timeout: u64| {
            let own = now - lane.last_news;
            !lane.ledger.is_empty() && ((own > timeout && silence > timeout) || own > PATIENCE * timeout)
        };
        if self.lanes.iter().any(|lane| is_stalled(lane, timeout)) {
            return self.lose(broker, "no confirm within publish_timeout");
        }
        if let Some((mut lane, queue)) = self.trial.take_if(|(lane, _)| is_stalled(lane, 2 * timeout)) {
            for job in lane.ledger.abandon() {
                self.desk.decide(job.key, Outcome::Unknown("no confirm within twice the time, alone".into()));
            }
            broker.ghosts.extend(lane.wire.into_iter().map(|(_, message)| message));
            broker.copies_max += 1;
            self.desk.end_trial(queue);
            self.flow(broker, now);
        }
    }

    pub(crate) fn recall(&mut self) {
        self.take_back_unsent();
        let untried = self.trial.as_mut().map(|(_, queue)| queue.drain(..).collect()).unwrap_or_default();
        self.desk.withdraw(untried);
    }

    pub(crate) fn forsake(&mut self, broker: &mut Broker, reason: &str) {
        broker.copies_max += self.in_flight();
        self.recall();
        self.void_below = self.void_below.max(self.desk.forsake(reason));
    }

    /// The connection ends. What is on the wire may reach the broker yet, in its order.
    pub(crate) fn lose(&mut self, broker: &mut Broker, reason: &str) {
        if self.is_lost() {
            return;
        }
        broker.copies_max += self.in_flight();
        for lane in self.lanes.iter_mut().chain(self.trial.as_mut().map(|(lane, _)| lane)) {
            let arrive = broker.chance.below(u64::try_from(lane.wire.len()).unwrap() + 1);
            let arrive = usize::try_from(arrive).unwrap();
            broker.ghosts.extend(lane.wire.drain(..arrive).map(|(_, message)| message));
        }
        self.state = State::Lost(reason.into());
        self.desk.set_open(false);
        self.recall();
        self.desk.lose(reason);
    }

    pub(crate) fn news(&mut self) -> Option<News> {
        self.has_news();
        self.news.pop_front()
    }

    /// Whether somebody who waits need not wait any longer.
    pub(crate) fn has_news(&mut self) -> bool {
        self.news.extend(std::iter::from_fn(|| self.desk.news()));
        !self.news.is_empty() || self.has_changed || self.is_lost()
    }
}
