//! The one error type: what failed, on what, why, and what to do about it.
//!
//! What happens to one event is an [`Outcome`](crate::event::Outcome), never an error. No text in here holds a
//! URL, a password or a payload: who builds an error passes only what an operator may see.

use std::fmt;

/// Which side of the relay an error comes from, and who can mend it. Decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A server cannot be reached, went away, or does not take work now. It may pass by itself.
    Unavailable(Server),
    /// Credentials or permissions were refused.
    Denied(Server),
    /// Something the configuration or the schema says does not fit what is there.
    Configuration,
    /// An event that could never be sent, or that its table does not take, such as a payload that is no JSON.
    Invalid,
    /// The relay itself is wrong: a bug.
    Internal,
}

/// One of the two servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// PostgreSQL.
    Database,
    /// RabbitMQ.
    Broker,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Database => "database",
            Self::Broker => "broker",
        })
    }
}

/// An operation that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    what: String,
    remedy: Option<String>,
}

/// What every fallible operation of this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of this kind; `what` says in one lower-case line what failed on which object, and why. Where a server's
    /// words are more than a line, or hold what moves a cursor, they are written as escapes.
    pub(crate) fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self { kind, what: in_one_line(what.into()), remedy: None }
    }

    /// Adds what the operator can do.
    pub(crate) fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// The same, of another kind.
    pub(crate) fn of_kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// Whose fault it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What failed, without what can be done about it.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// What the operator can do, where that is known.
    pub fn remedy(&self) -> Option<&str> {
        self.remedy.as_deref()
    }

    /// Whether waiting may mend it: a daemon tries again, slowly when this is false.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, Kind::Unavailable(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.remedy {
            Some(remedy) => write!(f, ": {remedy}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

fn in_one_line(text: String) -> String {
    if !text.contains(char::is_control) {
        return text;
    }
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => line.extend(c.escape_default()),
            false => line.push(c),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_whatever_a_server_says() {
        let error = Error::new(Kind::Configuration, "settling failed: né\n2026 level=error \u{1b}[31m");
        assert_eq!(error.to_string(), "settling failed: né\\n2026 level=error \\u{1b}[31m");
        assert_eq!(error.with_remedy("init").to_string().lines().count(), 1);
    }
}
