//! What an operator does with events by hand: list, show, retry, skip, purge. Each change is made in short
//! transactions of bounded batches, along the table in id order, and passes over what a relay is sending.
//!
//! Dying between two batches leaves the first done and the rest as it was; doing the same again goes on from there.

mod filter;
mod list;
mod page;
mod purge;
mod retry;
mod show;
mod skip;
mod standing;
mod trouble;

pub use filter::{Filter, Reference, Status, When};
pub use list::{List, Listed, Listing};
pub use page::Changes;
pub use purge::{PURGEABLE, Purge};
pub use retry::{Deadline, RETRYABLE, Redrive};
pub use show::{Show, Shown, Way};
pub use skip::{SKIPPABLE, Skip};
pub use standing::{Moment, Standing};
pub(super) use trouble::read_old_snapshots;
pub use trouble::{
    BlockedKey, BlockedKeys, DEPTH_MAX, KEYS_MAX, OldSnapshot, SNAPSHOT_AGE, SNAPSHOT_TRANSACTIONS,
};
