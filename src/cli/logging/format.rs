//! What a line of the log looks like: `key=value` pairs or JSON, with the time or, for systemd's journal, the priority.
//!
//! Pure. Whatever a line is about, it is one line.

use std::borrow::Cow;
use std::fmt::Write;

use chrono::{DateTime, SecondsFormat, Utc};
use log::kv::{Error, Key, Value, VisitSource, VisitValue};
use log::{Level, Record};

use super::super::print::one_line;

/// Most characters of one text. What needs more has it in the table.
const TEXT_MAX: usize = 2000;

#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    pub(super) json: bool,
    /// The journal keeps the time itself, and takes the priority from the line's beginning.
    pub(super) journal: bool,
}

/// A value, as both formats write it.
enum Shown {
    Text(String),
    /// A number or a truth value.
    Bare(String),
}

impl Style {
    /// The line of a record, without its end.
    pub(super) fn line(&self, time: DateTime<Utc>, record: &Record<'_>) -> String {
        let mut pairs = Pairs { message: None, others: Vec::new() };
        // The visitor fails at nothing.
        let _ = record.key_values().visit(&mut pairs);
        // Lines that say all in their text as well bring their message as a pair.
        let message = pairs.message.unwrap_or_else(|| record.args().to_string());
        self.write(time, record.level(), message, pairs.others)
    }

    /// What ends a command, without the line's end. A person reads it, unless all of the log is for programs.
    pub(super) fn last_word(&self, time: DateTime<Utc>, text: &str) -> String {
        if self.json {
            return self.write(time, Level::Error, text.into(), Vec::new());
        }
        let priority = if self.journal { format!("<{}>", priority(Level::Error)) } else { String::new() };
        format!("{priority}outboxd: {}", one_line(text))
    }

    fn write(
        &self,
        time: DateTime<Utc>,
        level: Level,
        message: String,
        others: Vec<(String, Shown)>,
    ) -> String {
        let mut pairs = Vec::with_capacity(others.len() + 3);
        if !self.journal {
            pairs.push(("time".into(), Shown::Text(time.to_rfc3339_opts(SecondsFormat::Millis, true))));
        }
        pairs.push(("level".into(), Shown::Text(name(level).into())));
        pairs.push(("msg".into(), Shown::Text(message)));
        pairs.extend(others);
        let mut line = if self.journal { format!("<{}>", priority(level)) } else { String::new() };
        if self.json {
            line.push('{');
        }
        for (index, (key, value)) in pairs.iter().enumerate() {
            match (index, self.json) {
                (0, _) => {}
                (_, true) => line.push(','),
                (_, false) => line.push(' '),
            }
            self.write_pair(&mut line, key, value);
        }
        if self.json {
            line.push('}');
        }
        line
    }

    fn write_pair(&self, line: &mut String, key: &str, value: &Shown) {
        if self.json {
            quote(line, key);
            line.push(':');
        } else {
            line.extend(key.chars().map(|c| if is_plain(c) { c } else { '_' }));
            line.push('=');
        }
        match value {
            Shown::Bare(text) => line.push_str(text),
            Shown::Text(text) if !self.json && !text.is_empty() && text.chars().all(is_plain) => {
                line.push_str(&cut(text));
            }
            Shown::Text(text) => quote(line, &cut(text)),
        }
    }
}

/// What is told instead of so many lines.
pub(super) fn dropped(style: &Style, time: DateTime<Utc>, count: u64) -> Vec<u8> {
    let message = "log lines were dropped: standard error was not read".into();
    let others = vec![("dropped".into(), Shown::Bare(count.to_string()))];
    let mut line = style.write(time, Level::Warn, message, others).into_bytes();
    line.push(b'\n');
    line
}

fn name(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    }
}

/// As in sd-daemon(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

/// Whether a value may stand without quotes that holds this.
fn is_plain(c: char) -> bool {
    !c.is_whitespace() && !c.is_control() && !"=\"\\".contains(c)
}

fn cut(text: &str) -> Cow<'_, str> {
    let end = text.char_indices().nth(TEXT_MAX).map(|(at, _)| at);
    match end.and_then(|end| text.get(..end)) {
        Some(beginning) => format!("{beginning}...").into(),
        None => text.into(),
    }
}

/// In quotes, with JSON's escapes: what a row holds must not look like another line, or move the cursor.
fn quote(line: &mut String, text: &str) {
    line.push('"');
    for c in text.chars() {
        match c {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            // All of them are in the first plane, where an escape is four digits.
            c if c.is_control() || "\u{2028}\u{2029}".contains(c) => {
                let _ = write!(line, "\\u{:04x}", u32::from(c));
            }
            c => line.push(c),
        }
    }
    line.push('"');
}

struct Pairs {
    message: Option<String>,
    others: Vec<(String, Shown)>,
}

impl<'kvs> VisitSource<'kvs> for Pairs {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), Error> {
        let mut found = Found(None);
        value.visit(&mut found)?;
        let value = found.0.unwrap_or_else(|| Shown::Text(value.to_string()));
        match (key.as_str(), value) {
            ("msg", Shown::Text(text)) => self.message = Some(text),
            // Ours, whoever else says something under these names.
            ("time" | "level" | "msg", _) => {}
            (key, value) => self.others.push((key.into(), value)),
        }
        Ok(())
    }
}

/// The value that was visited, where it is no other than a text or bare.
struct Found(Option<Shown>);

impl<'v> VisitValue<'v> for Found {
    fn visit_any(&mut self, value: Value<'_>) -> Result<(), Error> {
        self.0 = Some(Shown::Text(value.to_string()));
        Ok(())
    }

    fn visit_u64(&mut self, value: u64) -> Result<(), Error> {
        self.0 = Some(Shown::Bare(value.to_string()));
        Ok(())
    }

    fn visit_i64(&mut self, value: i64) -> Result<(), Error> {
        self.0 = Some(Shown::Bare(value.to_string()));
        Ok(())
    }

    fn visit_f64(&mut self, value: f64) -> Result<(), Error> {
        // JSON knows no infinity.
        let text = value.to_string();
        self.0 = Some(if value.is_finite() { Shown::Bare(text) } else { Shown::Text(text) });
        Ok(())
    }

    fn visit_bool(&mut self, value: bool) -> Result<(), Error> {
        self.0 = Some(Shown::Bare(value.to_string()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use log::kv::Source;

    use super::*;

    const TEXT: Style = Style { json: false, journal: false };
    const JSON: Style = Style { json: true, journal: false };

    fn line(style: Style, level: Level, message: &str, pairs: &[(&str, Value<'_>)]) -> String {
        let time = DateTime::from_timestamp_millis(1_793_872_800_123).unwrap();
        let pairs: &dyn Source = &pairs;
        style.line(
            time,
            &Record::builder().level(level).args(format_args!("{message}")).key_values(pairs).build(),
        )
    }

    #[test]
    fn a_line_is_pairs_or_an_object() {
        let pairs = [
            ("type", Value::from("order.paid")),
            ("reason", Value::from("312 NO_ROUTE")),
            ("count", Value::from(4213_u64)),
            ("first_id", Value::from(-7_i64)),
            ("per_second", Value::from(83.5)),
            ("tls", Value::from(true)),
            ("none", Value::from("")),
        ];
        assert_eq!(
            line(TEXT, Level::Warn, "events refused", &pairs),
            "time=2026-11-05T10:00:00.123Z level=warn msg=\"events refused\" type=order.paid reason=\"312 NO_ROUTE\" \
             count=4213 first_id=-7 per_second=83.5 tls=true none=\"\""
        );
        assert_eq!(
            line(JSON, Level::Warn, "events refused", &pairs),
            "{\"time\":\"2026-11-05T10:00:00.123Z\",\"level\":\"warn\",\"msg\":\"events refused\",\
             \"type\":\"order.paid\",\"reason\":\"312 NO_ROUTE\",\"count\":4213,\"first_id\":-7,\"per_second\":83.5,\
             \"tls\":true,\"none\":\"\"}"
        );
    }

    #[test]
    fn the_journal_gets_the_priority_and_no_time() {
        let style = Style { journal: true, ..TEXT };
        let levels = [
            (Level::Error, "<3>level=error msg=x"),
            (Level::Warn, "<4>level=warn msg=x"),
            (Level::Info, "<6>level=info msg=x"),
            (Level::Debug, "<7>level=debug msg=x"),
            (Level::Trace, "<7>level=trace msg=x"),
        ];
        for (level, expected) in levels {
            assert_eq!(line(style, level, "x", &[]), expected);
        }
        let style = Style { journal: true, ..JSON };
        assert_eq!(line(style, Level::Info, "x", &[]), "<6>{\"level\":\"info\",\"msg\":\"x\"}");
    }

    #[test]
    fn what_ends_a_command_is_for_people_or_a_line_like_the_others() {
        let time = DateTime::from_timestamp_millis(0).unwrap();
        let say = |style: Style| style.last_word(time, "no \"x\"\nand more");
        assert_eq!(say(TEXT), "outboxd: no \"x\"\\nand more");
        assert_eq!(say(Style { journal: true, ..TEXT }), "<3>outboxd: no \"x\"\\nand more");
        let object = "\"level\":\"error\",\"msg\":\"no \\\"x\\\"\\nand more\"}";
        assert_eq!(say(JSON), format!("{{\"time\":\"1970-01-01T00:00:00.000Z\",{object}"));
        assert_eq!(say(Style { journal: true, ..JSON }), format!("<3>{{{object}"));
    }

    #[test]
    fn a_message_that_comes_as_a_pair_is_the_message() {
        let pairs =
            [("msg", Value::from("relayed")), ("published", Value::from(5)), ("level", Value::from("x"))];
        let text = line(TEXT, Level::Info, "relayed published=5", &pairs);
        assert!(text.ends_with(" level=info msg=relayed published=5"), "{text}");
    }

    /// Of everything that could end a line, begin a pair, or move a cursor.
    #[test]
    fn what_a_row_holds_stays_one_value() {
        let hostile = "é \"a=b\" c:\\d\n2026 level=error\r\t\u{1b}[31m\u{7f}\u{9b}\u{2028}\0";
        let expected =
            "\"é \\\"a=b\\\" c:\\\\d\\n2026 level=error\\r\\t\\u001b[31m\\u007f\\u009b\\u2028\\u0000\"";
        let pairs = [("type", Value::from(hostile))];
        let text = line(TEXT, Level::Info, "x", &pairs);
        assert!(text.ends_with(&format!(" msg=x type={expected}")), "{text}");
        assert!(line(TEXT, Level::Info, hostile, &[]).ends_with(&format!(" msg={expected}")));
        let json: serde_json::Value =
            serde_json::from_str(&line(JSON, Level::Info, hostile, &pairs)).unwrap();
        assert_eq!((json["msg"].as_str(), json["type"].as_str()), (Some(hostile), Some(hostile)));
        // Short ones that only look harmless.
        for (value, expected) in
            [("a=b", "\"a=b\""), ("\"", "\"\\\"\""), ("\\", "\"\\\\\""), ("\u{a0}", "\"\u{a0}\"")]
        {
            let text = line(TEXT, Level::Info, "x", &[("k", Value::from(value))]);
            assert!(text.ends_with(&format!(" k={expected}")), "{text}");
        }
        assert!(line(TEXT, Level::Info, "x", &[("a b=\n", Value::from(1))]).ends_with(" a_b__=1"));
    }

    #[test]
    fn lines_have_an_end() {
        let long = "x y".repeat(TEXT_MAX);
        let line = line(JSON, Level::Info, &long, &[("a", Value::from(long.as_str()))]);
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(json["a"].as_str().map(str::len), Some(TEXT_MAX + 3));
    }

    #[test]
    fn what_was_dropped_is_a_line_of_its_own() {
        let time = DateTime::from_timestamp_millis(0).unwrap();
        assert_eq!(
            String::from_utf8(dropped(&TEXT, time, 1234)).unwrap(),
            "time=1970-01-01T00:00:00.000Z level=warn msg=\"log lines were dropped: standard error was not read\" \
             dropped=1234\n"
        );
    }
}
