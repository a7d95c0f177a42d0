//! Waiting by condition, with a deadline.

use std::thread;
use std::time::{Duration, Instant};

/// Calls `condition` until it gives a value, and returns the value.
///
/// # Panics
/// Panics with `what` when the deadline passes first.
pub fn wait_until<T>(what: &str, deadline: Duration, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    // Most conditions hold soon, so the first polls are quick; a long wait must not eat a core.
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(start.elapsed() < deadline, "waited {deadline:?} in vain: {what}");
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}
