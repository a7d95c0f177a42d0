//! A worker: one channel in confirm mode with a window of unconfirmed messages, fed with jobs, reporting outcomes.
//!
//! It runs on a thread of the pool until its feed ends, its channel ends, or no confirm comes any more. It reports
//! every job that it took exactly once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use amiquip::{Channel, Confirm, Return};
use crossbeam_channel::{Receiver, Sender, TryRecvError, never, select};

use crate::confirm::{Ledger, Verdict};
use crate::event::Outcome;
use crate::message::Message;

use super::wire::{self, Ending};
use super::{Job, Key};

/// How often a lane that waits looks at its deadline.
const PATROL: Duration = Duration::from_millis(100);

/// How many times its timeout a lane without confirms waits while the connection brings some to others.
const PATIENCE: u32 = 8;

/// The bounds of what is published and unconfirmed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) messages: usize,
    /// A single larger message goes alone.
    pub(super) bytes: usize,
    /// The longest wait for the next confirm.
    pub(super) timeout: Duration,
}

/// What lanes tell their session.
#[derive(Debug)]
pub(super) enum Report {
    /// The broker's answers, and how long each took.
    Outcomes(Vec<(Key, Outcome)>, Vec<Duration>),
    Ended(Box<Ended>),
}

/// A lane's last words.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) lane: usize,
    pub(super) end: End,
    /// Published, without a verdict.
    pub(super) in_flight: Vec<Job>,
    /// Taken from the feed, not published.
    pub(super) held: Option<Job>,
}

/// Why a lane ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// Its feed ended, and every message has its verdict.
    Finished,
    /// Its channel or connection did.
    Closed(Ending),
    /// No confirm came within the window's timeout.
    Stalled,
    /// A bug of ours or of the client.
    Panicked,
}

pub(super) struct Lane {
    pub(super) number: usize,
    pub(super) channel: Channel,
    pub(super) confirms: Receiver<Confirm>,
    pub(super) returns: Receiver<Return>,
    pub(super) window: Window,
    pub(super) feed: Receiver<Job>,
    pub(super) reports: Sender<Report>,
    pub(super) shared: Arc<Shared>,
}

/// What the lanes of a connection and their session tell each other without a message.
#[derive(Debug)]
pub(super) struct Shared {
    /// While the broker blocks the connection no confirm can come, and none is missed.
    pub(super) blocked: AtomicBool,
    /// Claims numbered below this are given up: nothing of them may be published any more.
    pub(super) void_below: AtomicU64,
    started: Instant,
    /// When any lane heard a confirm, in milliseconds since the start.
    last_confirm_ms: AtomicU64,
}

impl Shared {
    pub(super) fn new() -> Self {
        Self {
            blocked: AtomicBool::new(false),
            void_below: AtomicU64::new(0),
            started: Instant::now(),
            last_confirm_ms: AtomicU64::new(0),
        }
    }

    fn note_confirm(&self) {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_confirm_ms.fetch_max(now_ms, Ordering::Relaxed);
    }

    /// How long the connection has brought no confirm.
    fn silence(&self) -> Duration {
        let last = Duration::from_millis(self.last_confirm_ms.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(last)
    }
}

/// A lane at work.
struct Work<'a> {
    lane: &'a Lane,
    ledger: Ledger<Job>,
    bytes: usize,
    held: Option<Job>,
    feed_ended: bool,
    last_news: Instant,
}

impl Lane {
    pub(super) fn run(self) {
        let mut work = Work {
            lane: &self,
            ledger: Ledger::default(),
            bytes: 0,
            held: None,
            feed_ended: false,
            last_news: Instant::now(),
        };
        let end = catch_unwind(AssertUnwindSafe(|| {
            let end = work.run();
            // What the broker had said before the end counts.
            if let Ok(confirm) = self.confirms.try_recv() {
                work.settle(confirm);
            }
            end
        }))
        .unwrap_or(End::Panicked);
        let (in_flight, held) = (work.ledger.abandon(), work.held.take());
        let Self { number, channel, reports, .. } = self;
        let end = match end {
            // Why a channel ended, the client tells once: to the publish that met it, else when asked now.
            End::Closed(Ending::Connection(_)) => {
                let asked = catch_unwind(AssertUnwindSafe(|| channel.close()));
                End::Closed(match asked {
                    Ok(Err(error)) => Ending::of(&error),
                    Ok(Ok(())) => Ending::Connection("the channel ended".into()),
                    Err(_) => Ending::Connection("the client ended by a panic".into()),
                })
            }
            // Dropping the channel waits for the broker's answer; the kill switch ends that wait if need be.
            other => other,
        };
        let _ = reports.send(Report::Ended(Box::new(Ended { lane: number, end, in_flight, held })));
    }
}

impl Work<'_> {
    fn run(&mut self) -> End {
        let closed = || End::Closed(Ending::Connection(String::new()));
        let nothing = never();
        loop {
            if let Err(error) = self.fill() {
                return End::Closed(Ending::of(&error));
            }
            if self.feed_ended && self.held.is_none() && self.ledger.is_empty() {
                return End::Finished;
            }
            let feed = if self.wants_more() { &self.lane.feed } else { &nothing };
            select! {
                recv(feed) -> job => match job {
                    Ok(job) => self.held = Some(job),
                    Err(_) => self.feed_ended = true,
                },
                recv(self.lane.confirms) -> confirm => match confirm {
                    Ok(confirm) => self.settle(confirm),
                    Err(_) => return closed(),
                },
                default(PATROL) => {}
            }
            if self.is_stalled() {
                return End::Stalled;
            }
        }
    }

    /// Publishes while there are jobs and the window has room for them.
    fn fill(&mut self) -> amiquip::Result<()> {
        loop {
            if self.wants_more() {
                match self.lane.feed.try_recv() {
                    Ok(job) => self.held = Some(job),
                    Err(TryRecvError::Empty) => return Ok(()),
                    Err(TryRecvError::Disconnected) => self.feed_ended = true,
                }
            }
            let Some(mut job) = self.held.take_if(|job| {
                let fits = self.bytes.saturating_add(job.size()) <= self.lane.window.bytes;
                self.ledger.is_empty() || (fits && self.ledger.len() < self.lane.window.messages)
            }) else {
                return Ok(());
            };
            if job.key.claim < self.lane.shared.void_below.load(Ordering::Relaxed) {
                continue; // it has had its outcome
            }
            if self.ledger.is_empty() {
                self.last_news = Instant::now();
            }
            self.bytes += job.size();
            job.sent_at = Some(Instant::now());
            let published = wire::publish(&self.lane.channel, &job.message);
            // In the ledger whatever the client says: a part of it may be on its way.
            self.ledger.sent(job);
            #[cfg(feature = "mutants")]
            if crate::mutants::is("settle-before-confirm") {
                self.settle(Confirm::Ack(amiquip::ConfirmPayload { delivery_tag: 0, multiple: true }));
            }
            published?;
        }
    }

    fn wants_more(&self) -> bool {
        !self.feed_ended && self.held.is_none() && self.ledger.len() < self.lane.window.messages
    }

    /// Works off this confirm and all that wait behind it, in one report.
    fn settle(&mut self, first: Confirm) {
        let (mut outcomes, mut answers) = (Vec::new(), Vec::new());
        self.last_news = Instant::now();
        for confirm in std::iter::once(first).chain(self.lane.confirms.try_iter()) {
            // The broker returns a message before it acknowledges it, and the client keeps that order: what was
            // returned is here by now.
            for returned in self.lane.returns.try_iter() {
                #[cfg(feature = "mutants")]
                if crate::mutants::is("returns-ignored") {
                    continue;
                }
                if let Some(id) = returned.properties.message_id() {
                    let reason = format!("{} ({})", returned.reply_text, returned.reply_code);
                    self.ledger.returned(|job| job.message.message_id == *id, &reason);
                }
            }
            let verdicts = match confirm {
                Confirm::Ack(it) => self.ledger.ack(it.delivery_tag, it.multiple),
                #[cfg(feature = "mutants")]
                Confirm::Nack(it) if crate::mutants::is("nack-is-ack") => {
                    self.ledger.ack(it.delivery_tag, it.multiple)
                }
                Confirm::Nack(it) => self.ledger.nack(it.delivery_tag, it.multiple),
            };
            for (job, verdict) in verdicts {
                self.bytes = self.bytes.saturating_sub(job.size());
                answers.extend(job.sent_at.map(|at| self.last_news.saturating_duration_since(at)));
                outcomes.push((job.key, outcome(&job.message, verdict)));
            }
        }
        self.lane.shared.note_confirm();
        if !outcomes.is_empty() {
            let _ = self.lane.reports.send(Report::Outcomes(outcomes, answers));
        }
    }

    fn is_stalled(&mut self) -> bool {
        if self.lane.shared.blocked.load(Ordering::Relaxed) {
            self.last_news = Instant::now();
        }
        let (timeout, own) = (self.lane.window.timeout, self.last_news.elapsed());
        // On a slow link a lane waits for what the others have put before it, so the connection's confirms count; but
        // not without end, for the sake of a destination that never confirms.
        let is_silent = own > timeout && self.lane.shared.silence() > timeout;
        !self.ledger.is_empty() && (is_silent || own > PATIENCE * timeout)
    }
}

/// The verdict as the event's outcome, in words that say what to do.
fn outcome(message: &Message, verdict: Verdict) -> Outcome {
    let Message { exchange, routing_key, .. } = message;
    match verdict {
        Verdict::Confirmed(receipt) => Outcome::Confirmed(receipt),
        Verdict::Returned(reason) if exchange.is_empty() => Outcome::Refused(format!(
            "{reason}: there is no queue \"{routing_key}\"; declare it, or route the type to an exchange"
        )),
        Verdict::Returned(reason) => Outcome::Refused(format!(
            "{reason}: no queue is bound to exchange \"{exchange}\" for routing key \"{routing_key}\"; \
             bind one, or set unroutable = \"accept\" on its route"
        )),
        Verdict::Nacked => Outcome::Busy(
            "nacked by the broker: a queue is full or not available; see its length limit and its state"
                .into(),
        ),
    }
}
