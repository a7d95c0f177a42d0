//! Lines for people and scripts: results on standard output, errors on standard error.
//!
//! A reader that went away is no reason to fail: what the command does is done in the servers.

use std::fmt::Display;
use std::io::{Write, stderr, stdout};

/// A result.
pub(crate) fn line(text: impl Display) {
    let _ = writeln!(stdout(), "{text}");
}

/// An error, with the program's name before it.
pub(crate) fn error(text: impl Display) {
    let _ = writeln!(stderr(), "outboxd: {text}");
}
