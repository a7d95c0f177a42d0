//! The clock that claims and drains go by: the machine's own, and in tests what a simulation says that it is.

use std::time::{Duration, Instant};

/// Now.
pub(crate) fn now() -> Instant {
    #[cfg(test)]
    if let Some(now) = crate::simulated::now() {
        return now;
    }
    Instant::now()
}

/// How long ago that was.
pub(crate) fn since(moment: Instant) -> Duration {
    now().saturating_duration_since(moment)
}
