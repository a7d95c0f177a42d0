//! Whether both servers are usable, and since when not.

use std::time::{Duration, Instant, SystemTime};

use log::Level;

use crate::clock;
use crate::error::{Error, Kind, Server};

use super::line::Line;

/// What keeps a server from being used, or the relay from using it. While it lasts nothing is claimed and no attempt is
/// spent.
#[derive(Debug, Clone)]
pub struct Trouble {
    /// The last error: what failed, and what to do about it where something can be done. Its
    /// [kind](Error::kind) says which server.
    pub error: Error,
    /// When this relay first met trouble of this kind, by this machine's clock.
    pub since: SystemTime,
    first: Instant,
}

/// Between two tries while a server is in trouble that may pass.
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// What is known of both servers.
#[derive(Debug, Default)]
pub(super) struct Health {
    trouble: Option<Trouble>,
    failures_in_a_row: u32,
}

/// What a tick changed in it.
#[derive(Debug)]
pub(super) enum Change {
    None,
    /// Trouble, where there was none, or another kind of it.
    Began(Error),
    /// The same trouble.
    Goes(Error),
    /// No trouble any more; what it was, and how long.
    Ended(Error, Duration),
}

impl Health {
    /// Notes how a tick went.
    pub(super) fn note(&mut self, result: Result<(), Error>) -> Change {
        let Err(error) = result else {
            self.failures_in_a_row = 0;
            return match self.trouble.take() {
                Some(ended) => Change::Ended(ended.error, clock::since(ended.first)),
                None => Change::None,
            };
        };
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        if let Some(before) = self.trouble.as_mut().filter(|before| before.error.kind() == error.kind()) {
            before.error = error.clone();
            return Change::Goes(error);
        }
        let (since, first) = (SystemTime::now(), clock::now());
        self.trouble = Some(Trouble { error: error.clone(), since, first });
        Change::Began(error)
    }

    /// The trouble there is, if any.
    pub(super) fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// How long to wait before the next try; none without trouble. What does not pass by itself waits for the beat.
    pub(super) fn retry_after(&self, interval: Duration) -> Option<Duration> {
        let trouble = self.trouble.as_ref()?;
        // The broker's client cannot tell a refused login from one that a restart cut short.
        let may_pass = trouble.error.is_transient() || trouble.error.kind() == Kind::Denied(Server::Broker);
        if !may_pass {
            return Some(interval);
        }
        let doublings = self.failures_in_a_row.saturating_sub(1).min(10);
        Some(RETRY_FIRST.saturating_mul(1 << doublings).min(RETRY_MAX).min(interval))
    }
}

impl Change {
    /// One line when something changed, none when it is as before.
    pub(super) fn log(&self) {
        match self {
            Self::None => {}
            Self::Began(error) => {
                let words = "trouble began: nothing is claimed and no attempt is spent until that is over";
                Line::new(Level::Error, words).with("error", error.to_string()).log();
            }
            Self::Goes(error) => {
                Line::new(Level::Debug, "still in trouble").with("error", error.to_string()).log();
            }
            Self::Ended(error, lasted) => {
                Line::new(Level::Info, ended(error.kind())).with("lasted", *lasted).log();
            }
        }
    }
}

fn ended(kind: Kind) -> &'static str {
    match kind {
        Kind::Unavailable(Server::Broker) | Kind::Denied(Server::Broker) => {
            "the broker is usable again after trouble"
        }
        Kind::Unavailable(Server::Database)
        | Kind::Denied(Server::Database)
        | Kind::Configuration
        | Kind::Invalid => "the database is usable again after trouble",
        Kind::Internal => "the relay is usable again after trouble",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_slow_down_and_start_over() {
        let error = || Err(Error::new(Kind::Unavailable(Server::Broker), "gone"));
        let mut health = Health::default();
        let minute = Duration::from_secs(60);
        assert_eq!(health.retry_after(minute), None);
        assert!(matches!(health.note(error()), Change::Began(_)));
        let since = health.trouble().map(|it| it.since);
        let mut waits = vec![health.retry_after(minute).unwrap()];
        for _ in 0..6 {
            assert!(matches!(health.note(error()), Change::Goes(_)));
            assert_eq!(health.trouble().map(|it| it.since), since, "the first time counts");
            waits.push(health.retry_after(minute).unwrap());
        }
        assert_eq!(
            waits.iter().map(Duration::as_millis).collect::<Vec<_>>(),
            [200, 400, 800, 1600, 3200, 5000, 5000]
        );
        assert!(matches!(health.note(Ok(())), Change::Ended(..)));
        assert!(health.trouble().is_none());
        assert_eq!(health.retry_after(minute), None);
    }

    #[test]
    fn what_does_not_pass_waits_for_the_beat() {
        let mut health = Health::default();
        health.note(Err(Error::new(Kind::Configuration, "no table")));
        assert_eq!(health.retry_after(Duration::from_secs(30)), Some(Duration::from_secs(30)));
    }
}
