//! The client's errors as ours: who can mend it, in one line without a secret.

use std::error::Error as _;

use postgres::error::SqlState;

use crate::error::{Error, Kind, Server};

/// An error of ours from one of the client's. `what` says what was being done, and on what.
///
/// The server's detail is left out: it can hold a row, and with it a payload.
pub(super) fn failure(what: &str, error: &postgres::Error) -> Error {
    let Some(db) = error.as_db_error() else {
        let mut reason = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            if !reason.contains(&text) {
                reason = format!("{reason}: {text}");
            }
            source = cause.source();
        }
        // Without a SQLSTATE it is the connection, or a value that we could not read.
        let is_conversion = reason.contains("deserializing") || reason.contains("serializing parameter");
        if reason.contains("password missing") {
            return Error::new(
                Kind::Denied(Server::Database),
                format!("{what} failed: the server asks for a password"),
            )
            .with_remedy("give one in DATABASE_URL, PGPASSWORD or a password file");
        }
        if let Some(error) = tls_failure(what, &reason) {
            return error;
        }
        let kind = if is_conversion { Kind::Internal } else { Kind::Unavailable(Server::Database) };
        return Error::new(kind, format!("{what} failed: {reason}"));
    };
    let text = format!("{what} failed: {} (SQLSTATE {})", db.message(), db.code().code());
    let error = Error::new(kind_of(db.code()), text);
    match *db.code() {
        SqlState::INSUFFICIENT_PRIVILEGE => {
            error.with_remedy("grant it to the relay's role; outboxd check says which grant it needs")
        }
        SqlState::UNDEFINED_TABLE | SqlState::UNDEFINED_COLUMN | SqlState::UNDEFINED_FUNCTION => {
            error.with_remedy("create or complete the table with: outboxd init")
        }
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT => error.with_remedy(
            "the relay was held up for longer than claim_max_idle; others may have sent the events since",
        ),
        SqlState::DATATYPE_MISMATCH => {
            error.with_remedy("was a column's type changed? bring the table up to date with: outboxd init")
        }
        SqlState::INVALID_FUNCTION_DEFINITION => {
            error.with_remedy("another function has that name: rename it, then run: outboxd init")
        }
        SqlState::INVALID_TEXT_REPRESENTATION if db.message().contains(" json") => {
            error.with_remedy("the table takes only JSON there")
        }
        SqlState::INVALID_CATALOG_NAME => error.with_remedy("check the database's name in DATABASE_URL"),
        SqlState::READ_ONLY_SQL_TRANSACTION => {
            error.with_remedy("the server takes no writes; is it a standby?")
        }
        // Names of parameters are the same in every language.
        SqlState::INVALID_PARAMETER_VALUE if db.message().contains("TimeZone") => {
            error.with_remedy("the server does not know the zone: check time_zone")
        }
        SqlState::FEATURE_NOT_SUPPORTED if is_standby(db) => {
            Error::new(Kind::Unavailable(Server::Database), error.to_string())
                .with_remedy("the server takes no writes; is it a standby?")
        }
        SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            error.with_remedy("check user and password in DATABASE_URL")
        }
        // PgBouncer's own words, which are not translated.
        _ if db.message().contains("startup parameter") => {
            Error::new(Kind::Configuration, error.to_string()).with_remedy(
                "a pooler refuses it: init has to reach the server directly, and for the rest leave it out of the address",
            )
        }
        _ => error,
    }
}

/// Why TLS could not be agreed on; none when it is something else.
fn tls_failure(what: &str, reason: &str) -> Option<Error> {
    let configuration = || Error::new(Kind::Configuration, format!("{what} failed: {reason}"));
    if reason.contains("server does not support TLS") {
        return Some(configuration().with_remedy("set ssl = on there, or ask for less with sslmode"));
    }
    // With TLS 1.3 the server refuses our certificate after the handshake.
    if reason.contains(" alert ") {
        return Some(
            configuration()
                .with_remedy("the server wants another client certificate: see sslcert and sslkey"),
        );
    }
    if reason.contains("TLS handshake") && reason.contains("certificate") {
        return Some(configuration().with_remedy("check the server's certificate, and sslrootcert"));
    }
    None
}

/// A standby refuses a transaction that is to write with the code for everything that is not supported. What names the
/// place in its source is not translated.
fn is_standby(db: &postgres::error::DbError) -> bool {
    db.message().contains("recovery") || db.routine().is_some_and(|it| it.contains("check_hook"))
}

fn kind_of(code: &SqlState) -> Kind {
    match code.code().get(..2).unwrap_or_default() {
        "28" => Kind::Denied(Server::Database),
        // P0 is what a trigger or function of the table's own raises.
        "3D" | "3F" | "22" | "23" | "P0" => Kind::Configuration,
        // The server ended a claim that had been idle for too long, or an idle session: the lease's own end.
        "25" if matches!(code.code(), "25P03" | "25P04" | "25006") => Kind::Unavailable(Server::Database),
        // Connections, resources, operator intervention, system errors, deadlocks and locks: these pass.
        "08" | "53" | "55" | "57" | "58" | "40" => Kind::Unavailable(Server::Database),
        _ if *code == SqlState::INSUFFICIENT_PRIVILEGE => Kind::Denied(Server::Database),
        "42" => Kind::Configuration,
        _ => Kind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlstates_say_who_can_mend_it() {
        for (code, kind) in [
            ("28P01", Kind::Denied(Server::Database)),
            ("42501", Kind::Denied(Server::Database)),
            ("3D000", Kind::Configuration),
            ("42P01", Kind::Configuration),
            ("25006", Kind::Unavailable(Server::Database)),
            ("25P03", Kind::Unavailable(Server::Database)),
            ("25P02", Kind::Internal),
            ("P0001", Kind::Configuration),
            ("57P01", Kind::Unavailable(Server::Database)),
            ("55P03", Kind::Unavailable(Server::Database)),
            ("22P02", Kind::Configuration),
            ("XX000", Kind::Internal),
        ] {
            assert_eq!(kind_of(&SqlState::from_code(code)), kind, "{code}");
        }
    }
}
