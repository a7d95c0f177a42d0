//! Whether both servers are usable, and since when not. A change is logged once, not once per try.

use std::time::{Duration, Instant, SystemTime};

use crate::error::{Error, Kind, Server};

/// What keeps a server from being used.
#[derive(Debug, Clone)]
pub struct Trouble {
    /// The last error.
    pub error: Error,
    /// When this process first met trouble there.
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

impl Health {
    /// Notes how a tick went, and returns its trouble with the time at which it began.
    pub(super) fn note(&mut self, result: Result<(), Error>) -> Option<Trouble> {
        match result {
            Ok(()) => {
                if let Some(ended) = self.trouble.take() {
                    let lasted = humantime::format_duration(whole_seconds(ended.first.elapsed()));
                    log::info!("{} is usable again after {lasted}", subject(ended.error.kind()));
                }
                self.failures_in_a_row = 0;
            }
            Err(error) => {
                self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
                let same = self
                    .trouble
                    .take()
                    .filter(|before| before.error.kind() == error.kind());
                match same {
                    Some(before) => {
                        log::debug!("still: {error}");
                        self.trouble = Some(Trouble { error, ..before });
                    }
                    None => {
                        log::error!("{error}; nothing is claimed and no attempt is spent until that is over");
                        self.trouble = Some(Trouble {
                            error,
                            since: SystemTime::now(),
                            first: Instant::now(),
                        });
                    }
                }
            }
        }
        self.trouble.clone()
    }

    /// How long to wait before the next try; none without trouble. What does not pass by itself waits for the beat.
    pub(super) fn retry_after(&self, interval: Duration) -> Option<Duration> {
        let trouble = self.trouble.as_ref()?;
        if !trouble.error.is_transient() {
            return Some(interval);
        }
        let doublings = self.failures_in_a_row.saturating_sub(1).min(10);
        Some(
            RETRY_FIRST
                .saturating_mul(1 << doublings)
                .min(RETRY_MAX)
                .min(interval),
        )
    }
}

fn subject(kind: Kind) -> String {
    match kind {
        Kind::Unavailable(server) | Kind::Denied(server) => format!("the {server}"),
        Kind::Configuration => format!("the {}", Server::Database),
        Kind::Internal => "the relay".into(),
    }
}

fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs())
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
        let since = health.note(error()).map(|it| it.since);
        let mut waits = vec![health.retry_after(minute).unwrap()];
        for _ in 0..6 {
            assert_eq!(
                health.note(error()).map(|it| it.since),
                since,
                "the first time counts"
            );
            waits.push(health.retry_after(minute).unwrap());
        }
        assert_eq!(
            waits.iter().map(Duration::as_millis).collect::<Vec<_>>(),
            [200, 400, 800, 1600, 3200, 5000, 5000]
        );
        assert!(health.note(Ok(())).is_none());
        assert_eq!(health.retry_after(minute), None);
    }

    #[test]
    fn what_does_not_pass_waits_for_the_beat() {
        let mut health = Health::default();
        health.note(Err(Error::new(Kind::Configuration, "no table")));
        assert_eq!(
            health.retry_after(Duration::from_secs(30)),
            Some(Duration::from_secs(30))
        );
    }
}
