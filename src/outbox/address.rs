//! Where the database is and how it is spoken to: the URL, what it leaves out, and the connecting itself.

use std::error::Error as _;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use postgres::config::{SslMode, TargetSessionAttrs};
use postgres::{Client, NoTls};

use crate::config::{Database, Fallback};
use crate::error::{Error, Kind, Result};

use super::failure::failure;
#[cfg(feature = "tls")]
use super::late_tls::LateTls;
use super::parameters::{self, FORM, Parameters};
use super::passfile::{self, Login};
use super::tls::{Mode, Tls};

/// How the session appears in `pg_stat_activity`, unless the URL says otherwise.
const APPLICATION_NAME: &str = "outboxd";

/// A vanished server is noticed by these: keepalives while we wait for an answer, the user timeout while we send.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);

const PORT: u16 = 5432;

/// What the client says of a connection.
type Connected = std::result::Result<Client, postgres::Error>;

/// Everything that sessions are opened with.
#[derive(Clone)]
pub(super) struct Address {
    /// The places to try, in this order.
    pub(super) places: Vec<Place>,
    /// The longest that one place may take, when it was said.
    pub(super) connect_timeout: Option<Duration>,
    /// All but place and password.
    options: postgres::Config,
    tls: Tls,
    password: Option<String>,
    /// The variable that the password is from, when the address has none.
    password_variable: Option<&'static str>,
    password_file: Option<PathBuf>,
}

/// One server of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// A name, an address, or the folder of a socket.
    host: String,
    /// Where to connect to, when that was said; the host is then only who it must be.
    address: Option<IpAddr>,
    port: u16,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { host, port, .. } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl std::fmt::Display for Address {
    /// The servers as an operator knows them: hosts, ports and database, and no credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let places: Vec<_> = self.places.iter().map(Place::to_string).collect();
        write!(f, "{}/{}", places.join(","), self.database())
    }
}

impl Address {
    /// The address in a configuration.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn of(database: &Database) -> Result<Self> {
        Self::parse(database.url.expose(), &database.fallbacks)
            .map_err(|reason| Error::new(Kind::Configuration, format!("database_url: {reason}")))
    }

    /// Reads a database URL, or the `keyword=value` form; the fallbacks stand for what it leaves out.
    ///
    /// # Errors
    /// What is wrong with it, without repeating any of it.
    pub(super) fn parse(url: &str, fallbacks: &[Fallback]) -> std::result::Result<Self, String> {
        let mut parameters = parameters::parse(url)?;
        let mut used = Vec::new();
        for fallback in fallbacks {
            if !parameters.contains_key(fallback.keyword()) {
                parameters.insert(fallback.keyword(), fallback.value().expose().into());
                used.push((fallback.keyword(), fallback.variable()));
            }
        }
        let mut address = Self::read(parameters).map_err(|reason| {
            let named = used.iter().filter(|(keyword, _)| reason.contains(keyword));
            match named.map(|(_, variable)| *variable).collect::<Vec<_>>().as_slice() {
                [] => reason,
                named => format!("{reason} (in effect from the environment: {})", named.join(", ")),
            }
        })?;
        address.password_variable =
            used.iter().find(|(keyword, _)| *keyword == "password").map(|(_, variable)| *variable);
        Ok(address)
    }

    fn read(mut parameters: Parameters) -> std::result::Result<Self, String> {
        let places = places(&mut parameters)?;
        let mut tls = Tls::take(&mut parameters)?;
        // There is no TLS over the socket of a folder, and nobody to be mistaken for another.
        if places.iter().all(Place::is_folder) {
            tls.mode = Mode::Disable;
        }
        let password = parameters.remove("password");
        let password_file = parameters.remove("passfile").map(PathBuf::from);
        if parameters.remove("load_balance_hosts").is_some_and(|it| it != "disable") {
            return Err("load_balance_hosts: hosts are tried in their order; expected disable".into());
        }
        match parameters.get("target_session_attrs").map(String::as_str) {
            // The crate's word for it.
            Some("primary") => _ = parameters.insert("target_session_attrs", "read-write".into()),
            Some("any" | "read-write" | "read-only") | None => {}
            Some(_) => {
                return Err("target_session_attrs: expected any, read-write, primary or read-only".into());
            }
        }
        if let Some(count) = parameters.remove("keepalives_count") {
            parameters.insert("keepalives_retries", count);
        }
        let mut options = postgres::Config::from_str(&text(&parameters)).map_err(|error| {
            // The source names the parameter, and never its value.
            error.source().map_or_else(|| FORM.into(), ToString::to_string)
        })?;
        let given = |name: &str| parameters.contains_key(name);
        if !given("application_name") {
            options.application_name(APPLICATION_NAME);
        }
        if !given("tcp_user_timeout") {
            options.tcp_user_timeout(TCP_USER_TIMEOUT);
        }
        if !given("keepalives_idle") {
            options.keepalives_idle(KEEPALIVE_IDLE);
        }
        if !given("keepalives_interval") {
            options.keepalives_interval(KEEPALIVE_INTERVAL);
        }
        if !given("keepalives_retries") {
            options.keepalives_retries(KEEPALIVE_RETRIES);
        }
        // Of several servers all but one are standbys, and events can be relayed only where they can be settled.
        if !given("target_session_attrs") && places.len() > 1 {
            options.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        options.ssl_mode(match tls.mode {
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        });
        let connect_timeout = options.get_connect_timeout().copied();
        Ok(Self { places, connect_timeout, options, tls, password, password_variable: None, password_file })
    }

    /// The same, with a mark on its sessions that a pooler refuses or drops; see `direct.sql`.
    pub(super) fn marked(mut self) -> Self {
        let options = self.options.get_options().unwrap_or_default();
        let options = format!("{options} -c outboxd.direct=on");
        self.options.options(options.trim());
        self
    }

    /// Connects to one of the places, on the calling thread, which may wait for longer than `limit`: that ends only
    /// the wait for a connection. `what` says what is being done, for the error.
    ///
    /// # Errors
    /// Why it cannot be used; a file that cannot be.
    pub(super) fn connect(&self, place: &Place, limit: Duration, what: &str) -> Result<Client> {
        let mut options = self.options.clone();
        options.host(&place.host).port(place.port).connect_timeout(limit);
        if let Some(address) = place.address {
            options.hostaddr(address);
        } else if !place.is_folder() {
            // The limit is for each of a name's addresses, and a dead one must leave time for the next.
            let addresses = (place.host.as_str(), place.port).to_socket_addrs().map_or(1, Iterator::count);
            options.connect_timeout(limit / u32::try_from(addresses.max(1)).unwrap_or(1));
        }
        let mut note = None;
        if let Some(password) = &self.password {
            options.password(password);
            note = self.password_variable.map(|variable| format!("the password is that of {variable}"));
        } else if let Some(path) = &self.password_file {
            let login = Login {
                host: &place.host,
                port: place.port,
                database: self.database(),
                user: self.options.get_user().unwrap_or_default(),
            };
            match passfile::password(path, &login) {
                Ok(Some(password)) => {
                    options.password(password);
                    note = Some(format!("the password is that of the password file {}", path.display()));
                }
                Ok(None) => {}
                Err(why) => note = Some(why),
            }
        }
        self.connect_with(&mut options, place, what).map_err(|error| match (note, error.kind()) {
            (Some(why), Kind::Denied(_)) => Error::new(error.kind(), format!("{error}; {why}")),
            _ => error,
        })
    }

    fn connect_with(&self, options: &mut postgres::Config, place: &Place, what: &str) -> Result<Client> {
        let connected = if place.is_folder() || self.tls.mode == Mode::Disable {
            options.ssl_mode(SslMode::Disable).connect(NoTls)
        } else {
            self.connect_with_tls(options)?
        };
        connected.map_err(|error| {
            let error = failure(what, &error);
            // A server that refuses our certificate says so, and closes so soon that its word may be lost.
            if self.tls.shows_certificate() && error.is_transient() && error.to_string().contains("reset") {
                return error.with_remedy("does the server take the certificate in sslcert?");
            }
            error
        })
    }

    #[cfg(feature = "tls")]
    fn connect_with_tls(&self, options: &postgres::Config) -> Result<Connected> {
        if self.tls.is_optional() {
            return Ok(options.connect(LateTls(self.tls.clone())));
        }
        Ok(options.connect(postgres_native_tls::MakeTlsConnector::new(self.tls.connector()?)))
    }

    /// A build without TLS has refused every mode that insists on it.
    #[cfg(not(feature = "tls"))]
    fn connect_with_tls(&self, options: &postgres::Config) -> Result<Connected> {
        Ok(options.connect(NoTls))
    }

    fn database(&self) -> &str {
        self.options.get_dbname().or(self.options.get_user()).unwrap_or_default()
    }
}

impl Place {
    fn is_folder(&self) -> bool {
        self.host.starts_with('/')
    }
}

/// Takes the places out of the parameters.
fn places(parameters: &mut Parameters) -> std::result::Result<Vec<Place>, String> {
    let mut list = |name: &str| {
        let text = parameters.remove(name);
        text.map(|text| text.split(',').map(|it| it.trim().to_owned()).collect::<Vec<_>>())
            .unwrap_or_default()
    };
    let (hosts, addresses, ports) = (list("host"), list("hostaddr"), list("port"));
    let count = hosts.len().max(addresses.len());
    // libpq would take the server next door.
    if count == 0 {
        return Err(format!("names no host: {FORM}"));
    }
    if !(addresses.is_empty() || hosts.is_empty() || addresses.len() == hosts.len()) {
        return Err("host and hostaddr name different numbers of servers".into());
    }
    if ports.len() > 1 && ports.len() != count {
        return Err("host and port name different numbers of servers".into());
    }
    (0..count)
        .map(|n| {
            let address = addresses.get(n).filter(|it| !it.is_empty());
            let host = hosts.get(n).filter(|it| !it.is_empty()).or(address);
            let port = ports.get(n).or(ports.first()).filter(|it| !it.is_empty());
            Ok(Place {
                host: host.ok_or_else(|| format!("names an empty host: {FORM}"))?.clone(),
                address: address
                    .map(|it| it.parse())
                    .transpose()
                    .map_err(|_| "hostaddr: expected an IP address")?,
                port: port
                    .map_or(Ok(PORT), |it| it.parse())
                    .map_err(|_| "port: expected a number up to 65535")?,
            })
        })
        .collect()
}

/// The parameters as the crate reads them.
fn text(parameters: &Parameters) -> String {
    let pair = |(name, value): (&&str, &String)| {
        format!("{name}='{}'", value.replace('\\', r"\\").replace('\'', r"\'"))
    };
    parameters.iter().map(pair).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    fn parse(url: &str) -> std::result::Result<Address, String> {
        Address::parse(url, &[])
    }

    fn fallback(variable: &str, value: &str) -> Fallback {
        Fallback::new(variable, Secret::new(value)).unwrap()
    }

    #[test]
    fn urls_are_checked_without_being_repeated() {
        for good in [
            "postgres://u:secret@h:5432/d",
            "postgresql://u@h1,h2/d",
            "host=/var/run/postgresql user=u",
            "postgres://u:a%40b@h/d",
            "postgres://u:a/b@h/d",
            "postgres://u@h1:1,h2:2/d?target_session_attrs=primary&connect_timeout=3&keepalives_count=2",
            "host=h hostaddr=127.0.0.1 password='a\\' b'",
        ] {
            assert_eq!(parse(good).map(|_| ()), Ok(()), "{good}");
        }
        for bad in [
            "mysql://u:secret@h/d",
            "postgres://",
            "postgres:///secret",
            "postgres://u:secret@h1,,h2/d",
            "postgres://u:secret@h:99999/d",
            "postgres://u:secret@h/d?nope=1",
            "postgres://u:secret@h/d?connect_timeout=secret",
            "postgres://u:secret@h/d?target_session_attrs=secret",
            "postgres://u:secret@h/d?load_balance_hosts=random",
            "postgres://u:sec@secret@h/d",
            "host=h hostaddr=secret",
            "host=h,i port=1,2,3 password=secret",
            "secret",
            "host=h password=a secret=c",
        ] {
            let reason = parse(bad).map(|_| ()).unwrap_err();
            assert!(!reason.contains("secret"), "{bad}: {reason}");
        }
    }

    #[test]
    fn servers_are_described_without_credentials() {
        for (url, expected) in [
            ("postgres://u:secret@h:5433/d", "h:5433/d"),
            ("postgres://u:secret@h1:1,h2/", "h1:1,h2:5432/u"),
            ("postgres://[::1]/d", "[::1]:5432/d"),
        ] {
            assert_eq!(parse(url).unwrap().to_string(), expected);
        }
    }

    #[test]
    fn the_environment_stands_for_what_the_url_leaves_out_and_for_nothing_else() {
        let fallbacks = [
            fallback("PGHOST", "elsewhere"),
            fallback("PGPORT", "7"),
            fallback("PGDATABASE", "other"),
            fallback("PGPASSWORD", "word"),
        ];
        for (url, expected, password) in [
            ("", "elsewhere:7/other", "word"),
            ("postgres:///d", "elsewhere:7/d", "word"),
            ("postgres://u:own@h/d", "h:7/d", "own"),
            ("postgres://h:1", "h:1/other", "word"),
        ] {
            let address = Address::parse(url, &fallbacks).unwrap();
            assert_eq!(
                (address.to_string().as_str(), address.password.as_deref()),
                (expected, Some(password))
            );
        }
        let wrong = [fallback("PGSSLMODE", "secret")];
        let reason = Address::parse("postgres://h/d", &wrong).map(|_| ()).unwrap_err();
        assert!(reason.contains("PGSSLMODE") && !reason.contains("secret"), "{reason}");
        assert!(Address::parse("postgres://h/d?sslmode=disable", &wrong).is_ok());
        // What has nothing to do with it is not blamed.
        let file = [fallback("PGPASSFILE", "/x")];
        let reason = Address::parse("postgres://h/d?sslmode=no", &file).map(|_| ()).unwrap_err();
        assert!(reason.contains("sslmode") && !reason.contains("PGPASSFILE"), "{reason}");
    }

    #[test]
    fn of_several_servers_one_that_can_be_written_is_taken() {
        for (url, expected) in [
            ("postgres://h/d", TargetSessionAttrs::Any),
            ("postgres://h1,h2/d", TargetSessionAttrs::ReadWrite),
            ("postgres://h1,h2/d?target_session_attrs=any", TargetSessionAttrs::Any),
            ("postgres://h/d?target_session_attrs=primary", TargetSessionAttrs::ReadWrite),
        ] {
            assert_eq!(parse(url).unwrap().options.get_target_session_attrs(), expected, "{url}");
        }
    }
}
