//! Where a drain looks for due events next, and when it has seen them all. Pure but for the clock.
//!
//! It walks along the table in id order, from the start again at every beat. Keys whose chains just went through are
//! continued apart from the walk, which may be far ahead of their next events; keys in trouble are passed over.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use crate::outbox::{Look, Scope};

use super::chain::Rest;

#[derive(Debug)]
pub(super) struct Walk {
    /// The walk goes on behind this row.
    after: i64,
    started: Instant,
    /// Keys that this walk has found to have nothing that may be sent.
    barred: HashSet<String>,
    /// Keys whose next events may be had.
    resumed: VecDeque<String>,
    /// Whose turn it is, when both could be.
    resumed_first: bool,
    /// The walk has come to its end.
    at_end: bool,
    /// Chains have landed since the walk began: their keys were passed over, and may have new events.
    chains_landed: bool,
    /// The table is not walked through from its start again.
    last: bool,
}

impl Walk {
    pub(super) fn new() -> Self {
        Self {
            after: 0,
            started: Instant::now(),
            barred: HashSet::new(),
            resumed: VecDeque::new(),
            resumed_first: true,
            at_end: false,
            chains_landed: false,
            last: false,
        }
    }

    /// Where to look next; none while there is nothing to look for. `busy` are the keys that are on their way.
    pub(super) fn next(
        &mut self,
        beat: Duration,
        keys_max: usize,
        in_flight: bool,
        busy: Vec<String>,
    ) -> Option<Scope> {
        if !self.resumed.is_empty() && (self.resumed_first || self.at_end) {
            self.resumed_first = false;
            return Some(Scope::Keys(self.resumed.drain(..keys_max.min(self.resumed.len())).collect()));
        }
        self.resumed_first = true;
        if self.at_end && self.chains_landed && !in_flight && !self.last {
            (self.at_end, self.after) = (false, 0);
        }
        if self.at_end {
            return None;
        }
        // Whoever came in before, or is due again, gets its turn at every beat, however long the walk is.
        if self.started.elapsed() > beat && !self.last {
            self.after = 0;
        }
        if self.after == 0 {
            self.started = Instant::now();
            self.barred.clear();
            self.chains_landed = false;
        }
        let barred = self.barred.iter().cloned().chain(busy).collect();
        Some(Scope::Walk { after: self.after, barred })
    }

    /// Takes in what a look brought.
    pub(super) fn saw(&mut self, scope: &Scope, look: &Look) {
        self.barred.extend(look.barred.iter().cloned());
        let Scope::Walk { .. } = scope else {
            self.resumed.extend(look.unasked.iter().cloned());
            return;
        };
        let chains = look.claimed.iter().flat_map(|it| &it.chains);
        let taken: HashSet<&str> = chains.map(|chain| chain.key.as_str()).collect();
        self.resumed.retain(|key| !taken.contains(key.as_str()));
        match (look.more_after, &look.claimed) {
            (Some(id), _) => self.after = id,
            // At the table's end. What came in before it meanwhile is looked for once more.
            (None, Some(_)) if !self.last => self.after = 0,
            (None, None) if self.after > 0 && !self.last => self.after = 0,
            (None, _) => self.at_end = true,
        }
    }

    /// Takes in what is left of chains whose claim was settled.
    pub(super) fn landed(&mut self, rests: Vec<Rest>) {
        self.chains_landed |= !rests.is_empty();
        for rest in rests {
            match rest {
                Rest::Next(key) if !self.last => {
                    self.barred.remove(&key);
                    self.resumed.push_back(key);
                }
                Rest::Held(key) => {
                    self.barred.insert(key);
                }
                Rest::Next(_) | Rest::Nothing => {}
            }
        }
    }

    /// Looks for nothing a second time: what could not be settled may be due still, and would be claimed again and
    /// again.
    pub(super) fn be_the_last(&mut self) {
        self.last = true;
        self.resumed.clear();
    }

    /// Whether everything has been seen. Only right while nothing is in flight.
    pub(super) fn is_over(&self) -> bool {
        self.at_end && self.resumed.is_empty() && (!self.chains_landed || self.last)
    }
}
