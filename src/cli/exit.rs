//! The exit codes: sysexits' numbers, so that cron and systemd can act on them.

use std::process::ExitCode;

use outboxd::error::Kind;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0: done, also when nothing was due.
    Done,
    /// 64: the command line was not understood.
    Usage,
    /// 66: what was asked for is not there.
    Missing,
    /// 69: a server cannot be reached, or the broker blocks.
    Unavailable,
    /// 70: a bug.
    Internal,
    /// 75: ran, but events were refused or remain due.
    Incomplete,
    /// 77: credentials or permissions were refused.
    Denied,
    /// 78: configuration or schema, or an event that the table does not take.
    Configuration,
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Usage => 64,
            Self::Missing => 66,
            Self::Unavailable => 69,
            Self::Internal => 70,
            Self::Incomplete => 75,
            Self::Denied => 77,
            Self::Configuration => 78,
        }
    }
}

impl From<Kind> for Exit {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Unavailable(_) => Self::Unavailable,
            Kind::Denied(_) => Self::Denied,
            Kind::Configuration | Kind::Invalid => Self::Configuration,
            // `Internal`, and what a later version may add.
            _ => Self::Internal,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
