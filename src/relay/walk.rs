//! Where a drain looks for due events next, and when it has seen them all. Pure but for the clock.
//!
//! It walks along the table in id order. Keys whose chains just went through are continued apart from the walk, which
//! may be far ahead of their next events; keys in trouble are passed over.
//!
//! A walk from the table's start passes whatever finished events have left in the index, which is nothing to speak of
//! unless an old snapshot keeps vacuum from its work. Then it takes long, and must not be all that the relay does: it
//! gets a tenth of the time, and in between the walk starts where the last tick found its first event.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use crate::clock;
use crate::outbox::{Look, Scope};

use super::chain::Rest;
use super::source::Source;

/// A walk from the table's start that takes this long to find something is no matter.
const CHEAP: Duration = Duration::from_millis(20);

/// Most keys that it remembers as barred. Those beyond are found out again when the walk meets them.
const BARRED_MAX: usize = 5000;

/// Most keys that it remembers as to be continued.
const RESUMED_MAX: usize = 5000;

/// Walks from the table's start get this part of the time: one in so many.
const SHARE: u32 = 10;

#[derive(Debug)]
pub(super) struct Walk {
    /// This walk began behind this row.
    start: i64,
    /// And goes on behind this one.
    after: i64,
    /// Nothing was looked for yet on this walk.
    fresh: bool,
    started: Instant,
    /// Something was claimed on this walk.
    has_claimed: bool,
    /// The first event that was found since the tick began, to be sent or not.
    found: Option<i64>,
    /// Where a walk starts that need not start at the table's start.
    floor: i64,
    /// When a walk last began at the table's start, and how long it took to find something.
    whole: Option<(Instant, Duration)>,
    /// How long a walk from the table's start has been looking for its first event.
    searching: Option<Duration>,
    /// Keys that this walk has found to have nothing that may be sent.
    barred: HashSet<String>,
    /// Keys whose next events may be had.
    resumed: VecDeque<String>,
    /// Whose turn it is, when both could be.
    resumed_first: bool,
    /// The walk has come to its end.
    at_end: bool,
    /// Claims have landed since the walk began for which it passed over events that may be had now: new ones of their
    /// keys, and those that they had locked and could not send.
    passed_over: bool,
    /// The table is not walked through a second time.
    last: bool,
}

/// What a look brought, as far as a walk is concerned.
struct Sight<'a> {
    /// Of what was claimed, if there was anything: the first event, to be sent or not, and the keys.
    claimed: Option<(Option<i64>, HashSet<&'a str>)>,
    barred: &'a [String],
    unasked: &'a [String],
    more_after: Option<i64>,
}

impl Walk {
    pub(super) fn new() -> Self {
        Self {
            start: 0,
            after: 0,
            fresh: true,
            started: clock::now(),
            has_claimed: false,
            found: None,
            floor: 0,
            whole: None,
            searching: None,
            barred: HashSet::new(),
            resumed: VecDeque::new(),
            resumed_first: true,
            at_end: false,
            passed_over: false,
            last: false,
        }
    }

    /// From the table's start, if it is time for that.
    fn begin_walk(&mut self) {
        let is_time = |(began, took): (Instant, Duration)| took < CHEAP || clock::since(began) > took * SHARE;
        if self.whole.is_none_or(is_time) {
            self.walk_from(0);
        } else {
            self.walk_from(self.floor);
        }
    }

    fn walk_from(&mut self, start: i64) {
        (self.start, self.after, self.fresh, self.at_end) = (start, start, true, false);
        self.searching = None;
        self.started = clock::now();
        (self.passed_over, self.has_claimed) = (false, false);
        self.barred.clear();
    }

    /// What came in meanwhile is looked for, if only from where this tick found its first event.
    fn walk_again(&mut self) {
        self.walk_from(self.found.map_or(self.start, |id| id - 1));
    }

    fn note(&mut self, scope: &Scope, sight: Sight<'_>, took: Duration) {
        sight.barred.iter().for_each(|key| self.bar(key.clone()));
        let Scope::Walk { after, fresh, .. } = scope else {
            self.resumed.extend(sight.unasked.iter().cloned());
            return;
        };
        if *fresh && *after == 0 {
            self.searching = Some(Duration::ZERO);
        }
        self.fresh = false;
        self.searching = self.searching.map(|before| before + took);
        if sight.claimed.is_some() || sight.more_after.is_none() {
            self.whole = self.searching.take().map(|took| (self.started, took)).or(self.whole);
        }
        if let Some((first, taken)) = &sight.claimed {
            self.has_claimed = true;
            self.found = self.found.into_iter().chain(*first).min();
            self.resumed.retain(|key| !taken.contains(key.as_str()));
        }
        match (sight.more_after, &sight.claimed) {
            (Some(id), _) => self.after = id,
            // At the table's end.
            (None, Some(_)) if !self.last => self.walk_again(),
            (None, None) if self.has_claimed && !self.last => self.walk_again(),
            (None, _) => self.at_end = true,
        }
    }

    fn bar(&mut self, key: String) {
        if self.barred.len() < BARRED_MAX {
            self.barred.insert(key);
        }
    }
}

impl Source for Walk {
    fn begin(&mut self) {
        (self.resumed_first, self.last) = (true, false);
        self.resumed.clear();
        if let Some(id) = self.found.take() {
            self.floor = id - 1;
        }
        // One that has found nothing yet goes on, or it would never get past a long way of what is held back.
        if self.searching.is_none() {
            self.begin_walk();
        }
    }

    fn next(&mut self, beat: Duration, keys_max: usize, in_flight: bool, busy: Vec<String>) -> Option<Scope> {
        if !self.resumed.is_empty() && (self.resumed_first || self.at_end) {
            self.resumed_first = false;
            return Some(Scope::Keys(self.resumed.drain(..keys_max.min(self.resumed.len())).collect()));
        }
        self.resumed_first = true;
        if self.at_end && self.passed_over && !in_flight && !self.last {
            self.walk_again();
        }
        if self.at_end {
            return None;
        }
        // Whoever came in before, or is due again, gets its turn at every beat, however long the walk is.
        if clock::since(self.started) > beat && self.searching.is_none() && !self.last {
            self.begin_walk();
        }
        let barred = self.barred.iter().cloned().chain(busy).collect();
        Some(Scope::Walk { after: self.after, fresh: self.fresh, barred })
    }

    fn saw(&mut self, scope: &Scope, look: &Look<()>, took: Duration) {
        let claimed = look.claimed.as_ref().map(|it| {
            let ids = it.events.iter().map(|(event, _)| event.id);
            let keys = it.chains.iter().map(|chain| chain.key.as_str());
            (ids.chain(it.withheld).min(), keys.collect())
        });
        self.note(
            scope,
            Sight { claimed, barred: &look.barred, unasked: &look.unasked, more_after: look.more_after },
            took,
        );
    }

    fn missed(&mut self, scope: Scope) {
        if let Scope::Keys(keys) = scope {
            self.resumed.extend(keys);
        }
    }

    fn landed(&mut self, rests: Vec<Rest>, withheld: bool) {
        self.passed_over |= withheld || !rests.is_empty();
        for rest in rests {
            match rest {
                Rest::Next(key) if !self.last => {
                    self.barred.remove(&key);
                    // The walk that comes after this one finds those beyond.
                    if self.resumed.len() < RESUMED_MAX {
                        self.resumed.push_back(key);
                    }
                }
                Rest::Held(key) => self.bar(key),
                Rest::Next(_) | Rest::Nothing => {}
            }
        }
    }

    fn be_the_last(&mut self) {
        self.last = true;
        self.resumed.clear();
    }

    fn is_over(&self) -> bool {
        self.at_end && self.resumed.is_empty() && (!self.passed_over || self.last)
    }
}

#[cfg(test)]
mod tests;
