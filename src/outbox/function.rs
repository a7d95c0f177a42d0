//! The function through which applications append: its name, its text, and whether the one in the database is it.

use postgres::Client;
use postgres::types::Type;

use crate::config::TableName;
use crate::error::{Error, Kind, Result};

use super::failure::failure;
use super::shape::PayloadType;
use super::sql::{APPEND_STATE, TABLE_HOME, quoted_table, suffixed};

const CREATE: &str = include_str!("../../sql/schema/0004_append.sql");

/// What stands around the function's body.
const BODY: &str = "$body$";

/// Its parameters' types, as the catalogue finds a function by them.
const ARGUMENTS: &str = "(text, text, text, jsonb, interval, interval, text, text, text)";

/// The function's quoted name, in the table's schema.
pub(super) fn name(table: &TableName) -> String {
    let name = match table.name.as_str() {
        "event_outbox" => "outbox_append".to_owned(),
        _ => suffixed(table, "append"),
    };
    quoted_table(&TableName { schema: table.schema.clone(), name })
}

/// The SQL that makes it, for a table whose payload is of this type.
pub(super) fn create(table: &TableName, payload: PayloadType) -> String {
    CREATE
        .replace("{append}", &name(table))
        .replace("{table}", &quoted_table(table))
        .replace("{payload_value}", payload.of_text())
}

/// What is to be done about the function.
pub(super) enum Needed {
    Nothing,
    /// This is to be run.
    Create(String),
}

/// Looks at the function of a table that exists.
///
/// # Errors
/// The catalogue cannot be read; a function of that name is somebody else's.
pub(super) fn needed(client: &mut Client, table: &TableName, payload: PayloadType) -> Result<Needed> {
    let failed = |error: postgres::Error| failure("looking at the function that appends", &error);
    let homes = client.query_typed(TABLE_HOME, &[(&quoted_table(table), Type::TEXT)]).map_err(failed)?;
    let Some(home) = homes.first() else {
        return Err(Error::new(Kind::Configuration, format!("table {table} is gone")));
    };
    // In the table's own schema, and with its name in full, so that it does not matter who finds it by which path.
    let full = TableName { schema: Some(home.try_get(0).map_err(failed)?), name: table.name.clone() };
    let signature = format!("{}{ARGUMENTS}", name(&full));
    let rows = client.query_typed(APPEND_STATE, &[(&signature, Type::TEXT)]).map_err(failed)?;
    let wanted = create(&full, payload);
    let Some(row) = rows.first() else {
        return Ok(Needed::Create(wanted));
    };
    let found: String = row.try_get(0).map_err(failed)?;
    let bare = TableName { schema: None, ..full.clone() };
    // Printed SQL names the table as it was told to.
    if [&wanted, &create(&bare, payload)].into_iter().any(|it| body(it) == found) {
        return Ok(Needed::Nothing);
    }
    let ours = [&full, &bare].into_iter().any(|it| found.contains(&format!(" into {} (", quoted_table(it))));
    if ours {
        return Ok(Needed::Create(wanted));
    }
    let what = format!("function {} exists and does not append to table {table}", name(&full));
    Err(Error::new(Kind::Configuration, what).with_remedy("rename it, then run: outboxd init"))
}

/// What the catalogue keeps of it.
fn body(create: &str) -> &str {
    create.split(BODY).nth(1).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> TableName {
        TableName::parse(text).unwrap()
    }

    #[test]
    fn the_function_is_named_after_its_table() {
        for (of, expected) in [
            ("event_outbox", r#""outbox_append""#),
            ("app.event_outbox", r#""app"."outbox_append""#),
            ("app.Events", r#""app"."Events_append""#),
            (r#""a.b"."it""s""#, r#""a.b"."it""s_append""#),
        ] {
            assert_eq!(name(&table(of)), expected);
        }
        assert_eq!(name(&table(&"é".repeat(31))).len(), 2 + 63);
    }

    #[test]
    fn every_placeholder_is_filled() {
        for payload in [PayloadType::Text, PayloadType::Json, PayloadType::Jsonb, PayloadType::Bytea] {
            let text = create(&table("app.t"), payload);
            assert!(
                !text.contains("{append") && !text.contains("{table") && !text.contains("{payload"),
                "{text}"
            );
            assert!(body(&text).contains(payload.of_text()));
        }
    }
}
