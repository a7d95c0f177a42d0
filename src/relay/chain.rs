//! The events of one key within a claim: the first is on its way, the others wait for it. Pure.

use std::collections::VecDeque;

use crate::event::{Event, Payload};

/// What a claim holds of one key.
#[derive(Debug)]
pub(super) struct Chain {
    key: String,
    waiting: VecDeque<(Event, Payload)>,
    /// Whether the key has events behind those of the claim, or had some that were handed back.
    more: bool,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The event before the first waiting one, if any, went through.
    Moving,
    /// An event is in the way, and will be no longer once its settlement is written.
    Paused,
    /// An event is in the way.
    Stopped,
}

/// What becomes of a key when its claim is settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rest {
    /// Nothing is left of it that was known at the claim.
    Nothing,
    /// Its next event may be claimed.
    Next(String),
    /// Its next event waits for one that did not go through.
    Held(String),
}

impl Chain {
    /// The events of `key` in their order. `more` says whether it has others behind them.
    pub(super) fn new(key: String, events: Vec<(Event, Payload)>, more: bool) -> Self {
        Self { key, waiting: events.into(), more, state: State::Moving }
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// The next event, when those before it went through.
    pub(super) fn next(&mut self) -> Option<(Event, Payload)> {
        if self.state == State::Moving { self.waiting.pop_front() } else { None }
    }

    /// Whether events wait for the one that is on its way.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// An event did not go through, or only `when_written`: those behind it are not sent in this claim.
    pub(super) fn stop(&mut self, when_written: bool) {
        self.state = if when_written { State::Paused } else { State::Stopped };
        self.hand_back();
    }

    /// Leaves the waiting events as they are in the table.
    pub(super) fn hand_back(&mut self) {
        self.more |= self.waits();
        self.waiting.clear();
    }

    /// What is left of it.
    pub(super) fn rest(self) -> Rest {
        match self.state {
            State::Stopped => Rest::Held(self.key),
            State::Moving | State::Paused if self.more => Rest::Next(self.key),
            State::Moving | State::Paused => Rest::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: i64) -> (Event, Payload) {
        let event = Event { ordering_key: Some("k".into()), ..Event::new(id, "01", "t") };
        (event, Payload::Missing)
    }

    fn chain(more: bool) -> Chain {
        Chain::new("k".into(), vec![event(1), event(2), event(3)], more)
    }

    #[test]
    fn events_come_one_by_one_until_one_is_in_the_way() {
        let mut all = chain(false);
        let mut ids = Vec::new();
        while let Some((event, _)) = all.next() {
            ids.push(event.id);
        }
        assert_eq!(ids, [1, 2, 3]);
        assert_eq!(all.rest(), Rest::Nothing);

        for (when_written, rest) in [(false, Rest::Held("k".into())), (true, Rest::Next("k".into()))] {
            let mut stopped = chain(false);
            assert!(stopped.next().is_some() && stopped.waits());
            stopped.stop(when_written);
            assert!(stopped.next().is_none() && !stopped.waits());
            assert_eq!(stopped.rest(), rest);
        }
    }

    #[test]
    fn what_is_handed_back_is_claimed_again() {
        let mut chain = chain(false);
        assert!(chain.next().is_some());
        chain.hand_back();
        assert!(chain.next().is_none());
        assert_eq!(chain.rest(), Rest::Next("k".into()));
    }
}
