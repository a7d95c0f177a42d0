//! The table: what we may do there, what it is, and what waits in it.

use std::sync::Arc;

use postgres::Row;
use postgres::types::Type;

use crate::config::TableName;
use crate::error::Result;
use crate::message::HEADERS_TEXT_MAX;

use super::super::advice;
use super::super::shape;
use super::super::sql::{CHECK_TABLE, Statements, explain, quoted, quoted_table, suffixed};
use super::super::take::count;
use super::{Inspector, Suggestion};

/// The columns that a relay writes.
const WRITTEN: &[&str] =
    &["status", "fail_count", "available_at", "last_retried_at", "published_at", "last_error"];

/// How many unfinished events are looked at from either end of the table.
const LOOKED_AT: i64 = 5_000;

/// What a role may do on a table of the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grants {
    /// Where the table is.
    pub schema: String,
    /// Whether the configured name leads there.
    pub is_meant: bool,
    /// Whether nothing of it is hidden from the role by row security.
    pub sees_all: bool,
    /// The statements that give what is missing; what only purging needs is apart.
    pub missing: Vec<String>,
    /// The statement that lets the role purge, where it may not.
    pub missing_to_purge: Option<String>,
    /// The table's own size in bytes, without indexes and long values.
    pub bytes: u64,
}

/// How the server would do a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The index that it should go along.
    pub index: String,
    /// Whether it does.
    pub uses_index: bool,
}

/// Unfinished events of one type that go one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// Their type; cut after 256 characters.
    pub event_type: String,
    /// What their rows say over their route.
    pub exchange: Option<String>,
    /// The same.
    pub routing_key: Option<String>,
    /// How many of those that were looked at.
    pub count: u64,
    /// Those of them that have no ordering key.
    pub keyless: u64,
}

impl Inspector {
    /// The tables of the configured name, the one that is meant first, and what `role`, which we are, may do there.
    ///
    /// # Errors
    /// The database cannot be reached, or refuses.
    pub fn grants(&mut self, role: &str) -> Result<Vec<Grants>> {
        let (table, role) = (self.database.table.clone(), role.to_owned());
        self.ask("looking at the role's rights", move |client| {
            let (read, written) = (shape::column_names(), WRITTEN);
            let rows = client.query_typed(
                CHECK_TABLE,
                &[
                    (&table.schema, Type::TEXT),
                    (&table.name, Type::TEXT),
                    (&read, Type::TEXT_ARRAY),
                    (&written, Type::TEXT_ARRAY),
                ],
            )?;
            rows.iter().map(|row| grants(row, &table.name, &role)).collect()
        })
    }

    /// What the payload's column is, of a table that is complete.
    ///
    /// # Errors
    /// What the table lacks, and what to do.
    pub fn payload_type(&mut self) -> Result<&'static str> {
        let table = self.database.table.clone();
        let payload = self.on_session("looking at the table", move |client, begin| {
            shape::complete(client, begin, &table)
        })?;
        self.payload = payload;
        Ok(payload.name())
    }

    /// As [`advice`](crate::outbox::advice), in parts.
    ///
    /// # Errors
    /// The database cannot be reached, or refuses.
    pub fn suggestions(&mut self) -> Result<Vec<Suggestion>> {
        let (table, zone_is_set) = (self.database.table.clone(), self.database.time_zone.is_some());
        let found = advice::suggestions(self.session()?, &table, zone_is_set);
        if found.is_err() {
            self.session = None;
        }
        found
    }

    /// How the server would claim. The payload's type must have been asked for.
    ///
    /// # Errors
    /// The database cannot be reached, or refuses.
    pub fn plan(&mut self) -> Result<Plan> {
        let (statements, claim) = (self.statements(), self.claim.clone());
        let index = suffixed(&self.database.table, "unfinished");
        let what = "asking how a claim would be done";
        self.on_session(what, move |client, _| {
            // As a claim begins: what it switches off decides the plan.
            let begin = statements.claim_begin.clone();
            super::within_limits(client, &begin, what, move |client| {
                let headers_max = i32::try_from(HEADERS_TEXT_MAX).unwrap_or(i32::MAX);
                let payload_max = i32::try_from(claim.payload_max).unwrap_or(i32::MAX);
                let rows_max = i64::try_from(claim.batch_rows).unwrap_or(i64::MAX);
                let rows = client.query_typed(
                    &explain(&statements.claim_walk),
                    &[
                        (&claim.min_age.as_secs_f64(), Type::FLOAT8),
                        (&claim.max_age.map(|it| it.as_secs_f64()), Type::FLOAT8),
                        (&count(claim.max_failures), Type::INT4),
                        (&0.0_f64, Type::FLOAT8),
                        (&payload_max, Type::INT4),
                        (&headers_max, Type::INT4),
                        (&rows_max, Type::INT8),
                        (&0_i64, Type::INT8),
                        (&Vec::<String>::new(), Type::TEXT_ARRAY),
                        (&Vec::<i64>::new(), Type::INT8_ARRAY),
                    ],
                )?;
                let lines =
                    rows.iter().map(|row| row.try_get(0)).collect::<std::result::Result<Vec<_>, _>>()?;
                Ok(Plan { uses_index: goes_along(&lines, &index), index })
            })
        })
    }

    /// The kinds of unfinished events, the most frequent first, at most `kinds_max`: those of the first and last five
    /// thousand.
    ///
    /// # Errors
    /// The database cannot be reached, or refuses.
    pub fn kinds(&mut self, kinds_max: usize) -> Result<Vec<Kind>> {
        let (statements, kinds_max) = (self.statements(), i64::try_from(kinds_max).unwrap_or(i64::MAX));
        self.ask("looking for the types of events", move |client| {
            client.batch_execute(super::super::sql::WALK_BEGIN)?;
            let parameters: &[(&(dyn postgres::types::ToSql + Sync), Type)] =
                &[(&LOOKED_AT, Type::INT8), (&kinds_max, Type::INT8)];
            client.query_typed(&statements.check_kinds, parameters)?.iter().map(kind).collect()
        })
    }

    fn statements(&self) -> Arc<Statements> {
        let database = crate::config::Database { time_zone: None, ..self.database.clone() };
        Arc::new(Statements::new(&database, self.claim.on_dead, self.payload))
    }
}

fn grants(row: &Row, name: &str, role: &str) -> std::result::Result<Grants, postgres::Error> {
    let schema: String = row.try_get(0)?;
    let table = quoted_table(&TableName { schema: Some(schema.clone()), name: name.into() });
    let grant = |right: &str, on: &str| format!("grant {right} on {on} to {}", quoted(role));
    let mut missing = Vec::new();
    if !row.try_get::<_, bool>(2)? {
        missing.push(grant("usage", &format!("schema {}", quoted(&schema))));
    }
    if !row.try_get::<_, bool>(3)? {
        missing.push(grant("select", &table));
    }
    if !row.try_get::<_, bool>(4)? {
        missing.push(grant(&format!("update ({})", WRITTEN.join(", ")), &table));
    }
    let may_delete: bool = row.try_get(5)?;
    Ok(Grants {
        schema,
        is_meant: row.try_get(1)?,
        missing,
        missing_to_purge: (!may_delete).then(|| grant("delete", &table)),
        sees_all: !row.try_get::<_, bool>(6)?,
        bytes: u64::try_from(row.try_get::<_, i64>(7)?).unwrap_or(0),
    })
}

fn kind(row: &Row) -> std::result::Result<Kind, postgres::Error> {
    let count = |at: usize| Ok(u64::try_from(row.try_get::<_, i64>(at)?).unwrap_or(0));
    Ok(Kind {
        event_type: row.try_get(0)?,
        exchange: row.try_get(1)?,
        routing_key: row.try_get(2)?,
        count: count(3)?,
        keyless: count(4)?,
    })
}

/// Whether the plan walks along the index. The server quotes names where it must.
fn goes_along(plan: &[String], index: &str) -> bool {
    let forms = [format!("Index Scan using {index} on "), format!("Index Scan using {} on ", quoted(index))];
    plan.iter().any(|line| forms.iter().any(|form| line.contains(form.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_known_by_its_index() {
        for (line, expected) in [
            ("        ->  Index Scan using event_outbox_unfinished on event_outbox outbox", true),
            ("  ->  Index Scan using \"event_outbox_unfinished\" on event_outbox outbox", true),
            ("  ->  Index Scan using event_outbox_pkey on event_outbox outbox", false),
            ("  ->  Index Scan using event_outbox_unfinished2 on event_outbox outbox", false),
            ("  ->  Seq Scan on event_outbox outbox", false),
        ] {
            assert_eq!(goes_along(&[line.into()], "event_outbox_unfinished"), expected, "{line}");
        }
    }
}
