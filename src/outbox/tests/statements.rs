//! What a claim asks, answered by the modelled rows as READ COMMITTED does it: each statement sees what was committed
//! when it began, and a row that it locks as it is by then.

use std::time::Duration;

use crate::error::Result;
use crate::event::{Event, Payload};

use super::super::order::Locked;
use super::super::take::{Ask, Refusal, SPAN_ROWS};
use super::super::{Left, Scope};
use super::rows::{Row, Rows, Status, event_id, micros};
use super::sessions::Wire;

pub(super) struct Asker<'a, 'y> {
    pub(super) wire: &'a Wire<'y>,
    pub(super) session: u64,
    pub(super) passed_over: &'a [i64],
}

impl Asker<'_, '_> {
    fn ask<T>(&self, what: impl FnOnce(&mut Rows) -> T) -> Result<T> {
        self.wire.ask(self.session, what)
    }
}

impl Ask for Asker<'_, '_> {
    fn begin(&mut self) -> Result<()> {
        self.ask(|_| ())
    }

    fn begin_walk(&mut self) -> Result<bool> {
        let on_dead = self.wire.config.on_dead;
        let may_hold = |it: &Row| {
            it.key.is_some() && it.holds(on_dead) && (it.status == Status::Dead || it.available_at.is_some())
        };
        self.ask(|rows| rows.rows.iter().any(may_hold))
    }

    fn rollback(&mut self) -> Result<()> {
        let session = self.session;
        self.ask(|rows| {
            rows.rows.iter_mut().filter(|it| it.lock == Some(session)).for_each(|it| it.lock = None);
        })
    }

    fn held(&mut self) -> Result<Vec<String>> {
        let config = &self.wire.config;
        self.ask(|rows| {
            let heads = rows.rows.iter().filter(|it| {
                it.key.is_some_and(|key| {
                    rows.holding(key, config.on_dead).next().map(|it| it.id) == Some(it.id)
                })
            });
            heads.filter(|it| it.is_held(config, rows.now)).filter_map(|it| it.key.map(Into::into)).collect()
        })
    }

    fn lock(
        &mut self,
        scope: &Scope,
        drain_age: Duration,
        asked: usize,
    ) -> std::result::Result<Vec<Locked>, Refusal> {
        let (config, session, drain_age) = (&self.wire.config, self.session, micros(drain_age));
        let (relay, passed_over) = (self.wire.relay, self.passed_over);
        let refused = |error| Refusal { error, is_untranslatable: false };
        // The statement's own time is the snapshot's, whatever happens while it runs.
        let seen = |rows: &mut Rows| {
            let is_due = |it: &&Row| it.is_due(config, rows.now, drain_age);
            let due = rows.rows.iter().filter(is_due);
            let seen: Vec<(i64, Option<&'static str>)> = match scope {
                Scope::Walk { after, barred, .. } => {
                    let is_barred = |it: &&Row| it.key.is_some_and(|key| barred.iter().any(|it| it == key));
                    due.filter(|it| it.id > *after && !is_barred(it) && !passed_over.contains(&it.id))
                        .map(|it| (it.id, it.key))
                        .collect()
                }
                Scope::Keys(keys) => due
                    .filter(|it| keys.iter().any(|key| it.key == Some(key)))
                    .filter(|it| !passed_over.contains(&it.id))
                    .map(|it| (it.id, it.key))
                    .collect(),
                Scope::Events(ids) => {
                    due.filter(|it| ids.contains(&it.event_id())).map(|it| (it.id, it.key)).collect()
                }
            };
            (rows.now, seen)
        };
        let (began, seen) = self.wire.begin_to_ask(session, seen).map_err(refused)?;
        let each = match scope {
            Scope::Keys(keys) => (asked / keys.len().max(1)).max(1),
            _ => usize::MAX,
        };
        let most = if matches!(scope, Scope::Walk { .. }) { asked } else { usize::MAX };
        let lock = |rows: &mut Rows| {
            let mut locked: Vec<Locked> = Vec::new();
            for (id, key) in seen {
                let of_key = locked.iter().filter(|it| it.key.as_deref() == key).count();
                if locked.len() >= most || (of_key >= each && key.is_some()) {
                    continue;
                }
                let Some(row) = rows.get_mut(id).filter(|it| it.lock.is_none()) else { continue };
                if row.is_due(config, began, drain_age) {
                    row.lock = Some(session);
                    let bytes = i64::try_from(row.bytes).unwrap();
                    locked.push(Locked { id, bytes, key: row.key.map(Into::into) });
                    rows.lost_at.remove(&(relay, id));
                }
            }
            locked
        };
        self.wire.ask(session, lock).map_err(refused)
    }

    fn order(&mut self, keys: &[String], locked: &[i64]) -> Result<Vec<(usize, i64)>> {
        let (on_dead, passed_over) = (self.wire.config.on_dead, self.passed_over);
        self.ask(|rows| {
            let lists = keys.iter().zip(locked).enumerate().flat_map(|(place, (key, locked))| {
                let firsts = rows
                    .holding(key, on_dead)
                    .filter(|it| !passed_over.contains(&it.id))
                    .take(usize::try_from(*locked).unwrap() + 1);
                firsts.map(|it| (place, it.id)).collect::<Vec<_>>()
            });
            lists.collect()
        })
    }

    fn fetch(&mut self, ids: &[i64]) -> Result<Vec<(Event, Payload)>> {
        let config = &self.wire.config;
        self.ask(|rows| {
            let rows = ids.iter().filter_map(|id| rows.get(*id).map(|it| (it, rows.now)));
            rows.map(|(it, now)| (it.event(config, now), Payload::Stored(vec![b' '; it.bytes]))).collect()
        })
    }

    fn left(&mut self, event_ids: &[String]) -> Result<Vec<(String, Left)>> {
        let on_dead = self.wire.config.on_dead;
        self.ask(|rows| {
            let left = |wanted: &String| {
                let Some(row) = rows.rows.iter().find(|it| event_id(it.id) == *wanted) else {
                    return Left::NotFound;
                };
                let is_held =
                    |key: &str| rows.holding(key, on_dead).next().is_some_and(|head| head.id < row.id);
                match row.key {
                    _ if !row.is_unfinished() => Left::Finished(format!("{:?}", row.status).to_uppercase()),
                    _ if row.available_at.is_some_and(|at| at > rows.now) => Left::Later,
                    Some(key) if is_held(key) => Left::Held(key.into()),
                    key => Left::Locked(key.map(Into::into)),
                }
            };
            event_ids.iter().map(|it| (it.clone(), left(it))).collect()
        })
    }

    fn skip(&mut self, last: i64, drain_age: Duration) -> Result<Option<i64>> {
        let (config, drain_age) = (&self.wire.config, micros(drain_age));
        self.ask(|rows| {
            assert!(rows.rows.len() < usize::try_from(SPAN_ROWS).unwrap());
            let is_head = |it: &&Row| {
                it.key.is_none_or(|key| {
                    rows.holding(key, config.on_dead).next().is_some_and(|head| head.id >= it.id)
                })
            };
            let behind = rows.rows.iter().filter(|it| it.id > last && it.is_due(config, rows.now, drain_age));
            behind.filter(is_head).map(|it| it.id - 1).next()
        })
    }
}
