//! The walk that all commands share: page by page along the table, each in a transaction of its own.

use postgres::Row;
use postgres::types::{ToSql, Type};

use crate::error::Result;

use super::super::failure::failure;
use super::super::session::Session;
use super::super::sql::{NOW, Statements, WALK_BEGIN};
use super::super::{Outbox, Ready};
use super::filter::Filter;
use super::list::Listed;

/// Most rows that one statement looks at.
const PAGE_ROWS: u32 = 5_000;

/// Most rows that one statement changes.
pub(super) const BATCH_ROWS: u32 = 1_000;

/// The column after those that every change begins with.
const ENDS_EARLY: usize = 17;

/// Most examples that a report holds.
pub(super) const EXAMPLES: u32 = 10;

/// What a command changed, or would change.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    /// Events that the filter and the command mean.
    pub matched: u64,
    /// Changed; none in a dry run.
    pub changed: u64,
    /// Left, because their deadline has passed and no new one was given.
    pub overdue: u64,
    /// The first ten that were changed or would be, as they were.
    pub examples: Vec<Listed>,
    /// Where it stopped, when it was told to or reached its limit; the rows after this one were not looked at.
    pub stopped_at: Option<i64>,
}

impl Changes {
    /// Matched and not changed, because a relay is sending them right now or has finished them meanwhile. Only of a
    /// run that was not a dry one.
    pub fn being_sent(&self) -> u64 {
        self.matched.saturating_sub(self.changed).saturating_sub(self.overdue)
    }
}

/// A statement's parameters, owned.
#[derive(Default)]
pub(super) struct Parameters(Vec<(Box<dyn ToSql + Sync + Send>, Type)>);

impl Parameters {
    pub(super) fn add(&mut self, value: impl ToSql + Sync + Send + 'static, kind: Type) {
        self.0.push((Box::new(value), kind));
    }

    pub(super) fn as_refs(&self) -> Vec<(&(dyn ToSql + Sync), Type)> {
        self.0.iter().map(|(value, kind)| (&**value as &(dyn ToSql + Sync), kind.clone())).collect()
    }
}

/// Where a walk is.
pub(super) struct Walk {
    /// The filter's rows, when it names events.
    rows: Option<Vec<i64>>,
    after: i64,
    page_rows: u32,
    left: u64,
    /// When it began, in seconds since 1970 by the database's clock; 0 where nothing depends on it.
    began: f64,
}

/// One step of a walk, as far as it decides about the next.
pub(super) struct Step {
    /// The last row of the page.
    last: Option<i64>,
    /// The rows of the page.
    length: i64,
    /// The rows that the filter means in it, at most as many as were asked for.
    matched: u64,
    last_matched: Option<i64>,
}

impl Walk {
    /// A walk over what the filter means after row `after`, up to `limit` matches.
    pub(super) fn new(
        outbox: &mut Outbox,
        filter: &Filter,
        after: Option<i64>,
        limit: Option<u64>,
    ) -> Result<Self> {
        let event_ids = filter.event_ids();
        let found = if event_ids.is_empty() { Vec::new() } else { outbox.rows_of(event_ids)? };
        Ok(Self {
            rows: filter.rows(found),
            after: after.unwrap_or(i64::MIN),
            page_rows: PAGE_ROWS,
            left: limit.unwrap_or(u64::MAX),
            began: if filter.has_moments() { outbox.now()? } else { 0.0 },
        })
    }

    /// Most matches that the next step may bring, when each step brings at most `most`.
    pub(super) fn batch(&self, most: u32) -> u32 {
        most.min(u32::try_from(self.left).unwrap_or(u32::MAX))
    }

    /// The first fourteen parameters of a step.
    pub(super) fn parameters(&self, filter: &Filter, batch: u32) -> Parameters {
        let mut parameters = filter.parameters(self.rows.as_ref(), self.began);
        let (index, by_key) = filter.index();
        parameters.add(self.after, Type::INT8);
        parameters.add(i64::from(self.page_rows), Type::INT8);
        parameters.add(i64::from(batch), Type::INT8);
        parameters.add(index, Type::INT4);
        parameters.add(by_key, Type::BOOL);
        parameters
    }

    /// Whether the step looks at as many rows as a step ever does.
    fn looks_far(&self) -> bool {
        self.page_rows >= PAGE_ROWS
    }

    /// Goes on after a step. Returns false when there is nothing more to look at, or the limit is reached.
    pub(super) fn step(&mut self, step: &Step, batch: u32) -> bool {
        self.left = self.left.saturating_sub(step.matched);
        let full = step.matched >= u64::from(batch);
        let ended = step.length < i64::from(self.page_rows);
        let on = if full { step.last_matched } else { step.last };
        // Where every row is meant, looking further than one batch would be looking twice.
        self.page_rows = if full { BATCH_ROWS } else { PAGE_ROWS };
        match on {
            Some(on) => self.after = on,
            None => return false,
        }
        self.left > 0 && (full || !ended)
    }

    /// Whether the filter names this row.
    pub(super) fn names(&self, row: i64) -> bool {
        self.rows.as_ref().is_none_or(|rows| rows.contains(&row))
    }

    /// The last row that was looked at.
    pub(super) fn position(&self) -> i64 {
        self.after
    }

    /// Whether the limit was reached.
    pub(super) fn exhausted(&self) -> bool {
        self.left == 0
    }
}

impl Step {
    /// Reads the columns that every change begins with, adds them up, and takes the examples. The statement's own
    /// columns follow; the time of the database is returned.
    fn read(rows: &[Row], changes: &mut Changes) -> std::result::Result<(Self, f64), postgres::Error> {
        let mut step = Self { last: None, length: 0, matched: 0, last_matched: None };
        let mut now = 0.0;
        if let Some(row) = rows.first() {
            step.last = row.try_get(0)?;
            step.length = row.try_get(1)?;
            step.matched = unsigned(row.try_get(2)?);
            step.last_matched = row.try_get(3)?;
            changes.matched += step.matched;
            changes.overdue += unsigned(row.try_get(4)?);
            changes.changed += unsigned(row.try_get(5)?);
            now = row.try_get(6)?;
        }
        for row in rows {
            if changes.examples.len() >= EXAMPLES as usize {
                break;
            }
            changes.examples.extend(Listed::read(row, 7)?);
        }
        Ok((step, now))
    }

    /// Whether it found nothing.
    fn is_empty(&self) -> bool {
        self.matched == 0
    }

    /// A step of a list.
    pub(super) fn listed(last: Option<i64>, length: i64, listed: &[Listed]) -> Self {
        let matched = u64::try_from(listed.len()).unwrap_or(u64::MAX);
        Self { last, length, matched, last_matched: listed.last().map(|it| it.id) }
    }
}

/// A change that is made batch by batch, each in a transaction of its own.
pub(super) struct Job<'a> {
    /// For errors.
    pub(super) what: &'static str,
    pub(super) filter: &'a Filter,
    pub(super) after: Option<i64>,
    pub(super) limit: Option<u64>,
    pub(super) sql: fn(&Statements) -> &String,
    /// Whether the statement's last column says that nothing can follow a page in which nothing was found.
    pub(super) ends_early: bool,
}

/// What a batch knows of those before it.
pub(super) struct Before {
    /// How many events they changed.
    pub(super) changed: u64,
    /// When the first of them began, in seconds since 1970 by the database's clock; none before the first.
    pub(super) started: Option<f64>,
}

impl Outbox {
    /// Does the job to its end, its limit, or until `go_on` says no. `further` adds the statement's own parameters to
    /// those of the walk.
    ///
    /// # Errors
    /// Those of a batch; the batches before stay done.
    pub(super) fn change(
        &mut self,
        job: &Job<'_>,
        further: impl Fn(&Before, &mut Parameters),
        mut go_on: impl FnMut(&Changes) -> bool,
    ) -> Result<Changes> {
        let mut walk = Walk::new(self, job.filter, job.after, job.limit)?;
        let mut changes = Changes::default();
        let mut before = Before { changed: 0, started: None };
        loop {
            let batch = walk.batch(BATCH_ROWS);
            let (step, so_far, now, last) = self.with_session(|ready| {
                let Ready { session, statements, .. } = ready;
                let mut parameters = walk.parameters(job.filter, batch);
                further(&before, &mut parameters);
                let rows = change(session, job.what, (job.sql)(statements).clone(), parameters)?;
                let mut so_far = changes.clone();
                let failed = |error| failure(job.what, &error);
                let (step, now) = Step::read(&rows, &mut so_far).map_err(failed)?;
                let last = match rows.first() {
                    Some(row) if job.ends_early => {
                        row.try_get::<_, Option<bool>>(ENDS_EARLY).map_err(failed)?
                    }
                    _ => None,
                };
                Ok((step, so_far, now, last.unwrap_or(false)))
            })?;
            changes = so_far;
            // One start for all batches: a rate holds across them.
            before = Before { changed: changes.changed, started: before.started.or(Some(now)) };
            let last = last && walk.looks_far() && step.is_empty();
            let on = walk.step(&step, batch) && !last;
            if !go_on(&changes) && on || walk.exhausted() {
                changes.stopped_at = Some(walk.position());
                return Ok(changes);
            }
            if !on {
                return Ok(changes);
            }
        }
    }

    /// The database's time, in seconds since 1970.
    ///
    /// # Errors
    /// The database cannot be reached or refuses.
    pub fn now(&mut self) -> Result<f64> {
        self.with_session(|ready| {
            ready
                .session
                .within_limits("asking for the time", |client| client.query_typed_one(NOW, &[])?.try_get(0))
        })
    }

    fn rows_of(&mut self, event_ids: Vec<String>) -> Result<Vec<i64>> {
        self.with_session(move |ready| {
            let Ready { session, statements, .. } = ready;
            let (sql, event_ids) = (statements.event_ids.clone(), event_ids.clone());
            session.within_limits("looking for events", move |client| {
                let rows = client.query_typed(&sql, &[(&event_ids, Type::TEXT_ARRAY)])?;
                rows.iter().map(|row| row.try_get(0)).collect()
            })
        })
    }
}

/// Runs one step that changes rows.
fn change(session: &mut Session, what: &str, sql: String, parameters: Parameters) -> Result<Vec<Row>> {
    session.write_within_limits(what, move |client| {
        client.batch_execute(WALK_BEGIN)?;
        client.query_typed(&sql, &parameters.as_refs())
    })
}

pub(super) fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_ends_with_the_table_or_at_its_limit() {
        let walk = |left| Walk { rows: None, after: 0, page_rows: PAGE_ROWS, left, began: 0.0 };
        let step = |last, length, matched, last_matched| Step { last, length, matched, last_matched };
        let cases = [
            // left, batch, step, goes on, after, left then
            (u64::MAX, 1000, step(None, 0, 0, None), false, 0, u64::MAX),
            (u64::MAX, 1000, step(Some(7000), 5000, 3, Some(70)), true, 7000, u64::MAX - 3),
            (u64::MAX, 1000, step(Some(7000), 4999, 3, Some(70)), false, 7000, u64::MAX - 3),
            (u64::MAX, 1000, step(Some(7000), 4999, 1000, Some(900)), true, 900, u64::MAX - 1000),
            (5, 5, step(Some(7000), 5000, 5, Some(60)), false, 60, 0),
            (5, 5, step(Some(7000), 5000, 4, Some(60)), true, 7000, 1),
        ];
        for (left, batch, step, on, after, left_then) in cases {
            let mut walk = walk(left);
            assert_eq!((walk.step(&step, batch), walk.after, walk.left), (on, after, left_then));
        }
    }
}
