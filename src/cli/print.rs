//! Lines for people and scripts: results on standard output, errors on standard error.
//!
//! A reader that went away is no reason to fail: what the command does is done in the servers.

use std::fmt::Display;
use std::io::{Write, stderr, stdout};

use super::logging;

/// A result.
pub(crate) fn line(text: impl Display) {
    let _ = writeln!(stdout(), "{text}");
}

/// An error, with the program's name before it, in one line whatever a server said. What was logged before comes before
/// it. For the journal it is as much of an error as those that are logged.
pub(crate) fn error(text: impl Display) {
    logging::flush();
    let priority = if logging::writes_to_journal() { "<3>" } else { "" };
    let _ = writeln!(stderr(), "{priority}outboxd: {}", one_line(&text.to_string()));
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
