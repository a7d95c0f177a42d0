//! A line of the log: words that are the same every time, and what differs as pairs. Never holds a payload.
//!
//! It goes to whatever backend of `log` the host has. The record's text holds all of it, because most backends show
//! nothing else; its `kv` holds the words as `msg` and the pairs, for those that take them apart.

use std::fmt;
use std::time::Duration;

use log::kv::{self, Key, Source, VisitSource};
use log::{Level, Record};

/// Where the lines say that they come from; `RUST_LOG` can name it.
const TARGET: &str = "outboxd::relay";

/// Most characters of a text in a line; the row has the rest.
const TEXT_MAX: usize = 1000;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    level: Level,
    words: &'static str,
    pairs: Vec<(&'static str, Value)>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Text(String),
    Whole(u64),
    Row(i64),
    /// With one digit behind the point.
    Tenths(f64),
}

impl Line {
    pub(super) fn new(level: Level, words: &'static str) -> Self {
        Self { level, words, pairs: Vec::new() }
    }

    pub(super) fn with(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.pairs.push((key, value.into()));
        self
    }

    /// The same where there is a value.
    pub(super) fn with_some(self, key: &'static str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    /// The same, unless the count is 0.
    pub(super) fn counting(self, key: &'static str, count: u64) -> Self {
        self.with_some(key, (count > 0).then_some(count))
    }

    /// Hands it to the log.
    pub(super) fn log(&self) {
        if self.level > log::STATIC_MAX_LEVEL || self.level > log::max_level() {
            return;
        }
        log::logger().log(
            &Record::builder()
                .level(self.level)
                .target(TARGET)
                .module_path_static(Some(TARGET))
                .args(format_args!("{self}"))
                .key_values(self)
                .build(),
        );
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words)?;
        for (key, value) in &self.pairs {
            match value {
                Value::Text(text) if is_plain(text) => write!(f, " {key}={text}")?,
                Value::Text(text) => write!(f, " {key}={text:?}")?,
                Value::Whole(number) => write!(f, " {key}={number}")?,
                Value::Row(number) => write!(f, " {key}={number}")?,
                Value::Tenths(number) => write!(f, " {key}={number:.1}")?,
            }
        }
        Ok(())
    }
}

fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| !c.is_whitespace() && !c.is_control() && !"=\"\\".contains(c))
}

impl Source for Line {
    fn visit<'kvs>(&'kvs self, visitor: &mut dyn VisitSource<'kvs>) -> Result<(), kv::Error> {
        visitor.visit_pair(Key::from_str("msg"), kv::Value::from(self.words))?;
        for (key, value) in &self.pairs {
            let value = match value {
                Value::Text(text) => kv::Value::from(text.as_str()),
                Value::Whole(number) => kv::Value::from(*number),
                Value::Row(number) => kv::Value::from(*number),
                Value::Tenths(number) => kv::Value::from((number * 10.0).round() / 10.0),
            };
            visitor.visit_pair(Key::from_str(key), value)?;
        }
        Ok(())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        let end = text.char_indices().nth(TEXT_MAX).map(|(at, _)| at);
        Self::Text(match end.and_then(|end| text.get(..end)) {
            Some(beginning) => format!("{beginning}..."),
            None => text.into(),
        })
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Row(number)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Tenths(number)
    }
}

impl From<Duration> for Value {
    /// As people write it, to the second; to the millisecond where it is shorter.
    fn from(time: Duration) -> Self {
        let whole = if time < Duration::from_secs(1) {
            Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
        } else {
            Duration::from_secs(time.as_secs())
        };
        Self::Text(humantime::format_duration(whole).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_text_holds_all_of_it_in_one_line() {
        let line = Line::new(Level::Warn, "events refused")
            .with("type", "order.paid")
            .with("reason", "312 NO_ROUTE: \"x\"\nlevel=error")
            .with("none", "")
            .with("count", 3_u64)
            .with("row", -1_i64)
            .with("per_second", 2.0 / 3.0)
            .with("lasted", Duration::from_millis(72_345))
            .with("took", Duration::from_micros(45_678))
            .with_some("more", None::<u64>)
            .counting("dead", 0);
        assert_eq!(
            line.to_string(),
            "events refused type=order.paid reason=\"312 NO_ROUTE: \\\"x\\\"\\nlevel=error\" none=\"\" count=3 row=-1 \
             per_second=0.7 lasted=\"1m 12s\" took=45ms"
        );
    }

    #[test]
    fn its_pairs_hold_the_words_too() {
        let line = Line::new(Level::Info, "relayed").with("published", 7_u64).with("type", "t");
        let words = line.get(Key::from_str("msg")).unwrap().to_borrowed_str().map(str::to_owned);
        assert_eq!(words.as_deref(), Some("relayed"));
        assert_eq!(line.get(Key::from_str("published")).unwrap().to_u64(), Some(7));
        assert_eq!(line.count(), 3);
    }

    #[test]
    fn long_texts_are_cut() {
        let line = Line::new(Level::Info, "x").with("text", "é".repeat(TEXT_MAX + 1));
        assert_eq!(line.to_string(), format!("x text={}...", "é".repeat(TEXT_MAX)));
    }
}
