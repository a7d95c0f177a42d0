//! A deadline for calls into the broker's client that have none of their own.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};

use super::socket::KillSwitch;

/// A thread that pulls a connection's kill switch when a guarded call outlives its deadline. It ends with the
/// session that owns it.
#[derive(Debug)]
pub(super) struct Watchdog {
    deadlines: Sender<Option<Instant>>,
}

impl Watchdog {
    pub(super) fn new(kill: Arc<KillSwitch>) -> std::io::Result<Self> {
        let (deadlines, received) = unbounded();
        thread::Builder::new().name("outboxd-watchdog".into()).spawn(move || watch(&received, &kill))?;
        Ok(Self { deadlines })
    }

    /// Makes `call`, and ends the connection under it should it take longer than `limit`.
    pub(super) fn within<T>(&self, limit: Duration, call: impl FnOnce() -> T) -> T {
        // The thread lives as long as this sender, so it hears both.
        let _ = self.deadlines.send(Some(Instant::now() + limit));
        let result = call();
        let _ = self.deadlines.send(None);
        result
    }
}

fn watch(deadlines: &Receiver<Option<Instant>>, kill: &KillSwitch) {
    let mut deadline = None;
    loop {
        let heard = match deadline {
            None => deadlines.recv().map_err(RecvTimeoutError::from),
            Some(at) => deadlines.recv_deadline(at),
        };
        match heard {
            Ok(next) => deadline = next,
            Err(RecvTimeoutError::Timeout) => {
                kill.pull();
                deadline = None;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
