//! One claim on its way: which of its events have no outcome yet, which wait for one of their key, and what is to be
//! written for the others.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::clock;
use crate::config::Config;
use crate::confirm::Receipt;
use crate::error::Result;
use crate::event::{Event, Outcome, Payload};
use crate::message;
use crate::outbox;
use crate::policy::{self, Settlement};
use crate::publisher::{Job, Key};

use super::chain::{Chain, Rest};
use super::observer::Happening;
use super::servers::Lease;

/// A flight with so few events on their way, and others waiting for them, does not keep the workers busy.
const NARROW: usize = 64;

/// How long events wait in a claim for those of their key. After that they are handed back, so that a long chain keeps
/// neither the others of its batch nor the server's vacuum waiting.
const CHAIN_SLICE: Duration = Duration::from_secs(1);

pub(super) struct Flight<C> {
    pub(super) number: u64,
    /// None once its session is lost: then only confirms are worth keeping.
    claim: Option<C>,
    departed: Instant,
    ids: HashSet<i64>,
    /// Events without an outcome, and the place of the chain that they are in.
    open: HashMap<i64, (Event, Option<usize>)>,
    chains: Vec<Chain>,
    withheld: bool,
    settlements: Vec<(Event, Settlement)>,
    /// How many of them were told already.
    told: usize,
}

/// A flight whose events all have their outcome.
pub(super) struct Landed<C> {
    /// The claim, unless it is lost.
    pub(super) claim: Option<C>,
    pub(super) settlements: Vec<(i64, Settlement)>,
    /// What is left of its keys.
    pub(super) rests: Vec<Rest>,
    /// Whether the claim had locked events that it might not send.
    pub(super) withheld: bool,
    /// How many of its events are as they were: those that waited for one of their key.
    pub(super) left: u64,
}

impl<C: Lease> Flight<C> {
    pub(super) fn new(number: u64, claim: C, withheld: bool) -> Self {
        Self {
            number,
            claim: Some(claim),
            departed: clock::now(),
            ids: HashSet::new(),
            open: HashMap::new(),
            chains: Vec::new(),
            withheld,
            settlements: Vec::new(),
            told: 0,
        }
    }

    /// Takes the claimed events in, and returns the messages for those that can be sent now.
    pub(super) fn load(
        &mut self,
        events: Vec<(Event, Payload)>,
        chains: Vec<outbox::Chain>,
        config: &Config,
    ) -> Vec<Job> {
        self.ids.extend(events.iter().map(|(event, _)| event.id));
        let places =
            chains.iter().enumerate().flat_map(|(place, it)| it.ids.iter().map(move |id| (*id, place)));
        let places: HashMap<i64, usize> = places.collect();
        let mut chained: Vec<Vec<(Event, Payload)>> = chains.iter().map(|_| Vec::new()).collect();
        let mut jobs = Vec::with_capacity(events.len());
        for (event, payload) in events {
            match places.get(&event.id).and_then(|place| chained.get_mut(*place)) {
                Some(chain) => chain.push((event, payload)),
                None => jobs.extend(self.begin(event, payload, None, config)),
            }
        }
        self.chains =
            chains.into_iter().zip(chained).map(|(it, events)| Chain::new(it.key, events, it.more)).collect();
        for place in 0..self.chains.len() {
            jobs.extend(self.advance(place, config));
        }
        jobs
    }

    /// The message of an event, unless its end is decided without sending it.
    fn begin(
        &mut self,
        mut event: Event,
        payload: Payload,
        chain: Option<usize>,
        config: &Config,
    ) -> Option<Job> {
        // It may have waited here for those before it.
        event.expires_in = event.expires_in.map(|left| left.saturating_sub(clock::since(self.departed)));
        if let Some(settlement) = policy::end(&event, &config.retry) {
            self.conclude(event, chain, settlement, config);
            return None;
        }
        match message::encode(&event, payload, &config.routing) {
            Ok(message) => {
                let mut job = Job::new(Key { claim: self.number, id: event.id }, message);
                job.alone = policy::goes_alone(&event);
                job.risky = policy::is_risky(&event);
                self.open.insert(event.id, (event, chain));
                Some(job)
            }
            Err(outcome) => {
                let settlement = policy::settlement(&event, outcome, &config.retry);
                self.conclude(event, chain, settlement, config);
                None
            }
        }
    }

    /// The message of a chain's next event that is to be sent, if those before it went through.
    fn advance(&mut self, place: usize, config: &Config) -> Option<Job> {
        loop {
            let (event, payload) = self.chains.get_mut(place)?.next()?;
            if let Some(job) = self.begin(event, payload, Some(place), config) {
                return Some(job);
            }
        }
    }

    /// Notes an event's outcome, the first one counts; the message of its successor, if that may be sent now.
    pub(super) fn note(&mut self, id: i64, outcome: Outcome, config: &Config) -> Option<Job> {
        let (event, chain) = self.open.remove(&id)?;
        let settlement = policy::settlement(&event, outcome, &config.retry);
        self.conclude(event, chain, settlement, config);
        self.advance(chain?, config)
    }

    fn conclude(&mut self, event: Event, chain: Option<usize>, settlement: Settlement, config: &Config) {
        let chain = chain.and_then(|place| self.chains.get_mut(place));
        if let Some(chain) = chain.filter(|_| !policy::frees_key(&settlement)) {
            chain.stop(policy::frees_key_when_written(&settlement, config.claim.on_dead));
        }
        self.settlements.push((event, settlement));
    }

    /// What became of its events since it was last asked.
    pub(super) fn news(&mut self) -> impl Iterator<Item = &(Event, Settlement)> {
        let told = std::mem::replace(&mut self.told, self.settlements.len());
        self.settlements.iter().skip(told)
    }

    /// Whether an operator has sent the event of this row again.
    pub(super) fn was_sent_again(&self, id: i64) -> bool {
        self.open.get(&id).is_some_and(|(event, _)| policy::was_sent_again(event.last_error.as_deref()))
    }

    /// Whether the event of this row is on its way here.
    pub(super) fn holds(&self, id: i64) -> bool {
        self.ids.contains(&id)
    }

    /// The keys of which it holds events.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.chains.iter().map(Chain::key)
    }

    /// Leaves all events that wait for one of their key as they are in the table.
    pub(super) fn hand_back(&mut self) {
        self.chains.iter_mut().for_each(Chain::hand_back);
    }

    /// The same, once the flight's time for them is over.
    pub(super) fn hand_back_in_time(&mut self) {
        if clock::since(self.departed) > CHAIN_SLICE {
            self.hand_back();
        }
    }

    /// Whether most of what it holds waits for few events.
    pub(super) fn is_narrow(&self) -> bool {
        self.open.len() < NARROW && self.chains.iter().any(Chain::waits)
    }

    /// Whether every event has its outcome.
    pub(super) fn is_complete(&self) -> bool {
        self.open.is_empty()
    }

    /// What there is to tell once it is complete.
    pub(super) fn completed(&self) -> Happening<'static> {
        let events = u64::try_from(self.settlements.len()).unwrap_or(u64::MAX);
        Happening::Completed { events, took: clock::since(self.departed) }
    }

    /// Keeps the claim alive. One that is lost frees its rows, so what is not sent yet must not be sent.
    ///
    /// # Errors
    /// It was lost just now.
    pub(super) fn touch(&mut self, after: Duration) -> Result<()> {
        let touched = self.claim.as_mut().map_or(Ok(()), |claim| claim.touch(after));
        if touched.is_err() {
            self.claim = None;
            self.hand_back();
        }
        touched
    }

    pub(super) fn land(self) -> Landed<C> {
        let left = self.ids.len().saturating_sub(self.settlements.len());
        let left = u64::try_from(left).unwrap_or(u64::MAX);
        let rests = self.chains.into_iter().map(Chain::rest).collect();
        let settlements = self.settlements.into_iter().map(|(event, it)| (event.id, it)).collect();
        Landed { claim: self.claim, settlements, rests, withheld: self.withheld, left }
    }
}

/// The confirms among settlements whose claim is lost.
pub(super) fn confirms(settlements: Vec<(i64, Settlement)>) -> impl Iterator<Item = (i64, Receipt)> {
    settlements.into_iter().filter_map(|(id, settlement)| match settlement {
        Settlement::Published(receipt) => Some((id, receipt)),
        _ => None,
    })
}
