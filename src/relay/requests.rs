//! What applications want to have published at once, as a source of a drain: which events, and who waits for each.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

use crate::event::Event;
use crate::outbox::{Left, Look, Scope};
use crate::policy::Settlement;

use super::chain::Rest;
use super::source::Source;
use super::stage1::Answer;

/// How long a drain takes in further requests. An event is tried once per drain, so none may go on for ever.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// Some events that one caller waits for.
pub(super) struct Request {
    pub(super) event_ids: Vec<String>,
    /// Takes an answer with the place of its event.
    pub(super) answers: Sender<(usize, Answer)>,
    /// Nobody waits any longer than this.
    pub(super) until: Instant,
}

/// Where an answer goes, and the place of its event in the request.
type Caller = (Sender<(usize, Answer)>, usize);

/// The requests that were made and are not answered.
pub(super) struct Requests {
    inbox: Receiver<Request>,
    /// Who waits for each event.
    open: HashMap<String, Vec<Caller>>,
    /// The events that were not looked for yet.
    waiting: VecDeque<String>,
    began: Instant,
}

impl Requests {
    pub(super) fn new(inbox: Receiver<Request>) -> Self {
        Self { inbox, open: HashMap::new(), waiting: VecDeque::new(), began: Instant::now() }
    }

    /// Waits for a request; whether there is one.
    pub(super) fn wait(&mut self, limit: Duration) -> bool {
        if self.waiting.is_empty() {
            self.inbox.recv_timeout(limit).into_iter().for_each(|request| self.take_in(request));
        }
        !self.waiting.is_empty()
    }

    /// A caller that has gone on leaves its events to the poller.
    fn take_in(&mut self, request: Request) {
        if Instant::now() >= request.until {
            return;
        }
        for (place, event_id) in request.event_ids.into_iter().enumerate() {
            let callers = self.open.entry(event_id.clone()).or_default();
            if callers.is_empty() {
                self.waiting.push_back(event_id);
            }
            callers.push((request.answers.clone(), place));
        }
    }

    fn answer(&mut self, event_id: &str, answer: &Answer) {
        for (caller, place) in self.open.remove(event_id).unwrap_or_default() {
            // Whoever asked may have gone on.
            let _ = caller.send((place, answer.clone()));
        }
    }

    /// Answers whatever is open: the drain has ended without it.
    pub(super) fn finish(&mut self, answer: &Answer) {
        self.waiting.clear();
        for (caller, place) in self.open.drain().flat_map(|(_, callers)| callers) {
            let _ = caller.send((place, answer.clone()));
        }
    }
}

impl Source for Requests {
    fn begin(&mut self) {
        // What an earlier try did not come to is looked for again.
        self.waiting = self.open.keys().cloned().collect();
        self.began = Instant::now();
    }

    fn next(&mut self, _: Duration, rows_max: usize, _: bool, _: Vec<String>) -> Option<Scope> {
        while self.waiting.len() < rows_max && self.began.elapsed() < DRAIN_MAX {
            match self.inbox.try_recv() {
                Ok(request) => self.take_in(request),
                Err(_) => break,
            }
        }
        let count = rows_max.min(self.waiting.len());
        (count > 0).then(|| Scope::Events(self.waiting.drain(..count).collect()))
    }

    fn saw(&mut self, _: &Scope, look: &Look, _: Duration) {
        self.waiting.extend(look.unasked.iter().cloned());
        for (event_id, left) in &look.left {
            self.answer(
                event_id,
                &match left {
                    Left::NotFound => Answer::NotFound,
                    Left::Finished(status) if status == "PUBLISHED" => Answer::AlreadyPublished,
                    Left::Finished(status) => Answer::Finished(status.clone()),
                    Left::Later => Answer::NotDue,
                    Left::Held => Answer::HeldBack,
                    Left::Locked => Answer::BeingSent,
                },
            );
        }
    }

    fn missed(&mut self, scope: Scope) {
        if let Scope::Events(event_ids) = scope {
            self.waiting.extend(event_ids);
        }
    }

    fn decided(&mut self, event: &Event, settlement: &Settlement) {
        let answer = match settlement {
            Settlement::Published(_) => Answer::Published,
            Settlement::Failed { reason, .. } | Settlement::Dead { reason, .. } => {
                Answer::Refused(reason.clone())
            }
            Settlement::Expired { .. } => Answer::Finished("EXPIRED".into()),
            Settlement::Unconfirmed { reason, .. } => Answer::Unknown(reason.clone()),
            // It may be tried again on another connection, before the drain ends.
            Settlement::Released => return,
        };
        self.answer(&event.event_id, &answer);
    }

    fn landed(&mut self, _: Vec<Rest>, _: bool) {}

    fn be_the_last(&mut self) {}

    fn is_over(&self) -> bool {
        self.waiting.is_empty() && (self.inbox.is_empty() || self.began.elapsed() >= DRAIN_MAX)
    }
}
