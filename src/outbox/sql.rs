//! Every statement, with the table's name and what else depends on the table filled in.
//!
//! The one place where identifiers become SQL. Values never do: they are parameters, except the one number that
//! SET LOCAL cannot take as one.

use std::time::Duration;

use crate::config::TableName;

use super::shape::PayloadType;

const SCHEMA: &str = include_str!("../../sql/schema/0001_event_outbox.sql");

/// PostgreSQL's limit on an identifier, in bytes; it cuts longer ones.
const IDENTIFIER_MAX: usize = 63;

/// The statements for one table.
#[derive(Debug, Clone)]
pub(super) struct Statements {
    pub(super) claim_begin: String,
    pub(super) claim_lock: String,
    pub(super) claim_fetch: String,
    pub(super) settle_published: String,
    pub(super) settle_failed: String,
    pub(super) settle_dead: String,
    pub(super) settle_expired: String,
    pub(super) settle_unconfirmed: String,
    pub(super) settle_late: String,
    pub(super) unfinished: String,
    pub(super) append: String,
    pub(super) counts: String,
    pub(super) backlog: String,
}

impl Statements {
    pub(super) fn new(table: &TableName, payload: PayloadType, claim_max_idle: Duration) -> Self {
        let table = quoted_table(table);
        let fill = |text: &str| {
            text.replace("{table}", &table)
                .replace("{payload_text}", payload.as_text())
                .replace("{payload_parameter}", payload.parameter())
                .replace("{claim_max_idle_ms}", &claim_max_idle.as_millis().to_string())
        };
        Self {
            claim_begin: fill(include_str!("../../sql/query/claim_begin.sql")),
            claim_lock: fill(include_str!("../../sql/query/claim_lock.sql")),
            claim_fetch: fill(include_str!("../../sql/query/claim_fetch.sql")),
            settle_published: fill(include_str!("../../sql/query/settle_published.sql")),
            settle_failed: fill(include_str!("../../sql/query/settle_failed.sql")),
            settle_dead: fill(include_str!("../../sql/query/settle_dead.sql")),
            settle_expired: fill(include_str!("../../sql/query/settle_expired.sql")),
            settle_unconfirmed: fill(include_str!("../../sql/query/settle_unconfirmed.sql")),
            settle_late: fill(include_str!("../../sql/query/settle_late.sql")),
            unfinished: fill(include_str!("../../sql/query/unfinished.sql")),
            append: fill(include_str!("../../sql/query/append.sql")),
            counts: fill(include_str!("../../sql/query/counts.sql")),
            backlog: fill(include_str!("../../sql/query/backlog.sql")),
        }
    }
}

pub(super) const TABLE_SHAPE: &str = include_str!("../../sql/query/table_shape.sql");
pub(super) const INDEX_STATE: &str = include_str!("../../sql/query/index_state.sql");
pub(super) const SERVER: &str = include_str!("../../sql/query/server.sql");
pub(super) const INIT_LOCK: &str = include_str!("../../sql/query/init_lock.sql");
pub(super) const LIMITS_BEGIN: &str = include_str!("../../sql/query/limits_begin.sql");
pub(super) const READ_WRITE: &str = include_str!("../../sql/query/read_write.sql");
pub(super) const INIT_BEGIN: &str = include_str!("../../sql/query/init_begin.sql");
pub(super) const SCHEMA_EXISTS: &str = include_str!("../../sql/query/schema_exists.sql");

/// The schema's SQL. `concurrently` builds the index without keeping writers out, which a transaction cannot do.
pub(super) fn schema(table: &TableName, concurrently: bool) -> String {
    SCHEMA
        .replace("{table}", &quoted_table(table))
        .replace("{unfinished_index}", &quoted(&unfinished_index(table)))
        .replace(" {concurrently}", if concurrently { " concurrently" } else { "" })
}

/// Creates the schema that the table is to live in, unless the search path finds it.
pub(super) fn schema_create(table: &TableName) -> String {
    let create = |schema: &String| {
        include_str!("../../sql/query/schema_create.sql").replace("{schema}", &quoted(schema))
    };
    table.schema.as_ref().map(create).unwrap_or_default()
}

/// Drops that index.
pub(super) fn index_drop(table: &TableName) -> String {
    include_str!("../../sql/query/index_drop.sql").replace("{index}", &quoted_index(table))
}

/// The name of the index that the claim walks along; it lives in the table's schema.
pub(super) fn unfinished_index(table: &TableName) -> String {
    const SUFFIX: &str = "_unfinished";
    let mut name = table.name.clone();
    while name.len() + SUFFIX.len() > IDENTIFIER_MAX {
        name.pop();
    }
    name + SUFFIX
}

/// The table's name as SQL text.
pub(super) fn quoted_table(table: &TableName) -> String {
    match &table.schema {
        Some(schema) => format!("{}.{}", quoted(schema), quoted(&table.name)),
        None => quoted(&table.name),
    }
}

/// The index's name as SQL text, in the table's schema.
pub(super) fn quoted_index(table: &TableName) -> String {
    quoted_table(&TableName { schema: table.schema.clone(), name: unfinished_index(table) })
}

/// An identifier as SQL text. `TableName` has refused what cannot be one.
pub(super) fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> TableName {
        TableName::parse(text).unwrap()
    }

    #[test]
    fn identifiers_are_quoted() {
        for (name, expected) in [
            ("event_outbox", r#""event_outbox""#),
            ("app.Events", r#""app"."Events""#),
            (r#""odd.schema"."it""s; drop table x""#, r#""odd.schema"."it""s; drop table x""#),
        ] {
            assert_eq!(quoted_table(&table(name)), expected);
        }
    }

    #[test]
    fn no_placeholder_is_left_in_any_statement() {
        let statements = Statements::new(&table("t"), PayloadType::Text, Duration::from_secs(60));
        let all = format!("{statements:?}{}{}", schema(&table("t"), true), schema(&table("t"), false));
        for start in ["{table", "{payload", "{claim", "{unfinished", "{concurrently"] {
            assert!(!all.contains(start), "{start}");
        }
    }

    #[test]
    fn the_index_name_fits_an_identifier() {
        let long = "é".repeat(31);
        assert!(unfinished_index(&table(&long)).len() <= IDENTIFIER_MAX);
        assert_eq!(unfinished_index(&table("s.event_outbox")), "event_outbox_unfinished");
    }
}
