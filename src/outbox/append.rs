//! The writer's side, as far as the command line needs it.

use std::sync::Arc;

use postgres::types::Type;

use crate::config::Database;
use crate::error::{Error, Kind, Result};
use crate::event::NewEvent;

use super::Ready;
use super::session::Opening;

/// Writes one event in a transaction of its own.
///
/// # Errors
/// The database cannot be reached or refuses the row.
pub fn append(database: &Database, event: &NewEvent) -> Result<()> {
    let mut ready = Ready::open(database, None, &mut Opening::default())?;
    let seconds = |time: Option<std::time::Duration>| time.map(|it| it.as_secs_f64());
    let (event, statements) = (event.clone(), Arc::clone(&ready.statements));
    let written = ready.session.write_within_limits(
        &format!("writing an event into {}", database.table),
        move |client| {
            client.execute_typed(
                &statements.append,
                &[
                    (&event.event_id, Type::TEXT),
                    (&event.event_type, Type::TEXT),
                    (&event.payload, Type::TEXT),
                    (&event.ordering_key, Type::TEXT),
                    (&event.headers, Type::TEXT),
                    (&event.exchange, Type::TEXT),
                    (&event.routing_key, Type::TEXT),
                    (&seconds(event.expires_in), Type::FLOAT8),
                    (&seconds(event.delay), Type::FLOAT8),
                ],
            )
        },
    )?;
    if written != 1 {
        return Err(Error::new(Kind::Internal, format!("writing an event wrote {written} rows")));
    }
    Ok(())
}
