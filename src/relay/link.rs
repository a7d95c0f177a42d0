//! What was last told of a server's connection, so that only changes are told. Decides nothing else.

use crate::publisher::State;

/// What became of the connection to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Contact<'a> {
    /// The server is usable: for the first time, or again.
    Connected,
    /// The broker has stopped taking messages (a memory or disk alarm), in its own words.
    Blocked(&'a str),
    /// The broker takes messages again.
    Unblocked,
    /// The server is not usable, and why.
    Lost(&'a str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Link {
    #[default]
    Unknown,
    Up,
    Blocked,
    Down,
}

impl Link {
    /// What to tell of the broker's session, if that is news.
    pub(super) fn saw<'a>(&mut self, state: &'a State) -> Option<Contact<'a>> {
        match state {
            State::Open => self.is_up(),
            State::Blocked { reason, .. } => self.becomes(Self::Blocked).then_some(Contact::Blocked(reason)),
            State::Lost(reason) => self.is_down(reason),
        }
    }

    /// What to tell of a server that answers.
    pub(super) fn is_up(&mut self) -> Option<Contact<'static>> {
        let was_blocked = *self == Self::Blocked;
        let contact = if was_blocked { Contact::Unblocked } else { Contact::Connected };
        self.becomes(Self::Up).then_some(contact)
    }

    /// What to tell of a server that cannot be used.
    pub(super) fn is_down<'a>(&mut self, reason: &'a str) -> Option<Contact<'a>> {
        self.becomes(Self::Down).then_some(Contact::Lost(reason))
    }

    /// Whether that is a change.
    fn becomes(&mut self, link: Self) -> bool {
        std::mem::replace(self, link) != link
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn only_changes_are_told() {
        let blocked = State::Blocked { since: Instant::now(), reason: "low on memory".into() };
        let lost = State::Lost("gone".into());
        let steps = [
            (&State::Open, Some(Contact::Connected)),
            (&State::Open, None),
            (&blocked, Some(Contact::Blocked("low on memory"))),
            (&blocked, None),
            (&State::Open, Some(Contact::Unblocked)),
            (&lost, Some(Contact::Lost("gone"))),
            (&lost, None),
            (&blocked, Some(Contact::Blocked("low on memory"))),
            (&lost, Some(Contact::Lost("gone"))),
            (&State::Open, Some(Contact::Connected)),
        ];
        let mut link = Link::default();
        for (number, (state, expected)) in steps.into_iter().enumerate() {
            assert_eq!(link.saw(state), expected, "step {number}");
        }
    }

    #[test]
    fn a_server_that_was_never_there_is_told_once() {
        let mut link = Link::default();
        assert_eq!(link.is_down("refused"), Some(Contact::Lost("refused")));
        assert_eq!(link.is_down("refused"), None);
        assert_eq!(link.is_up(), Some(Contact::Connected));
    }
}
