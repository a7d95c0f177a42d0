//! Every statement, with the table's name and what else depends on the table filled in.
//!
//! The one place where identifiers become SQL. Values never do: they are parameters, except the one number that
//! SET LOCAL cannot take as one.

use crate::config::{Database, OnDead, TableName};

use super::parts::with_parts;
use super::shape::PayloadType;

const COLUMNS: &str = include_str!("../../sql/schema/0001_event_outbox.sql");
const INDEXES: &str = include_str!("../../sql/schema/0002_indexes.sql");
const DUE: &str = include_str!("../../sql/part/due.sql");
const SIZE: &str = include_str!("../../sql/part/size.sql");
const AUTOVACUUM: &str = include_str!("../../sql/schema/0003_autovacuum.sql");
const VALIDATION: &str = include_str!("../../sql/schema/0007_validation.sql");

/// PostgreSQL's limit on an identifier, in bytes; it cuts longer ones.
const IDENTIFIER_MAX: usize = 63;

/// What the names of the schema's indexes end with, in the order in which it makes them.
const INDEX_SUFFIXES: [&str; 4] = ["unfinished", "keys", "held", "refused"];

/// The statements for one table.
#[derive(Debug, Clone)]
pub(super) struct Statements {
    pub(super) claim_begin: String,
    /// The same, and whether any key may be held back.
    pub(super) claim_begin_walk: String,
    pub(super) claim_held: String,
    pub(super) claim_walk: String,
    pub(super) claim_keys: String,
    pub(super) claim_order: String,
    pub(super) claim_events: String,
    pub(super) claim_skip: String,
    pub(super) claim_left: String,
    pub(super) claim_fetch: String,
    pub(super) settle_published: String,
    pub(super) settle_failed: String,
    pub(super) settle_dead: String,
    pub(super) settle_expired: String,
    pub(super) settle_unconfirmed: String,
    pub(super) settle_late: String,
    pub(super) settle_lock: String,
    pub(super) unfinished: String,
    pub(super) unfinished_counts: String,
    pub(super) counts: String,
    pub(super) backlog: String,
    pub(super) event_ids: String,
    pub(super) key_head: String,
    pub(super) list: String,
    /// The same from the highest id down.
    pub(super) list_newest: String,
    pub(super) retry: String,
    pub(super) skip: String,
    pub(super) purge: String,
    pub(super) blocked_keys: String,
    pub(super) key_blocker: String,
    pub(super) row_lock: String,
    pub(super) show: String,
    pub(super) check_kinds: String,
}

impl Statements {
    pub(super) fn new(database: &Database, on_dead: OnDead, payload: PayloadType) -> Self {
        let table = quoted_table(&database.table);
        let time_zone = time_zone(database);
        let fill = |text: &str| {
            directed(&with_parts(text), UP)
                .replace("{due}", &part(DUE))
                .replace("{size}", &part(SIZE))
                .replace("{holding}", holding(on_dead))
                .replace("{table}", &table)
                .replace("{payload_text}", payload.as_text())
                .replace("{claim_max_idle_ms}", &database.claim_max_idle.as_millis().to_string())
                .replace("{time_zone}", &time_zone)
        };
        Self {
            claim_begin_walk: fill(concat!(
                include_str!("../../sql/query/claim_begin.sql"),
                ";\n",
                include_str!("../../sql/query/claim_may_hold.sql")
            )),
            claim_begin: fill(include_str!("../../sql/query/claim_begin.sql")),
            claim_held: fill(include_str!("../../sql/query/claim_held.sql")),
            claim_walk: fill(include_str!("../../sql/query/claim_walk.sql")),
            claim_keys: fill(include_str!("../../sql/query/claim_keys.sql")),
            claim_skip: fill(include_str!("../../sql/query/claim_skip.sql")),
            claim_events: fill(include_str!("../../sql/query/claim_events.sql")),
            claim_left: fill(include_str!("../../sql/query/claim_left.sql")),
            claim_order: fill(include_str!("../../sql/query/claim_order.sql")),
            claim_fetch: fill(include_str!("../../sql/query/claim_fetch.sql")),
            settle_published: fill(include_str!("../../sql/query/settle_published.sql")),
            settle_failed: fill(include_str!("../../sql/query/settle_failed.sql")),
            settle_dead: fill(include_str!("../../sql/query/settle_dead.sql")),
            settle_expired: fill(include_str!("../../sql/query/settle_expired.sql")),
            settle_unconfirmed: fill(include_str!("../../sql/query/settle_unconfirmed.sql")),
            settle_late: fill(include_str!("../../sql/query/settle_late.sql")),
            settle_lock: fill(include_str!("../../sql/query/settle_lock.sql")),
            unfinished: fill(include_str!("../../sql/query/unfinished.sql")),
            unfinished_counts: fill(include_str!("../../sql/query/unfinished_counts.sql")),
            counts: fill(include_str!("../../sql/query/counts.sql")),
            backlog: fill(include_str!("../../sql/query/backlog.sql")),
            event_ids: fill(include_str!("../../sql/query/event_ids.sql")),
            key_head: fill(include_str!("../../sql/query/key_head.sql")),
            list: fill(LIST),
            list_newest: fill(&directed(&with_parts(LIST), DOWN)),
            retry: fill(include_str!("../../sql/query/retry.sql")),
            skip: fill(include_str!("../../sql/query/skip.sql")),
            purge: fill(include_str!("../../sql/query/purge.sql")),
            blocked_keys: fill(include_str!("../../sql/query/blocked_keys.sql")),
            key_blocker: fill(include_str!("../../sql/query/key_blocker.sql")),
            row_lock: fill(include_str!("../../sql/query/row_lock.sql")),
            show: fill(include_str!("../../sql/query/show.sql")),
            check_kinds: fill(include_str!("../../sql/query/check_kinds.sql")),
        }
    }
}

/// Which way a walk goes: what the next rows are to the last one, their order, and which of a page is its last.
const UP: [&str; 3] = [">", "asc", "max"];
const DOWN: [&str; 3] = ["<", "desc", "min"];

fn directed(text: &str, [beyond, direction, last]: [&str; 3]) -> String {
    text.replace("{beyond}", beyond).replace("{direction}", direction).replace("{last}", last)
}

/// The statuses of events that come before later ones of their key.
fn holding(on_dead: OnDead) -> &'static str {
    match on_dead {
        OnDead::Block => "'WAITING', 'FAILED', 'DEAD'",
        OnDead::Skip => "'WAITING', 'FAILED'",
    }
}

/// A part of several statements, without its comments.
pub(super) fn part(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n")
}

pub(super) const OLD_SNAPSHOTS: &str = include_str!("../../sql/query/old_snapshots.sql");
const LIST: &str = include_str!("../../sql/query/list.sql");
pub(super) const SESSION_ZONE: &str = include_str!("../../sql/query/session_zone.sql");
pub(super) const NOW: &str = include_str!("../../sql/query/now.sql");
pub(super) const WALK_BEGIN: &str = include_str!("../../sql/query/walk_begin.sql");
pub(super) const TABLE_SHAPE: &str = include_str!("../../sql/query/table_shape.sql");
pub(super) const INDEX_STATE: &str = include_str!("../../sql/query/index_state.sql");
pub(super) const SERVER: &str = include_str!("../../sql/query/server.sql");
pub(super) const CHECK_SERVER: &str = include_str!("../../sql/query/check_server.sql");
pub(super) const CHECK_TABLE: &str = include_str!("../../sql/query/check_table.sql");
pub(super) const INIT_LOCK: &str = include_str!("../../sql/query/init_lock.sql");
pub(super) const DIRECT: &str = include_str!("../../sql/query/direct.sql");
pub(super) const READ_WRITE: &str = include_str!("../../sql/query/read_write.sql");
pub(super) const SETTLE_IMMEDIATE: &str = include_str!("../../sql/query/settle_immediate.sql");
pub(super) const INIT_BEGIN: &str = include_str!("../../sql/query/init_begin.sql");
pub(super) const APPEND_STATE: &str = include_str!("../../sql/query/append_state.sql");
pub(super) const TABLE_HOME: &str = include_str!("../../sql/query/table_home.sql");
pub(super) const INBOX_LOCK: &str = include_str!("../../sql/query/inbox_lock.sql");
pub(super) const INBOX_FIRST_TIME: &str = include_str!("../../sql/query/inbox_first_time.sql");
pub(super) const INBOX_PURGE: &str = include_str!("../../sql/query/inbox_purge.sql");
pub(super) const INBOX: &str = include_str!("../../sql/schema/0005_inbox.sql");
pub(super) const NOTIFY_STATE: &str = include_str!("../../sql/query/notify_state.sql");
pub(super) const CHANNEL: &str = include_str!("../../sql/query/channel.sql");
pub(super) const NOTIFY: &str = include_str!("../../sql/query/notify.sql");
pub(super) const UNLISTEN: &str = include_str!("../../sql/query/unlisten.sql");
pub(super) const AUTOVACUUM_CHOSEN: &str = include_str!("../../sql/query/autovacuum_chosen.sql");
pub(super) const SCHEMA_EXISTS: &str = include_str!("../../sql/query/schema_exists.sql");

/// Opens a transaction for anything but a claim.
pub(super) fn limits_begin(database: &Database) -> String {
    include_str!("../../sql/query/limits_begin.sql").replace("{time_zone}", &time_zone(database))
}

/// The zone as SQL text; without one, the session's own.
fn time_zone(database: &Database) -> String {
    match &database.time_zone {
        // The configuration has refused what needs an escape, which would depend on a setting of the session.
        Some(zone) => format!("'{}'", zone.replace('\\', "").replace('\'', "''")),
        None => "default".into(),
    }
}

/// Creates the table, or adds the columns that it lacks.
pub(super) fn columns(table: &TableName) -> String {
    named(COLUMNS, table)
}

/// Validates the constraint that was added with the columns.
pub(super) fn validation(table: &TableName) -> String {
    named(VALIDATION, table)
}

/// Fills in the table, and its name as a text: whatever is in it, and whatever the session takes for an escape.
fn named(text: &str, table: &TableName) -> String {
    let name = quoted_table(table);
    let literal = format!("E'{}'", name.replace('\\', "\\\\").replace('\'', "''"));
    text.replace("{table}", &name).replace("{table_name}", &literal)
}

/// Creates the indexes. `concurrently` builds them without keeping writers out, which a transaction cannot do.
pub(super) fn indexes(table: &TableName, concurrently: bool) -> String {
    let filled = INDEXES
        .replace("{table}", &quoted_table(table))
        .replace(" {concurrently}", if concurrently { " concurrently" } else { "" });
    INDEX_SUFFIXES.iter().fold(filled, |text, suffix| {
        text.replace(&format!("{{index_{suffix}}}"), &quoted(&suffixed(table, suffix)))
    })
}

/// Sets autovacuum for a queue.
pub(super) fn autovacuum(table: &TableName) -> String {
    AUTOVACUUM.replace("{table}", &quoted_table(table))
}

/// Creates the schema that the table is to live in, unless the search path finds it.
pub(super) fn schema_create(table: &TableName) -> String {
    let create = |schema: &String| {
        include_str!("../../sql/query/schema_create.sql").replace("{schema}", &quoted(schema))
    };
    table.schema.as_ref().map(create).unwrap_or_default()
}

/// Drops an index of the table, by its quoted name.
pub(super) fn index_drop(index: &str) -> String {
    include_str!("../../sql/query/index_drop.sql").replace("{index}", index)
}

/// Appends events through the function of this quoted name.
pub(super) fn fill_append(function: &str) -> String {
    include_str!("../../sql/query/append.sql").replace("{append}", function)
}

/// Asks how this statement would be done.
pub(super) fn explain(statement: &str) -> String {
    include_str!("../../sql/query/explain.sql").replace("{statement}", &part(statement))
}

/// Listens on the channel of this quoted name.
pub(super) fn listen(channel: &str) -> String {
    include_str!("../../sql/query/listen.sql").replace("{channel}", channel)
}

/// The name of something that belongs to the table and lives in its schema, such as an index.
pub(super) fn suffixed(table: &TableName, suffix: &str) -> String {
    let mut name = table.name.clone();
    while name.len() + 1 + suffix.len() > IDENTIFIER_MAX {
        name.pop();
    }
    format!("{name}_{suffix}")
}

/// The table's name as SQL text.
pub(super) fn quoted_table(table: &TableName) -> String {
    match &table.schema {
        Some(schema) => format!("{}.{}", quoted(schema), quoted(&table.name)),
        None => quoted(&table.name),
    }
}

/// The quoted names of the table's indexes, in the table's schema, in the order in which the schema makes them.
pub(super) fn quoted_indexes(table: &TableName) -> impl Iterator<Item = String> + '_ {
    INDEX_SUFFIXES.iter().map(|suffix| {
        quoted_table(&TableName { schema: table.schema.clone(), name: suffixed(table, suffix) })
    })
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

    fn database(time_zone: Option<&str>) -> Database {
        let config = crate::config::Config::new("postgres://h/d", "amqp://h").unwrap();
        Database { table: table("t"), time_zone: time_zone.map(Into::into), ..config.database }
    }

    #[test]
    fn a_zone_is_a_literal_whatever_is_in_it() {
        for (zone, expected) in [
            (None, "set local time zone default"),
            (Some("Asia/Tokyo"), "set local time zone 'Asia/Tokyo'"),
            (Some("x\\'; drop table y"), "set local time zone 'x''; drop table y'"),
        ] {
            assert!(limits_begin(&database(zone)).contains(expected));
        }
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
        let t = table("t");
        let database = database(Some("Asia/Tokyo"));
        let statements = Statements::new(&database, OnDead::Block, PayloadType::Text);
        let schema =
            columns(&t) + &validation(&t) + &indexes(&t, true) + &indexes(&t, false) + &autovacuum(&t);
        let all = format!("{statements:?}{schema}{}", limits_begin(&database));
        for start in [
            "{table",
            "{payload",
            "{claim",
            "{index",
            "{concurrently",
            "{due",
            "{size",
            "{holding",
            "{time",
            "{beyond",
            "{direction",
            "{last",
        ] {
            assert!(!all.contains(start), "{start}");
        }
    }

    #[test]
    fn index_names_fit_an_identifier() {
        let long = "é".repeat(31);
        assert!(suffixed(&table(&long), "unfinished").len() <= IDENTIFIER_MAX);
        assert_eq!(suffixed(&table("s.event_outbox"), "keys"), "event_outbox_keys");
    }
}
