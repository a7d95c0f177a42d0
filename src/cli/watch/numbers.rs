//! What the relay has told so far, as numbers and a few last words; and what was gathered from the table beside it.
//!
//! Bounded, however long the relay runs. No I/O: who reads it copies it.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime};

use outboxd::error::{Error, Server};
use outboxd::event::{Event, Tally};
use outboxd::policy::Settlement;
use outboxd::relay::{Contact, Happening, Reason};

use super::gather::Figures;
use super::histogram::{self, Histogram};
use super::history::{History, Sample};

/// How many of the last failures are kept, and how many characters of each reason.
const FAILURES_MAX: usize = 20;
const REASON_MAX: usize = 300;

/// How many attempts ended with which reason, in the order of [`Reason::ALL`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ByReason([u64; Reason::ALL.len()]);

impl ByReason {
    fn count(&mut self, reason: Reason) {
        let place = Reason::ALL.iter().position(|it| *it == reason);
        if let Some(count) = place.and_then(|place| self.0.get_mut(place)) {
            *count += 1;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Reason, u64)> {
        Reason::ALL.into_iter().zip(self.0)
    }

    pub(super) fn sum(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// What is known of a server.
#[derive(Debug, Clone, Default)]
pub(super) struct Standing {
    /// None before it was used.
    pub(super) up: Option<bool>,
    /// Since when that is so.
    pub(super) since: Option<SystemTime>,
    /// Why it is not usable, or blocked.
    pub(super) reason: Option<String>,
    pub(super) blocked: bool,
    /// How often it was usable again after it had not been.
    pub(super) reconnects: u64,
}

/// Events of one type that were not published for one reason.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    /// Of the last of them.
    pub(super) at: SystemTime,
    /// Of the last of them.
    pub(super) id: i64,
    /// How many they are.
    pub(super) count: u64,
    pub(super) event_type: String,
    /// What it became.
    pub(super) became: &'static str,
    pub(super) reason: String,
}

#[derive(Debug, Clone)]
pub(super) struct Numbers {
    pub(super) started: SystemTime,
    /// Between two beats.
    pub(super) interval: Duration,
    pub(super) ticks: [u64; 2],
    pub(super) tick: Histogram,
    /// What was committed.
    pub(super) settled: Tally,
    pub(super) claimed: u64,
    pub(super) failed: ByReason,
    pub(super) dead: ByReason,
    pub(super) possible_duplicates: ByReason,
    pub(super) batch: Histogram,
    pub(super) claim: Histogram,
    pub(super) publish: Histogram,
    pub(super) settle: Histogram,
    pub(super) confirm: Histogram,
    pub(super) broker: Standing,
    pub(super) database: Standing,
    pub(super) wakeups: u64,
    pub(super) last_success: Option<SystemTime>,
    pub(super) last_tick: Option<SystemTime>,
    pub(super) trouble: Option<String>,
    /// When it last gave a sign of life.
    pub(super) alive: Instant,
    /// The last first.
    pub(super) failures: VecDeque<Failure>,
    pub(super) figures: Option<Figures>,
    /// Why the table could not be looked at the last time.
    pub(super) not_gathered: Option<String>,
    pub(super) history: History,
}

impl Numbers {
    pub(super) fn new() -> Self {
        let answer = || Histogram::new(histogram::ANSWER);
        Self {
            started: SystemTime::now(),
            interval: Duration::ZERO,
            ticks: [0; 2],
            tick: Histogram::new(histogram::TICK),
            settled: Tally::default(),
            claimed: 0,
            failed: ByReason::default(),
            dead: ByReason::default(),
            possible_duplicates: ByReason::default(),
            batch: Histogram::new(histogram::BATCH),
            claim: answer(),
            publish: answer(),
            settle: answer(),
            confirm: answer(),
            broker: Standing::default(),
            database: Standing::default(),
            wakeups: 0,
            last_success: None,
            last_tick: None,
            trouble: None,
            alive: Instant::now(),
            failures: VecDeque::with_capacity(FAILURES_MAX),
            figures: None,
            not_gathered: None,
            history: History::default(),
        }
    }

    /// Takes in what the relay tells.
    pub(super) fn note(&mut self, happening: Happening<'_>) {
        // Whatever it says, it says something.
        self.alive = Instant::now();
        match happening {
            Happening::Decided { event, settlement } => self.note_settlement(event, settlement),
            Happening::Claimed { events, took } => {
                self.claimed += events;
                #[allow(clippy::cast_precision_loss, reason = "a claim has 10,000 events at most")]
                self.batch.observe(events as f64);
                self.claim.observe(took.as_secs_f64());
            }
            Happening::Answered { took } => self.confirm.observe(took.as_secs_f64()),
            Happening::Completed { took, .. } => self.publish.observe(took.as_secs_f64()),
            Happening::Settled { tally, took } => {
                self.settled += *tally;
                self.settle.observe(took.as_secs_f64());
            }
            Happening::Ticked { took, trouble, .. } => self.note_tick(took, trouble),
            Happening::Contact { server: Server::Broker, contact } => self.broker.note(contact),
            Happening::Contact { server: Server::Database, contact } => self.database.note(contact),
            Happening::Woken => self.wakeups += 1,
            _ => {}
        }
    }

    /// Keeps a sample of how things stand, for the plots.
    pub(super) fn sample(&mut self) {
        let figures = self.figures.as_ref().filter(|it| !it.is_stale());
        let backlog = figures.and_then(|it| it.backlog.as_ref());
        let sample = Sample {
            at: Instant::now(),
            published: self.settled.published,
            age: backlog.map(|it| it.oldest_due.unwrap_or_default()),
            due: backlog.map(|it| it.due + it.held_back),
        };
        self.history.push(sample);
    }

    fn note_tick(&mut self, took: Duration, trouble: Option<&Error>) {
        let now = SystemTime::now();
        self.tick.observe(took.as_secs_f64());
        self.last_tick = Some(now);
        let [fine, in_trouble] = &mut self.ticks;
        match trouble {
            None => {
                *fine += 1;
                self.last_success = Some(now);
            }
            Some(_) => *in_trouble += 1,
        }
        self.trouble = trouble.map(ToString::to_string);
    }

    fn note_settlement(&mut self, event: &Event, settlement: &Settlement) {
        let reason_class = Reason::of(settlement);
        let (became, reason) = match settlement {
            Settlement::Failed { reason, .. } => {
                reason_class.into_iter().for_each(|it| self.failed.count(it));
                ("FAILED", reason)
            }
            Settlement::Dead { reason, .. } => {
                reason_class.into_iter().for_each(|it| self.dead.count(it));
                ("DEAD", reason)
            }
            Settlement::Expired { reason } => ("EXPIRED", reason),
            Settlement::Unconfirmed { reason, .. } => {
                reason_class.into_iter().for_each(|it| self.possible_duplicates.count(it));
                ("unconfirmed", reason)
            }
            Settlement::Published(_) | Settlement::Released => return,
        };
        let failure = Failure {
            at: SystemTime::now(),
            id: event.id,
            count: 1,
            event_type: cut(&event.event_type).into(),
            became,
            reason: cut(reason).into(),
        };
        self.note_failure(failure);
    }

    /// The same as an earlier one takes its place: a thousand of a kind must not push the only one of another out.
    fn note_failure(&mut self, mut failure: Failure) {
        let same = |it: &Failure| {
            it.became == failure.became && it.reason == failure.reason && it.event_type == failure.event_type
        };
        let before = self.failures.iter().position(same).and_then(|place| self.failures.remove(place));
        failure.count += before.map_or(0, |it| it.count);
        self.failures.truncate(FAILURES_MAX - 1);
        self.failures.push_front(failure);
    }
}

/// The beginning of a text, without copying more than is kept.
fn cut(text: &str) -> &str {
    let end = text.char_indices().nth(REASON_MAX).map_or(text.len(), |(end, _)| end);
    text.get(..end).unwrap_or_default()
}

impl Standing {
    fn note(&mut self, contact: Contact<'_>) {
        let was_down = self.up == Some(false);
        match contact {
            Contact::Connected | Contact::Unblocked => {
                self.reconnects += u64::from(was_down);
                (self.up, self.blocked, self.reason) = (Some(true), false, None);
            }
            Contact::Blocked(reason) => {
                (self.up, self.blocked, self.reason) = (Some(true), true, Some(reason.into()));
            }
            Contact::Lost(reason) => {
                (self.up, self.blocked, self.reason) = (Some(false), false, Some(reason.into()));
            }
            _ => return,
        }
        self.since = Some(SystemTime::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_comes_and_goes_is_followed() {
        let mut standing = Standing::default();
        let steps = [
            (Contact::Connected, Some(true), false, 0),
            (Contact::Blocked("low on memory"), Some(true), true, 0),
            (Contact::Unblocked, Some(true), false, 0),
            (Contact::Lost("gone"), Some(false), false, 0),
            (Contact::Connected, Some(true), false, 1),
            (Contact::Blocked("low on memory"), Some(true), true, 1),
            (Contact::Lost("gone"), Some(false), false, 1),
            (Contact::Connected, Some(true), false, 2),
        ];
        for (contact, up, blocked, reconnects) in steps {
            standing.note(contact);
            assert_eq!((standing.up, standing.blocked, standing.reconnects), (up, blocked, reconnects));
            let has_reason = matches!(contact, Contact::Blocked(_) | Contact::Lost(_));
            assert_eq!(standing.reason.is_some(), has_reason, "{contact:?}");
        }
    }

    #[test]
    fn what_is_kept_of_failures_is_bounded() {
        let mut numbers = Numbers::new();
        let event = Event::new(1, "01", "t");
        for id in 0..100 {
            let event = Event { id, ..event.clone() };
            let reason = format!("NO_ROUTE {id} {}", "é".repeat(1000));
            let settlement = Settlement::Dead { fail_count: 3, reason };
            numbers.note(Happening::Decided { event: &event, settlement: &settlement });
        }
        assert_eq!(numbers.failures.len(), FAILURES_MAX);
        assert_eq!(numbers.failures.front().map(|it| it.id), Some(99));
        assert!(numbers.failures.iter().all(|it| it.reason.chars().count() == REASON_MAX));
        // One of a kind stays, however many of another come.
        for id in 200..300 {
            let event = Event { id, ..event.clone() };
            let settlement = Settlement::Expired { reason: "max_age passed".into() };
            numbers.note(Happening::Decided { event: &event, settlement: &settlement });
        }
        let kept: Vec<_> = numbers.failures.iter().map(|it| (it.id, it.count)).collect();
        assert_eq!((kept[0], kept[1], kept.len()), ((299, 100), (99, 1), FAILURES_MAX));
        assert_eq!(numbers.dead.sum(), 100);
        assert_eq!(numbers.dead.iter().find(|(_, count)| *count > 0), Some((Reason::Unroutable, 100)));
    }
}
