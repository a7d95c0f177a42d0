//! Which events an operator means.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postgres::types::Type;

use crate::route::Pattern;

use super::page::Parameters;

/// An event's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Status {
    Waiting,
    Failed,
    Published,
    Dead,
    Expired,
    Skipped,
}

impl Status {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Waiting, Self::Failed, Self::Published, Self::Dead, Self::Expired, Self::Skipped];

    /// Reads a status, in upper or lower case. `None` is any other text.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name().eq_ignore_ascii_case(text))
    }

    /// As the table holds it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "WAITING",
            Self::Failed => "FAILED",
            Self::Published => "PUBLISHED",
            Self::Dead => "DEAD",
            Self::Expired => "EXPIRED",
            Self::Skipped => "SKIPPED",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One event, as an operator names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// The row's number.
    Row(i64),
    /// The event id.
    Event(String),
}

impl Reference {
    /// Reads a row's number, which is digits only and within 64 bits; anything else is an event id. (A ULID of
    /// digits alone has 26 of them.)
    pub fn parse(text: &str) -> Self {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(id) if digits => Self::Row(id),
            _ => Self::Event(text.into()),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row(id) => id.fmt(f),
            Self::Event(id) => id.fmt(f),
        }
    }
}

/// A moment in the past, as an operator names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// So long before the command begins, by the database's clock.
    Ago(Duration),
    /// This moment.
    At(SystemTime),
}

impl When {
    /// Whether it lies before `now`, in seconds since 1970 as [`Outbox::now`](crate::outbox::Outbox::now) says it.
    pub fn is_before(self, now: f64) -> bool {
        self.epoch(now) <= now
    }

    /// In seconds since 1970, when it is `now` there.
    pub(super) fn epoch(self, now: f64) -> f64 {
        match self {
            Self::Ago(ago) => now - seconds(ago),
            Self::At(at) => at.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()),
        }
    }
}

/// Conditions that an event meets all of. The default has none, and means every event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// One of these events; none means any.
    pub events: Vec<Reference>,
    /// Its type matches one of these; none means any.
    pub event_types: Vec<Pattern>,
    /// It has this ordering key.
    pub ordering_key: Option<String>,
    /// It has one of these statuses; none means any, or what a command says.
    pub statuses: Vec<Status>,
    /// It was created at least so long ago, by the database's clock.
    pub older_than: Option<Duration>,
    /// It was created at most so long ago.
    pub newer_than: Option<Duration>,
    /// It was published then or later.
    pub published_since: Option<When>,
    /// It was published then or earlier.
    pub published_until: Option<When>,
    /// Its `last_error` contains this text. Case matters.
    pub error: Option<String>,
}

impl Filter {
    /// Whether it means every event.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Which index leads to the rows: 1 that of unfinished events, 2 that of refused ones, 0 neither; and whether that of
    /// one key's unfinished events does.
    pub(super) fn index(&self) -> (i32, bool) {
        let only = |among: &[Status]| {
            !self.statuses.is_empty() && self.statuses.iter().all(|status| among.contains(status))
        };
        let by_key = self.ordering_key.is_some() && only(&[Status::Waiting, Status::Failed, Status::Dead]);
        let index = match () {
            () if by_key => 0,
            () if only(&[Status::Failed, Status::Dead]) => 2,
            () if only(&[Status::Waiting, Status::Failed]) => 1,
            () => 0,
        };
        (index, by_key)
    }

    /// The event ids among the events.
    pub(super) fn event_ids(&self) -> Vec<String> {
        let event_id = |event: &Reference| match event {
            Reference::Event(id) => Some(id.clone()),
            Reference::Row(_) => None,
        };
        self.events.iter().filter_map(event_id).collect()
    }

    /// The rows among the events, and those `found` for its event ids; none when the filter names no events.
    pub(super) fn rows(&self, found: Vec<i64>) -> Option<Vec<i64>> {
        let row = |event: &Reference| match event {
            Reference::Row(id) => Some(*id),
            Reference::Event(_) => None,
        };
        let mut rows: Vec<i64> = self.events.iter().filter_map(row).chain(found).collect();
        rows.sort_unstable();
        rows.dedup();
        (!self.events.is_empty()).then_some(rows)
    }

    /// Whether the database's time is needed to know what it means.
    pub(super) fn has_moments(&self) -> bool {
        self.published_since.is_some() || self.published_until.is_some()
    }

    /// The first nine parameters of every statement with a filter. `rows` are those of [`Filter::rows`]; `began` is when
    /// the command began, in seconds since 1970.
    pub(super) fn parameters(&self, rows: Option<&Vec<i64>>, began: f64) -> Parameters {
        let patterns: Vec<String> = self.event_types.iter().map(like).collect();
        let statuses: Vec<&'static str> = self.statuses.iter().map(|status| status.name()).collect();
        let mut parameters = Parameters::default();
        parameters.add(rows.cloned(), Type::INT8_ARRAY);
        parameters.add((!patterns.is_empty()).then_some(patterns), Type::TEXT_ARRAY);
        parameters.add(self.ordering_key.clone(), Type::TEXT);
        parameters.add((!statuses.is_empty()).then_some(statuses), Type::TEXT_ARRAY);
        parameters.add(self.older_than.map(seconds), Type::FLOAT8);
        parameters.add(self.newer_than.map(seconds), Type::FLOAT8);
        parameters.add(self.published_since.map(|when| when.epoch(began)), Type::FLOAT8);
        parameters.add(self.published_until.map(|when| when.epoch(began)), Type::FLOAT8);
        parameters.add(self.error.clone(), Type::TEXT);
        parameters
    }
}

/// The longest time that reaches the database: longer ones leave its range of times.
const TIME_MAX: Duration = Duration::from_secs(1000 * 365 * 24 * 60 * 60);

pub(super) fn seconds(time: Duration) -> f64 {
    time.min(TIME_MAX).as_secs_f64()
}

/// A pattern of event types as one of LIKE: `*` is its `%`, and nothing else has a meaning.
fn like(pattern: &Pattern) -> String {
    let mut text = String::new();
    for c in pattern.to_string().chars() {
        match c {
            '*' => text.push('%'),
            '%' | '_' | '\\' => text.extend(['\\', c]),
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_the_same_to_the_database() {
        for (pattern, expected) in
            [("order.*", "order.%"), ("a_b%", r"a\_b\%"), (r"a\*", r"a\\%"), ("*", "%"), ("plain", "plain")]
        {
            assert_eq!(like(&Pattern::parse(pattern).unwrap()), expected);
        }
    }

    #[test]
    fn rows_are_told_from_events() {
        for (text, expected) in [
            ("7", Reference::Row(7)),
            ("9223372036854775807", Reference::Row(i64::MAX)),
            ("9223372036854775808", Reference::Event("9223372036854775808".into())),
            ("+7", Reference::Event("+7".into())),
            ("-7", Reference::Event("-7".into())),
            ("", Reference::Event(String::new())),
            ("01JD0000000000000000000000", Reference::Event("01JD0000000000000000000000".into())),
        ] {
            assert_eq!(Reference::parse(text), expected);
        }
    }

    #[test]
    fn only_what_an_index_holds_is_looked_for_there() {
        use Status::{Dead, Failed, Published, Waiting};
        let cases: [(&[Status], bool, (i32, bool)); 6] = [
            (&[], false, (0, false)),
            (&[], true, (0, false)),
            (&[Waiting, Failed], false, (1, false)),
            (&[Failed], true, (0, true)),
            (&[Failed, Dead], false, (2, false)),
            (&[Dead, Published], true, (0, false)),
        ];
        for (statuses, keyed, expected) in cases {
            let filter = Filter {
                statuses: statuses.into(),
                ordering_key: keyed.then(|| "k".into()),
                ..Filter::default()
            };
            assert_eq!(filter.index(), expected, "{filter:?}");
        }
    }
}
