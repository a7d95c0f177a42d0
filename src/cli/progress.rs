//! One line on the terminal that says how far a long command is, how fast it goes and how long it will take: rewritten in
//! place, gone at the end, and only where standard error is a terminal. Drawn by a thread of its own, so that a terminal
//! that is stopped holds nobody up.

use std::io::{self, IsTerminal, StderrLock, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Between two drawings. A command that ends before the first one shows nothing.
const REDRAW: Duration = Duration::from_millis(250);

/// How long the end of a command waits for the line to be gone.
const CLEAR_MAX: Duration = Duration::from_millis(500);

/// How many characters stand on the terminal now.
static SHOWN: AtomicUsize = AtomicUsize::new(0);

/// How much there is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Total {
    /// So much.
    Exactly(u64),
    /// So much at the moment; others may add to it, or do some of it.
    About(u64),
    /// That much, and nobody has counted the rest.
    MoreThan(u64),
}

/// The line, for as long as this is kept.
#[derive(Debug)]
pub(crate) struct Progress {
    count: Count,
    end: Option<SyncSender<()>>,
    ended: Receiver<()>,
}

/// What was done so far; for whoever does it, on any thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Count(Arc<Counted>);

#[derive(Debug, Default)]
struct Counted {
    done: AtomicU64,
    total: AtomicU64,
    kind: AtomicU64,
}

/// Whether there is anybody to look at it.
pub(crate) fn is_wanted() -> bool {
    io::stderr().is_terminal()
}

impl Progress {
    /// Shows the line from soon on; `done` is what the command does, such as `purged`. None where nobody would see it.
    pub(crate) fn start(done: &'static str) -> Option<Self> {
        if !is_wanted() {
            return None;
        }
        let count = Count::default();
        let (shown, (end, ending), (over, ended)) = (count.clone(), sync_channel(1), sync_channel(1));
        let drawing = thread::Builder::new().name("outboxd-progress".into()).spawn(move || {
            let began = Instant::now();
            while ending.recv_timeout(REDRAW) == Err(RecvTimeoutError::Timeout) {
                draw(&line(done, shown.done(), shown.total(), began.elapsed()));
            }
            clear(&mut io::stderr().lock());
            drop(over);
        });
        drawing.is_ok().then_some(Self { count, end: Some(end), ended })
    }

    /// Its count, for others.
    pub(crate) fn count(&self) -> Count {
        self.count.clone()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end = None;
        let _ = self.ended.recv_timeout(CLEAR_MAX);
    }
}

impl Count {
    /// So much is done.
    pub(crate) fn set(&self, done: u64) {
        self.0.done.store(done, Ordering::Relaxed);
    }

    /// So much more is done.
    pub(crate) fn add(&self, done: u64) {
        self.0.done.fetch_add(done, Ordering::Relaxed);
    }

    /// How much was done so far.
    pub(crate) fn done(&self) -> u64 {
        self.0.done.load(Ordering::Relaxed)
    }

    /// How much there is to do.
    pub(crate) fn is_of(&self, total: Total) {
        let (kind, total) = match total {
            Total::Exactly(total) => (1, total),
            Total::About(total) => (2, total),
            Total::MoreThan(total) => (3, total),
        };
        self.0.total.store(total, Ordering::Relaxed);
        self.0.kind.store(kind, Ordering::Release);
    }

    fn total(&self) -> Option<Total> {
        let kind = self.0.kind.load(Ordering::Acquire);
        let total = self.0.total.load(Ordering::Relaxed);
        [Total::Exactly(total), Total::About(total), Total::MoreThan(total)]
            .into_iter()
            .zip(1..)
            .find_map(|(it, number)| (number == kind).then_some(it))
    }
}

/// `purged 1200 of 5000, 850/s, 5s left`
fn line(what: &str, done: u64, total: Option<Total>, since: Duration) -> String {
    let (of, total) = match total {
        Some(Total::Exactly(total)) => (format!(" of {total}"), Some(total)),
        Some(Total::About(total)) => (format!(" of about {}", total.max(done)), Some(total)),
        Some(Total::MoreThan(total)) => (format!(" of more than {}", total.max(done)), None),
        None => (String::new(), None),
    };
    let rate = if since.is_zero() { 0.0 } else { done as f64 / since.as_secs_f64() };
    let mut text = format!("{what} {done}{of}, {rate:.0}/s");
    if let Some(total) = total.filter(|_| done > 0) {
        let left = Duration::try_from_secs_f64(total.saturating_sub(done) as f64 / rate).unwrap_or_default();
        let seconds = Duration::from_secs(left.as_secs().saturating_add(u64::from(left.subsec_nanos() > 0)));
        text += &format!(", {} left", humantime::format_duration(seconds));
    }
    text
}

fn draw(text: &str) {
    let mut out = io::stderr().lock();
    let width = text.chars().count();
    // What is left of a longer one is written over.
    let rest = SHOWN.swap(width, Ordering::Relaxed).saturating_sub(width);
    let _ = write!(out, "\r{text}{:rest$}", "");
    let _ = out.flush();
}

/// Takes the line away, for who writes another one. It comes back below that.
pub(crate) fn clear(out: &mut StderrLock<'_>) {
    let width = SHOWN.swap(0, Ordering::Relaxed);
    if width > 0 {
        let _ = write!(out, "\r{:width$}\r", "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_is_known() {
        let second = Duration::from_secs(1);
        for (done, total, since, expected) in [
            (0, None, Duration::ZERO, "purged 0, 0/s"),
            (0, Some(Total::Exactly(9)), second, "purged 0 of 9, 0/s"),
            (100, Some(Total::Exactly(350)), second, "purged 100 of 350, 100/s, 3s left"),
            (50, Some(Total::About(6050)), second, "purged 50 of about 6050, 50/s, 2m left"),
            (70, Some(Total::About(60)), second, "purged 70 of about 70, 70/s, 0s left"),
            (70, Some(Total::MoreThan(60)), second, "purged 70 of more than 70, 70/s"),
        ] {
            assert_eq!(line("purged", done, total, since), expected);
        }
    }

    #[test]
    fn a_total_is_there_once_it_is_told() {
        let count = Count::default();
        assert_eq!(count.total(), None);
        for total in [Total::Exactly(0), Total::About(3), Total::MoreThan(u64::MAX)] {
            count.is_of(total);
            assert_eq!(count.total(), Some(total));
        }
        count.set(3);
        count.add(4);
        assert_eq!(count.done(), 7);
    }
}
