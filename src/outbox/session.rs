//! A database session: opened within a deadline, and never waited for when it ends.

use std::error::Error as _;
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use postgres::config::{Host, SslMode};
use postgres::error::SqlState;
use postgres::{Client, NoTls};

use crate::config::Database;
use crate::error::{Error, Kind, Result, Server};

use super::sql::{LIMITS_BEGIN, READ_WRITE};

/// How the session appears in `pg_stat_activity`, unless the URL says otherwise.
const APPLICATION_NAME: &str = "outboxd";

/// A vanished server is noticed by these: keepalives while we wait for an answer, the user timeout while we send.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);

/// The opening of sessions.
///
/// A server that accepts a connection and says nothing would be waited for without end: the client's
/// `connect_timeout` ends with the TCP handshake. So an attempt has a thread of its own, which is left behind when its
/// time is over; one at most, because the next try waits for the same attempt.
#[derive(Default)]
pub(super) struct Opening {
    attempt: Option<Receiver<std::result::Result<Client, postgres::Error>>>,
}

impl Opening {
    /// Opens a session within `open_timeout`.
    ///
    /// # Errors
    /// Names the server and the reason; never the URL.
    pub(super) fn open(&mut self, database: &Database) -> Result<Session> {
        let options = options(database)?;
        let server = describe(&options);
        let attempt = match self.attempt.take() {
            Some(attempt) => attempt,
            None => begin(options)?,
        };
        match attempt.recv_timeout(database.open_timeout) {
            Ok(Ok(client)) => Ok(Session { client: Some(client) }),
            Ok(Err(error)) => Err(failure(&format!("opening a session on database {server}"), &error)),
            Err(RecvTimeoutError::Timeout) => {
                self.attempt = Some(attempt);
                let limit = database.open_timeout;
                Err(Error::new(
                    Kind::Unavailable(Server::Database),
                    format!("opening a session on database {server} took longer than open_timeout {limit:?}"),
                ))
            }
            Err(RecvTimeoutError::Disconnected) => Err(Error::new(
                Kind::Internal,
                format!("opening a session on database {server} ended without a result"),
            )),
        }
    }
}

fn options(database: &Database) -> Result<postgres::Config> {
    let mut options = parse(database.url.expose())
        .map_err(|reason| Error::new(Kind::Configuration, format!("database_url: {reason}")))?;
    if options.get_application_name().is_none() {
        options.application_name(APPLICATION_NAME);
    }
    options
        .connect_timeout(database.open_timeout)
        .tcp_user_timeout(TCP_USER_TIMEOUT)
        .keepalives_idle(KEEPALIVE_IDLE)
        .keepalives_interval(KEEPALIVE_INTERVAL)
        .keepalives_retries(KEEPALIVE_RETRIES);
    Ok(options)
}

fn begin(options: postgres::Config) -> Result<Receiver<std::result::Result<Client, postgres::Error>>> {
    let (sender, attempt) = bounded(1);
    thread::Builder::new()
        .name("outboxd-db-open".into())
        .spawn(move || {
            // When nobody listens any more, the session is closed again.
            let _ = sender.send(connect(&options));
        })
        .map_err(|error| Error::new(Kind::Internal, format!("starting a thread failed: {error}")))?;
    Ok(attempt)
}

/// One session. Dropping it never blocks: the client's own drop waits for an answer that may never come, so it
/// happens on a thread of its own.
pub(super) struct Session {
    client: Option<Client>,
}

impl Session {
    /// Writes in a transaction of its own, within time limits, whatever the role's default is.
    ///
    /// # Errors
    /// As [`Session::within_limits`].
    pub(super) fn write_within_limits<T>(
        &mut self,
        what: &str,
        work: impl FnOnce(&mut Client) -> std::result::Result<T, postgres::Error>,
    ) -> Result<T> {
        self.within_limits(what, |client| client.batch_execute(READ_WRITE).and_then(|()| work(client)))
    }

    /// Does `work` in a transaction of its own, within time limits.
    ///
    /// # Errors
    /// `what`, and why the database did not do it. The session is not worth keeping then: it may be in the middle of
    /// the transaction.
    pub(super) fn within_limits<T>(
        &mut self,
        what: &str,
        work: impl FnOnce(&mut Client) -> std::result::Result<T, postgres::Error>,
    ) -> Result<T> {
        let client = self.client()?;
        client
            .batch_execute(LIMITS_BEGIN)
            .and_then(|()| work(client))
            .and_then(|done| client.batch_execute("commit").map(|()| done))
            .map_err(|error| failure(what, &error))
    }

    /// The client.
    ///
    /// # Errors
    /// Never in practice: only a dropped session has none.
    pub(super) fn client(&mut self) -> Result<&mut Client> {
        self.client.as_mut().ok_or_else(|| Error::new(Kind::Internal, "the database session is gone"))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            // If no thread can be had, the closure and the client in it are dropped here: the lesser evil.
            let _ = thread::Builder::new().name("outboxd-db-close".into()).spawn(move || drop(client));
        }
    }
}

/// Reads a database URL, or the `key=value` form.
///
/// # Errors
/// What is wrong with it, without repeating any of it.
pub(super) fn parse(url: &str) -> std::result::Result<postgres::Config, String> {
    let options = postgres::Config::from_str(url).map_err(|error| {
        // The source names an option or a position. In the form of a URL that is never a part of a value.
        let source = error.source().filter(|_| url.contains("://"));
        let reason = source.map(|source| format!(" ({source})")).unwrap_or_default();
        format!("expected postgres://user:password@host:port/database{reason}")
    })?;
    if options.get_hosts().is_empty() {
        return Err("names no host: expected postgres://user:password@host:port/database".into());
    }
    let odd = |host: &Host| matches!(host, Host::Tcp(name) if name.contains(['@', '/', ':']));
    if options.get_hosts().iter().any(odd) {
        return Err(
            "a password with @, / or : in it must be percent-encoded (@ is %40, / is %2F, : is %3A)".into()
        );
    }
    if cfg!(not(feature = "tls")) && options.get_ssl_mode() == SslMode::Require {
        return Err("asks for TLS, and this build has none: build it with the feature tls".into());
    }
    Ok(options)
}

#[cfg(feature = "tls")]
fn connect(options: &postgres::Config) -> std::result::Result<Client, postgres::Error> {
    // As libpq has it: `prefer` and `require` encrypt, and do not ask who the server is.
    let connector = native_tls::TlsConnector::builder()
        .danger_accept_invalid_certs(true)
        .danger_accept_invalid_hostnames(true)
        .build();
    match connector {
        Ok(connector) => options.connect(postgres_native_tls::MakeTlsConnector::new(connector)),
        Err(_) => options.connect(NoTls),
    }
}

#[cfg(not(feature = "tls"))]
fn connect(options: &postgres::Config) -> std::result::Result<Client, postgres::Error> {
    options.connect(NoTls)
}

/// The server as an operator knows it: host, port and database.
pub(super) fn describe(options: &postgres::Config) -> String {
    let ports = options.get_ports();
    let hosts: Vec<_> = options
        .get_hosts()
        .iter()
        .enumerate()
        .map(|(n, host)| {
            let port = ports.get(n).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(name) => format!("{name}:{port}"),
                Host::Unix(path) => format!("{}:{port}", path.display()),
            }
        })
        .collect();
    let name = options.get_dbname().or(options.get_user()).unwrap_or_default();
    format!("{}/{name}", hosts.join(","))
}

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
            .with_remedy("give one in DATABASE_URL");
        }
        let kind = if is_conversion { Kind::Internal } else { Kind::Unavailable(Server::Database) };
        return Error::new(kind, format!("{what} failed: {reason}"));
    };
    let text = format!("{what} failed: {} (SQLSTATE {})", db.message(), db.code().code());
    let error = Error::new(kind_of(db.code()), text);
    match *db.code() {
        SqlState::INSUFFICIENT_PRIVILEGE => {
            error.with_remedy("grant it to the relay's role; \"The table\" in the README says what it needs")
        }
        SqlState::UNDEFINED_TABLE | SqlState::UNDEFINED_COLUMN => {
            error.with_remedy("create or complete the table with: outboxd init")
        }
        SqlState::INVALID_CATALOG_NAME => error.with_remedy("check the database's name in DATABASE_URL"),
        SqlState::READ_ONLY_SQL_TRANSACTION => {
            error.with_remedy("the server takes no writes; is it a standby?")
        }
        SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            error.with_remedy("check user and password in DATABASE_URL")
        }
        _ => error,
    }
}

fn kind_of(code: &SqlState) -> Kind {
    match code.code().get(..2).unwrap_or_default() {
        "28" => Kind::Denied(Server::Database),
        "3D" | "3F" | "22" | "23" => Kind::Configuration,
        // Connections, resources, operator intervention, system errors, deadlocks and locks: these pass.
        "08" | "53" | "55" | "57" | "58" | "40" => Kind::Unavailable(Server::Database),
        _ if *code == SqlState::INSUFFICIENT_PRIVILEGE => Kind::Denied(Server::Database),
        _ if *code == SqlState::READ_ONLY_SQL_TRANSACTION => Kind::Unavailable(Server::Database),
        "42" => Kind::Configuration,
        _ => Kind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_checked_without_being_repeated() {
        for good in [
            "postgres://u:secret@h:5432/d",
            "postgresql://u@h1,h2/d",
            "host=/var/run/postgresql user=u",
            "postgres://u:a%40b@h/d",
            "postgres://u:a/b@h/d",
        ] {
            assert_eq!(parse(good).map(|_| ()), Ok(()), "{good}");
        }
        for bad in [
            "mysql://u:secret@h/d",
            "postgres://",
            "postgres://u:secret@h/d?nope=1",
            "postgres://u:secret@h/d?sslmode=verify-full",
            "postgres://u:sec@secret@h/d",
            "secret",
            "host=h password=a secret=c",
        ] {
            let reason = parse(bad).map(|_| ()).unwrap_err();
            assert!(!reason.contains("secret"), "{bad}: {reason}");
        }
    }

    #[test]
    fn servers_are_described_without_credentials() {
        let options = parse("postgres://u:secret@h:5433/d").unwrap();
        assert_eq!(describe(&options), "h:5433/d");
    }

    #[test]
    fn sqlstates_say_who_can_mend_it() {
        for (code, kind) in [
            ("28P01", Kind::Denied(Server::Database)),
            ("42501", Kind::Denied(Server::Database)),
            ("3D000", Kind::Configuration),
            ("42P01", Kind::Configuration),
            ("25006", Kind::Unavailable(Server::Database)),
            ("57P01", Kind::Unavailable(Server::Database)),
            ("55P03", Kind::Unavailable(Server::Database)),
            ("22P02", Kind::Configuration),
            ("XX000", Kind::Internal),
        ] {
            assert_eq!(kind_of(&SqlState::from_code(code)), kind, "{code}");
        }
    }
}
