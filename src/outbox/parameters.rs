//! A database's address as libpq's keywords and their values: from a URL, or from `keyword=value` text. Knows the
//! form only; what a value means is `address.rs`. Errors never repeat a value, nor a name that may be one.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;

/// The form that errors show.
pub(super) const FORM: &str = "expected postgres://user:password@host:port/database";

const ENCODE: &str =
    "a password with @, /, : or ? in it must be percent-encoded (@ is %40, / is %2F, : is %3A, ? is %3F)";

/// The keywords that are understood. libpq has more; one that is unknown is refused, because what it asks for would not
/// be done.
const KEYWORDS: &[&str] = &[
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "passfile",
    "connect_timeout",
    "application_name",
    "options",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "sslsni",
    "sslnegotiation",
    "channel_binding",
    "target_session_attrs",
    "load_balance_hosts",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "keepalives_retries",
];

/// Those of libpq that people use and that are not understood; they are named, because none can be a password.
const REFUSED: &[&str] = &[
    "service",
    "require_auth",
    "requirepeer",
    "sslcrl",
    "sslcrldir",
    "sslpassword",
    "sslcompression",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
    "gssencmode",
    "krbsrvname",
    "client_encoding",
    "replication",
];

/// Each keyword's value; the last one given counts.
pub(super) type Parameters = BTreeMap<&'static str, String>;

/// Reads either form.
///
/// # Errors
/// What is wrong with it, without repeating any of it.
pub(super) fn parse(text: &str) -> Result<Parameters, String> {
    let text = text.trim();
    match text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://")) {
        Some(rest) => parse_url(rest),
        None if text.contains("://") || !(text.is_empty() || text.contains('=')) => Err(FORM.into()),
        None => parse_pairs(text),
    }
}

fn keyword(name: &str) -> Option<&'static str> {
    KEYWORDS.iter().copied().find(|it| *it == name)
}

fn parse_url(rest: &str) -> Result<Parameters, String> {
    let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
    // Of two the first would end the password, and what follows it would be shown as a host.
    if place.matches('@').count() > 1 {
        return Err(ENCODE.into());
    }
    let (credentials, place) =
        place.split_once('@').map_or((None, place), |(credentials, place)| (Some(credentials), place));
    let (hosts, database) = place.split_once('/').map_or((place, None), |(hosts, name)| (hosts, Some(name)));
    let mut found = Parameters::new();
    if let Some(credentials) = credentials {
        let (user, password) =
            credentials.split_once(':').map_or((credentials, None), |(user, word)| (user, Some(word)));
        insert(&mut found, "user", user)?;
        insert(&mut found, "password", password.unwrap_or_default())?;
    }
    insert(&mut found, "dbname", database.unwrap_or_default())?;
    let (mut names, mut ports) = (Vec::new(), Vec::new());
    for host in hosts.split(',').filter(|_| !hosts.is_empty()) {
        let (name, port) = host_and_port(host)?;
        names.push(decoded(name)?);
        ports.push(decoded(port)?);
    }
    // A comma would be taken for the next host.
    if names.iter().any(|name| name.contains(['@', ','])) {
        return Err(ENCODE.into());
    }
    if !names.is_empty() {
        found.insert("host", names.join(","));
    }
    if ports.iter().any(|port| !port.is_empty()) {
        let ports: Vec<_> = ports.iter().map(|port| if port.is_empty() { "5432" } else { port }).collect();
        found.insert("port", ports.join(","));
    }
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or("has a parameter without a value after the ?")?;
        let Some(name) = keyword(name) else {
            return Err(unknown(name, query.unwrap_or_default()));
        };
        insert(&mut found, name, value)?;
    }
    Ok(found)
}

/// That a parameter is not known. Its name is told where it looks like one, and cannot be the rest of a password that had
/// a `?` in it: of such a one the `@` would follow.
fn unknown(name: &str, query: &str) -> String {
    let is_name =
        (1..=40).contains(&name.len()) && name.bytes().all(|it| it.is_ascii_lowercase() || it == b'_');
    match (query.contains('@'), is_name) {
        (true, _) => ENCODE.into(),
        (false, true) => format!("unknown parameter {name:?}"),
        (false, false) => "has an unknown parameter after the ?".into(),
    }
}

/// The parts of `host`, `host:port` or `[address]:port`.
fn host_and_port(text: &str) -> Result<(&str, &str), String> {
    let (name, rest) = match text.strip_prefix('[') {
        Some(address) => address.split_once(']').ok_or(FORM)?,
        None => text.split_at_checked(text.find(':').unwrap_or(text.len())).ok_or(FORM)?,
    };
    match rest.strip_prefix(':') {
        None if rest.is_empty() => Ok((name, "")),
        Some(port) if port.bytes().all(|it| it.is_ascii_digit()) => Ok((name, port)),
        _ => Err(ENCODE.into()),
    }
}

fn insert(found: &mut Parameters, name: &'static str, value: &str) -> Result<(), String> {
    if !value.is_empty() {
        found.insert(name, decoded(value)?);
    }
    Ok(())
}

fn decoded(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| "is not UTF-8 once it is decoded")?;
    Ok(decoded.into_owned())
}

/// Reads `keyword=value` pairs as libpq does: apart by blanks, values in single quotes where they hold blanks, a
/// backslash before a quote or a backslash.
fn parse_pairs(text: &str) -> Result<Parameters, String> {
    let mut found = Parameters::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (name, value) = rest.split_once('=').ok_or(FORM)?;
        // The name is not shown: it may be the end of a password that holds a blank.
        if REFUSED.contains(&name.trim()) {
            return Err(format!("the keyword {} is not supported", name.trim()));
        }
        let name = keyword(name.trim())
            .ok_or("has an unknown keyword, or a value with a blank in it that is not in single quotes")?;
        let (value, after) = pair_value(value.trim_start())?;
        if !value.is_empty() {
            found.insert(name, value);
        }
        rest = after.trim_start();
    }
    Ok(found)
}

/// A value, and what follows it.
fn pair_value(text: &str) -> Result<(String, &str), String> {
    let mut value = String::new();
    let (quoted, text) = text.strip_prefix('\'').map_or((false, text), |text| (true, text));
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            '\'' if quoted => return Ok((value, text.get(at + 1..).unwrap_or_default())),
            c if c.is_whitespace() && !quoted => return Ok((value, text.get(at..).unwrap_or_default())),
            c => value.push(c),
        }
    }
    if quoted { Err("has a value without its closing quote".into()) } else { Ok((value, "")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        let cases: &[(&str, &[(&str, &str)])] = &[
            ("", &[]),
            ("postgres://", &[]),
            ("postgres:///app", &[("dbname", "app")]),
            ("postgresql://u@h", &[("host", "h"), ("user", "u")]),
            (
                "postgres://u:a%40b%2F@h1:1,h2/d?sslmode=verify-full&options=-c%20a%3Db",
                &[
                    ("dbname", "d"),
                    ("host", "h1,h2"),
                    ("options", "-c a=b"),
                    ("password", "a@b/"),
                    ("port", "1,5432"),
                    ("sslmode", "verify-full"),
                    ("user", "u"),
                ],
            ),
            ("postgres://u:a/b@h/d", &[("dbname", "d"), ("host", "h"), ("password", "a/b"), ("user", "u")]),
            ("postgres://[::1]:7/d", &[("dbname", "d"), ("host", "::1"), ("port", "7")]),
            ("postgres://%2Frun%2Fpg/d", &[("dbname", "d"), ("host", "/run/pg")]),
            (
                "postgres://h/d?application_name=a@b",
                &[("application_name", "a@b"), ("dbname", "d"), ("host", "h")],
            ),
            (
                r"host = /run/pg  user='a b' password=it\'s\\ passfile='/x\'y' port=''",
                &[("host", "/run/pg"), ("passfile", "/x'y"), ("password", r"it's\"), ("user", "a b")],
            ),
        ];
        for (text, expected) in cases {
            let expected: Parameters =
                expected.iter().map(|(name, value)| (keyword(name).unwrap(), (*value).into())).collect();
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_being_repeated() {
        for (text, word) in [
            ("secret", "expected postgres://"),
            ("mysql://u:secret@h/d", "expected postgres://"),
            ("postgres://u:sec@secret@h/d", "percent-encoded"),
            ("postgres://u:sec?secret@h/d", "percent-encoded"),
            ("postgres://u:x@corp/secret@127.0.0.1:5432/d", "percent-encoded"),
            ("postgres://u:x@secret/y@h", "percent-encoded"),
            ("postgres://u:x/y@secret@h/d", "percent-encoded"),
            ("postgres://h%2Fx/d@h/e@secret", "percent-encoded"),
            ("postgres://h:secret/d", "percent-encoded"),
            ("postgres://u:%ffsecret@h/d", "UTF-8"),
            ("postgres://u:secret@h/d?nope=1", "unknown parameter \"nope\""),
            ("postgres://u:5?secret=x@h/d", "percent-encoded"),
            ("postgres://h/d?postgres://u:secret=1", "unknown parameter after"),
            ("postgres://u:secret@h/d?sslmode", "without a value"),
            ("postgres://u:secret@[::1/d", "expected postgres://"),
            ("host=h password=a secret=c", "unknown keyword"),
            ("service=secret", "the keyword service is not supported"),
            ("host=h password=a secret", "expected postgres://"),
            ("host=h password='secret", "closing quote"),
        ] {
            let reason = parse(text).unwrap_err();
            assert!(reason.contains(word) && !reason.contains("secret"), "{text}: {reason}");
        }
    }
}
