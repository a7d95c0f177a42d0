//! Whether the table in the database is an outbox that this relay can work on.
//!
//! Looked at once per session, so that a missing table or column is one clear line instead of an odd failure.

use postgres::types::Type;
use postgres::{Client, Row};

use crate::config::TableName;
use crate::error::{Error, Kind, Result};

use super::session::within_limits;
use super::sql::{TABLE_SHAPE, quoted_table};

/// What the payload column holds; decides how its text and its length are written in SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PayloadType {
    Text,
    Json,
    Jsonb,
    Bytea,
}

impl PayloadType {
    /// The column as something whose `octet_length` is that of the bytes published.
    pub(super) fn as_text(self) -> &'static str {
        match self {
            Self::Text | Self::Bytea => "payload",
            Self::Json | Self::Jsonb => "payload::text",
        }
    }

    /// What it is called in SQL.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Jsonb => "jsonb",
            Self::Bytea => "bytea",
        }
    }

    /// The text that an application appends, as a value of the column.
    pub(super) fn of_text(self) -> &'static str {
        match self {
            Self::Text => "payload",
            Self::Json => "payload::json",
            Self::Jsonb => "payload::jsonb",
            Self::Bytea => "convert_to(payload, 'UTF8')",
        }
    }
}

/// A column as the catalogue describes it.
#[derive(Debug)]
struct Column {
    name: String,
    kind: String,
    labels: Option<Vec<String>>,
    checks: Option<String>,
    /// The names of the constraints that may list our statuses.
    constraints: Option<String>,
}

/// What is known of the table.
#[derive(Debug)]
pub(super) enum Shape {
    Missing,
    /// There, but not an outbox: these are the reasons.
    Foreign(Vec<String>),
    /// The original's nine columns are there, ours are not: these are missing.
    Original(Vec<&'static str>),
    Complete(PayloadType),
}

/// The table that commands take without being told.
const DEFAULT_TABLE: &str = "event_outbox";

const TEXTS: &[&str] = &["text", "character varying", "character", "bpchar"];
const TIMES: &[&str] = &["timestamp with time zone", "timestamp without time zone"];
const INTEGERS: &[&str] = &["bigint", "integer", "smallint"];

/// The columns of the pattern's original table, and which types of them are understood; none means any.
const ORIGINAL: &[(&str, &[&str])] = &[
    ("id", INTEGERS),
    ("event_id", &["text", "character varying", "character", "bpchar"]),
    ("event_type", &[]),
    ("payload", &["text", "character varying", "json", "jsonb", "bytea"]),
    ("status", &[]),
    ("created_at", TIMES),
    ("last_retried_at", TIMES),
    ("expired_at", TIMES),
    ("fail_count", INTEGERS),
];

/// The columns that `init` adds.
const OURS: &[(&str, &[&str])] = &[
    ("ordering_key", TEXTS),
    ("headers", &["jsonb", "json"]),
    ("exchange", TEXTS),
    ("routing_key", TEXTS),
    ("available_at", TIMES),
    ("published_at", TIMES),
    ("last_error", TEXTS),
];

/// The statuses that the relay writes.
const WRITTEN: &[&str] = &["FAILED", "PUBLISHED", "DEAD", "EXPIRED"];

/// Reads the table's shape, within time limits.
pub(super) fn read(client: &mut Client, begin: &str, table: &TableName) -> Result<Shape> {
    Ok(judge(&columns_of(client, begin, table)?))
}

fn columns_of(client: &mut Client, begin: &str, table: &TableName) -> Result<Vec<Column>> {
    within_limits(client, begin, "reading the table's columns", |client| {
        let rows = client.query_typed(TABLE_SHAPE, &[(&quoted_table(table), Type::TEXT)])?;
        rows.iter().map(column).collect::<std::result::Result<Vec<_>, _>>()
    })
}

/// What a complete table leaves to be wished for.
pub(super) struct Leftovers {
    /// The columns whose times have no zone.
    pub(super) zoneless: Vec<String>,
    /// That its status does not take SKIPPED, which only an operator writes.
    pub(super) not_taken: Option<String>,
}

/// Reads them.
pub(super) fn leftovers(client: &mut Client, begin: &str, table: &TableName) -> Result<Leftovers> {
    let columns = columns_of(client, begin, table)?;
    let zoneless = columns.iter().filter(|it| {
        it.kind.starts_with("timestamp") && it.kind.ends_with("without time zone") && is_known(&it.name)
    });
    let status = columns.iter().find(|it| it.name == "status");
    Ok(Leftovers {
        zoneless: zoneless.map(|it| it.name.clone()).collect(),
        not_taken: status.and_then(|it| unknown_statuses(it, &["SKIPPED"])),
    })
}

/// The names of all columns that a relay reads.
pub(super) fn column_names() -> Vec<&'static str> {
    ORIGINAL.iter().chain(OURS).map(|(name, _)| *name).collect()
}

fn is_known(name: &str) -> bool {
    ORIGINAL.iter().chain(OURS).any(|(known, _)| *known == name)
}

fn column(row: &Row) -> std::result::Result<Column, postgres::Error> {
    Ok(Column {
        name: row.try_get(0)?,
        kind: row.try_get(1)?,
        labels: row.try_get(2)?,
        checks: row.try_get(3)?,
        constraints: row.try_get(4)?,
    })
}

/// The payload's type of a table that is complete.
///
/// # Errors
/// [`Kind::Configuration`] with what is missing and what to do, when it is not.
pub(super) fn complete(client: &mut Client, begin: &str, table: &TableName) -> Result<PayloadType> {
    let error = |what: String| Error::new(Kind::Configuration, what);
    match read(client, begin, table)? {
        Shape::Complete(payload) => Ok(payload),
        Shape::Missing => Err(error(format!("table {table} does not exist"))
            .with_remedy(format!("create it with: {}", init(table)))),
        Shape::Original(missing) => Err(error(format!("table {table} lacks {}", missing.join(", ")))
            .with_remedy(format!("add what is missing with: {}", init(table)))),
        Shape::Foreign(reasons) => Err(foreign(table, &reasons)),
    }
}

/// The command that makes the table.
pub(super) fn init(table: &TableName) -> String {
    if table.schema.is_none() && table.name == DEFAULT_TABLE {
        "outboxd init".into()
    } else {
        format!("outboxd init --table '{table}'")
    }
}

/// The error for a table that is no outbox.
pub(super) fn foreign(table: &TableName, reasons: &[String]) -> Error {
    Error::new(Kind::Configuration, format!("table {table} is not an outbox: {}", reasons.join("; ")))
        .with_remedy("name another one with --table, or mend it by hand")
}

fn judge(columns: &[Column]) -> Shape {
    if columns.is_empty() {
        return Shape::Missing;
    }
    let column = |name: &str| columns.iter().find(|column| column.name == name);
    let mut reasons = Vec::new();
    let mut missing_ours = Vec::new();
    for (name, _) in ORIGINAL.iter().filter(|(name, _)| column(name).is_none()) {
        reasons.push(format!("it has no column {name}"));
    }
    for (name, _) in OURS.iter().filter(|(name, _)| column(name).is_none()) {
        missing_ours.push(*name);
    }
    for (name, kinds) in ORIGINAL.iter().chain(OURS) {
        if let Some(column) =
            column(name).filter(|it| !kinds.is_empty() && !kinds.contains(&it.kind.as_str()))
        {
            reasons.push(format!("column {name} is {}, not {}", column.kind, kinds.join(" or ")));
        }
    }
    if let Some(status) = column("status") {
        reasons.extend(unknown_statuses(status, WRITTEN));
    }
    if !reasons.is_empty() {
        return Shape::Foreign(reasons);
    }
    if !missing_ours.is_empty() {
        return Shape::Original(missing_ours);
    }
    Shape::Complete(match column("payload").map(|payload| payload.kind.as_str()) {
        Some("json") => PayloadType::Json,
        Some("jsonb") => PayloadType::Jsonb,
        Some("bytea") => PayloadType::Bytea,
        _ => PayloadType::Text,
    })
}

/// The statuses that we write and the column does not take: an enum without the label, or a CHECK that lists
/// statuses without it.
fn unknown_statuses(status: &Column, written: &[&str]) -> Option<String> {
    let unknown = |known: &dyn Fn(&str) -> bool, mend: &dyn Fn(&[&str]) -> String| {
        let unknown: Vec<_> = written.iter().copied().filter(|it| !known(it)).collect();
        let (list, mend) = (unknown.join(", "), mend(&unknown));
        (!unknown.is_empty()).then(|| format!("its column status does not take {list} ({mend})"))
    };
    if let Some(labels) = &status.labels {
        let mend = |unknown: &[&str]| {
            let add = |it: &&str| format!("mend it with: alter type {} add value '{it}'", status.kind);
            unknown.iter().map(add).collect::<Vec<_>>().join("; ")
        };
        return unknown(&|it| labels.iter().any(|label| label == it), &mend);
    }
    // A CHECK that names two statuses or more is a list of them; one that names one may say anything.
    let lists = |checks: &&String| checks.contains("'WAITING'") && checks.contains("'PUBLISHED'");
    let checks = status.checks.as_ref().filter(lists)?;
    let constraints = status.constraints.as_deref().unwrap_or("of it");
    let mend = |_: &[&str]| {
        format!("mend it with: alter table ... drop constraint {constraints}, and add one that does")
    };
    unknown(&|it| checks.contains(&format!("'{it}'")), &mend)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(changes: &[(&str, Option<&str>)]) -> Vec<Column> {
        let kind =
            |name: &str, kinds: &[&str]| kinds.first().map_or_else(|| name.to_string(), |it| (*it).into());
        ORIGINAL
            .iter()
            .chain(OURS)
            .filter_map(|(name, kinds)| {
                let kind = match changes.iter().find(|(changed, _)| changed == name) {
                    Some((_, None)) => return None,
                    Some((_, Some(kind))) => (*kind).to_string(),
                    None => kind(name, kinds),
                };
                Some(Column { name: (*name).into(), kind, labels: None, checks: None, constraints: None })
            })
            .collect()
    }

    #[test]
    fn shapes_are_told_apart() {
        assert!(matches!(judge(&[]), Shape::Missing));
        assert!(matches!(judge(&columns(&[])), Shape::Complete(PayloadType::Text)));
        assert!(matches!(
            judge(&columns(&[("payload", Some("bytea"))])),
            Shape::Complete(PayloadType::Bytea)
        ));
        assert!(
            matches!(judge(&columns(&[("headers", None)])), Shape::Original(missing) if missing == ["headers"])
        );
        let Shape::Foreign(reasons) = judge(&columns(&[("payload", None), ("id", Some("uuid"))])) else {
            panic!()
        };
        assert_eq!(reasons.len(), 2, "{reasons:?}");
    }

    #[test]
    fn a_status_column_must_take_what_we_write() {
        let status = |labels: Option<&[&str]>, checks: Option<&str>| Column {
            name: "status".into(),
            kind: "text".into(),
            labels: labels.map(|labels| labels.iter().map(|it| (*it).into()).collect()),
            checks: checks.map(Into::into),
            constraints: checks.map(|_| "status_is_known".into()),
        };
        let three = "CHECK ((status = ANY (ARRAY['WAITING', 'PUBLISHED', 'FAILED'])))";
        let all = ["WAITING", "FAILED", "PUBLISHED", "DEAD", "EXPIRED"];
        let cases = [
            (status(None, None), None),
            (status(None, Some("CHECK ((length(status) < 20))")), None),
            (
                status(None, Some(three)),
                Some(
                    "its column status does not take DEAD, EXPIRED (mend it with: alter table ... drop constraint status_is_known, and add one that does)",
                ),
            ),
            (status(Some(&all), None), None),
            (
                status(Some(&all[..4]), None),
                Some(
                    "its column status does not take EXPIRED (mend it with: alter type text add value 'EXPIRED')",
                ),
            ),
        ];
        for (column, expected) in cases {
            assert_eq!(unknown_statuses(&column, WRITTEN).as_deref(), expected);
        }
    }
}
