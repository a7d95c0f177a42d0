//! Stage 1: publishing at once what an application has just committed, so that the poller need not come to it.
//!
//! It has a thread, a database session and a broker connection of its own, so a drain does not delay it. Callers that
//! come at the same time share a claim. Whatever it leaves is the poller's: nothing is lost when it fails, is slow, or
//! dies, and nothing that it says is a reason to roll anything back.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender, TrySendError, bounded};

use crate::config::Config;
use crate::error::{Error, Kind, Result};

use super::drain::End;
use super::engine::Engine;
use super::health::Change;
use super::requests::{Request, Requests};
use super::{Stop, background, deadline};

/// Most requests that wait for the thread. Beyond, callers are told that their events are left to the poller.
const REQUESTS_MAX: usize = 1024;

/// How often the idle thread looks whether it is to end.
const PATROL: Duration = Duration::from_millis(500);

/// Between two tries to write confirms that came too late for their claims, or which the table refuses.
const LATE_AGAIN: Duration = Duration::from_secs(1);

/// What callers are told once the thread is gone.
const ENDED: &str = "stage 1 has ended";

/// How long the drop of the last handle waits for the thread.
const DROP_MAX: Duration = Duration::from_secs(1);

/// What became of an event that was to be published at once.
///
/// Only [`Answer::Published`] and [`Answer::AlreadyPublished`] say that the broker has it. None of the others is an
/// error of the caller's transaction, which is committed: there is nothing to roll back and nothing to try again. The
/// poller goes on with the event where it is due.
///
/// | answer | the event | what a caller does |
/// |---|---|---|
/// | `Published`, `AlreadyPublished` | the broker has it | nothing |
/// | `BeingSent`, `HeldBack`, `NotDue`, `Left`, `Unknown` | is sent later | nothing; count them, if you like |
/// | `Refused` | is tried again after its back-off, or is dead | tells the operator: a queue or a route is missing |
/// | `Finished` | is over; never sent, or dead | nothing, or tells the operator |
/// | `NotFound` | is not there | looks for a bug: it asked before the commit, or at another table |
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// The broker has confirmed it. That is written into its row right after this; should the process die in between,
    /// it is sent once more.
    Published,
    /// It was published before.
    AlreadyPublished,
    /// The broker refused it, or its route does; why. It is FAILED, or DEAD.
    Refused(String),
    /// It was sent, and no confirm came; why. It may have arrived, and is sent again.
    Unknown(String),
    /// An earlier event of its key has not gone through, or not soon enough: of a key, a call sends what goes through
    /// within about a second, and no more than `batch_rows`.
    HeldBack,
    /// Its `available_at` is to come.
    NotDue,
    /// Another relay, or another caller's claim, has it; or someone else has locked its row.
    BeingSent,
    /// It is over: DEAD, EXPIRED or SKIPPED, which is what this says.
    Finished(String),
    /// The outbox holds no such event: its transaction is not committed, or was rolled back, or it was purged.
    NotFound,
    /// It was not sent, or not in time; why. The poller sends it.
    Left(String),
}

/// A handle on stage 1. Cheap to clone, for any number of threads.
///
/// The last one dropped ends it, and waits a second for its thread at most.
#[derive(Debug, Clone)]
pub struct Stage1 {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// None while it ends.
    requests: Option<Sender<Request>>,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Stage1 {
    /// Starts the thread, and returns at once. It opens its sessions when it is first asked for something, so the first
    /// call takes some milliseconds more.
    ///
    /// `min_age` does not matter here: what is asked for is meant to be sent now. While a server is in trouble it is tried
    /// again after 0.2 to 5 s, and callers in between are told at once.
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub fn start(mut config: Config) -> Result<Self> {
        config.claim.min_age = Duration::ZERO;
        let (requests, inbox) = bounded(REQUESTS_MAX);
        let stop = Stop::new();
        let stopped = stop.clone();
        let thread = thread::Builder::new()
            .name("outboxd-stage1".into())
            .spawn(move || {
                // A panic is a bug of ours, and must not be the host's.
                let served = catch_unwind(AssertUnwindSafe(|| serve(config, Requests::new(inbox), &stopped)));
                if let Err(panic) = served {
                    let reason = background::message(panic.as_ref());
                    log::error!("stage 1 ended by a panic, and leaves all events to the poller: {reason}");
                }
            })
            .map_err(|error| Error::new(Kind::Internal, format!("starting a thread failed: {error}")))?;
        Ok(Self { shared: Arc::new(Shared { requests: Some(requests), stop, thread: Some(thread) }) })
    }

    /// Publishes these events, by their event ids, now that their transaction is committed; one answer for each, in
    /// their order, within `limit`, however short or long. Never fails: what is not published is told and left to the
    /// poller.
    ///
    /// Any number of ids, one of them also twice; none cost nothing. Events of one key leave in the order of their rows;
    /// when there are more of them than `batch_rows`, name them in that order, or some are held back. Blocks for `limit` at
    /// most, which is what the caller can spare: a second or two, since the event is safe without it. At most 1,024 calls
    /// wait at a time; beyond, their events are [`Answer::Left`] at once. Once the time is over an event may still be sent:
    /// the call is not undone.
    pub fn publish_now<T: AsRef<str>>(&self, event_ids: &[T], limit: Duration) -> Vec<Answer> {
        if event_ids.is_empty() {
            return Vec::new();
        }
        let until = deadline::after(limit);
        let left = |reason: &str| Answer::Left(reason.into());
        let mut answers = vec![left(&format!("no answer within {limit:?}")); event_ids.len()];
        // One event asked for twice has two places.
        let (answer, answered) = bounded(event_ids.len());
        let ids = event_ids.iter().map(|it| it.as_ref().to_owned()).collect();
        let request = Request { event_ids: ids, answers: answer, until };
        let refusal = match self.shared.requests.as_ref().map(|it| it.try_send(request)) {
            Some(Ok(())) => None,
            Some(Err(TrySendError::Full(_))) => Some("stage 1 is busy"),
            Some(Err(TrySendError::Disconnected(_))) | None => Some(ENDED),
        };
        if let Some(reason) = refusal {
            answers.fill(left(reason));
            return answers;
        }
        let mut open: HashSet<usize> = (0..answers.len()).collect();
        while !open.is_empty() {
            match answered.recv_deadline(until) {
                Ok((place, answer)) => {
                    if let Some(slot) = answers.get_mut(place).filter(|_| open.remove(&place)) {
                        *slot = answer;
                    }
                }
                Err(RecvTimeoutError::Timeout) => break,
                // Given up as too late.
                Err(RecvTimeoutError::Disconnected) if Instant::now() >= until => break,
                Err(RecvTimeoutError::Disconnected) => {
                    for place in open.drain() {
                        if let Some(slot) = answers.get_mut(place) {
                            *slot = left(ENDED);
                        }
                    }
                }
            }
        }
        answers
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.stop.request();
        // That wakes it.
        self.requests = None;
        let Some(thread) = self.thread.take() else { return };
        let until = Instant::now() + DROP_MAX;
        while !thread.is_finished() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        // One that waits for a server ends by itself; its sessions have deadlines.
    }
}

fn serve(config: Config, mut requests: Requests, stop: &Stop) {
    let interval = config.interval;
    let mut engine = Engine::new(config);
    let mut rests_until: Option<Instant> = None;
    let mut late_after = Instant::now();
    while !stop.requested() {
        let rests = |until: Option<Instant>| until.is_some_and(|until| Instant::now() < until);
        if !requests.wait(PATROL) {
            // Or the poller would send again what is confirmed.
            if engine.has_late() && Instant::now() >= late_after && !rests(rests_until) {
                late_after = Instant::now() + LATE_AGAIN;
                let change = engine.write_what_is_late(&mut requests);
                change.log();
                if !matches!(change, Change::None) {
                    rests_until = engine.health.retry_after(interval).map(|pause| Instant::now() + pause);
                }
            }
            engine.digest.tell_due();
            continue;
        }
        // A server in trouble is not tried again for each caller.
        if !rests(rests_until) {
            let (_, end, change) = engine.beat(stop, &mut requests);
            change.log();
            if end == Some(End::Beat) {
                continue;
            }
            rests_until = engine.health.retry_after(interval).map(|pause| Instant::now() + pause);
        }
        requests.finish(&match engine.health.trouble() {
            Some(trouble) => Answer::Left(trouble.error.to_string()),
            None => Answer::HeldBack,
        });
    }
    if engine.has_late() {
        engine.write_what_is_late(&mut requests).log();
    }
    engine.close();
}
