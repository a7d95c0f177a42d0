//! Stage 1: publishing at once what an application has just committed, so that the poller need not come to it.
//!
//! It has a thread, a database session and a broker connection of its own, so a drain does not delay it. Callers that
//! come at the same time share a claim. Whatever it leaves is the poller's: nothing is lost when it fails, is slow, or
//! dies, and nothing that it says is a reason to roll anything back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded};

use crate::config::Config;
use crate::error::{Error, Kind, Result};

use super::Stop;
use super::drain::End;
use super::engine::Engine;
use super::requests::{Request, Requests};

/// Most requests that wait for the thread. Beyond, callers are told that their events are left to the poller.
const REQUESTS_MAX: usize = 1024;

/// How often the idle thread looks whether it is to end.
const PATROL: Duration = Duration::from_millis(500);

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
    /// The broker has confirmed it. The row says so a moment later.
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
    requests: Sender<Request>,
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
                if served.is_err() {
                    log::error!("stage 1 ended by a panic; its events are left to the poller");
                }
            })
            .map_err(|error| Error::new(Kind::Internal, format!("starting a thread failed: {error}")))?;
        Ok(Self { shared: Arc::new(Shared { requests, stop, thread: Some(thread) }) })
    }

    /// Publishes these events, by their event ids, now that their transaction is committed; one answer for each, in
    /// their order, within `limit`. Never fails: what is not published is told and left to the poller.
    ///
    /// Any number of ids, one of them also twice; none cost nothing. Blocks for `limit` at most, which is what the caller
    /// can spare: a second or two, since the event is safe without it. At most 1,024 calls wait at a time; beyond, their
    /// events are [`Answer::Left`] at once. Once the time is over an event may still be sent: the call is not undone.
    pub fn publish_now<T: AsRef<str>>(&self, event_ids: &[T], limit: Duration) -> Vec<Answer> {
        if event_ids.is_empty() {
            return Vec::new();
        }
        let until = Instant::now() + limit;
        let left = |reason: &str| Answer::Left(reason.into());
        let mut answers = vec![left(&format!("no answer within {limit:?}")); event_ids.len()];
        // One event asked for twice has two places.
        let (answer, answered) = bounded(event_ids.len());
        let ids = event_ids.iter().map(|it| it.as_ref().to_owned()).collect();
        if self.shared.requests.try_send(Request { event_ids: ids, answers: answer, until }).is_err() {
            answers.fill(left("stage 1 is busy or has ended"));
            return answers;
        }
        while let Ok((place, answer)) = answered.recv_deadline(until) {
            if let Some(slot) = answers.get_mut(place) {
                *slot = answer;
            }
        }
        answers
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.stop.request();
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
    while !stop.requested() {
        if !requests.wait(PATROL) {
            continue;
        }
        // A server in trouble is not tried again for each caller.
        if rests_until.is_none_or(|until| Instant::now() >= until) {
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
    engine.close();
}
