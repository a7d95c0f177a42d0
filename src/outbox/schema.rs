//! `init`: creates the table and the function that appends to it, or adds to an original one what it lacks.
//!
//! Safe beside relays and writers, and beside another `init`: one works at a time, a lock that it cannot get soon
//! is given up and asked for again, and a table that is in use is looked through, for its indexes and a constraint, without
//! keeping writers out.
//! Should the process die anywhere in here, running it again goes on from where it was.

use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;
use postgres::types::Type;

use crate::config::{Database, TableName};
use crate::error::{Error, Kind, Result, Server};

use super::failure::failure;
use super::function::{self, Needed};
use super::notify;
use super::session::Opening;
use super::shape::{self, PayloadType, Shape};
use super::sql::{
    AUTOVACUUM_CHOSEN, DIRECT, INDEX_STATE, INIT_BEGIN, INIT_LOCK, SCHEMA_EXISTS, autovacuum, columns,
    index_drop, indexes, quoted, quoted_indexes, quoted_table, schema_create, validation,
};

/// How long `init` waits for another one, and for locks on a table in use.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest that an init may take in all: building indexes on a large table in use takes its time.
const INIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// What `init` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initialised {
    /// The table is new.
    Created,
    /// It was there, and got the columns, the indexes or the function that it lacked.
    Completed,
    /// Nothing was missing.
    Unchanged,
}

/// The SQL that `init` would apply to a database without the table.
pub fn schema_sql(table: &TableName) -> String {
    let function = function::create(table, PayloadType::Text);
    [schema_create(table), create(table), function].join("\n")
}

fn create(table: &TableName) -> String {
    [columns(table), validation(table), indexes(table, false), autovacuum(table)].join("\n")
}

/// Makes or replaces the function that appends, where it is not what it should be; whether it was.
fn renew_function(
    client: &mut Client,
    table: &TableName,
    payload: PayloadType,
    started: Instant,
) -> Result<bool> {
    match function::needed(client, table, payload)? {
        Needed::Nothing => Ok(true),
        Needed::Create(sql) => patiently(client, &sql, table, started).map(|()| false),
    }
}

/// Creates the table, or completes it.
///
/// # Errors
/// The database cannot be reached or refuses; the table is something else than an outbox; another session holds
/// the table for longer than a minute.
pub fn init(database: &Database) -> Result<Initialised> {
    apply(database, false)
}

/// The same, with the trigger that tells relays of commits. Not for writers whose transactions are prepared (two-phase
/// commit): PostgreSQL refuses that after a NOTIFY.
///
/// # Errors
/// As [`init`]; a function of the trigger's name is something else.
pub fn init_notify(database: &Database) -> Result<Initialised> {
    apply(database, true)
}

fn apply(database: &Database, notifies: bool) -> Result<Initialised> {
    let table = database.table.clone();
    let mut session = Opening::default().open_marked(database)?;
    let begin = session.begin();
    session.call_for(INIT_MAX, "init", move |client| {
        let started = Instant::now();
        let done = complete(client, &begin, &table, started)?;
        let missing = if notifies { notify::needed(client, &table)? } else { None };
        match missing {
            None => Ok(done),
            Some(sql) => {
                patiently(client, &format!("begin;\n{sql}\ncommit"), &table, started)?;
                Ok(if done == Initialised::Created { done } else { Initialised::Completed })
            }
        }
    })
}

fn complete(client: &mut Client, begin: &str, table: &TableName, started: Instant) -> Result<Initialised> {
    refuse_poolers(client)?;
    lock_out_other_inits(client, table, started)?;
    client.batch_execute(INIT_BEGIN).map_err(|error| failure("preparing init", &error))?;
    let done = match shape::read(client, begin, table)? {
        Shape::Foreign(reasons) => return Err(shape::foreign(table, &reasons)),
        Shape::Missing => {
            let sql = if schema_exists(client, table)? {
                create(table)
            } else {
                schema_create(table) + &create(table)
            };
            patiently(client, &format!("begin;\n{sql}\ncommit"), table, started)?;
            Initialised::Created
        }
        Shape::Original(_) => {
            patiently(client, &columns(table), table, started)?;
            patiently(client, &validation(table), table, started)?;
            if !autovacuum_is_chosen(client, table)? {
                patiently(client, &autovacuum(table), table, started)?;
            }
            build_indexes(client, table, started)?;
            Initialised::Completed
        }
        Shape::Complete(_) => {
            // If an init was ended right before it.
            patiently(client, &validation(table), table, started)?;
            let chosen = autovacuum_is_chosen(client, table)?;
            if !chosen {
                patiently(client, &autovacuum(table), table, started)?;
            }
            match build_indexes(client, table, started)? {
                0 if chosen => Initialised::Unchanged,
                _ => Initialised::Completed,
            }
        }
    };
    let payload = shape::complete(client, begin, table)?;
    for index in quoted_indexes(table) {
        if index_state(client, &index, table)? != Some((true, true)) {
            let what = format!("{index} exists and is not an index of table {table}");
            return Err(
                Error::new(Kind::Configuration, what).with_remedy("rename it, then run: outboxd init")
            );
        }
    }
    if !renew_function(client, table, payload, started)? && done == Initialised::Unchanged {
        return Ok(Initialised::Completed);
    }
    Ok(done)
}

/// Behind a transaction pooler the lock and the limits that follow would be left on a session that others use.
fn refuse_poolers(client: &mut Client) -> Result<()> {
    let failed = |error: postgres::Error| failure("asking whether the session is the server's own", &error);
    let row = client.query_typed_one(DIRECT, &[]).map_err(failed)?;
    if row.try_get(0).map_err(failed)? {
        return Ok(());
    }
    Err(Error::new(Kind::Configuration, "init reaches the database through a pooler")
        .with_remedy("run it with an address that leads to the server directly"))
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

/// Builds the indexes that are not there, or not usable; how many that were.
fn build_indexes(client: &mut Client, table: &TableName, started: Instant) -> Result<usize> {
    const CREATE: &str = "create index";
    let text = indexes(table, true);
    let statements = text.split(CREATE).skip(1).map(|rest| format!("{CREATE}{rest}"));
    let mut built = 0;
    for (index, create) in quoted_indexes(table).zip(statements) {
        if index_state(client, &index, table)? != Some((true, true)) {
            build_index(client, &index, &create, table, started)?;
            built += 1;
        }
    }
    Ok(built)
}

/// An index whose concurrent build was interrupted stays behind, unusable: it makes room for a new one.
fn build_index(
    client: &mut Client,
    index: &str,
    create: &str,
    table: &TableName,
    started: Instant,
) -> Result<()> {
    let failed = |error: postgres::Error| failure(&format!("init of table {table}"), &error);
    loop {
        let built = client.batch_execute(create).map_err(failed);
        match built {
            Ok(()) if index_state(client, index, table)? != Some((true, false)) => return Ok(()),
            Err(error) if !error.is_transient() || client.is_closed() || started.elapsed() > PATIENCE => {
                return Err(error);
            }
            _ => {}
        }
        if index_state(client, index, table)? == Some((true, false)) {
            client.batch_execute(&index_drop(index)).map_err(failed)?;
        }
        thread::sleep(PAUSE);
    }
}

fn autovacuum_is_chosen(client: &mut Client, table: &TableName) -> Result<bool> {
    let failed = |error: postgres::Error| failure("looking at the table's storage parameters", &error);
    let name = quoted_table(table);
    let row = client.query_typed_one(AUTOVACUUM_CHOSEN, &[(&name, Type::TEXT)]).map_err(failed)?;
    row.try_get(0).map_err(failed)
}

fn schema_exists(client: &mut Client, table: &TableName) -> Result<bool> {
    let Some(schema) = &table.schema else {
        return Ok(true);
    };
    let failed = |error: postgres::Error| failure("looking for the schema", &error);
    let row = client.query_typed_one(SCHEMA_EXISTS, &[(&quoted(schema), Type::TEXT)]).map_err(failed)?;
    row.try_get(0).map_err(failed)
}

/// Whether the index is this table's, and whether it is valid; none when there is nothing of its name.
fn index_state(client: &mut Client, index: &str, table: &TableName) -> Result<Option<(bool, bool)>> {
    let failed = |error: postgres::Error| failure("looking at the indexes", &error);
    let rows = client
        .query_typed(INDEX_STATE, &[(&index, Type::TEXT), (&quoted_table(table), Type::TEXT)])
        .map_err(failed)?;
    let read = |row: &postgres::Row| Ok((row.try_get(0)?, row.try_get(1)?));
    rows.first().map(read).transpose().map_err(failed)
}
