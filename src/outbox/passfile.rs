//! The password file, as libpq has it: lines of `host:port:database:user:password`, in which `*` stands for anything
//! and a backslash keeps a `:` or a backslash. Read anew for every session, so that a changed password is found.

use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Far more than a password file has.
const FILE_MAX: u64 = 1024 * 1024;

/// Whose password is looked for.
pub(super) struct Login<'a> {
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) database: &'a str,
    pub(super) user: &'a str,
}

/// The password of the first line that fits; none when there is no file.
///
/// # Errors
/// Why there is none: no line fits, or the file is not used. As libpq does, one that others may read is left alone.
pub(super) fn password(path: &Path, login: &Login<'_>) -> Result<Option<String>, String> {
    let ignored = |why: String| format!("the password file {} is ignored: {why}", path.display());
    // Looked at before it is opened: opening a pipe would wait for a writer.
    let about = match fs::metadata(path) {
        Ok(about) => about,
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => {
            return Ok(None);
        }
        Err(error) => return Err(ignored(error.to_string())),
    };
    if !about.is_file() {
        return Err(ignored("it is no plain file".into()));
    }
    let file = fs::File::open(path).map_err(|error| ignored(error.to_string()))?;
    if about.permissions().mode() & 0o077 != 0 {
        return Err(ignored("others may read it; its mode must be 0600".into()));
    }
    let mut text = String::new();
    file.take(FILE_MAX).read_to_string(&mut text).map_err(|error| ignored(error.to_string()))?;
    match find(&text, login) {
        Some(password) => Ok(Some(password)),
        None => Err(format!(
            "no line of the password file {} is for host {}, port {}, database {} and user {}",
            path.display(),
            login.host,
            login.port,
            login.database,
            if login.user.is_empty() { "(none: the address must name one)" } else { login.user },
        )),
    }
}

fn find(text: &str, login: &Login<'_>) -> Option<String> {
    // libpq asks for `localhost` when the host is a folder with a socket.
    let host = if login.host.starts_with('/') { "localhost" } else { login.host };
    let port = login.port.to_string();
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut rest = line;
        for wanted in [host, &port, login.database, login.user] {
            let (field, after, any) = field(rest);
            if !any && field != wanted {
                return None;
            }
            rest = after?;
        }
        let (password, _, _) = field(rest);
        Some(password)
    })
}

/// A field up to its colon; what follows the colon, if there is one; whether the field is a bare `*`.
fn field(text: &str) -> (String, Option<&str>, bool) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            ':' => return (value, text.get(at + 1..), text.get(..at) == Some("*")),
            c => value.push(c),
        }
    }
    (value, None, text == "*")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# host:port:database:user:password\n\
        db1:5432:app:relay:one\n\
        db2:*:*:relay:two:with a colon\n\
        ::1:1:a:b:never\n\
        \\:\\:1:5432:app:relay:six\n\
        db3:5432:app:re\\:lay:a\\:b\\\\c\n\
        localhost:5432:app:relay:socket\n\
        \\*:5432:app:relay:no star\n\
        short:5432\n\
        *:*:*:other:any\n";

    #[test]
    fn what_is_no_file_is_not_opened() {
        // Opening a pipe, or what never ends, would wait for ever.
        let login = Login { host: "h", port: 1, database: "d", user: "u" };
        assert!(password(Path::new("/dev/zero"), &login).unwrap_err().contains("no plain file"));
        assert_eq!(password(Path::new("/nowhere/at/all"), &login), Ok(None));
    }

    #[test]
    fn the_first_line_that_fits_counts() {
        let cases = [
            ("db1", 5432, "app", "relay", Some("one")),
            ("db1", 5433, "app", "relay", None),
            ("db1", 5432, "App", "relay", None),
            ("db2", 1, "x", "relay", Some("two")),
            ("::1", 5432, "app", "relay", Some("six")),
            ("db3", 5432, "app", "re:lay", Some(r"a:b\c")),
            ("/run/postgresql", 5432, "app", "relay", Some("socket")),
            ("short", 5432, "app", "relay", None),
            ("anywhere", 1, "x", "other", Some("any")),
        ];
        for (host, port, database, user, expected) in cases {
            let login = Login { host, port, database, user };
            assert_eq!(find(FILE, &login).as_deref(), expected, "{host}:{port}");
        }
    }
}
