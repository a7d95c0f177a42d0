//! The jobs' way through a session: the desk says which may go where, the lanes carry them, and what happened is
//! told to the desk.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, select, unbounded};

use crate::event::Outcome;

use super::desk::{Lesson, News};
use super::lane::{End, Ended, Report, Window};
use super::session::{ANSWER_LIMIT, Session, State};
use super::wire::{self, Ending};
use super::{Job, Key};

/// How long the lanes of a killed connection have to report; those that have not are left behind.
const FAREWELL: Duration = Duration::from_secs(2);

/// How many answers' times are kept for whoever asks.
const ANSWERS_MAX: usize = 20_000;

/// How a connection was lost, and why as far as is known.
#[derive(Debug)]
pub(super) enum Loss {
    /// It ended by itself.
    Ended(String),
    /// It is given up, whatever it is doing.
    GivenUp(String),
}

impl Session {
    /// Takes messages over. Each comes out of [`Session::wait`] once.
    ///
    /// On a fresh connection the first one goes alone: the broker tells a connection about an alarm only after it
    /// has published, and its verdict opens the window.
    pub fn send(&mut self, jobs: Vec<Job>) {
        if !self.desk.is_sending() {
            // Nothing was on its way, so the watch over the lanes starts now.
            self.last_report = Instant::now();
        }
        self.desk.take(jobs);
        if self.desk.is_careful() {
            self.take_back_unsent();
        }
        match &self.state {
            State::Lost(_) => self.lose(Loss::GivenUp(String::new())),
            _ => self.flow(),
        }
    }

    /// The next news; none when `deadline` passes, the state changes, or nothing is outstanding and none can come.
    pub fn wait(&mut self, deadline: Instant) -> Option<News> {
        let before = std::mem::discriminant(&self.state);
        loop {
            if let Some(news) = self.desk.news() {
                return Some(news);
            }
            if before != std::mem::discriminant(&self.state) || matches!(self.state, State::Lost(_)) {
                return None;
            }
            if let Ok(report) = self.reports.try_recv() {
                self.note(report);
                continue;
            }
            // Lanes watch their own deadlines, but one that hangs inside the client cannot.
            let stuck_at = self.last_report + 2 * self.config.publish_timeout + ANSWER_LIMIT;
            let watched = self.desk.is_waiting() && self.state == State::Open;
            if watched && Instant::now() >= stuck_at {
                self.lose(Loss::GivenUp("its workers are stuck".into()));
                continue;
            }
            let until = if watched { deadline.min(stuck_at) } else { deadline };
            select! {
                recv(self.reports) -> report => if let Ok(report) = report { self.note(report) },
                recv(self.alarms()) -> alarm => match alarm {
                    Ok(alarm) => self.hear(alarm),
                    Err(_) => self.lose(Loss::Ended("the connection ended".into())),
                },
                default(until.saturating_duration_since(Instant::now())) => {
                    if until == deadline {
                        return None;
                    }
                }
            }
        }
    }

    /// Whether [`News::Late`] may still come.
    pub fn awaits_late(&self) -> bool {
        self.desk.awaits_late()
    }

    /// Hands back what is not sent yet: it comes out as [`Outcome::Unsent`]. What waits to be sent again after its
    /// channel was closed comes out as [`Outcome::Unknown`].
    pub fn recall(&mut self) {
        self.take_back_unsent();
        let untried = self.trial.iter().flat_map(Receiver::try_iter).collect();
        self.desk.withdraw(untried);
    }

    /// Gives up waiting for the confirms of what is sent: it comes out as [`Outcome::Unknown`] now. A confirm that
    /// comes after all is [`News::Late`].
    pub fn forsake(&mut self, reason: &str) {
        self.recall();
        let void_below = self.desk.forsake(reason);
        self.shared.void_below.fetch_max(void_below, Ordering::Relaxed);
    }

    /// Sends what may go now.
    pub(super) fn flow(&mut self) {
        self.try_suspects();
        let (exchanges, feed) = (&self.exchanges, &self.feed);
        let refusal = |name: &str| exchanges.get(name).and_then(|known| known.as_ref().err().cloned());
        while let Some(job) = self.desk.next(refusal) {
            if let Some(feed) = feed {
                // The session holds a receiver of its own, so the feed takes everything.
                let _ = feed.send(job);
            }
        }
    }

    /// Takes back what no lane has taken yet.
    pub(super) fn take_back_unsent(&mut self) {
        let unsent = self.fed.try_iter().collect();
        self.desk.put_back(unsent);
    }

    /// The connection is gone: kills what is left of it, and gives every job its outcome.
    pub(super) fn lose(&mut self, loss: Loss) {
        if let State::Lost(first) = &self.state {
            // Nothing can come any more; only what was handed over since wants its outcome.
            let first = first.clone();
            self.recall();
            return self.desk.lose(&first);
        }
        let reason = match loss {
            Loss::Ended(reason) => self.kill(true).unwrap_or(reason),
            Loss::GivenUp(reason) => {
                self.kill(false);
                reason
            }
        };
        self.state = State::Lost(reason.clone());
        self.desk.set_open(false);
        self.feed = None;
        let deadline = Instant::now() + FAREWELL;
        while self.lanes > 0 {
            match self.reports.recv_deadline(deadline) {
                Ok(Report::Outcomes(outcomes, answers)) => self.note_answers(outcomes, answers),
                Ok(Report::Ended(ended)) => {
                    self.lanes -= 1;
                    self.desk.put_back(ended.held.into_iter().collect());
                }
                Err(_) => break, // left behind, with its thread
            }
        }
        self.recall();
        self.desk.lose(&reason);
    }

    fn note(&mut self, report: Report) {
        self.last_report = Instant::now();
        match report {
            Report::Outcomes(outcomes, answers) => self.note_answers(outcomes, answers),
            Report::Ended(ended) => self.note_end(*ended),
        }
        if !matches!(self.state, State::Lost(_)) {
            self.flow();
        }
    }

    fn note_answers(&mut self, outcomes: Vec<(Key, Outcome)>, answers: Vec<Duration>) {
        let room = ANSWERS_MAX.saturating_sub(self.answers.len());
        self.answers.extend(answers.into_iter().take(room));
        self.desk.note(outcomes);
    }

    /// How long the broker took for each answer since this was last asked, from handing the message to its client. The
    /// first ones only, where nobody has asked for long.
    pub fn answers(&mut self) -> Vec<Duration> {
        std::mem::take(&mut self.answers)
    }

    fn note_end(&mut self, ended: Ended) {
        self.lanes -= 1;
        let Ended { lane, end, in_flight, held } = ended;
        let held = held.into_iter().collect::<Vec<_>>();
        match end {
            // The normal lanes' feed does not end before the session does.
            End::Finished => {
                self.trial = None;
                self.desk.end_trial(held);
            }
            End::Closed(Ending::Channel { code, text }) => {
                for lesson in self.desk.blame(in_flight, code, &text) {
                    match lesson {
                        Lesson::Ask(exchange) => self.exchanges.remove(&exchange),
                        Lesson::Unusable(exchange, reason) => self.exchanges.insert(exchange, Err(reason)),
                    };
                }
                if lane == self.config.workers {
                    let untried =
                        self.trial.take().into_iter().flat_map(|it| it.try_iter().collect::<Vec<_>>());
                    self.desk.end_trial(held.into_iter().chain(untried));
                } else {
                    self.desk.put_back(held);
                    self.replace_lane(lane, self.fed.clone(), self.window());
                }
            }
            End::Closed(Ending::Connection(reason)) => self.lose_with(held, Loss::Ended(reason)),
            // Only it waits for a confirm that does not come; the connection serves the others.
            End::Stalled if lane == self.config.workers => {
                let reason = format!("no confirm within {:?}, alone", 2 * self.config.publish_timeout);
                for job in in_flight {
                    self.desk.decide(job.key, Outcome::Unknown(reason.clone()));
                }
                let untried = self.trial.take().into_iter().flat_map(|it| it.try_iter().collect::<Vec<_>>());
                self.desk.end_trial(held.into_iter().chain(untried));
            }
            End::Stalled => {
                let reason = format!("no confirm within publish_timeout {:?}", self.config.publish_timeout);
                self.lose_with(held, Loss::GivenUp(reason));
            }
            End::Panicked => {
                self.lose_with(held, Loss::GivenUp("a worker ended by a panic".into()));
            }
        }
    }

    /// What the lane had taken and not published is unsent, whatever else the end of the connection means.
    fn lose_with(&mut self, held: Vec<Job>, loss: Loss) {
        self.desk.put_back(held);
        self.lose(loss);
    }

    /// Sends the suspects one at a time on a lane of their own, so that the guilty one is found and only it pays.
    fn try_suspects(&mut self) {
        loop {
            let suspects = self.desk.begin_trial();
            if suspects.is_empty() {
                return;
            }
            let (feed, fed) = unbounded();
            for job in suspects {
                // A missing exchange shows without a trial.
                match self.check_exchange(&job.message.exchange) {
                    Ok(Ok(())) => drop(feed.send(job)),
                    Ok(Err(reason)) => self.desk.decide(job.key, Outcome::Refused(reason)),
                    Err(_) => return, // lost; every job has its outcome
                }
            }
            if !feed.is_empty() {
                self.trial = Some(fed.clone());
                // Alone and with twice the time: what is slow must not look like what is guilty.
                let timeout = 2 * self.config.publish_timeout;
                let window = Window { messages: 1, timeout, ..self.window() };
                return self.replace_lane(self.config.workers, fed, window);
            }
            self.desk.end_trial([]);
        }
    }

    fn replace_lane(&mut self, number: usize, feed: Receiver<Job>, window: Window) {
        if let Err(error) = self.start_lane(number, feed, window) {
            self.lose(Loss::Ended(wire::in_words(&error)));
        }
    }
}
