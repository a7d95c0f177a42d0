//! `outboxd init`.

use outboxd::config::{Database, TableName};
use outboxd::inbox;
use outboxd::outbox::{self, Initialised};

use super::exit::Exit;
use super::print;

/// Creates the table, or completes it; with the trigger that tells of commits, if `notify` asks for it.
pub(crate) fn apply(database: &Database, notify: bool) -> Exit {
    let table = &database.table;
    let done = if notify { outbox::init_notify(database) } else { outbox::init(database) };
    match done {
        Ok(Initialised::Created) => print::line(format_args!("table {table} is created")),
        Ok(Initialised::Completed) => print::line(format_args!("table {table} has what it lacked")),
        Ok(Initialised::Unchanged) => print::line(format_args!("table {table} is complete already")),
        Err(error) => {
            print::error(&error);
            return error.kind().into();
        }
    }
    match outbox::advice(database) {
        Ok(advice) => advice.iter().for_each(|it| log::warn!("{it}")),
        // What was asked for is done.
        Err(error) => log::debug!("{error}"),
    }
    Exit::Done
}

/// Prints the SQL instead.
pub(crate) fn print(table: &TableName, notify: bool) -> Exit {
    let mut sql = outbox::schema_sql(table);
    if notify {
        sql = [sql, outbox::notify_sql(table)].join("\n");
    }
    print::line(sql.trim_end());
    Exit::Done
}

/// Creates the consumer's inbox, if it is not there.
pub(crate) fn apply_inbox(database: &Database) -> Exit {
    match inbox::init(database) {
        Ok(()) => {
            print::line("table event_inbox is there");
            Exit::Done
        }
        Err(error) => {
            print::error(&error);
            error.kind().into()
        }
    }
}

/// Prints its SQL instead.
pub(crate) fn print_inbox() -> Exit {
    print::line(inbox::schema_sql().trim_end());
    Exit::Done
}
