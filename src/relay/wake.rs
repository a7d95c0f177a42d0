//! Waking the relay when a commit is told (LISTEN/NOTIFY), on a thread and a session of its own.
//!
//! It only ever nudges: what it does not hear, the next beat finds. A listener can go deaf without an error, behind a
//! transaction pooler from the start. So it is tested, with a NOTIFY from another session; one that does not hear it is
//! said once, given up, and tried again by and by.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ulid::Ulid;

use crate::config::Config;
use crate::error::{Error, Kind, Result};
use crate::outbox::Listener;

use super::Stop;

/// How often the listening thread looks whether it is to end.
const PATROL: Duration = Duration::from_millis(250);

/// How often the listener is tested. The test opens a session, so a server that is asked to shut down, which takes no
/// new ones, loses the listener too instead of waiting for it.
const TEST_EVERY: Duration = Duration::from_secs(30);

/// How long a test's message may take.
const TEST_MAX: Duration = Duration::from_secs(5);

/// What a test's message begins with. Whatever else is told is a commit.
const TEST: &str = "test ";

/// The pause after a try that failed, and after one that had worked.
const PAUSE: Duration = Duration::from_secs(5);
const PAUSE_HEARD: Duration = Duration::from_millis(500);

/// How long the drop waits for the thread; less when `grace` is short, which a frozen server must not use up.
const DROP_MAX: Duration = Duration::from_secs(1);

/// Nudges a [`Stop`] when an event is committed, until it is dropped or the stop is requested.
///
/// [`Relay::run`](super::Relay::run) has one when `listen` is set. It is for hosts that have a loop of their own around
/// [`Relay::tick`](super::Relay::tick), and wait on [`Stop::wait_for_nudge`].
#[derive(Debug)]
pub struct WakeUp {
    ended: Stop,
    thread: Option<JoinHandle<()>>,
    patience: Duration,
}

impl WakeUp {
    /// Starts listening, whatever [`Config::listen`] says. It goes on over failures, and logs them.
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub fn start(config: &Config, stop: &Stop) -> Result<Self> {
        let ended = Stop::new();
        let mut ear = Ear {
            listener: Listener::new(&config.database, config.listen_url.as_ref()),
            interval: config.interval,
            stop: stop.clone(),
            ended: ended.clone(),
            said: None,
            was_told: false,
        };
        let thread = thread::Builder::new()
            .name("outboxd-listen".into())
            .spawn(move || {
                // A panic is a bug of ours, and must not be the host's.
                if catch_unwind(AssertUnwindSafe(|| ear.run())).is_err() {
                    log::error!("listening for commits ended by a panic; the relay polls");
                }
            })
            .map_err(|error| Error::new(Kind::Internal, format!("starting a thread failed: {error}")))?;
        Ok(Self { ended, thread: Some(thread), patience: DROP_MAX.min(config.grace / 5) })
    }
}

impl Drop for WakeUp {
    fn drop(&mut self) {
        self.ended.request();
        let until = Instant::now() + self.patience;
        while self.thread.as_ref().is_some_and(|it| !it.is_finished()) && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Why it does not listen any more.
enum Lost {
    /// It was told to end.
    Ended,
    /// It hears nothing.
    Deaf,
    /// The database cannot be reached, or refuses.
    Failed(Error),
}

struct Ear {
    listener: Listener,
    interval: Duration,
    stop: Stop,
    ended: Stop,
    /// What was said last, so that it is said once.
    said: Option<Said>,
    /// Whether it was looked at that events are told of.
    was_told: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Said {
    Hears,
    Deaf,
    /// Another kind of it is worth another word: it is mended elsewhere.
    Failed(Kind),
}

impl Ear {
    fn run(&mut self) {
        loop {
            let mut heard = false;
            let lost = self.listen(&mut heard);
            self.listener.close();
            let pause = match lost {
                Lost::Ended => return,
                Lost::Deaf => {
                    self.say(Said::Deaf, &self.deafness(heard));
                    if heard { PAUSE_HEARD } else { TEST_EVERY }
                }
                // A connection that was lost is worth no word when the next one works.
                Lost::Failed(error) if heard => {
                    log::debug!("commits are not heard: {error}; trying again");
                    PAUSE_HEARD
                }
                Lost::Failed(error) => {
                    self.say(Said::Failed(error.kind()), &format!("commits are not heard: {error}"));
                    PAUSE
                }
            };
            if self.rests_until(Instant::now() + pause) {
                return;
            }
        }
    }

    /// Listens until that is of no use any more; `heard` says then whether it has been.
    fn listen(&mut self, heard: &mut bool) -> Lost {
        match self.listener.open() {
            Ok(is_told) => self.ask_for_a_trigger(is_told),
            Err(error) => return Lost::Failed(error),
        }
        // What was committed while nobody listened.
        self.stop.nudge();
        let mut test: Option<(String, Instant)> = None;
        let mut test_at = Instant::now();
        while !self.is_over() {
            let now = Instant::now();
            if now >= test_at {
                let message = format!("{TEST}{}", Ulid::generate());
                if let Err(error) = self.listener.tell(&message) {
                    return Lost::Failed(error);
                }
                test = Some((message, Instant::now() + TEST_MAX));
                test_at = now + TEST_EVERY;
            }
            let messages = match self.listener.wait(PATROL) {
                Ok(messages) => messages,
                Err(error) => return Lost::Failed(error),
            };
            if messages.iter().any(|it| !it.starts_with(TEST)) {
                self.stop.nudge();
            }
            match &test {
                Some((message, _)) if messages.contains(message) => {
                    test = None;
                    *heard = true;
                    self.say_that_it_hears();
                }
                Some((_, until)) if Instant::now() >= *until => return Lost::Deaf,
                _ => {}
            }
        }
        Lost::Ended
    }

    fn is_over(&self) -> bool {
        self.ended.requested() || self.stop.requested()
    }

    /// Whether it is to end.
    fn rests_until(&self, until: Instant) -> bool {
        while !self.is_over() {
            let now = Instant::now();
            if now >= until {
                return false;
            }
            self.ended.wait_until(until.min(now + PATROL));
        }
        true
    }

    fn deafness(&self, heard: bool) -> String {
        let channel = self.listener.channel();
        if heard {
            return format!(
                "the session that listens on {channel} has gone deaf: a NOTIFY from another session did not arrive within \
                 {TEST_MAX:?}; listening on a new one"
            );
        }
        let advice = if self.listener.is_at_outbox() {
            "is a transaction pooler in between? set listen_url to an address that leads to the server directly"
        } else {
            "does listen_url lead to the database that database_url leads to, and to the server directly?"
        };
        format!(
            "listening on {channel} is of no use: a NOTIFY from another session did not arrive within {TEST_MAX:?}; \
             {advice}"
        )
    }

    fn say(&mut self, trouble: Said, what: &str) {
        if self.said.replace(trouble) != Some(trouble) {
            log::warn!("{what}; polling every {} meanwhile", humantime::format_duration(self.interval));
        } else {
            log::debug!("still: {what}");
        }
    }

    fn say_that_it_hears(&mut self) {
        if self.said.replace(Said::Hears) != Some(Said::Hears) {
            log::info!("commits are heard on {}", self.listener.channel());
        }
    }

    fn ask_for_a_trigger(&mut self, is_told: bool) {
        if !is_told && !self.was_told {
            log::warn!(
                "listening on {}, but no trigger of the table tells of commits: run outboxd init --notify",
                self.listener.channel()
            );
        }
        self.was_told = true;
    }
}
