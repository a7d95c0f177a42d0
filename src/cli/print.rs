//! Lines for people and scripts: results on standard output, errors on standard error.
//!
//! A reader that went away is no reason to fail: what the command does is done in the servers.

use std::fmt::Display;
use std::io::{Write, stdout};

use super::logging;

/// A result.
pub(crate) fn line(text: impl Display) {
    let _ = writeln!(stdout(), "{text}");
}

/// An error: for a person a line with the program's name before it, whatever a server said; where the log is JSON, one of
/// its lines. What was logged before comes before it, and nobody waits for a reader for long.
pub(crate) fn error(text: impl Display) {
    logging::say(&text.to_string());
}

/// Control characters as their escapes: what a row holds must not look like another line, or move the cursor.
pub(crate) fn one_line(text: &str) -> String {
    if !text.contains(char::is_control) {
        return text.into();
    }
    text.chars()
        .flat_map(|it| if it.is_control() { it.escape_default().collect() } else { vec![it] })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_cannot_write_a_second_line() {
        assert_eq!(one_line("event é \n2026 ERROR \u{1b}[31m"), "event é \\n2026 ERROR \\u{1b}[31m");
    }
}
