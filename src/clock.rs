//! The clock that claims and drains go by: the machine's own, and in tests what a simulation says that it is.

use std::time::{Duration, Instant};

/// Now.
pub(crate) fn now() -> Instant {
    #[cfg(test)]
    if let Some(now) = simulated::now() {
        return now;
    }
    Instant::now()
}

/// How long ago that was.
pub(crate) fn since(moment: Instant) -> Duration {
    now().saturating_duration_since(moment)
}

/// The thread's own clock.
#[cfg(test)]
pub(crate) mod simulated {
    use std::cell::Cell;
    use std::time::Instant;

    thread_local! {
        static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
    }

    pub(crate) fn now() -> Option<Instant> {
        NOW.get()
    }

    /// From now on it is `now` on this thread; with none, what the machine says.
    pub(crate) fn set(now: Option<Instant>) {
        NOW.set(now);
    }
}
