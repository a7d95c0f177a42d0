//! A relay on a thread of its own, for applications that have other things to do.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use crate::config::Config;
use crate::error::{Error, Kind, Result};
use crate::event::Tally;

use super::{Relay, Stop, Tick, Trouble, deadline};

/// How often a thread that is to end is looked at.
const PATROL: Duration = Duration::from_millis(5);

/// How long the drop of a handle waits for its thread, at most; less when `grace` is shorter.
const DROP_MAX: Duration = Duration::from_secs(2);

/// How a relay in the background is doing: what a health check looks at.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// What it has done since it was started, up to the last tick that has ended.
    pub total: Tally,
    /// When its last tick ended, by this machine's clock; none before the first. A tick may take as long as `interval`,
    /// and longer while a server does not answer.
    pub last_tick: Option<SystemTime>,
    /// What keeps it from working, if anything does: it goes on trying.
    pub trouble: Option<Trouble>,
    /// What it panicked over, be it a bug or the observer: it has ended then, and is to be started again.
    pub panicked: Option<String>,
}

/// How a relay ended. Nothing is lost whichever way.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Stopped {
    /// In order; what it has done since it was started.
    Ended(Tally),
    /// By a panic, now or before: a bug, or the observer's.
    Panicked(String),
    /// Not in time: its thread is left behind, and ends by itself when its server answers or a limit passes. What it had
    /// claimed is due again then, or after `claim_max_idle`.
    LeftBehind,
}

/// A handle on a relay in the background, which any thread may use.
///
/// Dropping it stops the relay, and waits two seconds for it at most (`grace`, if that is less): keep it for as long as
/// the relay is to run.
#[derive(Debug)]
pub struct RelayHandle {
    stop: Stop,
    status: Arc<Mutex<Status>>,
    thread: Option<JoinHandle<()>>,
    patience: Duration,
}

impl Relay {
    /// Starts a relay on a thread of its own, which works as [`Relay::run`] does. Returns at once, before any server was
    /// spoken to.
    ///
    /// # Errors
    /// The operating system gives no thread. That a server cannot be reached is no error: see [`RelayHandle::status`].
    pub fn start(config: Config) -> Result<RelayHandle> {
        Self::new(config).spawn()
    }

    /// The same for a relay that was made before, with an observer perhaps.
    ///
    /// # Errors
    /// As [`Relay::start`].
    pub fn spawn(self) -> Result<RelayHandle> {
        let patience = DROP_MAX.min(self.engine.config.grace);
        let (stop, status) = (Stop::new(), Arc::new(Mutex::new(Status::default())));
        let (stopped, shared) = (stop.clone(), Arc::clone(&status));
        let thread = thread::Builder::new()
            .name("outboxd-relay".into())
            .spawn(move || {
                // A panic, also one of the observer, must not be the host's.
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(self, &stopped, &shared))) {
                    let reason = message(panic.as_ref());
                    // First, because the host's log may be what panicked.
                    lock(&shared).panicked = Some(reason.clone());
                    log::error!("the relay in the background ended by a panic: {reason}");
                }
            })
            .map_err(|error| Error::new(Kind::Internal, format!("starting a thread failed: {error}")))?;
        Ok(RelayHandle { stop, status, thread: Some(thread), patience })
    }
}

fn work(mut relay: Relay, stop: &Stop, status: &Mutex<Status>) {
    let told = |tick: &Tick| {
        let mut status = lock(status);
        status.total += tick.tally;
        status.last_tick = Some(SystemTime::now());
        status.trouble.clone_from(&tick.trouble);
    };
    relay.run_telling(stop, told);
    relay.close();
}

impl RelayHandle {
    /// Makes it look at the table now, instead of at the next beat; if it is at work, once more after that. Any number of
    /// nudges is one. While a server is in trouble, it is heard 5 s after the last try at the earliest.
    ///
    /// It looks for what is due: with `min_age` at its default of 30 s, that is not what was committed just now.
    pub fn nudge(&self) {
        self.stop.nudge();
    }

    /// How it is doing. Never waits for a server.
    pub fn status(&self) -> Status {
        lock(&self.status).clone()
    }

    /// Stops it, and waits `limit` for it at most: it finishes or hands back what is in flight, and says goodbye.
    ///
    /// With nothing in flight that takes milliseconds, with [`Config::listen`] up to a quarter of a second. Otherwise it waits for the confirms of what is sent, for half of
    /// `grace` (10 s by default) or for `publish_timeout`, whichever is less; a `limit` of `grace` or more lets it end in
    /// order where the servers do.
    pub fn stop(mut self, limit: Duration) -> Stopped {
        self.stop.request();
        let ended = self.ends_within(limit);
        // Nothing is left for the drop to wait for.
        self.thread = None;
        let status = self.status();
        match status.panicked {
            Some(reason) => Stopped::Panicked(reason),
            None if ended => Stopped::Ended(status.total),
            None => Stopped::LeftBehind,
        }
    }

    fn ends_within(&self, limit: Duration) -> bool {
        let until = deadline::after(limit);
        let ended = || self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        while !ended() && Instant::now() < until {
            thread::sleep(PATROL);
        }
        ended()
    }
}

impl Drop for RelayHandle {
    fn drop(&mut self) {
        self.stop.request();
        self.ends_within(self.patience);
    }
}

fn lock(status: &Mutex<Status>) -> MutexGuard<'_, Status> {
    status.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a panic says.
pub(super) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}
