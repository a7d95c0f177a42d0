//! What the log says of a relay that works: at most one line a minute, and none where nothing was moved.
//!
//! Pure: who calls it knows the time and writes the line.

use std::time::{Duration, Instant};

use log::Level;

use crate::event::Tally;

use super::line::Line;

/// Between two summaries.
const PERIOD: Duration = Duration::from_secs(60);

/// What was moved since the last line.
#[derive(Debug, Default)]
pub(super) struct Summary {
    tally: Tally,
    /// When the first tick began that moved any of it.
    began: Option<Instant>,
    told: Option<Instant>,
}

impl Summary {
    /// Takes in what a tick did that began then.
    pub(super) fn note(&mut self, tally: &Tally, began: Instant) {
        if tally.claimed > 0 {
            self.tally += *tally;
            self.began.get_or_insert(began);
        }
    }

    /// When there is something to tell, if there is: at once, or a minute after the last time.
    pub(super) fn due(&self) -> Option<Instant> {
        let began = self.began?;
        Some(self.told.map_or(began, |told| began.max(told + PERIOD)))
    }

    /// The line, if it is time for it.
    pub(super) fn line(&mut self, now: Instant) -> Option<Line> {
        self.due().filter(|due| *due <= now)?;
        let began = self.began.take()?;
        // Without a pause between, the time since the last line.
        let since = self.told.filter(|told| *told + PERIOD >= began).unwrap_or(began);
        let seconds = now.saturating_duration_since(since).as_secs_f64();
        self.told = Some(now);
        let tally = std::mem::take(&mut self.tally);
        let line = told(Line::new(Level::Info, "relayed"), &tally).with("seconds", seconds);
        // Of a moment it would say nothing.
        Some(line.with_some("per_second", (seconds >= 1.0).then(|| per_second(tally.published, seconds))))
    }
}

/// A line with the counts of a tally, without what did not happen.
pub(super) fn told(line: Line, tally: &Tally) -> Line {
    line.with("claimed", tally.claimed)
        .with("published", tally.published)
        .counting("failed", tally.failed)
        .counting("dead", tally.dead)
        .counting("expired", tally.expired)
        .counting("unconfirmed", tally.unconfirmed)
        .counting("released", tally.released)
        .counting("gone", tally.gone)
        .counting("unwritten", tally.unwritten)
}

fn per_second(count: u64, seconds: f64) -> f64 {
    // Exact up to 2^32, and as good as that beyond.
    u32::try_from(count).map_or(f64::from(u32::MAX), f64::from) / seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn moved(claimed: u64, published: u64, failed: u64) -> Tally {
        Tally { claimed, published, failed, ..Tally::default() }
    }

    #[test]
    fn the_first_is_told_at_once_and_then_one_a_minute() {
        let (mut summary, start) = (Summary::default(), Instant::now());
        let mut line = |at: u64, tally: Tally| {
            let now = start + SECOND * u32::try_from(at).unwrap();
            summary.note(&tally, now.checked_sub(SECOND * 2).unwrap());
            summary.line(now).map(|line| line.to_string())
        };
        assert_eq!(line(2, moved(0, 0, 0)), None, "nothing was moved");
        let expected = "relayed claimed=10 published=9 failed=1 seconds=2.0 per_second=4.5";
        assert_eq!(line(10, moved(10, 9, 1)).as_deref(), Some(expected));
        assert_eq!(line(20, moved(300, 300, 0)), None);
        assert_eq!(line(69, moved(200, 200, 0)), None);
        let expected = "relayed claimed=600 published=600 seconds=60.0 per_second=10.0";
        assert_eq!(line(70, moved(100, 100, 0)).as_deref(), Some(expected));
        assert_eq!(line(200, moved(0, 0, 0)), None);
        // After a pause it counts from the tick on.
        let expected = "relayed claimed=4 published=4 seconds=2.0 per_second=2.0";
        assert_eq!(line(300, moved(4, 4, 0)).as_deref(), Some(expected));
    }

    #[test]
    fn it_is_due_when_it_may_be_told() {
        let (mut summary, start) = (Summary::default(), Instant::now());
        assert_eq!(summary.due(), None);
        summary.note(&moved(1, 1, 0), start);
        assert_eq!(summary.due(), Some(start));
        assert!(summary.line(start + SECOND).is_some());
        assert_eq!(summary.due(), None);
        summary.note(&moved(1, 1, 0), start + SECOND * 5);
        assert_eq!(summary.due(), Some(start + SECOND * 61));
        assert!(summary.line(start + SECOND * 60).is_none());
        assert!(summary.line(start + SECOND * 61).is_some());
    }

    #[test]
    fn what_did_not_happen_is_not_said() {
        let all = Tally {
            claimed: 7,
            published: 1,
            failed: 1,
            dead: 1,
            expired: 1,
            unconfirmed: 1,
            released: 1,
            gone: 1,
            unwritten: 1,
        };
        assert_eq!(
            told(Line::new(Level::Info, "x"), &all).to_string(),
            "x claimed=7 published=1 failed=1 dead=1 expired=1 unconfirmed=1 released=1 gone=1 unwritten=1"
        );
        assert_eq!(
            told(Line::new(Level::Info, "x"), &Tally::default()).to_string(),
            "x claimed=0 published=0"
        );
    }
}
