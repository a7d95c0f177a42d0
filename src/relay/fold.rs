//! What the log says of failures that repeat: the first one at once and in full, the others as a number a minute.
//!
//! Pure: who calls it knows the time and writes the lines.

use std::time::{Duration, Instant};

use log::Level;

use super::line::Line;

/// How long repetitions are counted before the log says how many they were.
pub(super) const WINDOW: Duration = Duration::from_secs(60);

/// Most different failures that are told apart at a time. Of those beyond, each sort is counted as a whole.
const FOLDS_MAX: usize = 32;

/// Most bytes in which two reasons are compared.
const REASON_MAX: usize = 500;

/// What failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// An event became FAILED.
    Refused,
    /// An event became DEAD.
    Dead,
    /// An event became EXPIRED.
    Expired,
    /// The broker's connection ended in mid-drain.
    Lost,
    /// There was no session for a second claim.
    Narrowed,
    /// The table refuses a confirm.
    Unwritable,
    /// The table refuses another outcome.
    Unsettled,
}

/// One failure, as far as two are the same.
#[derive(Debug, Clone, Copy)]
pub(super) struct Failure<'a> {
    pub(super) sort: Sort,
    /// The event's type, where it is an event's.
    pub(super) event_type: Option<&'a str>,
    pub(super) reason: &'a str,
    /// The event's row, where it is an event's.
    pub(super) row: Option<i64>,
}

/// The failures of the last minute.
#[derive(Debug, Default)]
pub(super) struct Folds(Vec<Fold>);

#[derive(Debug)]
struct Fold {
    sort: Sort,
    /// None is whatever found no fold of its own.
    of: Option<(Option<String>, String)>,
    since: Instant,
    /// Since the last line.
    count: u64,
    rows: Option<(i64, i64)>,
}

impl Folds {
    /// Takes one in; whether it is the first of its kind, which is to be told in full.
    pub(super) fn note(&mut self, failure: Failure<'_>, now: Instant) -> bool {
        let reason = beginning(failure.reason);
        let is_it = |fold: &&mut Fold| {
            fold.sort == failure.sort
                && fold.of.as_ref().is_some_and(|(event_type, of)| {
                    event_type.as_deref() == failure.event_type && of == reason
                })
        };
        if let Some(fold) = self.0.iter_mut().find(is_it) {
            return fold.note(failure.row, now);
        }
        self.0.retain(|fold| fold.count > 0 || fold.since + WINDOW > now);
        let of = if self.0.iter().filter(|fold| fold.of.is_some()).count() < FOLDS_MAX {
            Some((failure.event_type.map(Into::into), reason.into()))
        } else {
            if let Some(fold) = self.0.iter_mut().find(|it| it.of.is_none() && it.sort == failure.sort) {
                return fold.note(failure.row, now);
            }
            None
        };
        self.0.push(Fold { sort: failure.sort, of, since: now, count: 0, rows: None });
        true
    }

    /// When there is something to tell, if there is.
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.iter().filter(|fold| fold.count > 0).map(|fold| fold.since + WINDOW).min()
    }

    /// What has been counted for a whole window, or with `all` whatever was.
    pub(super) fn lines(&mut self, now: Instant, all: bool) -> Vec<Line> {
        let due = self.0.iter_mut().filter(|fold| fold.count > 0 && (all || fold.since + WINDOW <= now));
        due.map(|fold| fold.line(now)).collect()
    }
}

impl Fold {
    fn note(&mut self, row: Option<i64>, now: Instant) -> bool {
        if self.count == 0 && self.since + WINDOW <= now {
            self.since = now;
            return true;
        }
        self.count += 1;
        if let Some(row) = row {
            let (first, last) = self.rows.unwrap_or((row, row));
            self.rows = Some((first.min(row), last.max(row)));
        }
        false
    }

    fn line(&mut self, now: Instant) -> Line {
        let (event_type, reason) = match &self.of {
            Some((event_type, reason)) => (event_type.as_deref(), reason.as_str()),
            None => (None, "various, each of them rarer"),
        };
        let (first, last) = self.rows.unzip();
        let line = Line::new(self.sort.level(), self.sort.words())
            .with_some("type", event_type)
            .with("reason", reason)
            .with("count", self.count)
            .with_some("first_id", first)
            .with_some("last_id", last)
            .with_some("see", self.sort.command());
        (self.count, self.rows, self.since) = (0, None, now);
        line
    }
}

impl Sort {
    pub(super) fn level(self) -> Level {
        match self {
            Self::Refused | Self::Expired | Self::Lost | Self::Narrowed => Level::Warn,
            Self::Dead | Self::Unwritable | Self::Unsettled => Level::Error,
        }
    }

    /// Of the first, which is told in full.
    pub(super) fn words_for_one(self) -> &'static str {
        match self {
            Self::Refused => "event refused",
            Self::Dead => "event is DEAD",
            Self::Expired => "event EXPIRED",
            Self::Lost => "the broker's connection was lost; opening another",
            Self::Narrowed => "going on with one claim at a time",
            Self::Unwritable => "a confirm cannot be written; it is kept and tried again",
            Self::Unsettled => "an outcome cannot be written; its event is due as before",
        }
    }

    /// Of those that are only counted.
    fn words(self) -> &'static str {
        match self {
            Self::Refused => "events refused",
            Self::Dead => "events are DEAD",
            Self::Expired => "events EXPIRED",
            Self::Lost => "the broker's connection was lost again",
            Self::Narrowed => "went on with one claim at a time again",
            Self::Unwritable => "confirms cannot be written",
            Self::Unsettled => "outcomes cannot be written",
        }
    }

    /// What shows them.
    fn command(self) -> Option<&'static str> {
        match self {
            Self::Refused => Some("outboxd list --status failed,dead"),
            Self::Dead => Some("outboxd list --status dead"),
            Self::Expired => Some("outboxd list --status expired"),
            Self::Lost | Self::Narrowed | Self::Unwritable | Self::Unsettled => None,
        }
    }
}

/// What of a reason counts, without a broken character at its end.
fn beginning(reason: &str) -> &str {
    let end = (0..=REASON_MAX.min(reason.len())).rev().find(|at| reason.is_char_boundary(*at));
    end.and_then(|end| reason.get(..end)).unwrap_or(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<'a>(event_type: &'a str, reason: &'a str, row: i64) -> Failure<'a> {
        Failure { sort: Sort::Refused, event_type: Some(event_type), reason, row: Some(row) }
    }

    fn shown(lines: &[Line]) -> Vec<String> {
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_first_is_told_at_once_and_the_others_are_counted_in_one_line_a_minute() {
        let (mut folds, start) = (Folds::default(), Instant::now());
        assert!(folds.note(refused("t", "312 NO_ROUTE", 7), start));
        assert_eq!(folds.due(), None, "it is told already");
        for row in [9, 8, 12] {
            assert!(!folds.note(refused("t", "312 NO_ROUTE", row), start + WINDOW / 2));
        }
        assert_eq!(folds.due(), Some(start + WINDOW));
        assert_eq!(shown(&folds.lines(start + WINDOW / 2, false)), Vec::<String>::new());
        let expected = "events refused type=t reason=\"312 NO_ROUTE\" count=3 first_id=8 last_id=12 \
                        see=\"outboxd list --status failed,dead\"";
        assert_eq!(shown(&folds.lines(start + WINDOW, false)), [expected]);
        assert_eq!(shown(&folds.lines(start + WINDOW, true)), Vec::<String>::new(), "counted once");
        // It goes on: told when the next minute is over.
        assert!(!folds.note(refused("t", "312 NO_ROUTE", 20), start + WINDOW + WINDOW / 2));
        assert_eq!(folds.due(), Some(start + WINDOW * 2));
        let line = shown(&folds.lines(start + WINDOW * 2, false));
        assert!(line[0].contains(" count=1 first_id=20 last_id=20 "), "{line:?}");
        // A minute without any, and it is news again.
        assert!(!folds.note(refused("t", "312 NO_ROUTE", 21), start + WINDOW * 2 + WINDOW / 2));
        folds.lines(start + WINDOW * 3, false);
        assert!(folds.note(refused("t", "312 NO_ROUTE", 22), start + WINDOW * 4));
    }

    #[test]
    fn other_types_reasons_and_sorts_are_other_failures() {
        let (mut folds, now) = (Folds::default(), Instant::now());
        for failure in [
            refused("t", "a", 1),
            refused("t", "b", 2),
            refused("u", "a", 3),
            Failure { sort: Sort::Dead, ..refused("t", "a", 4) },
            Failure { sort: Sort::Lost, event_type: None, reason: "a", row: None },
        ] {
            assert!(folds.note(failure, now), "{failure:?}");
            assert!(!folds.note(failure, now), "{failure:?}");
        }
        let lines = shown(&folds.lines(now, true));
        assert_eq!(lines.len(), 5);
        assert_eq!(lines[4], "the broker's connection was lost again reason=a count=1");
        // Reasons that differ only far behind are the same.
        let long = "é".repeat(REASON_MAX);
        assert!(folds.note(refused("t", &long, 5), now));
        assert!(!folds.note(refused("t", &(long + "x"), 6), now));
    }

    #[test]
    fn no_number_of_reasons_fills_the_memory_or_the_log() {
        let (mut folds, start) = (Folds::default(), Instant::now());
        let told = (0..10_000).filter(|n| folds.note(refused("t", &format!("reason {n}"), *n), start));
        // One more, the first of those that are counted together.
        assert_eq!(told.count(), FOLDS_MAX + 1);
        assert_eq!(folds.0.len(), FOLDS_MAX + 1);
        let lines = shown(&folds.lines(start + WINDOW, false));
        let expected = "events refused reason=\"various, each of them rarer\" count=9967 first_id=33 last_id=9999 \
                        see=\"outboxd list --status failed,dead\"";
        assert_eq!(lines, [expected]);
        // Once they are over they make room.
        assert!(folds.note(refused("t", "another", 1), start + WINDOW * 2));
        assert_eq!(folds.0.len(), 1);
    }
}
