//! Secrets that stand in files: those that a variable names (`DATABASE_URL_FILE`), and systemd's credentials. Reads them,
//! and only those that the command uses; what is in them is no business of this file.

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use outboxd::config::{Given, Origin, Problem, SETTINGS, Setting};

/// Where systemd puts a service's credentials.
const CREDENTIALS_VARIABLE: &str = "CREDENTIALS_DIRECTORY";

/// Most bytes of a secret; far more than a URL needs, and an end to `/dev/zero`.
const SECRET_MAX: u64 = 64 * 1024;

/// Where secrets may be found, by the environment.
#[derive(Default)]
pub(super) struct Secrets {
    files: Vec<(&'static Setting, PathBuf)>,
    credentials: Option<PathBuf>,
}

impl Secrets {
    /// Whether a variable is one of these, and then takes it. An empty one counts as not set.
    pub(super) fn take(&mut self, name: &str, value: &OsString) -> bool {
        if name == CREDENTIALS_VARIABLE {
            self.credentials = (!value.is_empty()).then(|| value.into());
            return true;
        }
        let Some(setting) = SETTINGS.iter().find(|it| it.secret && it.file_variable() == name) else {
            return false;
        };
        if !value.is_empty() {
            self.files.push((setting, value.into()));
        }
        true
    }

    /// Reads the files that variables name.
    pub(super) fn add_files(
        &self,
        matches: &ArgMatches,
        given: &mut Vec<Given>,
        problems: &mut Vec<Problem>,
    ) {
        for (setting, path) in self.files.iter().filter(|(setting, _)| uses(matches, setting)) {
            let name = setting.file_variable();
            let variable = setting.variable();
            if given
                .iter()
                .any(|it| it.origin == Origin::Environment && it.name == variable && !it.value.is_empty())
            {
                problems.push(Problem::new(&name, format!("{variable} is set, too; which one is meant?")));
                continue;
            }
            match read(path) {
                Ok(value) => given.push(Given { name, value, origin: Origin::VariableFile }),
                Err(error) => problems.push(Problem::new(format!("{name} {}", shown(path)), why(&error))),
            }
        }
    }

    /// Reads the credentials of those settings that nobody else has given.
    pub(super) fn add_credentials(
        &self,
        matches: &ArgMatches,
        given: &mut Vec<Given>,
        problems: &mut Vec<Problem>,
    ) {
        let Some(folder) = &self.credentials else { return };
        for setting in SETTINGS.iter().filter(|it| it.secret && uses(matches, it)) {
            let names =
                [setting.name.to_owned(), setting.flag(), setting.variable(), setting.file_variable()];
            if given.iter().any(|it| names.contains(&it.name)) {
                continue;
            }
            match read(&folder.join(setting.name)) {
                Ok(value) => {
                    given.push(Given { name: setting.name.into(), value, origin: Origin::Credential });
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    problems.push(Problem::new(format!("the credential {}", setting.name), why(&error)));
                }
            }
        }
    }
}

/// Whether the command has use for the setting. Others' files need not be there.
fn uses(matches: &ArgMatches, setting: &Setting) -> bool {
    matches.try_contains_id(setting.name).is_ok()
}

/// The file's text, without the line's end that editors and `echo` leave behind it.
fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(SECRET_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > SECRET_MAX {
        return Err(std::io::Error::other(format!("more than {SECRET_MAX} bytes")));
    }
    text.truncate(text.trim_end_matches(['\r', '\n']).len());
    // What follows the first line would become part of a name that is shown.
    if text.contains(['\r', '\n']) {
        return Err(std::io::Error::other("more than one line"));
    }
    Ok(text)
}

/// No word of the content: errors of the operating system, and of our own making.
fn why(error: &std::io::Error) -> String {
    format!("cannot read it: {error}")
}

/// A secret in the place of a path stays hidden.
fn shown(path: &Path) -> String {
    let text = path.to_string_lossy();
    if text.contains("://") || text.contains("password") { "(hidden)".into() } else { format!("{text:?}") }
}
