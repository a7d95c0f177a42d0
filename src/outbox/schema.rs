//! `init`: creates the table, or adds to an original one what it lacks.
//!
//! Safe beside relays and writers, and beside another `init`: one works at a time, a lock that it cannot get soon
//! is given up and asked for again, and the index of a table that is in use is built without keeping writers out.
//! Should the process die anywhere in here, running it again goes on from where it was.

use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;
use postgres::types::Type;

use crate::config::{Database, TableName};
use crate::error::{Error, Kind, Result, Server};

use super::session::{Opening, failure};
use super::shape::{self, Shape};
use super::sql::{
    INDEX_STATE, INIT_BEGIN, INIT_LOCK, SCHEMA_EXISTS, index_drop, quoted, quoted_index, quoted_table,
    schema, schema_create,
};

/// How long `init` waits for another one, and for locks on a table in use.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// What `init` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initialised {
    /// The table is new.
    Created,
    /// It was there, and got the columns or the index that it lacked.
    Completed,
    /// Nothing was missing.
    Unchanged,
}

/// The SQL that `init` would apply to a database without the table.
pub fn schema_sql(table: &TableName) -> String {
    schema_create(table) + &schema(table, false)
}

/// Creates the table, or completes it.
///
/// # Errors
/// The database cannot be reached or refuses; the table is something else than an outbox; another session holds
/// the table for longer than a minute.
pub fn init(database: &Database) -> Result<Initialised> {
    let table = &database.table;
    let mut session = Opening::default().open(database)?;
    let started = Instant::now();
    lock_out_other_inits(session.client()?, table, started)?;
    session.client()?.batch_execute(INIT_BEGIN).map_err(|error| failure("preparing init", &error))?;

    let shape = shape::read(&mut session, table)?;
    let client = session.client()?;
    let done = match shape {
        Shape::Foreign(reasons) => return Err(shape::foreign(table, &reasons)),
        Shape::Missing => {
            let sql = if schema_exists(client, table)? { schema(table, false) } else { schema_sql(table) };
            patiently(client, &format!("begin;\n{sql}\ncommit"), table, started)?;
            Initialised::Created
        }
        Shape::Original(_) => {
            let (columns, index) = split(&schema(table, true));
            patiently(client, &columns, table, started)?;
            build_index(client, &index, table, started)?;
            Initialised::Completed
        }
        Shape::Complete(_) if index_is_usable(client, table)? => Initialised::Unchanged,
        Shape::Complete(_) => {
            let (_, index) = split(&schema(table, true));
            build_index(client, &index, table, started)?;
            Initialised::Completed
        }
    };
    shape::complete(&mut session, table)?;
    if !index_is_usable(session.client()?, table)? {
        let what = format!("{} exists and is not the index of table {table}", quoted_index(table));
        return Err(Error::new(Kind::Configuration, what).with_remedy("rename it, then run: outboxd init"));
    }
    Ok(done)
}

/// The schema in two parts: what a transaction can do, and the index, which is the last statement.
fn split(schema: &str) -> (String, String) {
    let index = schema.rfind("create index").unwrap_or(schema.len());
    let (columns, index) = schema.split_at(index);
    (columns.into(), index.into())
}

fn lock_out_other_inits(client: &mut Client, table: &TableName, started: Instant) -> Result<()> {
    let name = quoted_table(table);
    loop {
        let row = client
            .query_typed_one(INIT_LOCK, &[(&name, Type::TEXT)])
            .map_err(|error| failure("waiting for other inits", &error))?;
        if row.try_get(0).map_err(|error| failure("waiting for other inits", &error))? {
            return Ok(());
        }
        if started.elapsed() > PATIENCE {
            let what = format!("another outboxd init works on {table} for over {PATIENCE:?}");
            return Err(Error::new(Kind::Unavailable(Server::Database), what));
        }
        thread::sleep(PAUSE);
    }
}

/// Runs `sql`, again and again while it cannot get its locks.
fn patiently(client: &mut Client, sql: &str, table: &TableName, started: Instant) -> Result<()> {
    loop {
        let Err(error) = client.batch_execute(sql) else {
            return Ok(());
        };
        let error = failure(&format!("init of table {table}"), &error);
        if !error.is_transient() || client.is_closed() || started.elapsed() > PATIENCE {
            return Err(error);
        }
        // The failed attempt may have left its transaction open.
        client.batch_execute("rollback").map_err(|error| failure("init", &error))?;
        thread::sleep(PAUSE);
    }
}

/// An index whose concurrent build was interrupted stays behind, unusable: it makes room for a new one.
fn build_index(client: &mut Client, create: &str, table: &TableName, started: Instant) -> Result<()> {
    loop {
        let built =
            client.batch_execute(create).map_err(|error| failure(&format!("init of table {table}"), &error));
        match built {
            Ok(()) if index_state(client, table)? != Some((true, false)) => return Ok(()),
            Err(error) if !error.is_transient() || client.is_closed() || started.elapsed() > PATIENCE => {
                return Err(error);
            }
            _ => {}
        }
        if index_state(client, table)? == Some((true, false)) {
            client
                .batch_execute(&index_drop(table))
                .map_err(|error| failure(&format!("init of table {table}"), &error))?;
        }
        thread::sleep(PAUSE);
    }
}

fn schema_exists(client: &mut Client, table: &TableName) -> Result<bool> {
    let Some(schema) = &table.schema else {
        return Ok(true);
    };
    let failed = |error: postgres::Error| failure("looking for the schema", &error);
    let row = client.query_typed_one(SCHEMA_EXISTS, &[(&quoted(schema), Type::TEXT)]).map_err(failed)?;
    row.try_get(0).map_err(failed)
}

fn index_is_usable(client: &mut Client, table: &TableName) -> Result<bool> {
    Ok(index_state(client, table)? == Some((true, true)))
}

/// Whether the index is this table's, and whether it is valid; none when there is nothing of its name.
fn index_state(client: &mut Client, table: &TableName) -> Result<Option<(bool, bool)>> {
    let failed = |error: postgres::Error| failure("looking at the index", &error);
    let (index, table) = (quoted_index(table), quoted_table(table));
    let rows =
        client.query_typed(INDEX_STATE, &[(&index, Type::TEXT), (&table, Type::TEXT)]).map_err(failed)?;
    let read = |row: &postgres::Row| Ok((row.try_get(0)?, row.try_get(1)?));
    rows.first().map(read).transpose().map_err(failed)
}
