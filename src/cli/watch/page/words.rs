//! Texts, times and numbers as a reader of the page wants them, and as HTML can hold them. Pure.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};

use crate::cli::print;

/// A text in HTML, in an element or in quotes. Control characters show as their escapes.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in print::one_line(text).chars() {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            c => safe.push(c),
        }
    }
    safe
}

/// A word of a command line, for a shell.
pub(super) fn shell(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,@".contains(c);
    match !text.is_empty() && text.chars().all(plain) && !text.starts_with('-') {
        true => text.into(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// `12,345`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `350 ms`, `4.2 s`, `35 s`, `12 min`, `3 h 20 min`, `4 d 6 h`.
pub(super) fn time(it: Duration) -> String {
    let seconds = it.as_secs();
    let two = |first: u64, unit: &str, second: u64, smaller: &str| match second {
        0 => format!("{first} {unit}"),
        _ => format!("{first} {unit} {second} {smaller}"),
    };
    match seconds {
        0 if it.is_zero() => "0 s".into(),
        0 => format!("{} ms", it.as_millis()),
        1..10 if it.subsec_millis() >= 50 => format!("{:.1} s", it.as_secs_f64()),
        1..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => two(seconds / 3600, "h", seconds / 60 % 60, "min"),
        _ => two(seconds / 86_400, "d", seconds / 3600 % 24, "h"),
    }
}

/// How long ago that was, in whole seconds.
pub(super) fn ago(at: SystemTime, now: SystemTime) -> String {
    time(Duration::from_secs(now.duration_since(at).unwrap_or_default().as_secs()))
}

/// `19:52:06`, with the date where that is another day.
pub(super) fn clock(at: SystemTime, now: SystemTime) -> String {
    let (at, now) = (DateTime::<Utc>::from(at), DateTime::<Utc>::from(now));
    let form = if at.date_naive() == now.date_naive() { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
    at.format(form).to_string()
}

/// `0`, `0.4`, `12.5`, `812`, `1,204`.
pub(super) fn rate(per_second: f64) -> String {
    match per_second {
        it if it <= 0.0 => "0".into(),
        it if it < 0.1 => "under 0.1".into(),
        it if it < 100.0 => {
            let text = format!("{it:.1}");
            text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is positive, and shown"
        )]
        it => count(it.round() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_anything_but_text() {
        let text = "<script>alert(\"1\")</script>&'\n\u{1b}[31m";
        let expected = "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;&#39;\\n\\u{1b}[31m";
        assert_eq!(escape(text), expected);
    }

    #[test]
    fn a_shell_takes_each_text_as_one_word() {
        for (text, expected) in [
            ("order-7", "order-7"),
            ("", "''"),
            ("a b", "'a b'"),
            ("-x", "'-x'"),
            ("it's; rm -rf /", "'it'\\''s; rm -rf /'"),
            ("$(x)", "'$(x)'"),
            ("é", "'é'"),
        ] {
            assert_eq!(shell(text), expected);
        }
    }

    #[test]
    fn numbers_and_times_are_short() {
        for (number, expected) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), expected);
        }
        for (ms, expected) in [
            (0, "0 s"),
            (350, "350 ms"),
            (4200, "4.2 s"),
            (35_900, "35 s"),
            (119_000, "119 s"),
            (12 * 60_000, "12 min"),
            (12_000_000, "3 h 20 min"),
            (7_200_000, "2 h"),
            (367_200_000, "4 d 6 h"),
        ] {
            assert_eq!(time(Duration::from_millis(ms)), expected);
        }
        for (per_second, expected) in
            [(0.0, "0"), (0.01, "under 0.1"), (0.44, "0.4"), (12.0, "12"), (12.46, "12.5"), (1204.4, "1,204")]
        {
            assert_eq!(rate(per_second), expected);
        }
        let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        assert_eq!(clock(noon, noon), "22:13:20");
        assert_eq!(clock(noon, noon + Duration::from_secs(86_400)), "2023-11-14 22:13:20");
        assert_eq!(ago(noon, noon + Duration::from_millis(5900)), "5 s");
        assert_eq!(ago(noon + Duration::from_secs(5), noon), "0 s");
    }
}
