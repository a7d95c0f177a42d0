//! What an operator ought to know of a table that the relay can work on, but not as well as it might. Reads only.

use std::fmt;
use std::sync::Arc;

use postgres::Client;
use postgres::types::Type;

use crate::config::{Database, TableName};
use crate::error::Result;

use super::session::{Opening, Session, within_limits};
use super::shape;
use super::sql::{INDEX_STATE, SESSION_ZONE, quoted_indexes, quoted_table};
use super::{Outbox, Ready};

/// What an index of ours is of, as the server writes it.
struct Kind {
    /// What it holds of the columns.
    parts: &'static [&'static str],
    /// The statuses that its rows have.
    statuses: &'static [&'static str],
}

const KEY: &str = "ordering_key";
const UNFINISHED: &[&str] = &["DEAD", "FAILED", "WAITING"];

/// In the order of the schema.
const KINDS: [Kind; 4] = [
    Kind { parts: &["(id)"], statuses: &["FAILED", "WAITING"] },
    Kind { parts: &[KEY, "COLLATE \"C\"", ", id)"], statuses: UNFINISHED },
    Kind { parts: &[KEY, "COLLATE \"C\"", ", id)", "available_at"], statuses: UNFINISHED },
    Kind { parts: &["(id)"], statuses: &["DEAD", "FAILED"] },
];

impl Outbox {
    /// One sentence for each thing: times without a zone and no setting that names theirs, indexes that are missing or
    /// other than they should be, a status that the table does not take.
    ///
    /// # Errors
    /// The database cannot be reached, refuses, or does not hold the table.
    pub fn advice(&mut self) -> Result<Vec<String>> {
        let database = self.database.clone();
        self.with_session(|ready| advise(ready, &database))
    }
}

/// The same for a table that no relay works on yet.
///
/// # Errors
/// As [`Outbox::advice`].
pub fn advice(database: &Database) -> Result<Vec<String>> {
    advise(&mut Ready::open(database, None, &mut Opening::default())?, database)
}

fn advise(ready: &mut Ready, database: &Database) -> Result<Vec<String>> {
    let suggestions = suggestions(&mut ready.session, &database.table, database.time_zone.is_some())?;
    Ok(suggestions.iter().map(Suggestion::to_string).collect())
}

/// One thing that might be better.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    /// `time_zone`, `status` or `indexes`.
    pub about: &'static str,
    /// What is found.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for Suggestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.remedy)
    }
}

pub(super) fn suggestions(
    session: &mut Session,
    table: &TableName,
    zone_is_set: bool,
) -> Result<Vec<Suggestion>> {
    let (begin, table) = (session.begin(), table.clone());
    session.call("looking at the table", move |client| {
        let mut advice = about_columns(client, &begin, &table, zone_is_set)?;
        advice.extend(about_indexes(client, &begin, &table)?);
        Ok(advice)
    })
}

fn about_columns(
    client: &mut Client,
    begin: &Arc<str>,
    table: &TableName,
    zone_is_set: bool,
) -> Result<Vec<Suggestion>> {
    let shape::Leftovers { zoneless, not_taken } = shape::leftovers(client, begin, table)?;
    let mut advice = Vec::new();
    if !zone_is_set && !zoneless.is_empty() {
        let zone: String = within_limits(client, begin, "asking for the time zone", |client| {
            client.query_typed_one(SESSION_ZONE, &[])?.try_get(0)
        })?;
        let columns = zoneless.join(", ");
        advice.push(Suggestion {
            about: "time_zone",
            what: format!(
                "table {table} holds times without a zone ({columns}), which are read as those of the session's zone {zone}"
            ),
            remedy: "set time_zone to the zone of whoever writes them".into(),
        });
    }
    if let Some(not_taken) = not_taken {
        let (what, remedy) = not_taken.split_once(" (mend it with: ").unwrap_or((&not_taken, "add it)"));
        let remedy = remedy.strip_suffix(')').unwrap_or(remedy);
        advice.push(Suggestion {
            about: "status",
            what: format!("table {table}: {what}; outboxd skip needs it"),
            remedy: format!("mend it with: {remedy}"),
        });
    }
    Ok(advice)
}

fn about_indexes(client: &mut Client, begin: &Arc<str>, table: &TableName) -> Result<Vec<Suggestion>> {
    let name = quoted_table(table);
    let mut advice = Vec::new();
    for (index, kind) in quoted_indexes(table).zip(&KINDS) {
        let found = within_limits(client, begin, "looking at the indexes", |client| {
            let rows = client.query_typed(INDEX_STATE, &[(&index, Type::TEXT), (&name, Type::TEXT)])?;
            let state = |row: &postgres::Row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
            rows.first().map(state).transpose()
        })?;
        let found: Option<(bool, bool, String)> = found;
        let (what, remedy) = match found {
            None => (format!("table {table} lacks the index {index}"), "run outboxd init"),
            Some((true, false, _)) => {
                (format!("the index {index} is not valid, its building was interrupted"), "run outboxd init")
            }
            Some((true, true, definition)) if kind.fits(&definition) => continue,
            Some(_) => (
                format!("{index} is not the index that outboxd makes"),
                "drop or rename it, then run outboxd init",
            ),
        };
        advice.push(Suggestion { about: "indexes", what, remedy: remedy.into() });
    }
    Ok(advice)
}

impl Kind {
    /// Whether this is its definition. The server writes casts that depend on the columns' types, so only what matters is
    /// compared: the columns in their order, and the statuses.
    fn fits(&self, definition: &str) -> bool {
        let (_, condition) = definition.split_once(" WHERE ").unwrap_or_default();
        let mut statuses: Vec<&str> = condition
            .split('\'')
            .skip(1)
            .step_by(2)
            .filter(|word| word.chars().all(char::is_uppercase))
            .collect();
        statuses.sort_unstable();
        statuses.dedup();
        let keyed = self.parts.contains(&KEY);
        statuses == self.statuses
            && definition.starts_with("btree (")
            && definition.contains(KEY) == keyed
            && definition.contains("available_at") == self.parts.contains(&"available_at")
            && self.parts.iter().all(|part| definition.contains(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_known_by_its_columns_and_statuses() {
        let unfinished = "btree (id) WHERE (status = ANY (ARRAY['WAITING'::text, 'FAILED'::text]))";
        let cast = "btree (id) WHERE ((status)::text = ANY ((ARRAY['WAITING'::character varying, 'FAILED'::character varying])::text[]))";
        let keys = "btree (ordering_key COLLATE \"C\", id) WHERE ((ordering_key IS NOT NULL) AND (status = ANY (ARRAY['WAITING'::text, 'FAILED'::text, 'DEAD'::text])))";
        let held = "btree (ordering_key COLLATE \"C\", id) WHERE ((ordering_key IS NOT NULL) AND (status = ANY (ARRAY['WAITING'::text, 'FAILED'::text, 'DEAD'::text])) AND ((status = 'DEAD'::text) OR (available_at IS NOT NULL)))";
        let refused = "btree (id) WHERE (status = ANY (ARRAY['FAILED'::text, 'DEAD'::text]))";
        let all = [unfinished, keys, held, refused];
        for (n, kind) in KINDS.iter().enumerate() {
            for (m, definition) in all.iter().enumerate() {
                assert_eq!(kind.fits(definition), n == m, "{n} {definition}");
            }
            for other in [
                "",
                "btree (id)",
                "btree (event_id) WHERE (status = ANY (ARRAY['WAITING'::text, 'FAILED'::text]))",
            ] {
                assert!(!kind.fits(other), "{other}");
            }
        }
        assert!(KINDS[0].fits(cast));
    }
}
