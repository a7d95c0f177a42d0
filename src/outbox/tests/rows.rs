//! Rows in memory, as all sessions see them: what is committed, and who has it locked.

use std::collections::BTreeMap;

use crate::config::{Claim as ClaimConfig, OnDead};
use crate::event::{Event, Headers};
use crate::policy::{RESENT, RETRIED, Settlement, UNCONFIRMED};
use crate::simulated::Chance;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Waiting,
    Failed,
    Published,
    Dead,
    Expired,
    Skipped,
}

/// A committed row. Times are the database's own, in microseconds.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) id: i64,
    pub(crate) event_type: &'static str,
    pub(crate) exchange: Option<&'static str>,
    pub(crate) key: Option<&'static str>,
    pub(crate) bytes: usize,
    pub(crate) status: Status,
    pub(crate) created_at: u64,
    pub(crate) available_at: Option<u64>,
    pub(crate) expired_at: Option<u64>,
    pub(crate) last_retried_at: Option<u64>,
    pub(crate) fail_count: u32,
    pub(crate) last_error: Option<String>,
    /// The session that has it locked.
    pub(crate) lock: Option<u64>,
    /// It did not end by a confirm, or an operator has changed it: its place in the order is not promised.
    pub(crate) outside: bool,
}

impl Row {
    pub(crate) fn event_id(&self) -> String {
        event_id(self.id)
    }

    pub(crate) fn is_unfinished(&self) -> bool {
        matches!(self.status, Status::Waiting | Status::Failed)
    }

    /// Whether it holds back what follows it.
    pub(crate) fn holds(&self, on_dead: OnDead) -> bool {
        self.is_unfinished() || (self.status == Status::Dead && on_dead == OnDead::Block)
    }

    /// Whether it is over `max_age` or past its time.
    fn is_over(&self, config: &ClaimConfig, now: u64) -> bool {
        let too_old = |it: u64| self.created_at + it < now;
        self.expired_at.is_some_and(|at| at <= now)
            || (self.status == Status::Waiting && config.max_age.map(micros).is_some_and(too_old))
            || (self.status == Status::Failed && self.fail_count >= config.max_failures)
    }

    /// The condition of `due.sql`.
    pub(super) fn is_due(&self, config: &ClaimConfig, now: u64, drain_age: u64) -> bool {
        let is_old = self.status == Status::Failed || self.created_at + micros(config.min_age) <= now;
        let is_tried = self.last_retried_at.is_some_and(|at| at + drain_age >= now);
        self.is_unfinished()
            && (self.is_over(config, now)
                || (self.available_at.is_none_or(|at| at <= now) && is_old && !is_tried))
    }

    /// The last condition of `held_keys.sql`: a head that is not to be had for a while.
    pub(super) fn is_held(&self, config: &ClaimConfig, now: u64) -> bool {
        let waits = self.available_at.is_some_and(|at| at > now) && !self.is_over(config, now);
        self.status == Status::Dead || waits
    }

    pub(super) fn event(&self, config: &ClaimConfig, now: u64) -> Event {
        let max_age = config.max_age.map(micros);
        let left = |at: u64| std::time::Duration::from_millis(at.saturating_sub(now) / 1000);
        Event {
            ordering_key: self.key.map(Into::into),
            exchange: self.exchange.map(Into::into),
            headers: Headers::None,
            created_at: Some(self.created_at / 1_000_000),
            expires_in: self.expired_at.map(left),
            over_max_age: self.status == Status::Waiting
                && max_age.is_some_and(|it| self.created_at + it < now),
            failed: self.status == Status::Failed,
            fail_count: self.fail_count,
            last_error: self.last_error.clone(),
            ..Event::new(self.id, self.event_id(), self.event_type)
        }
    }
}

pub(crate) fn event_id(id: i64) -> String {
    format!("{id:026}")
}

pub(super) fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap()
}

/// What the server knows of a session.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) relay: usize,
    /// Since when it has been waiting for its client, in a transaction.
    pub(crate) idle_since: Option<u64>,
}

/// The database.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) chance: Chance,
    pub(crate) now: u64,
    /// In the order of their ids.
    pub(crate) rows: Vec<Row>,
    pub(crate) backends: BTreeMap<u64, Backend>,
    pub(crate) is_up: bool,
    /// One statement in so many loses its session, before it or after it.
    pub(crate) loses_one_in: u64,
    /// The longest that a claim may wait for its client.
    pub(crate) claim_max_idle: u64,
    pub(crate) last_session: u64,
    /// Rows that became PUBLISHED and were not looked at since.
    pub(crate) published: Vec<i64>,
    /// How many rows lost claims have freed.
    pub(crate) lost_rows: u64,
    /// When a relay lost its claim on a row that it had not settled.
    pub(crate) lost_at: BTreeMap<(usize, i64), u64>,
}

impl Rows {
    pub(crate) fn new(seed: u64, claim_max_idle: u64) -> Self {
        Self {
            chance: Chance::new(seed ^ 0xDB),
            now: 0,
            rows: Vec::new(),
            backends: BTreeMap::new(),
            is_up: true,
            loses_one_in: 0,
            claim_max_idle,
            last_session: 0,
            published: Vec::new(),
            lost_rows: 0,
            lost_at: BTreeMap::new(),
        }
    }

    pub(crate) fn get(&self, id: i64) -> Option<&Row> {
        self.rows.binary_search_by_key(&id, |it| it.id).ok().map(|place| &self.rows[place])
    }

    pub(super) fn get_mut(&mut self, id: i64) -> Option<&mut Row> {
        self.rows.binary_search_by_key(&id, |it| it.id).ok().map(|place| &mut self.rows[place])
    }

    /// A row that is committed now.
    pub(crate) fn insert(&mut self, row: Row) {
        let place = self.rows.partition_point(|it| it.id < row.id);
        self.rows.insert(place, row);
    }

    /// Ends a session on the server's side, and frees its rows.
    pub(crate) fn end(&mut self, session: u64) {
        let Some(backend) = self.backends.remove(&session) else { return };
        for row in self.rows.iter_mut().filter(|it| it.lock == Some(session)) {
            row.lock = None;
            self.lost_rows += 1;
            self.lost_at.insert((backend.relay, row.id), self.now);
        }
    }

    pub(crate) fn end_all(&mut self) {
        let sessions: Vec<u64> = self.backends.keys().copied().collect();
        sessions.into_iter().for_each(|it| self.end(it));
    }

    /// Ends the claims whose clients have been silent for too long.
    pub(crate) fn enforce_limits(&mut self) {
        let (now, limit) = (self.now, self.claim_max_idle);
        let over = |it: &Backend| it.idle_since.is_some_and(|since| since + limit < now);
        let late: Vec<u64> = self.backends.iter().filter(|(_, it)| over(it)).map(|(it, _)| *it).collect();
        late.into_iter().for_each(|it| self.end(it));
    }

    /// The unfinished rows of a key, and its dead ones if these hold it back, in their order.
    pub(super) fn holding(&self, key: &str, on_dead: OnDead) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |it| it.key == Some(key) && it.holds(on_dead))
    }

    /// What the settle statements make of a row, for a session that must have it locked.
    pub(super) fn settle(&mut self, session: u64, id: i64, settlement: &Settlement) -> bool {
        let now = self.now;
        let share = self.chance.between(50, 100);
        let due = |backoff: std::time::Duration| now + micros(backoff) * share / 100;
        let Some(row) = self.get_mut(id) else { return false };
        assert_eq!(row.lock, Some(session), "row {id} is settled by who does not hold it");
        if !row.is_unfinished() {
            return false;
        }
        match settlement {
            Settlement::Published(_) => self.publish(id),
            Settlement::Failed { fail_count, backoff, reason } => {
                row.status = Status::Failed;
                row.fail_count = *fail_count;
                row.available_at = Some(due(*backoff));
                row.last_retried_at = Some(now);
                row.last_error = Some(reason.clone());
            }
            Settlement::Dead { fail_count, reason } => {
                if row.fail_count != *fail_count {
                    row.last_retried_at = Some(now);
                }
                (row.status, row.outside) = (Status::Dead, true);
                row.fail_count = *fail_count;
                row.last_error = Some(reason.clone());
            }
            Settlement::Expired { reason } => {
                (row.status, row.outside) = (Status::Expired, true);
                row.available_at = Some(now);
                row.last_error = Some(reason.clone());
            }
            Settlement::Unconfirmed { backoff, reason } => {
                row.available_at = backoff.map(due).or(row.available_at);
                row.last_retried_at = Some(now);
                row.last_error = Some(reason.clone());
            }
            Settlement::Released => return false,
        }
        true
    }

    /// `settle_late.sql`; which of them are unfinished still.
    pub(super) fn settle_late(&mut self, ids: &[i64]) -> (u64, Vec<i64>) {
        let is_open = |it: &Row| {
            it.is_unfinished() && !it.last_error.as_deref().is_some_and(|it| it.starts_with(RESENT))
        };
        let mut written = 0;
        for id in ids {
            if self.get(*id).is_some_and(|it| is_open(it) && it.lock.is_none()) {
                self.publish(*id);
                written += 1;
            }
        }
        let open = ids.iter().filter(|id| self.get(**id).is_some_and(is_open));
        (written, open.copied().collect())
    }

    fn publish(&mut self, id: i64) {
        let now = self.now;
        let Some(row) = self.get_mut(id) else { return };
        row.status = Status::Published;
        row.last_retried_at = Some(now);
        row.last_error = None;
        self.published.push(id);
    }

    /// What `retry` does by hand; whether it did.
    pub(crate) fn retry(&mut self, id: i64) -> bool {
        let now = self.now;
        let Some(row) = self.get_mut(id).filter(|it| it.lock.is_none()) else { return false };
        if !matches!(row.status, Status::Dead | Status::Expired | Status::Published) {
            return false;
        }
        let before = row.last_error.take().unwrap_or_default();
        let was_sent =
            row.status == Status::Published || before.starts_with(RESENT) || before.starts_with(UNCONFIRMED);
        row.last_error =
            Some(format!("{}; was {:?}: {before}", if was_sent { RESENT } else { RETRIED }, row.status));
        (row.status, row.fail_count, row.outside) = (Status::Failed, 0, true);
        (row.available_at, row.last_retried_at, row.expired_at) = (Some(now), None, None);
        true
    }

    /// What `skip` does by hand; whether it did.
    pub(crate) fn skip(&mut self, id: i64) -> bool {
        let Some(row) = self.get_mut(id).filter(|it| it.lock.is_none()) else { return false };
        if !row.is_unfinished() && row.status != Status::Dead {
            return false;
        }
        (row.status, row.outside) = (Status::Skipped, true);
        true
    }
}
