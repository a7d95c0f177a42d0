//! Writing rows that the table refuses together: a trigger, a CHECK or a rule of the application's own has something
//! against one of them. They are written in halves, and these in halves, until only that one stays as it is.

use std::time::{Duration, Instant};

use postgres::Client;

use crate::error::{Error, Result};

use super::failure::failure;
use super::sql::SETTLE_IMMEDIATE;

/// How long halves are made: rows that are refused together after that stay together. Well below what one call may take.
const HALVING_MAX: Duration = Duration::from_secs(3);

/// What an operator can do about a refusal.
const REMEDY: &str =
    "a trigger or constraint of the table refuses it: mend that, or what it has against this row";

/// Writes `rows` with `write`, which it calls with ever smaller parts of them, in the transaction that is open. Those that
/// are refused, and why.
///
/// # Errors
/// What is not the rows' fault; the transaction is of no use then.
pub(super) fn write_apart<T: Clone>(
    client: &mut Client,
    rows: &[T],
    mut write: impl FnMut(&mut Client, &[T]) -> Result<()>,
) -> Result<Vec<(T, Error)>> {
    client.batch_execute(SETTLE_IMMEDIATE).map_err(|error| failure("writing rows apart", &error))?;
    let until = Instant::now() + HALVING_MAX;
    let (mut parts, mut refused) = (vec![rows], Vec::new());
    while let Some(part) = parts.pop() {
        let Some(error) = attempt(client, |client| write(client, part))? else { continue };
        if part.len() > 1 && Instant::now() < until {
            let (first, second) = part.split_at(part.len() / 2);
            parts.extend([second, first]);
        } else {
            refused.extend(part.iter().map(|row| (row.clone(), error.clone())));
        }
    }
    Ok(refused)
}

/// Does `write`, or leaves everything as it was, and says why.
///
/// # Errors
/// As [`write_apart`].
fn attempt(client: &mut Client, write: impl FnOnce(&mut Client) -> Result<()>) -> Result<Option<Error>> {
    let mark = |client: &mut Client, sql: &str| {
        client.batch_execute(sql).map_err(|error| failure("writing rows apart", &error))
    };
    mark(client, "savepoint part")?;
    match write(client) {
        Ok(()) => mark(client, "release savepoint part").map(|()| None),
        Err(error) if error.is_transient() || client.is_closed() => Err(error),
        Err(error) => {
            mark(client, "rollback to savepoint part; release savepoint part")?;
            Ok(Some(if error.remedy().is_none() { error.with_remedy(REMEDY) } else { error }))
        }
    }
}
