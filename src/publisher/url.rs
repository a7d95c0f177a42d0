//! The broker's URL, read by us: the client's own parser repeats the password in its errors.

use percent_encoding::percent_decode_str;
use url::Url;

const ENCODE: &str =
    "a password with @, /, : or # in it must be percent-encoded (@ is %40, / is %2F, : is %3A, # is %23)";

/// RabbitMQ's ports, without and with TLS.
const PORT: u16 = 5672;
const PORT_TLS: u16 = 5671;

/// Seconds between heartbeats, when the URL names none: two missed ones end the connection.
const HEARTBEAT_S: u16 = 10;

/// The files that TLS takes; each is one that the system chooses when it is not named.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct TlsFiles {
    pub(crate) ca: Option<String>,
    pub(crate) certificate: Option<String>,
    pub(crate) key: Option<String>,
    /// What the broker's certificate must be for, when it is not the host.
    pub(crate) server_name: Option<String>,
}

/// Where the broker is, and who we are to it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// None for a connection in the clear.
    pub(crate) tls: Option<TlsFiles>,
    /// Whether the client certificate says who we are, instead of user and password.
    pub(crate) external: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) vhost: String,
    pub(crate) heartbeat_s: u16,
}

impl std::fmt::Display for Address {
    /// Host, port and virtual host: what an operator needs, and no credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { host, port, vhost, .. } = self;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let slash = if vhost.starts_with('/') { "" } else { "/" };
        write!(f, "{host}:{port}{slash}{vhost}")
    }
}

impl Address {
    /// Reads `amqp://user:password@host:port/vhost?heartbeat=10`, each part but the host optional. The parameters have
    /// the names that RabbitMQ gives them ("URI Query Parameters" in its manual).
    ///
    /// # Errors
    /// What is wrong with it, without repeating any of it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str = "expected amqp://user:password@host:port/vhost";
        // A password that holds one would end there, and what follows it would be shown as a host.
        let place =
            text.split_once("://").map_or(text, |(_, rest)| rest).split('?').next().unwrap_or_default();
        let path = place.split_once('/').map_or("", |(_, path)| path);
        if place.matches('@').count() > 1 || path.contains('@') || text.contains('#') {
            return Err(ENCODE.into());
        }
        let url = Url::parse(text).map_err(|error| format!("{FORM} ({error})"))?;
        let mut tls = match url.scheme() {
            "amqp" => None,
            "amqps" if cfg!(feature = "tls") => Some(TlsFiles::default()),
            "amqps" => {
                return Err("asks for TLS, and this build has none: build it with the feature tls".into());
            }
            _ => return Err(format!("{FORM}, or amqps://")),
        };
        let host = match url.host_str() {
            Some(host) if !host.is_empty() => decoded("host", host.trim_matches(['[', ']']))?,
            _ => return Err(format!("names no host: {FORM}")),
        };
        // To a URL these are the folder itself and the one above it, and gone from its path; to a broker they are names.
        let dotted = path.to_ascii_lowercase().replace("%2e", ".");
        let vhost = match url.path() {
            _ if matches!(dotted.as_str(), "." | "..") => dotted,
            "" | "/" => "/".into(),
            path => {
                let name = path.strip_prefix('/').unwrap_or(path);
                if name.contains('/') {
                    return Err("has a / in its virtual host: write it as %2F".into());
                }
                decoded("virtual host", name)?
            }
        };
        let (mut heartbeat_s, mut external) = (HEARTBEAT_S, false);
        for (name, value) in url.query_pairs() {
            match name.as_ref() {
                "heartbeat" => {
                    heartbeat_s = value.parse().map_err(|_| "heartbeat: expected seconds from 0 to 65535")?;
                }
                "auth_mechanism" => {
                    external = match value.to_lowercase().as_str() {
                        "plain" => false,
                        "external" => true,
                        _ => return Err("auth_mechanism: expected plain or external".into()),
                    };
                }
                "verify" if value == "verify_peer" => {}
                "verify" => {
                    return Err("verify: expected verify_peer; name an own CA with cacertfile".into());
                }
                name => {
                    let files = tls.as_mut();
                    let file = match name {
                        "cacertfile" => files.map(|it| &mut it.ca),
                        "certfile" => files.map(|it| &mut it.certificate),
                        "keyfile" => files.map(|it| &mut it.key),
                        "server_name_indication" => files.map(|it| &mut it.server_name),
                        _ => {
                            return Err(
                                "has an unknown parameter: expected heartbeat, auth_mechanism, verify, \
                                 cacertfile, certfile, keyfile or server_name_indication"
                                    .into(),
                            );
                        }
                    };
                    *file.ok_or(format!("{name} needs amqps://"))? = Some(value.into());
                }
            }
        }
        if tls.as_ref().is_some_and(|it| it.certificate.is_some() != it.key.is_some()) {
            return Err("certfile and keyfile go together".into());
        }
        if external && tls.as_ref().is_none_or(|it| it.certificate.is_none()) {
            return Err("auth_mechanism=external needs certfile and keyfile".into());
        }
        let user = if url.username().is_empty() { "guest".into() } else { decoded("user", url.username())? };
        let password = url.password().map_or(Ok("guest".into()), |it| decoded("password", it))?;
        let port = url.port().unwrap_or(if tls.is_some() { PORT_TLS } else { PORT });
        Ok(Self { tls, external, host, port, user, password, vhost, heartbeat_s })
    }
}

fn decoded(part: &str, text: &str) -> Result<String, String> {
    percent_decode_str(text)
        .decode_utf8()
        .map(Into::into)
        .map_err(|_| format!("its {part} is not UTF-8 when percent-decoded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_host_may_be_called_as_a_folder_is() {
        for (text, vhost) in
            [("amqp://h/.", "."), ("amqp://h/%2E", "."), ("amqp://h/%2e.", ".."), ("amqp://h/.x", ".x")]
        {
            assert_eq!(Address::parse(text).unwrap().vhost, vhost);
        }
    }

    #[test]
    fn urls_are_read_part_by_part() {
        let address = |host: &str, port, user: &str, password: &str, vhost: &str, heartbeat_s| Address {
            tls: None,
            external: false,
            host: host.into(),
            port,
            user: user.into(),
            password: password.into(),
            vhost: vhost.into(),
            heartbeat_s,
        };
        let cases = [
            ("amqp://h", address("h", 5672, "guest", "guest", "/", 10)),
            ("amqp://h/", address("h", 5672, "guest", "guest", "/", 10)),
            ("amqp://u:p@h:1/%2F", address("h", 1, "u", "p", "/", 10)),
            ("amqp://u:p%40s%2Fs@h/a%2Fb", address("h", 5672, "u", "p@s/s", "a/b", 10)),
            ("amqp://u:@h/v?heartbeat=0", address("h", 5672, "u", "guest", "v", 0)),
            ("amqp://[::1]:5673", address("::1", 5673, "guest", "guest", "/", 10)),
        ];
        for (text, expected) in cases {
            let read = Address::parse(text);
            assert!(read == Ok(expected), "{text}");
        }
        if cfg!(feature = "tls") {
            assert!(Address::parse("amqps://h").is_ok_and(|it| it.tls.is_some() && it.port == 5671));
        }
    }

    #[test]
    fn errors_never_repeat_the_url() {
        for bad in [
            "secret",
            "http://u:secret@h",
            "amqp://",
            "amqp://u:secret@",
            "amqp://u:secret@h/a/b",
            "amqp://u:x@corp/secret@127.0.0.1:5672/v",
            "amqp://u:x/y@secret@h",
            "amqp://u:5/secret@h",
            "amqp://u:5#secret@h",
            "amqp://u:x@secret@h",
            "amqp://u:x@secret/y@h",
            "amqp://u:secret@h?frame_max=secret",
            "amqp://u:secret@h?heartbeat=secret",
            "amqp://u:secret%ff@h",
            "amqp://u:secret@h:99999",
            "amqp://u:secret@h?cacertfile=secret",
            "amqps://u:secret@h?verify=secret",
            "amqps://u:secret@h?certfile=secret",
            "amqps://u:secret@h?auth_mechanism=secret",
            "amqps://u:secret@h?auth_mechanism=external",
        ] {
            let reason = Address::parse(bad).err().unwrap_or_else(|| panic!("{bad} is accepted"));
            assert!(!reason.contains("secret"), "{bad}: {reason}");
        }
    }

    #[test]
    fn an_address_shows_no_credentials() {
        let shown = |text: &str| Address::parse(text).unwrap().to_string();
        assert_eq!(shown("amqp://u:secret@h:5673/v"), "h:5673/v");
        assert_eq!(shown("amqp://[::1]/"), "[::1]:5672/");
    }
}
