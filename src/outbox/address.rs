//! Where the database is and how it is spoken to: the URL, the options beside it, and the connecting itself.

use std::error::Error as _;
use std::str::FromStr;
use std::time::Duration;

use postgres::config::{Host, SslMode};
use postgres::{Client, NoTls};

use crate::config::Database;
use crate::error::{Error, Kind, Result};

/// How the session appears in `pg_stat_activity`, unless the URL says otherwise.
const APPLICATION_NAME: &str = "outboxd";

/// A vanished server is noticed by these: keepalives while we wait for an answer, the user timeout while we send.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);

/// What a session is opened with.
///
/// # Errors
/// What is wrong with the URL.
pub(super) fn options(database: &Database) -> Result<postgres::Config> {
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
pub(super) fn connect(options: &postgres::Config) -> std::result::Result<Client, postgres::Error> {
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
pub(super) fn connect(options: &postgres::Config) -> std::result::Result<Client, postgres::Error> {
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
}
