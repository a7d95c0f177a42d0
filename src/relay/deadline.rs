//! Deadlines of what a host asks for, however long it is willing to wait. Nothing else.

use std::time::{Duration, Instant};

use crate::clock;

/// As good as never, and within what the clock can hold.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The moment at which `limit` is over.
pub(super) fn after(limit: Duration) -> Instant {
    clock::now() + limit.min(NEVER)
}
