//! The figures that only the table knows, gathered beside the relay: on a thread and a session of their own, at most
//! every half a minute, and less often where that is expensive. The same thread keeps the last hour's samples, and writes
//! `metrics_file` while `run` runs.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use outboxd::config::Config;
use outboxd::error::Result;
use outboxd::outbox::{Backlog, BlockedKeys, Outbox, Unfinished};

use super::history::SAMPLE_EVERY;
use super::process::Process;
use super::{Shared, file, text};

/// The least time between two looks at the table.
const GATHER_EVERY: Duration = Duration::from_secs(30);

/// How many times as long as a look took it rests: a twentieth of one session's time at most goes into it.
const REST_FACTOR: u32 = 20;

/// From which age on figures say nothing about now.
const STALE: Duration = Duration::from_secs(10 * 60);

/// What was found in the table. What could not be looked at within the statement's limit is none.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    pub(super) at: SystemTime,
    pub(super) looked: Instant,
    pub(super) unfinished: Option<Unfinished>,
    pub(super) backlog: Option<Backlog>,
    pub(super) blocked: Option<BlockedKeys>,
}

impl Figures {
    pub(super) fn is_stale(&self) -> bool {
        self.looked.elapsed() > STALE
    }

    /// Looks at the table; also why a part of it could not be looked at. A backlog that was looked at just now is not
    /// looked at again.
    ///
    /// # Errors
    /// None of it could.
    pub(crate) fn gather(
        outbox: &mut Outbox,
        backlog: Option<Result<Backlog>>,
    ) -> Result<(Self, Option<String>)> {
        let mut problem = None;
        let unfinished = outbox.unfinished()?;
        let backlog = backlog.unwrap_or_else(|| outbox.backlog());
        let backlog = backlog.map_err(|error| problem = Some(error.to_string())).ok();
        let blocked = outbox.blocked_keys().map_err(|error| problem = Some(error.to_string())).ok();
        let (at, looked) = (SystemTime::now(), Instant::now());
        Ok((Self { at, looked, unfinished: Some(unfinished), backlog, blocked }, problem))
    }
}

/// Starts the thread; it ends with the process.
///
/// # Errors
/// The operating system gives no thread.
pub(super) fn start(shared: &Shared, config: &Config) -> std::io::Result<()> {
    let shared = shared.clone();
    let mut outbox = Outbox::new(config.database.clone(), config.claim.clone());
    let mut output = config.metrics.file.clone().map(Output::new);
    thread::Builder::new().name("outboxd-watch".into()).spawn(move || {
        let (mut gather_at, mut sample_at) = (Instant::now(), Instant::now());
        loop {
            let began = Instant::now();
            if began >= gather_at {
                let gathered = Figures::gather(&mut outbox, None);
                let mut numbers = shared.lock();
                match gathered {
                    Ok((figures, problem)) => {
                        (numbers.figures, numbers.not_gathered) = (Some(figures), problem);
                    }
                    Err(error) => numbers.not_gathered = Some(error.to_string()),
                }
                drop(numbers);
                gather_at = Instant::now() + GATHER_EVERY.max(began.elapsed() * REST_FACTOR);
            }
            shared.lock().sample();
            if let Some(output) = &mut output {
                output.write(&text::of_run(&shared.copy(), &Process::read()));
            }
            // What a slow database has cost is not made up for.
            sample_at = (sample_at + SAMPLE_EVERY).max(Instant::now());
            thread::sleep(sample_at.saturating_duration_since(Instant::now()));
        }
    })?;
    Ok(())
}

/// The metrics file of a relay that runs.
struct Output {
    path: PathBuf,
    failed: bool,
}

impl Output {
    fn new(path: PathBuf) -> Self {
        Self { path, failed: false }
    }

    /// Says once that it fails, and not at every try.
    fn write(&mut self, text: &str) {
        let written = file::write(Path::new(&self.path), text);
        if let Err(error) = &written {
            if !self.failed {
                log::warn!("{error}; trying again every {SAMPLE_EVERY:?}");
            }
        }
        self.failed = written.is_err();
    }
}
