//! What applications want to have published at once, as a source of a drain: which events, and who waits for each.

use std::collections::{BTreeMap, HashMap, HashSet};
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

/// An event that somebody waits for.
struct Open {
    /// Its place among all that were asked for.
    number: u64,
    callers: Vec<Caller>,
    /// Its ordering key, once it is claimed.
    claimed: Option<String>,
}

/// The requests that were made and are not answered.
pub(super) struct Requests {
    inbox: Receiver<Request>,
    /// By event id.
    open: HashMap<String, Open>,
    /// The events to be looked for, in the order in which they were asked for: the first of a key comes first.
    waiting: BTreeMap<u64, String>,
    asked: u64,
    /// The keys that are on their way, as of the last look.
    busy: HashSet<String>,
    /// Events whose key was among those: they are looked for again when a claim has landed.
    behind: Vec<String>,
    began: Instant,
}

impl Requests {
    pub(super) fn new(inbox: Receiver<Request>) -> Self {
        Self {
            inbox,
            open: HashMap::new(),
            waiting: BTreeMap::new(),
            asked: 0,
            busy: HashSet::new(),
            behind: Vec::new(),
            began: Instant::now(),
        }
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
            let caller = (request.answers.clone(), place);
            if event_id.contains('\0') {
                // The database stores none such, and would refuse all others with it.
                let _ = caller.0.send((place, Answer::NotFound));
            } else if let Some(open) = self.open.get_mut(&event_id) {
                open.callers.push(caller);
            } else {
                self.asked += 1;
                self.waiting.insert(self.asked, event_id.clone());
                let open = Open { number: self.asked, callers: vec![caller], claimed: None };
                self.open.insert(event_id, open);
            }
        }
    }

    /// Has these looked for again, those that nobody waits for any more left out.
    fn look_again(&mut self, event_ids: impl IntoIterator<Item = String>) {
        let open = &self.open;
        let numbered = event_ids.into_iter().filter_map(|id| Some((open.get(&id)?.number, id)));
        self.waiting.extend(numbered);
    }

    fn answer(&mut self, event_id: &str, answer: &Answer) {
        for (caller, place) in self.open.remove(event_id).map(|it| it.callers).unwrap_or_default() {
            // Whoever asked may have gone on.
            let _ = caller.send((place, answer.clone()));
        }
    }

    /// Answers whatever is open: the drain has ended without it.
    pub(super) fn finish(&mut self, answer: &Answer) {
        self.waiting.clear();
        self.behind.clear();
        for (caller, place) in self.open.drain().flat_map(|(_, open)| open.callers) {
            let _ = caller.send((place, answer.clone()));
        }
    }
}

impl Source for Requests {
    fn begin(&mut self) {
        // What an earlier try did not come to is looked for again.
        let again = |(event_id, open): (&String, &mut Open)| {
            open.claimed = None;
            (open.number, event_id.clone())
        };
        self.waiting = self.open.iter_mut().map(again).collect();
        self.behind.clear();
        self.began = Instant::now();
    }

    fn next(&mut self, _: Duration, rows_max: usize, _: bool, busy: Vec<String>) -> Option<Scope> {
        while self.waiting.len() < rows_max && self.began.elapsed() < DRAIN_MAX {
            match self.inbox.try_recv() {
                Ok(request) => self.take_in(request),
                Err(_) => break,
            }
        }
        self.busy = busy.into_iter().collect();
        let firsts = std::iter::from_fn(|| self.waiting.pop_first());
        let event_ids: Vec<String> = firsts.map(|(_, event_id)| event_id).take(rows_max).collect();
        (!event_ids.is_empty()).then_some(Scope::Events(event_ids))
    }

    fn saw(&mut self, _: &Scope, look: &Look<()>, _: Duration) {
        self.look_again(look.unasked.iter().cloned());
        for (event, _) in look.claimed.iter().flat_map(|it| &it.events) {
            if let Some(open) = self.open.get_mut(&event.event_id) {
                open.claimed.clone_from(&event.ordering_key);
            }
        }
        for (event_id, left) in &look.left {
            let answer = match left {
                // An event of this key that is ours, and maybe only not settled yet.
                Left::Held(key) | Left::Locked(Some(key)) if self.busy.contains(key) => {
                    self.behind.push(event_id.clone());
                    continue;
                }
                Left::NotFound => Answer::NotFound,
                Left::Finished(status) if status == "PUBLISHED" => Answer::AlreadyPublished,
                Left::Finished(status) => Answer::Finished(status.clone()),
                Left::Later => Answer::NotDue,
                Left::Held(_) => Answer::HeldBack,
                Left::Locked(_) => Answer::BeingSent,
            };
            self.answer(event_id, &answer);
        }
    }

    fn missed(&mut self, scope: Scope) {
        if let Scope::Events(event_ids) = scope {
            self.look_again(event_ids);
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

    fn landed(&mut self, rests: Vec<Rest>, _: bool) {
        let behind = std::mem::take(&mut self.behind);
        self.look_again(behind);
        let (mut held, mut next) = (HashSet::new(), HashSet::new());
        for rest in rests {
            match rest {
                Rest::Held(key) => held.insert(key),
                // A long chain is handed back when others have waited for it long enough, and goes on with another claim.
                Rest::Next(key) => next.insert(key),
                Rest::Nothing => false,
            };
        }
        if held.is_empty() && next.is_empty() {
            return;
        }
        let mut held_back = Vec::new();
        for (event_id, open) in &mut self.open {
            if open.claimed.as_ref().is_some_and(|key| held.contains(key)) {
                held_back.push(event_id.clone());
            } else if open.claimed.take_if(|key| next.contains(key)).is_some() {
                self.waiting.insert(open.number, event_id.clone());
            }
        }
        held_back.iter().for_each(|event_id| self.answer(event_id, &Answer::HeldBack));
    }

    fn be_the_last(&mut self) {}

    fn is_over(&self) -> bool {
        self.waiting.is_empty() && (self.inbox.is_empty() || self.began.elapsed() >= DRAIN_MAX)
    }
}
