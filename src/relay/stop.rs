//! The request to end, which any thread may make and the relay waits on; and the nudge, which only wakes it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A shared request to stop, which any thread makes on a clone. Once made, it stays made.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    shared: Arc<(Mutex<Wishes>, Condvar)>,
}

#[derive(Debug, Default)]
struct Wishes {
    stop: bool,
    /// Forgotten once it was heard.
    nudge: bool,
}

impl Stop {
    /// A request that nobody has made yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the request.
    pub fn request(&self) {
        self.wishes().stop = true;
        self.shared.1.notify_all();
    }

    /// Whether it was made.
    pub fn requested(&self) -> bool {
        self.wishes().stop
    }

    /// Waits until it is made, at most until `deadline`; whether it was made.
    pub fn wait_until(&self, deadline: Instant) -> bool {
        self.wait(deadline, false);
        self.requested()
    }

    /// Makes the relay that waits on this look at the table now, or as soon as it has done with what it is doing.
    pub fn nudge(&self) {
        self.wishes().nudge = true;
        self.shared.1.notify_all();
    }

    /// Whether there was a nudge that nobody has waited for yet.
    pub(super) fn nudged(&self) -> bool {
        self.wishes().nudge
    }

    /// Waits for either, at most until `deadline`; whether there was a nudge, which is forgotten then.
    pub fn wait_for_nudge(&self, deadline: Instant) -> bool {
        self.wait(deadline, true)
    }

    fn wait(&self, deadline: Instant, heeds_nudges: bool) -> bool {
        let mut wishes = self.wishes();
        while !(wishes.stop || heeds_nudges && wishes.nudge) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            wishes = self.shared.1.wait_timeout(wishes, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        heeds_nudges && std::mem::take(&mut wishes.nudge)
    }

    fn wishes(&self) -> MutexGuard<'_, Wishes> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_nudge_is_heard_once_and_a_stop_for_ever() {
        let stop = Stop::new();
        let soon = || Instant::now() + Duration::from_millis(1);
        assert!(!stop.wait_for_nudge(soon()));
        stop.nudge();
        assert!(!stop.wait_until(soon()), "a nudge is no stop");
        assert!(stop.wait_for_nudge(soon()));
        assert!(!stop.wait_for_nudge(soon()));
        stop.request();
        assert!(stop.wait_until(soon()) && stop.requested());
    }
}
