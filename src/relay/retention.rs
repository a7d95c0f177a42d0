//! Purging in the idle time of `run`: a bounded amount at each beat, and only once nothing is due.

use std::time::{Duration, Instant};

use log::Level;

use crate::error::Error;
use crate::outbox::{Changes, Filter, Outbox, Purge};

use super::Stop;
use super::line::Line;

/// The least time that a beat gives to a purge that has work left; one batch may take longer.
const BUDGET_MIN: Duration = Duration::from_millis(50);

/// Between the end of one walk through the table and the start of the next.
const REST: Duration = Duration::from_secs(60);

/// Where the purge is.
#[derive(Debug, Default)]
pub(super) struct Retention {
    /// The last row that was looked at, in mid-walk.
    after: Option<i64>,
    /// The next walk begins then at the earliest.
    rests_until: Option<Instant>,
    /// Purged in this walk.
    purged: u64,
    failed: bool,
}

impl Retention {
    /// Purges what was finished `retention` ago, for at most half of the time until `next`, the next beat. A walk that
    /// is not finished then goes on at the next beat. Calls `alive` between its batches.
    pub(super) fn purge(
        &mut self,
        outbox: &mut Outbox,
        retention: Duration,
        stop: &Stop,
        next: Instant,
        mut alive: impl FnMut(),
    ) {
        let now = Instant::now();
        if stop.requested() || self.rests_until.is_some_and(|until| now < until) {
            return;
        }
        let budget = (next.saturating_duration_since(now) / 2).max(BUDGET_MIN);
        let purge = Purge {
            filter: Filter::default(),
            finished_before: retention,
            limit: None,
            after: self.after,
            dry_run: false,
        };
        let result = outbox.purge(&purge, |so_far| {
            log::debug!("retention: purged {} events so far", so_far.changed);
            alive();
            // Whoever nudges has something to send.
            !stop.requested() && !stop.nudged() && now.elapsed() < budget
        });
        self.note(result, now);
    }

    fn note(&mut self, result: Result<Changes, Error>, now: Instant) {
        match result {
            Ok(changes) => {
                self.failed = false;
                self.purged += changes.changed;
                self.after = changes.stopped_at;
                if self.after.is_none() {
                    self.rests_until = Some(now + REST);
                    if self.purged > 0 {
                        Line::new(Level::Info, "retention: purged").with("events", self.purged).log();
                    }
                    self.purged = 0;
                }
            }
            Err(error) => {
                // Once, not at every beat.
                if !self.failed {
                    Line::new(Level::Warn, "retention failed").with("error", error.to_string()).log();
                }
                self.failed = true;
                self.rests_until = Some(now + REST);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn a_walk_goes_on_where_it_was_and_then_rests() {
        let mut retention = Retention::default();
        let now = Instant::now();
        let stopped = Changes { changed: 5, stopped_at: Some(70), ..Changes::default() };
        retention.note(Ok(stopped), now);
        assert_eq!((retention.after, retention.purged, retention.rests_until), (Some(70), 5, None));
        retention.note(Ok(Changes { changed: 2, ..Changes::default() }), now);
        assert_eq!((retention.after, retention.purged, retention.rests_until), (None, 0, Some(now + REST)));
        retention.note(Err(Error::new(Kind::Internal, "no")), now);
        assert!(retention.failed);
    }
}
