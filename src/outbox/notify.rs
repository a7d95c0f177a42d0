//! The trigger that tells of commits: its names, its text, and whether the one in the database is it.

use postgres::Client;
use postgres::types::Type;

use crate::config::TableName;
use crate::error::{Error, Kind, Result};

use super::failure::failure;
use super::sql::{NOTIFY_STATE, TABLE_HOME, quoted, quoted_table, suffixed};

const CREATE: &str = include_str!("../../sql/schema/0006_notify.sql");

/// What stands around the function's body.
const BODY: &str = "$body$";

/// The SQL that `init` would apply to have commits told.
pub fn notify_sql(table: &TableName) -> String {
    CREATE
        .replace("{notify}", &function(table))
        .replace("{trigger}", &quoted(&suffixed(table, "notify")))
        .replace("{table}", &quoted_table(table))
}

/// The quoted name of the trigger's function, in the table's schema.
fn function(table: &TableName) -> String {
    quoted_table(&TableName { schema: table.schema.clone(), name: suffixed(table, "notify") })
}

/// The function as the catalogue finds it.
pub(super) fn signature(table: &TableName) -> String {
    format!("{}()", function(table))
}

/// What is to be run so that commits on a table that exists are told; none if they are.
///
/// # Errors
/// The catalogue cannot be read; a function of that name is somebody else's.
pub(super) fn needed(client: &mut Client, table: &TableName) -> Result<Option<String>> {
    let failed = |error: postgres::Error| failure("looking at the trigger that tells of commits", &error);
    let homes = client.query_typed(TABLE_HOME, &[(&quoted_table(table), Type::TEXT)]).map_err(failed)?;
    let Some(home) = homes.first() else {
        return Err(Error::new(Kind::Configuration, format!("table {table} is gone")));
    };
    // In the table's own schema, whatever the search path is.
    let full = TableName { schema: Some(home.try_get(0).map_err(failed)?), name: table.name.clone() };
    let (signature, name) = (signature(&full), quoted_table(&full));
    let rows =
        client.query_typed(NOTIFY_STATE, &[(&signature, Type::TEXT), (&name, Type::TEXT)]).map_err(failed)?;
    let wanted = notify_sql(&full);
    let Some(row) = rows.first() else {
        return Ok(Some(wanted));
    };
    let (found, calls): (String, bool) = (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
    if !found.contains("pg_notify('outboxd_'") {
        let what = format!("function {signature} exists and does not tell of events");
        return Err(
            Error::new(Kind::Configuration, what).with_remedy("rename it, then run: outboxd init --notify")
        );
    }
    let is_current = calls && wanted.split(BODY).nth(1) == Some(found.as_str());
    Ok((!is_current).then_some(wanted))
}
