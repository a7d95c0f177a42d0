//! How much a run may claim.

use std::time::{Duration, Instant};

use crate::clock;

use super::deadline;

/// Bounds on what is claimed from now on; the default has none.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Limit {
    until: Option<Instant>,
    events: Option<u64>,
}

impl Limit {
    /// Nothing is claimed once this time is over, and not more than so many events.
    pub(super) fn new(time: Option<Duration>, events: Option<u64>) -> Self {
        Self { until: time.map(deadline::after), events }
    }

    /// When its time is over.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Whether nothing is to be claimed any more.
    pub(super) fn is_reached(&self) -> bool {
        self.events == Some(0) || self.until.is_some_and(|until| clock::now() >= until)
    }

    /// Whether its time has been over for longer than this.
    pub(super) fn is_over_by(&self, time: Duration) -> bool {
        self.until.is_some_and(|until| clock::now().saturating_duration_since(until) > time)
    }

    /// How many events the next claim may take, `batch_rows` at most.
    pub(super) fn rows(&self, batch_rows: usize) -> usize {
        let left = self.events.map(|left| usize::try_from(left).unwrap_or(usize::MAX));
        left.map_or(batch_rows, |left| left.min(batch_rows))
    }

    /// So many were claimed.
    pub(super) fn take(&mut self, events: u64) {
        self.events = self.events.map(|left| left.saturating_sub(events));
    }

    /// So many of them will have to be claimed once more.
    pub(super) fn give_back(&mut self, events: u64) {
        self.events = self.events.map(|left| left.saturating_add(events));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_down_to_nothing() {
        let mut limit = Limit::new(None, Some(700));
        assert_eq!((limit.rows(500), limit.is_reached()), (500, false));
        limit.take(500);
        assert_eq!(limit.rows(500), 200);
        limit.give_back(10);
        limit.take(210);
        assert_eq!((limit.rows(500), limit.is_reached()), (0, true));
        let mut none = Limit::default();
        none.take(u64::MAX);
        assert_eq!((none.rows(500), none.is_reached(), none.until()), (500, false, None));
    }

    #[test]
    fn time_ends_it_too() {
        assert!(Limit::new(Some(Duration::ZERO), None).is_reached());
        let hour = Duration::from_secs(3600);
        assert!(!Limit::new(Some(hour), Some(1)).is_reached());
        let over = Limit::new(Some(Duration::ZERO), None);
        assert!(!over.is_over_by(hour) && !Limit::new(Some(hour), None).is_over_by(Duration::ZERO));
        std::thread::sleep(Duration::from_millis(2));
        assert!(over.is_over_by(Duration::from_millis(1)));
    }
}
