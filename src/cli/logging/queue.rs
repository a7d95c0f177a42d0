//! The lines on their way to standard error: whoever logs never waits, and what finds no room is counted.
//!
//! Knows nothing of what is in a line.

use std::collections::VecDeque;
use std::io::{ErrorKind, Result, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Most bytes that wait to be read: some thousand lines.
const BYTES_MAX: usize = 512 * 1024;

/// Between two tries to write where others have made standard error non-blocking.
const PATROL: Duration = Duration::from_millis(10);

pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// Makes the line that stands for so many that were dropped.
    dropped: Box<dyn Fn(u64) -> Vec<u8> + Send + Sync>,
}

#[derive(Default)]
struct State {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Since the last line that was put in.
    dropped: u64,
    /// One was handed out and is not written yet.
    writing: bool,
    /// Somebody has waited in vain, and none was written since.
    stalled: bool,
}

impl Queue {
    pub(super) fn new(dropped: impl Fn(u64) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), dropped: Box::new(dropped) }
    }

    /// Puts a line in, or counts it where there is no room.
    pub(super) fn put(&self, line: &[u8]) {
        let mut state = self.lock();
        if state.bytes + line.len() > BYTES_MAX {
            state.dropped += 1;
            return;
        }
        // Told where they are missing.
        if let count @ 1.. = std::mem::take(&mut state.dropped) {
            state.push((self.dropped)(count));
        }
        state.push(line.into());
        drop(state);
        self.changed.notify_all();
    }

    /// Puts a line in that must not be dropped, for which there are few reasons.
    pub(super) fn put_last(&self, line: &[u8]) {
        self.lock().push(line.into());
        self.changed.notify_all();
    }

    /// The next line; waits for one.
    pub(super) fn next(&self) -> Vec<u8> {
        let mut state = self.lock();
        loop {
            if let Some(line) = state.lines.pop_front() {
                state.bytes -= line.len();
                state.writing = true;
                return line;
            }
            if let count @ 1.. = std::mem::take(&mut state.dropped) {
                state.writing = true;
                return (self.dropped)(count);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whoever took a line has written it.
    pub(super) fn taken(&self) {
        let mut state = self.lock();
        (state.writing, state.stalled) = (false, false);
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until all lines are written, for so long at most; not again while none is taken.
    pub(super) fn flush(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let mut state = self.lock();
        while !(state.lines.is_empty() && state.dropped == 0 && !state.writing) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || state.stalled {
                state.stalled = true;
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn push(&mut self, line: Vec<u8>) {
        self.bytes += line.len();
        self.lines.push_back(line);
    }
}

/// Writes all of a line, however long its reader takes.
///
/// # Errors
/// There is no reader any more.
pub(super) fn write_until_taken(out: &mut dyn Write, mut line: &[u8]) -> Result<()> {
    while !line.is_empty() {
        match out.write(line) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => line = line.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(PATROL),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn queue() -> Queue {
        Queue::new(|count| format!("dropped {count}").into_bytes())
    }

    fn next(queue: &Queue) -> String {
        let line = String::from_utf8(queue.next()).unwrap();
        queue.taken();
        line
    }

    #[test]
    fn what_finds_no_room_is_counted_and_told_where_it_is_missing() {
        let queue = queue();
        let half = "x".repeat(BYTES_MAX / 2);
        for line in [&half, &half, "lost", "lost", "lost"] {
            queue.put(line.as_bytes());
        }
        assert_eq!(next(&queue), half);
        queue.put(b"again");
        for expected in [half.as_str(), "dropped 3", "again"] {
            assert_eq!(next(&queue), expected);
        }
        assert_eq!(queue.lock().bytes, 0);
    }

    /// Where nothing more is logged, the count must not wait for the next line.
    #[test]
    fn what_was_dropped_last_is_told_too() {
        let queue = queue();
        queue.put(&vec![b'x'; BYTES_MAX]);
        queue.put(b"lost");
        assert_eq!(next(&queue).len(), BYTES_MAX);
        assert_eq!(next(&queue), "dropped 1");
        queue.put(&vec![b'x'; BYTES_MAX]);
        queue.put_last(b"why it ends");
        assert_eq!((next(&queue).len(), next(&queue)), (BYTES_MAX, "why it ends".into()));
        queue.put(b"then");
        assert_eq!(next(&queue), "then");
    }

    #[test]
    fn a_flush_waits_for_the_writer_and_not_for_ever() {
        let queue = Arc::new(queue());
        queue.flush(Duration::from_secs(60));
        queue.put(b"a");
        let began = Instant::now();
        queue.flush(Duration::from_millis(20));
        assert!(began.elapsed() >= Duration::from_millis(20), "nobody has taken it");
        // Whoever reads nothing is not waited for a second time.
        queue.flush(Duration::from_secs(3600));
        assert_eq!(next(&queue), "a");
        queue.put(b"b");
        let writer = Arc::clone(&queue);
        let writer = thread::spawn(move || {
            let line = writer.next();
            thread::sleep(Duration::from_millis(20));
            writer.taken();
            line
        });
        queue.flush(Duration::from_secs(60));
        assert!(queue.lock().lines.is_empty() && !queue.lock().writing);
        assert_eq!(writer.join().unwrap(), b"b");
    }

    #[test]
    fn a_slow_reader_gets_all_of_a_line() {
        struct Slow(Vec<u8>, u32);
        impl Write for Slow {
            fn write(&mut self, bytes: &[u8]) -> Result<usize> {
                self.1 += 1;
                match self.1 % 3 {
                    0 => Err(ErrorKind::WouldBlock.into()),
                    1 => Err(ErrorKind::Interrupted.into()),
                    _ => self.0.write(&bytes[..1]),
                }
            }

            fn flush(&mut self) -> Result<()> {
                Ok(())
            }
        }
        let mut slow = Slow(Vec::new(), 0);
        write_until_taken(&mut slow, b"line\n").unwrap();
        assert_eq!(slow.0, b"line\n");
    }
}
