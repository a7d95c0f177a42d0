//! How a claim goes, on its session's own thread: lock due rows, see which of them are ours, fetch those. What it asks the
//! server is `ask.rs`; the simulation of the relay has another.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::clock;
use crate::config::Claim as ClaimConfig;
use crate::error::{Error, Kind, Result};
use crate::event::{Event, Payload};

use super::order::{Locked, Ours, keys, ours};
use super::{Chain, Left, Scope};

/// Most keys that a walk leaves out. What is beyond is looked at, found not to be ours, and passed.
pub(super) const BARRED_MAX: usize = 5000;

/// How often a walk looks again within a claim because all that it locked were followers of keys that it did not know
/// to be barred. After that it only looks how far it may go on, so that a claim's time is bounded.
const LOOKS_MAX: usize = 4;

/// How many rows it looks over then.
pub(super) const SPAN_ROWS: i64 = 20_000;

/// What a claim took.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) events: Vec<(Event, Payload)>,
    pub(super) chains: Vec<Chain>,
    pub(super) withheld: Option<i64>,
    pub(super) barred: Vec<String>,
    pub(super) unasked: Vec<String>,
    pub(super) left: Vec<(String, Left)>,
    pub(super) more_after: Option<i64>,
    /// How many rows the session's next claim had better ask for.
    pub(super) rows_max: usize,
}

/// What a claim asks the server. Each is in the claim's transaction, and sees what others had committed when it began.
pub(super) trait Ask {
    /// Opens the transaction.
    fn begin(&mut self) -> Result<()>;

    /// The same for the first look of a walk: whether any key may hold itself back.
    fn begin_walk(&mut self) -> Result<bool>;

    /// Gives up what is locked, and ends the transaction.
    fn rollback(&mut self) -> Result<()>;

    /// The keys that hold themselves back for a while.
    fn held(&mut self) -> Result<Vec<String>>;

    /// Locks the next due rows of the scope, at most so many.
    fn lock(
        &mut self,
        scope: &Scope,
        drain_age: Duration,
        asked: usize,
    ) -> std::result::Result<Vec<Locked>, Refusal>;

    /// The first unfinished rows of each key, one more than are locked of it: the key's place, and the row's id.
    fn order(&mut self, keys: &[String], locked: &[i64]) -> Result<Vec<(usize, i64)>>;

    /// Fetches locked rows.
    fn fetch(&mut self, ids: &[i64]) -> Result<Vec<(Event, Payload)>>;

    /// Why these events were not taken.
    fn left(&mut self, event_ids: &[String]) -> Result<Vec<(String, Left)>>;

    /// How far a walk may go on unseen behind `last`; none when there is nothing behind it.
    fn skip(&mut self, last: i64, drain_age: Duration) -> Result<Option<i64>>;
}

/// Why rows could not be locked.
pub(super) struct Refusal {
    pub(super) error: Error,
    /// The database's encoding lacks a character that was asked for.
    pub(super) is_untranslatable: bool,
}

/// Takes what is due in `scope`. The transaction is left open when that is anything, and rolled back when not.
pub(super) fn take(
    ask: &mut impl Ask,
    config: &ClaimConfig,
    mut scope: Scope,
    asked_at: DrainAge,
    rows_max: usize,
) -> Result<Taken> {
    let mut taken = Taken { rows_max, ..Taken::default() };
    let mut looks = 0;
    match &mut scope {
        Scope::Walk { fresh: true, barred, .. } => {
            if ask.begin_walk()? {
                taken.barred = ask.held()?;
                barred.extend(taken.barred.iter().cloned());
            }
        }
        _ => ask.begin()?,
    }
    loop {
        let rows = lock_fitting(ask, config, &mut scope, asked_at, &mut taken)?;
        let Ours { ids, chains, barred } = sort_out(ask, &rows)?;
        taken.barred.extend(barred.iter().cloned());
        if !ids.is_empty() {
            taken.events = fetch(ask, &ids)?;
        }
        if let Scope::Events(asked_for) = &scope {
            let took: HashSet<&str> = taken.events.iter().map(|(event, _)| event.event_id.as_str()).collect();
            let others = asked_for.iter().filter(|id| !took.contains(id.as_str())).cloned();
            let others: Vec<String> = others.collect();
            if !others.is_empty() {
                taken.left.extend(ask.left(&others)?);
            }
        }
        if !ids.is_empty() {
            taken.chains = chains;
            taken.withheld = rows.iter().map(|row| row.id).find(|id| ids.binary_search(id).is_err());
            return Ok(taken);
        }
        ask.rollback()?;
        let (Scope::Walk { after, barred: known, .. }, Some(last)) = (&mut scope, taken.more_after) else {
            return Ok(taken);
        };
        // Nothing but followers of keys in trouble: they are given back, and passed over from now on.
        looks += 1;
        ask.begin()?;
        if looks < LOOKS_MAX && known.len() + barred.len() <= BARRED_MAX {
            known.extend(barred);
        } else if looks < LOOKS_MAX {
            *after = last;
        } else {
            taken.more_after = ask.skip(last, asked_at.age())?;
            ask.rollback()?;
            return Ok(taken);
        }
    }
}

/// Since when a drain has been going on, by its age at a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct DrainAge {
    age: Duration,
    at: Instant,
}

impl DrainAge {
    /// The drain is this old now.
    pub(super) fn now(age: Duration) -> Self {
        Self { age, at: clock::now() }
    }

    /// How old it is.
    fn age(self) -> Duration {
        self.age + clock::since(self.at)
    }
}

/// Locks the next due rows, as many as are within the byte bound together. Sorted by id.
fn lock_fitting(
    ask: &mut impl Ask,
    config: &ClaimConfig,
    scope: &mut Scope,
    asked_at: DrainAge,
    taken: &mut Taken,
) -> Result<Vec<Locked>> {
    loop {
        let asked = taken.rows_max;
        if let Scope::Keys(asked_for) | Scope::Events(asked_for) = scope {
            taken.unasked.extend(asked_for.drain(asked.min(asked_for.len())..));
        }
        let mut rows = match ask.lock(scope, asked_at.age(), asked) {
            Err(Refusal { error, is_untranslatable: true }) => {
                // The database holds no such event, and must not refuse the others for it.
                let Scope::Events(asked_for) = scope else { return Err(error) };
                let (ascii, others) = std::mem::take(asked_for).into_iter().partition(|id| id.is_ascii());
                *asked_for = ascii;
                let others: Vec<String> = others;
                if others.is_empty() {
                    return Err(error);
                }
                taken.left.extend(others.into_iter().map(|id| (id, Left::NotFound)));
                ask.rollback()?;
                ask.begin()?;
                continue;
            }
            locked => locked.map_err(|refusal| refusal.error)?,
        };
        rows.sort_by_key(|row| row.id);
        let (fit, bytes) = within(&rows, config);
        if fit == rows.len() {
            if bytes <= config.batch_bytes / 2 {
                taken.rows_max = asked.saturating_mul(2).min(config.batch_rows);
            }
            let full = rows.len() >= asked;
            taken.more_after = rows.last().map(|row| row.id).filter(|_| full);
            return Ok(rows);
        }
        // The rows over the byte bound are locked too, and other relays, and our own next claim, would pass over
        // them: given back, and only as many asked for as fit. The session remembers how many that were.
        taken.rows_max = fit;
        ask.rollback()?;
        ask.begin()?;
    }
}

/// Which of the locked rows are ours; asked in a statement of its own, after the locks.
fn sort_out(ask: &mut impl Ask, rows: &[Locked]) -> Result<Ours> {
    let (keys, counts) = keys(rows);
    let unfinished = if keys.is_empty() { Vec::new() } else { ask.order(&keys, &counts)? };
    Ok(ours(rows, keys, &unfinished))
}

/// Fetches rows that are ours.
fn fetch(ask: &mut impl Ask, ids: &[i64]) -> Result<Vec<(Event, Payload)>> {
    let events = ask.fetch(ids)?;
    if events.len() != ids.len() {
        let text = format!("claiming events fetched {} of {} locked rows", events.len(), ids.len());
        return Err(Error::new(Kind::Internal, text));
    }
    Ok(events)
}

/// How many of the rows are within the byte bound together, always the first one; and their bytes.
fn within(rows: &[Locked], config: &ClaimConfig) -> (usize, usize) {
    let mut bytes = 0_usize;
    for (place, row) in rows.iter().enumerate() {
        let size = usize::try_from(row.bytes).unwrap_or(usize::MAX);
        if bytes.saturating_add(size) > config.batch_bytes && place > 0 {
            return (place, bytes);
        }
        bytes = bytes.saturating_add(size);
    }
    (rows.len(), bytes)
}

/// A failure count as SQL's integer.
pub(super) fn count(failures: u32) -> i32 {
    i32::try_from(failures).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::OnDead;

    #[test]
    fn a_claim_stays_within_its_bytes_but_for_a_single_event() {
        let config = ClaimConfig {
            batch_rows: 10,
            batch_bytes: 100,
            min_age: Duration::ZERO,
            max_age: None,
            max_failures: 3,
            payload_max: 1000,
            on_dead: OnDead::Block,
        };
        let cases: &[(&[i64], usize)] = &[
            (&[], 0),
            (&[50, 50, 1], 2),
            (&[101, 1], 1),
            (&[99, 2, 1], 1),
            (&[0, 100, 0], 3),
            (&[50, i64::MAX, 50], 1),
        ];
        for (sizes, expected) in cases {
            let rows: Vec<_> =
                (1..).zip(*sizes).map(|(id, bytes)| Locked { id, bytes: *bytes, key: None }).collect();
            assert_eq!(within(&rows, &config).0, *expected, "{sizes:?}");
        }
    }
}
