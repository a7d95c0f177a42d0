//! Text to value: durations, sizes, counts, names. Small functions that know a limit only when they are told
//! it, and say `None` for whatever is not in the accepted form; the form itself stands in the table of
//! settings.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use super::OnDead;
use crate::message::{EXCHANGE_MAX, SHORT_STRING_MAX};
use crate::route::Template;

/// Most digits in the text of a duration, all its parts together; or else in each of so many parts.
///
/// humantime 2.4 panics where the sum of the parts passes `u64::MAX` seconds by its nanoseconds
/// (`18446744073709551615s 1000ms`). Eleven digits stay below that even in years, and so do ten digits in each of 32
/// parts. What humantime itself writes has up to nine parts (`1year 4months 7days 10h 11m 27s 100ms`).
const DURATION_DIGITS_MAX: usize = 11;
const PART_DIGITS_MAX: usize = 10;
const PARTS_MAX: usize = 32;

/// Reads a duration such as `30s`, `500ms`, `1h 30m` or `1.5h`; the unit is never implied. `None` is any
/// other text.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    // humantime takes a bare `0`, but then `1` looks right too.
    let parts = || text.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
    let is_small = parts().count() <= PARTS_MAX && parts().all(|part| part.len() <= PART_DIGITS_MAX);
    if (digits > DURATION_DIGITS_MAX && !is_small) || text == "0" {
        return None;
    }
    humantime::parse_duration(text).ok()
}

pub(super) fn duration(text: &str, limits: &RangeInclusive<Duration>) -> Option<Duration> {
    parse_duration(text).filter(|duration| limits.contains(duration))
}

/// `none`, or what `parse` reads.
pub(super) fn or_none<T>(text: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
    match text.trim() {
        "none" => Some(None),
        text => parse(text).map(Some),
    }
}

/// `on` or `off`, or as TOML writes them.
pub(super) fn switch(text: &str) -> Option<bool> {
    match text.trim() {
        "on" | "true" => Some(true),
        "off" | "false" => Some(false),
        _ => None,
    }
}

/// `block` or `skip`.
pub(super) fn on_dead(text: &str) -> Option<OnDead> {
    match text.trim() {
        "block" => Some(OnDead::Block),
        "skip" => Some(OnDead::Skip),
        _ => None,
    }
}

/// A whole number in decimal digits alone: no sign, no separators.
pub(super) fn count<T: FromStr + PartialOrd>(text: &str, limits: &RangeInclusive<T>) -> Option<T> {
    let text = text.trim();
    // `parse` would take a plus sign.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|number| limits.contains(number))
}

/// Bytes as a whole number with a binary unit: `4096B`, `64KiB`, `8MiB`, `1GiB`.
pub(super) fn size(text: &str, limits: &RangeInclusive<usize>) -> Option<usize> {
    let text = text.trim();
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at_checked(unit_at)?;
    let unit: usize = match unit.trim_start() {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    let bytes = number.parse::<usize>().ok()?.checked_mul(unit)?;
    Some(bytes).filter(|bytes| limits.contains(bytes))
}

pub(super) fn exchange(text: &str) -> Option<String> {
    (text.len() <= EXCHANGE_MAX).then(|| text.into())
}

/// The name of a time zone, in the letters that those names and POSIX's own form of them have. Whether there is such a
/// zone, only the server knows.
pub(super) fn time_zone(text: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/_+-:,.<>".contains(&byte);
    ((1..=NAME_MAX).contains(&text.len()) && text.bytes().all(plain)).then(|| text.into())
}

pub(super) fn content_type(text: &str) -> Option<String> {
    (1..=SHORT_STRING_MAX).contains(&text.len()).then(|| text.into())
}

/// A template whose fixed text alone is too long would make every event invalid, so it is refused here.
pub(super) fn routing_key(text: &str) -> Result<Template, String> {
    let template = Template::parse(text)?;
    match template.fill("", Some("")) {
        Ok(fixed) if fixed.len() > SHORT_STRING_MAX => {
            Err(format!("more than {SHORT_STRING_MAX} bytes before anything is filled in"))
        }
        _ => Ok(template),
    }
}

/// The name of a table, perhaps with its schema. Each part is the name itself: case is kept, nothing is
/// quoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableName {
    /// The schema; without one, the session's search path decides.
    pub schema: Option<String>,
    /// The table.
    pub name: String,
}

/// Most bytes of a name in PostgreSQL, which cuts a longer one without an error (manual, 4.1.1).
const NAME_MAX: usize = 63;

impl TableName {
    /// Reads `[schema.]table`. A part is taken as it is, or stands in double quotes as in SQL, with `""` for
    /// a quote. Each part has 1 to 63 bytes and no NUL. Anything else is `None`, and so is a URL that was put in
    /// the wrong place: a table's name is shown in messages, and a password must not be.
    pub fn parse(text: &str) -> Option<Self> {
        if text.contains("://") {
            return None;
        }
        let (first, rest) = name_part(text)?;
        let (schema, (name, rest)) = match rest.strip_prefix('.') {
            None => (None, (first, rest)),
            Some(rest) => (Some(first), name_part(rest)?),
        };
        rest.is_empty().then_some(Self { schema, name })
    }
}

/// The first part of a name, and what follows it.
fn name_part(text: &str) -> Option<(String, &str)> {
    let (part, rest) = match text.strip_prefix('"') {
        Some(quoted) => quoted_part(quoted)?,
        None => {
            let (part, rest) = text.split_at_checked(text.find('.').unwrap_or(text.len()))?;
            (part.to_owned(), rest)
        }
    };
    let valid = (1..=NAME_MAX).contains(&part.len()) && !part.contains('\0');
    // A quote in an unquoted part is a mistyped quoted one.
    let valid = valid && (text.starts_with('"') || !part.contains('"'));
    valid.then_some((part, rest))
}

/// A part up to its closing quote, and what follows it; `text` begins after the opening one.
fn quoted_part(text: &str) -> Option<(String, &str)> {
    let mut part = String::new();
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once('"')?;
        part.push_str(before);
        match after.strip_prefix('"') {
            Some(after) => {
                part.push('"');
                rest = after;
            }
            None => return Some((part, after)),
        }
    }
}

impl fmt::Display for TableName {
    /// As [`TableName::parse`] reads it, with quotes only where they are needed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(schema) = &self.schema {
            write_part(f, schema)?;
            f.write_str(".")?;
        }
        write_part(f, &self.name)
    }
}

fn write_part(f: &mut fmt::Formatter<'_>, part: &str) -> fmt::Result {
    if part.contains(['.', '"']) { write!(f, "\"{}\"", part.replace('"', "\"\"")) } else { f.write_str(part) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: RangeInclusive<Duration> = Duration::ZERO..=Duration::MAX;

    #[test]
    fn durations_need_their_unit() {
        let cases = [
            ("30s", Some(30_000)),
            ("500ms", Some(500)),
            ("3m", Some(180_000)),
            ("1h 30m", Some(5_400_000)),
            ("1h30m", Some(5_400_000)),
            ("1.5h", Some(5_400_000)),
            (" 30 s ", Some(30_000)),
            ("0s", Some(0)),
            ("3650d", Some(315_360_000_000)),
            ("1year 4months 7days 10h 11m 27s 100ms", Some(42_719_151_100)),
            ("0", None),
            (" 0 ", None),
            ("30", None),
            ("", None),
            (" ", None),
            ("s", None),
            ("-5s", None),
            ("+5s", None),
            ("30 parsecs", None),
            ("30S", None),
            ("1,5h", None),
            ("1e3s", None),
            ("٣٠s", None),
            ("30ś", None),
            ("none", None),
            ("99999999999y", Some(3_155_759_999_968_442_400_000)),
            ("100000000000y", None),
            ("18446744073709551616s", None),
            // humantime panics on these two.
            ("18446744073709551615s 1000ms", None),
            ("584542046090y 19767615s 1000ms", None),
        ];
        for (text, expected) in cases {
            assert_eq!(duration(text, &ANY).map(|duration| duration.as_millis()), expected, "{text:?}");
        }
    }

    #[test]
    fn sizes_have_binary_units() {
        let cases = [
            ("4096B", Some(4096)),
            ("64KiB", Some(65_536)),
            ("8MiB", Some(8_388_608)),
            ("1GiB", Some(1_073_741_824)),
            (" 8 MiB ", Some(8_388_608)),
            ("008MiB", Some(8_388_608)),
            ("0B", Some(0)),
            ("4096", None),
            ("", None),
            ("B", None),
            ("MiB", None),
            ("8MB", None),
            ("8M", None),
            ("8mib", None),
            ("8MiB/s", None),
            ("-8MiB", None),
            ("+8MiB", None),
            ("1.5MiB", None),
            ("1_000B", None),
            ("8MiB 1KiB", None),
            ("８MiB", None),
            ("8МiB", None), // a Cyrillic letter
            ("18446744073709551616B", None),
            ("18014398509481984KiB", None),
        ];
        for (text, expected) in cases {
            assert_eq!(size(text, &(0..=usize::MAX)), expected, "{text:?}");
        }
    }

    #[test]
    fn counts_are_digits_within_their_limits() {
        let cases = [
            ("1", Some(1)),
            ("1000", Some(1000)),
            (" 500 ", Some(500)),
            ("0500", Some(500)),
            ("0", None),
            ("1001", None),
            ("", None),
            (" ", None),
            ("-1", None),
            ("+1", None),
            ("1.0", None),
            ("1_000", None),
            ("1 000", None),
            ("0x10", None),
            ("٣", None),
            ("4294967297", None),
            ("99999999999999999999999999", None),
        ];
        for (text, expected) in cases {
            assert_eq!(count::<u32>(text, &(1..=1000)), expected, "{text:?}");
        }
    }

    #[test]
    fn a_limit_may_be_none() {
        let cases =
            [("none", Some(None)), (" none ", Some(None)), ("5", Some(Some(5))), ("None", None), ("", None)];
        for (text, expected) in cases {
            assert_eq!(or_none(text, |text| count::<u32>(text, &(1..=9))), expected, "{text:?}");
        }
    }

    #[test]
    fn names_fit_into_amqps_short_strings() {
        let (e200, e201) = ("é".repeat(100), "é".repeat(100) + "x");
        for (text, fits) in [("", true), ("events", true), (&e200, true), (&e201, false)] {
            assert_eq!(exchange(text).is_some(), fits, "{text}");
        }
        let (c255, c256) = ("x".repeat(255), "x".repeat(256));
        for (text, fits) in [("", false), ("text/plain", true), (&c255, true), (&c256, false)] {
            assert_eq!(content_type(text).is_some(), fits, "{text}");
        }
        let (k255, k256) = (c255.clone() + "{event_type}", c256.clone() + "{ordering_key}");
        for (text, fits) in
            [("", true), ("{event_type}", true), (&k255, true), (&k256, false), ("{key}", false)]
        {
            assert_eq!(routing_key(text).is_ok(), fits, "{text}");
        }
    }

    #[test]
    fn time_zones_hold_nothing_that_ends_a_literal() {
        for text in [
            "UTC",
            "Asia/Tokyo",
            "America/Argentina/Buenos_Aires",
            "Etc/GMT+9",
            "<+09>-9",
            "EST5EDT,M3.2.0,M11.1.0",
        ] {
            assert_eq!(time_zone(text).as_deref(), Some(text));
        }
        for text in ["", "UTC'", "a b", "a\\b", "a;b", "Zürich", &"x".repeat(64)] {
            assert_eq!(time_zone(text), None, "{text}");
        }
    }

    #[test]
    fn table_names_are_read_and_written_the_same_way() {
        let (long, longer) = ("x".repeat(63), "é".repeat(32));
        let cases = [
            ("event_outbox", Some((None, "event_outbox")), "event_outbox"),
            ("public.event_outbox", Some((Some("public"), "event_outbox")), "public.event_outbox"),
            ("MixedCase", Some((None, "MixedCase")), "MixedCase"),
            (r#""plain""#, Some((None, "plain")), "plain"),
            (r#""a.b""#, Some((None, "a.b")), r#""a.b""#),
            (
                r#""My.Schema"."odd ""name""""#,
                Some((Some("My.Schema"), r#"odd "name""#)),
                r#""My.Schema"."odd ""name""""#,
            ),
            (r#"app."T""#, Some((Some("app"), "T")), "app.T"),
            (r#"x"; drop table y"#, None, ""),
            ("x; drop table y", Some((None, "x; drop table y")), "x; drop table y"),
            ("ügly", Some((None, "ügly")), "ügly"),
            (&long, Some((None, &long)), &long),
            (&longer, None, ""), // 64 bytes
            ("", None, ""),
            (".", None, ""),
            (".t", None, ""),
            ("s.", None, ""),
            ("a.b.c", None, ""),
            (r#""""#, None, ""),
            (r#"s."""#, None, ""),
            (r#""open"#, None, ""),
            (r#""a"b"#, None, ""),
            (r#"a"b"#, None, ""),
            ("postgres://user:secret@host/database", None, ""),
            ("a\0b", None, ""),
            ("\"a\0b\"", None, ""),
        ];
        for (text, expected, written) in cases {
            let table = TableName::parse(text);
            let parts = table.as_ref().map(|table| (table.schema.as_deref(), table.name.as_str()));
            assert_eq!(parts, expected, "{text:?}");
            if let Some(table) = table {
                assert_eq!(table.to_string(), written);
                assert_eq!(TableName::parse(written), Some(table), "{written:?}");
            }
        }
    }
}
