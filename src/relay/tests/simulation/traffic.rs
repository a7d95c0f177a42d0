//! Those who write events, and the operator. Ids are given out before the commit; who writes for a key is alone on it.

use std::collections::HashSet;

use crate::outbox::tests::rows::{Row, Rows, Status};
use crate::publisher::tests::broker;
use crate::simulated::Chance;

const KEYS: [&str; 3] = ["a", "b", "c"];

/// What events may be, and how often.
const KINDS: [&str; 12] = [
    "fine",
    "fine",
    "fine",
    "fine",
    "fine",
    broker::SLOW,
    broker::GONE,
    broker::FULL,
    broker::UNBOUND,
    broker::UNBOUND,
    broker::MALFORMED,
    broker::KILLER,
];

/// A transaction that is not committed.
struct Open {
    rows: Vec<Row>,
    ends_at: u64,
    commits: bool,
}

pub(super) struct Writers {
    open: Vec<Open>,
    last_id: i64,
    /// How many transactions are still to be begun.
    pub(super) to_come: u64,
    pub(super) next_at: u64,
    /// Only events that the broker takes.
    pub(super) only_fine: bool,
    pub(super) rolled_back: HashSet<i64>,
    pub(super) committed: HashSet<i64>,
}

impl Writers {
    pub(super) fn new(to_come: u64, only_fine: bool) -> Self {
        Self {
            open: Vec::new(),
            last_id: 0,
            to_come,
            next_at: 0,
            only_fine,
            rolled_back: HashSet::new(),
            committed: HashSet::new(),
        }
    }

    /// When one of them acts next; none once all is written.
    pub(super) fn acts_at(&self) -> Option<u64> {
        let begins = (self.to_come > 0).then_some(self.next_at);
        self.open.iter().map(|it| it.ends_at).chain(begins).min()
    }

    pub(super) fn act(&mut self, now: u64, chance: &mut Chance, rows: &mut Rows) {
        let (over, open) =
            std::mem::take(&mut self.open).into_iter().partition::<Vec<_>, _>(|it| it.ends_at <= now);
        self.open = open;
        for mut ended in over {
            let ids = ended.rows.iter().map(|it| it.id);
            if ended.commits {
                self.committed.extend(ids);
                ended.rows.drain(..).for_each(|row| rows.insert(row));
            } else {
                self.rolled_back.extend(ids);
            }
        }
        if self.to_come > 0 && self.next_at <= now {
            self.to_come -= 1;
            self.next_at = now + chance.between(1, 400_000);
            self.begin(now, chance);
        }
    }

    fn begin(&mut self, now: u64, chance: &mut Chance) {
        let key = if chance.one_in(3) { None } else { chance.pick(&KEYS) };
        let is_taken = |key: &str| self.open.iter().flat_map(|it| &it.rows).any(|it| it.key == Some(key));
        let key = key.filter(|key| !is_taken(key));
        let mut rows = Vec::new();
        for _ in 0..chance.between(1, 5) {
            self.last_id += 1;
            let limit = if self.only_fine { 6 } else { KINDS.len() };
            let kind = chance.pick(&KINDS[..limit]).unwrap();
            rows.push(Row {
                id: self.last_id,
                event_type: kind,
                exchange: (kind == broker::GONE).then_some(broker::GONE),
                key,
                bytes: usize::try_from(chance.between(1, 60)).unwrap(),
                status: Status::Waiting,
                created_at: now,
                available_at: chance.one_in(8).then(|| now + chance.between(0, 3_000_000)),
                expired_at: chance.one_in(12).then(|| now + chance.between(500_000, 6_000_000)),
                last_retried_at: None,
                fail_count: 0,
                last_error: None,
                lock: None,
                outside: false,
            });
        }
        let longest = if chance.one_in(5) { 3_000_000 } else { 30_000 };
        let ends_at = now + chance.between(1, longest);
        self.open.push(Open { rows, ends_at, commits: !chance.one_in(6) });
    }
}

/// What an operator does in the middle of it; how many copies that may make.
pub(super) fn meddle(chance: &mut Chance, rows: &mut Rows) -> u64 {
    let ids: Vec<i64> = rows.rows.iter().map(|it| it.id).collect();
    let Some(id) = chance.pick(&ids) else { return 0 };
    if chance.one_in(3) {
        rows.skip(id);
        return 0;
    }
    // A second copy of one that was sent; and one of what may be on its way yet.
    u64::from(rows.retry(id))
}

/// What an operator does once all is well: dead events are sent again, or given up where nothing will help.
pub(super) fn tidy_up(rows: &mut Rows) {
    let dead = rows.rows.iter().filter(|it| it.status == Status::Dead);
    let dead: Vec<(i64, &str)> = dead.map(|it| (it.id, it.event_type)).collect();
    for (id, event_type) in dead {
        if matches!(event_type, broker::MALFORMED | broker::KILLER) {
            rows.skip(id);
        } else {
            rows.retry(id);
        }
    }
    // One that ends connections is no refusal, so it never dies by itself.
    let killers = rows.rows.iter().filter(|it| it.event_type == broker::KILLER && it.is_unfinished());
    let killers: Vec<i64> = killers.map(|it| it.id).collect();
    killers.into_iter().for_each(|id| {
        rows.skip(id);
    });
}
