//! The jobs' way through a session: fed to the lanes, taken back, tried one by one, and out again as news.
//!
//! However the connection ends, each job handed over comes out exactly once.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, select, unbounded};

use crate::confirm::Receipt;
use crate::event::Outcome;

use super::lane::{End, Ended, Report, Window};
use super::session::{ANSWER_LIMIT, Session, State};
use super::wire::Ending;
use super::{Job, Key};

/// How long the lanes of a killed connection have to report; those that have not are left behind.
const FAREWELL: Duration = Duration::from_secs(2);

/// What a session has to tell.
#[derive(Debug)]
pub enum News {
    /// A job's one outcome.
    Outcome(Key, Outcome),
    /// The confirm of a job whose outcome was given as unknown before.
    Late(Key, Receipt),
}

impl Session {
    /// Takes messages over. Each comes out of [`Session::wait`] once.
    ///
    /// On a fresh connection the first one goes alone: the broker tells a connection about an alarm only after it
    /// has published, and its verdict opens the window.
    pub fn send(&mut self, jobs: Vec<Job>) {
        self.outstanding.extend(jobs.iter().map(|job| job.key));
        let (alone, others): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| job.alone);
        self.careful |= !alone.is_empty();
        self.suspects.extend(alone);
        self.backlog.extend(others);
        match &self.state {
            State::Lost(reason) => {
                let reason = reason.clone();
                self.lose(&reason);
            }
            _ => {
                self.try_suspects();
                self.pump();
            }
        }
    }

    /// The next news; none when `deadline` passes, the state changes, or nothing is outstanding and none can come.
    pub fn wait(&mut self, deadline: Instant) -> Option<News> {
        let before = std::mem::discriminant(&self.state);
        loop {
            if let Some(news) = self.news.pop_front() {
                return Some(news);
            }
            if before != std::mem::discriminant(&self.state) || matches!(self.state, State::Lost(_)) {
                return None;
            }
            // Lanes watch their own deadlines, but one that hangs inside the client cannot.
            let stuck_at = self.last_report + 2 * self.config.publish_timeout + ANSWER_LIMIT;
            let watched = !self.outstanding.is_empty() && self.state == State::Open;
            if watched && Instant::now() >= stuck_at {
                self.lose("its workers are stuck");
                continue;
            }
            let until = if watched { deadline.min(stuck_at) } else { deadline };
            select! {
                recv(self.reports) -> report => if let Ok(report) = report { self.note(report) },
                recv(self.alarms()) -> alarm => match alarm {
                    Ok(alarm) => self.hear(alarm),
                    Err(_) => self.lose("the connection ended"),
                },
                default(until.saturating_duration_since(Instant::now())) => {
                    if until == deadline {
                        return None;
                    }
                }
            }
        }
    }

    /// Hands back what is not sent yet: it comes out as [`Outcome::Unsent`]. What waits to be sent again after its
    /// channel was closed comes out as [`Outcome::Unknown`].
    pub fn recall(&mut self) {
        self.take_back_unsent();
        let mut jobs = std::mem::take(&mut self.backlog);
        jobs.append(&mut self.suspects);
        if let Some(trial) = &self.trial {
            jobs.extend(trial.try_iter());
        }
        for job in jobs {
            self.decide(job.key, job.withdrawn());
        }
    }

    /// Gives up waiting for the confirms of what is sent: it comes out as [`Outcome::Unknown`] now. A confirm that
    /// comes after all is [`News::Late`].
    pub fn forsake(&mut self, reason: &str) {
        self.recall();
        let last = self.outstanding.iter().map(|key| key.claim).max().unwrap_or(0);
        self.void_below.fetch_max(last.saturating_add(1), Ordering::Relaxed);
        for key in std::mem::take(&mut self.outstanding) {
            self.late.insert(key);
            self.news.push_back(News::Outcome(key, Outcome::Unknown(reason.into())));
        }
    }

    /// Feeds what the state of the connection allows.
    pub(super) fn pump(&mut self) {
        if self.state != State::Open || self.careful || (!self.proven && self.probing) {
            return;
        }
        if self.outstanding.len() == self.backlog.len() {
            // Nothing was on its way, so the watch over the lanes starts now.
            self.last_report = Instant::now();
        }
        while let Some(job) = self.backlog.pop_front() {
            if let Some(reason) = self.refusal_of(&job.message.exchange) {
                self.decide(job.key, Outcome::Refused(reason));
                continue;
            }
            if let Some(feed) = &self.feed {
                // The session holds a receiver of its own, so the feed takes everything.
                let _ = feed.send(job);
            }
            if !self.proven {
                self.probing = true;
                return;
            }
        }
    }

    /// Takes back what no lane has taken yet, to the front of the backlog.
    pub(super) fn take_back_unsent(&mut self) {
        let unsent: Vec<Job> = self.fed.try_iter().collect();
        // The first message of a fresh connection may be among them; then another one has to go first.
        self.probing &= unsent.is_empty();
        for job in unsent.into_iter().rev() {
            self.backlog.push_front(job);
        }
    }

    /// The connection is gone: kills what is left of it, and gives every job its outcome.
    pub(super) fn lose(&mut self, reason: &str) {
        let cause = self.kill();
        let reason = match &self.state {
            State::Lost(first) => first.clone(),
            _ => cause.unwrap_or_else(|| reason.into()),
        };
        self.state = State::Lost(reason.clone());
        self.feed = None;
        let deadline = Instant::now() + FAREWELL;
        while self.lanes > 0 {
            match self.reports.recv_deadline(deadline) {
                Ok(Report::Outcomes(outcomes)) => self.note_outcomes(outcomes),
                Ok(Report::Ended(ended)) => {
                    self.lanes -= 1;
                    self.backlog.extend(ended.held);
                }
                Err(_) => break, // left behind, with its thread
            }
        }
        self.recall();
        // Whatever is left was in flight, or is with a lane that is left behind.
        for key in std::mem::take(&mut self.outstanding) {
            self.news.push_back(News::Outcome(key, Outcome::Unknown(format!("connection lost: {reason}"))));
        }
    }

    fn note(&mut self, report: Report) {
        self.last_report = Instant::now();
        match report {
            Report::Outcomes(outcomes) => self.note_outcomes(outcomes),
            Report::Ended(ended) => self.note_end(*ended),
        }
    }

    fn note_outcomes(&mut self, outcomes: Vec<(Key, Outcome)>) {
        for (key, outcome) in outcomes {
            self.decide(key, outcome);
        }
        if !self.proven {
            self.proven = true;
            self.pump();
        }
    }

    fn decide(&mut self, key: Key, outcome: Outcome) {
        if self.outstanding.remove(&key) {
            self.news.push_back(News::Outcome(key, outcome));
        } else if self.late.remove(&key) {
            if let Outcome::Confirmed(receipt) = outcome {
                self.news.push_back(News::Late(key, receipt));
            }
        }
    }

    fn note_end(&mut self, ended: Ended) {
        self.lanes -= 1;
        let was_trial = ended.lane == self.config.workers;
        match ended.end {
            End::Finished => self.trial = None, // the normal lanes' feed does not end before the session does
            End::Closed(Ending::Channel { code, text }) => {
                self.proven = true; // a broker that blocks would not have answered
                self.blame(ended.in_flight, code, &text);
                if was_trial {
                    self.suspects.extend(ended.held);
                    self.suspects.extend(self.trial.take().iter().flat_map(Receiver::try_iter));
                } else {
                    self.backlog.extend(ended.held);
                    self.replace_lane(ended.lane, self.fed.clone(), self.window());
                }
            }
            End::Closed(Ending::Connection(reason)) => return self.lose_with(ended.held, &reason),
            End::Stalled => {
                let reason = format!("no confirm within publish_timeout {:?}", self.config.publish_timeout);
                return self.lose_with(ended.held, &reason);
            }
            End::Panicked => return self.lose_with(ended.held, "a worker ended by a panic"),
        }
        self.try_suspects();
        self.pump();
    }

    /// What the lane had taken and not published is unsent, whatever else the end of the connection means.
    fn lose_with(&mut self, held: Option<Job>, reason: &str) {
        self.backlog.extend(held);
        self.lose(reason);
    }

    /// The broker closed a channel over one of these. Alone it is the guilty one; otherwise those that the text
    /// names, or all, are suspects, and the rest goes again.
    fn blame(&mut self, mut in_flight: Vec<Job>, code: u16, text: &str) {
        let reason = format!("{text} ({code})");
        let named = |job: &Job| names_exchange(code, text, &job.message.exchange);
        if in_flight.len() == 1 {
            if let Some(job) = in_flight.pop() {
                if named(&job) {
                    self.refuse_exchange(&job.message.exchange, &reason);
                }
                self.decide(job.key, Outcome::Refused(reason));
            }
            return;
        }
        let by_name = in_flight.iter().any(named);
        for job in in_flight {
            // Given up on already: nobody waits for it any more.
            if !self.outstanding.contains(&job.key) {
                self.late.remove(&job.key);
            } else if by_name && !named(&job) {
                self.backlog.push_back(job.again());
            } else {
                self.forget_exchange(&job.message.exchange);
                self.suspects.push_back(job.again());
            }
        }
    }

    /// Sends the suspects one at a time on a lane of their own, so that the guilty one is found and only it pays.
    pub(super) fn try_suspects(&mut self) {
        if self.trial.is_some() || self.state != State::Open {
            return;
        }
        let (feed, fed) = unbounded();
        for job in std::mem::take(&mut self.suspects) {
            // A missing exchange shows without a trial.
            match self.check_exchange(&job.message.exchange) {
                Ok(Ok(())) => {
                    let _ = feed.send(job);
                }
                Ok(Err(reason)) => self.decide(job.key, Outcome::Refused(reason)),
                Err(_) => return, // lost; every job has its outcome
            }
        }
        if feed.is_empty() {
            self.careful = false;
            return;
        }
        self.trial = Some(fed.clone());
        // Alone and with twice the time: what is slow must not look like what is guilty.
        let window = Window { messages: 1, timeout: 2 * self.config.publish_timeout, ..self.window() };
        self.replace_lane(self.config.workers, fed, window);
    }

    fn replace_lane(&mut self, number: usize, feed: Receiver<Job>, window: Window) {
        if let Err(error) = self.start_lane(number, feed, window) {
            self.lose(&super::wire::in_words(&error));
        }
    }
}

/// Whether the broker closed a channel over the exchange as such: it is missing, internal, or not ours to write to.
/// A refused topic names its exchange too, and is about one routing key.
fn names_exchange(code: u16, text: &str, exchange: &str) -> bool {
    let named = text.contains(&format!("exchange '{exchange}'"));
    matches!(code, 403 | 404) && named && !text.contains("access to topic")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_is_blamed_when_the_broker_names_it() {
        let cases = [
            (404, "NOT_FOUND - no exchange 'a' in vhost '/'", true),
            (404, "NOT_FOUND - no exchange 'ab' in vhost '/'", false),
            (403, "ACCESS_REFUSED - access to exchange 'a' in vhost '/' refused for user 'u'", true),
            (403, "ACCESS_REFUSED - cannot publish to internal exchange 'a' in vhost '/'", true),
            (
                403,
                "ACCESS_REFUSED - access to topic 'k' in exchange 'a' in vhost '/' refused for user 'u'",
                false,
            ),
            (406, "PRECONDITION_FAILED - message size 9 is larger than configured max size 8", false),
        ];
        for (code, text, expected) in cases {
            assert_eq!(names_exchange(code, text, "a"), expected, "{text}");
        }
    }
}
