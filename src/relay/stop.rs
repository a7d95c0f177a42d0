//! The request to end, which any thread may make and the relay waits on.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

/// A shared request to stop. Once made, it stays made.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    shared: Arc<(Mutex<bool>, Condvar)>,
}

impl Stop {
    /// A request that nobody has made yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the request.
    pub fn request(&self) {
        let (requested, changed) = &*self.shared;
        *requested.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }

    /// Whether it was made.
    pub fn requested(&self) -> bool {
        *self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is made, at most until `deadline`; whether it was made.
    pub fn wait_until(&self, deadline: Instant) -> bool {
        let (requested, changed) = &*self.shared;
        let mut made = requested.lock().unwrap_or_else(PoisonError::into_inner);
        while !*made {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            made = changed.wait_timeout(made, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}
