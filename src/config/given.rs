//! What was given, by whom, and what is wrong with it: which of several values wins, and how a problem reads.
//!
//! Knows the names of settings but not what their values mean. A value is shown in a problem unless it may
//! hold a password.

use std::fmt;

use super::Secret;
use super::libpq::{Fallback, is_libpq_variable};
use super::log::{LogFormat, log_format};
use super::setting::{ROUTE_KEYS, RouteKey, SETTINGS, Setting};

/// The setting that the `PG*` variables stand for.
const DATABASE_URL: &str = "database_url";

/// One value that was given, under the name that its origin uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// The name as it was written: `--batch-rows`, `OUTBOXD_BATCH_ROWS`, or `batch_rows` in a file and in
    /// code.
    pub name: String,
    /// The value as it was written.
    pub value: String,
    /// Who gave it.
    pub origin: Origin,
}

/// Who gave a value. Of several values for one setting the first in this order wins; of equals the last one
/// given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The application that the relay is part of.
    Code,
    /// The command line.
    Flag,
    /// The environment.
    Environment,
    /// A file that a variable of the environment names: `DATABASE_URL_FILE`.
    VariableFile,
    /// The configuration file.
    File {
        /// Its path, as it was given.
        path: String,
        /// The line, counted from 1, where it is known.
        line: Option<usize>,
    },
    /// A file of the setting's name among systemd's credentials.
    Credential,
}

impl Origin {
    /// Higher wins.
    fn rank(&self) -> u8 {
        match self {
            Self::Code => 4,
            Self::Flag => 3,
            Self::Environment | Self::VariableFile => 2,
            Self::File { .. } => 1,
            Self::Credential => 0,
        }
    }

    /// What stands at this place, for a message. One line, whatever is in the names.
    pub(super) fn place(&self, what: &str) -> String {
        let what = what.escape_debug();
        match self {
            Self::Code | Self::Flag | Self::Environment | Self::VariableFile => what.to_string(),
            Self::Credential => format!("the credential {what}"),
            Self::File { path, line: Some(line) } => format!("{what} in {} line {line}", path.escape_debug()),
            Self::File { path, line: None } => format!("{what} in {}", path.escape_debug()),
        }
    }
}

/// One `[[route]]` as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenRoute {
    /// Its keys and their values.
    pub entries: Vec<Given>,
    /// Which route it is, counted from 1.
    pub index: usize,
    /// Where it begins.
    pub origin: Origin,
}

/// One thing that is wrong with the configuration, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    text: String,
    missing: bool,
}

impl Problem {
    /// `subject` is where the problem is, as its author knows it; `why` is what is wrong there. Neither may
    /// hold a secret.
    pub fn new(subject: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self { text: format!("{subject}: {why}"), missing: false }
    }

    fn missing(subject: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self { missing: true, ..Self::new(subject, why) }
    }

    /// Whether nothing was given where something is needed. Means nothing when a source could not be read.
    pub fn is_missing(&self) -> bool {
        self.missing
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Everything that is wrong with the configuration. Displayed one per line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Reads settings from what was given and keeps what is wrong.
pub(super) struct Reader<'a> {
    given: &'a [Given],
    problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    /// Names that mean nothing are problems from the start.
    pub(super) fn new(given: &'a [Given]) -> Self {
        let mut reader = Self { given, problems: Vec::new() };
        for given in given {
            if setting_of(given).is_none() && !is_fallback(given) {
                let near = nearest(&given.name, SETTINGS.iter().map(|setting| setting.name))
                    .and_then(Setting::named)
                    .map(|setting| setting.spelled(&given.origin));
                reader.report(unknown(given.origin.place(&given.name), near));
            }
        }
        // Whatever else a command reads, it has a log.
        reader.log_format();
        reader
    }

    /// The format of the log.
    pub(super) fn log_format(&mut self) -> Option<LogFormat> {
        self.read("log_format", log_format)
    }

    /// The setting's value: the one that wins, else the default. `None` is a problem, reported.
    pub(super) fn read<T>(&mut self, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        self.parse(name, |text| parse(text).ok_or(None))
    }

    /// Like [`Self::read`], where `parse` knows more than that the form is wrong.
    pub(super) fn explained<T>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.parse(name, |text| parse(text).map_err(Some))
    }

    fn parse<T>(&mut self, name: &str, parse: impl FnOnce(&str) -> Result<T, Option<String>>) -> Option<T> {
        let setting = Setting::named(name)?;
        let given = self.effective(name);
        let Some(text) = given.map(|given| given.value.as_str()).or(setting.default) else {
            let also = if name == DATABASE_URL { ", or name the server with PGHOST" } else { "" };
            let why = format!(
                "missing; give it as {} or {}, or in the configuration file{also}",
                setting.flag(),
                setting.variable(),
            );
            self.report(Problem::missing(name, why));
            return None;
        };
        let why = match parse(text) {
            Ok(value) if setting.secret || !holds_login(text) => return Some(value),
            Ok(_) => Some(MISPLACED.into()),
            Err(why) => why,
        };
        let subject = self.describe(setting);
        self.report(malformed(subject, why, setting.form));
        None
    }

    /// Reports that two settings' values do not go together.
    pub(super) fn disagree(&mut self, name: &str, relation: &str, other: &str) {
        if let (Some(setting), Some(other)) = (Setting::named(name), Setting::named(other)) {
            self.report(Problem::new(self.describe(setting), format!("{relation} {}", self.describe(other))));
        }
    }

    /// The environment's `PG*` variables. Empty ones do not count: that is how a unit file unsets one.
    pub(super) fn fallbacks(&self) -> Vec<Fallback> {
        let given = self.given.iter().filter(|given| is_fallback(given) && !given.value.is_empty());
        given.filter_map(|given| Fallback::new(&given.name, Secret::new(&given.value))).collect()
    }

    /// Whether anyone gave a value for the setting.
    pub(super) fn is_given(&self, name: &str) -> bool {
        self.effective(name).is_some()
    }

    /// Adds a problem.
    pub(super) fn note(&mut self, problem: Problem) {
        self.report(problem);
    }

    /// The value, unless there is a problem.
    pub(super) fn finish<T>(self, value: Option<T>) -> Result<T, Problems> {
        match value {
            Some(value) if self.problems.is_empty() => Ok(value),
            _ => Err(Problems(self.problems)),
        }
    }

    /// A setting that two parts of the configuration hold is read twice, but reported once.
    fn report(&mut self, problem: Problem) {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn effective(&self, name: &str) -> Option<&'a Given> {
        effective(self.given, name)
    }

    /// The setting's effective value and where it comes from.
    fn describe(&self, setting: &Setting) -> String {
        match self.effective(setting.name) {
            Some(given) if setting.secret => given.origin.place(&given.name),
            Some(given) => format!("{} {}", given.origin.place(&given.name), shown(&given.value)),
            None => format!("{} {:?} (the default)", setting.name, setting.default.unwrap_or_default()),
        }
    }
}

/// Of the values that were given for a setting the one that wins.
pub(super) fn effective<'a>(given: &'a [Given], name: &str) -> Option<&'a Given> {
    given
        .iter()
        .filter(|given| setting_of(given).is_some_and(|setting| setting.name == name))
        .max_by_key(|given| given.origin.rank())
}

/// Reads the keys of one route; what is wrong goes to the reader.
pub(super) struct Keys<'r, 'a> {
    reader: &'r mut Reader<'a>,
    route: &'r GivenRoute,
}

impl<'r, 'a> Keys<'r, 'a> {
    /// Keys that mean nothing are problems from the start.
    pub(super) fn new(reader: &'r mut Reader<'a>, route: &'r GivenRoute) -> Self {
        for entry in &route.entries {
            if RouteKey::named(&entry.name).is_none() {
                let near = nearest(&entry.name, ROUTE_KEYS.iter().map(|key| key.name));
                reader.report(unknown(route.place(&entry.name, &entry.origin), near));
            }
        }
        Self { reader, route }
    }

    /// The key's value, else its default. `None` is a problem, reported.
    pub(super) fn read<T>(&mut self, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        self.parse(name, |text| parse(text).ok_or(None))
    }

    /// Like [`Self::read`], where `parse` knows more than that the form is wrong.
    pub(super) fn explained<T>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.parse(name, |text| parse(text).map_err(Some))
    }

    fn parse<T>(&mut self, name: &str, parse: impl FnOnce(&str) -> Result<T, Option<String>>) -> Option<T> {
        let key = RouteKey::named(name)?;
        let entry = self.route.entries.iter().rfind(|entry| entry.name == name);
        let Some(text) = entry.map(|entry| entry.value.as_str()).or(key.default) else {
            let why = format!("missing; expected {}", key.form);
            self.reader.report(Problem::missing(self.route.place(name, &self.route.origin), why));
            return None;
        };
        let why = match parse(text) {
            Ok(value) if !holds_login(text) => return Some(value),
            Ok(_) => Some(MISPLACED.into()),
            Err(why) => why,
        };
        let origin = entry.map_or(&self.route.origin, |entry| &entry.origin);
        let subject = format!("{} {}", self.route.place(name, origin), shown(text));
        self.reader.report(malformed(subject, why, key.form));
        None
    }
}

impl GivenRoute {
    /// `key of route 2 in outboxd.toml line 9`.
    pub(super) fn place(&self, key: &str, origin: &Origin) -> String {
        origin.place(&format!("{key} of route {}", self.index))
    }
}

/// The setting that a value was given for; none when the name means nothing.
pub(super) fn setting_of(given: &Given) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.spelled(&given.origin) == given.name)
}

/// Whether it is a `PG*` variable, which stands for a part of the database's URL.
fn is_fallback(given: &Given) -> bool {
    given.origin == Origin::Environment && is_libpq_variable(&given.name)
}

fn unknown(subject: String, near: Option<impl fmt::Display>) -> Problem {
    match near {
        Some(near) => Problem::new(subject, format!("unknown; did you mean {near}?")),
        None => Problem::new(subject, "unknown"),
    }
}

fn malformed(subject: String, why: Option<String>, form: &str) -> Problem {
    match why {
        Some(why) => Problem::new(subject, format!("{why} (accepted: {form})")),
        None => Problem::new(subject, format!("expected {form}")),
    }
}

/// In the place of a name it would be shown wherever the name is.
const MISPLACED: &str = "an address with a password belongs in database_url or amqp_url";

/// Whether a text is an address with a password in it.
pub(super) fn holds_login(text: &str) -> bool {
    let login = text.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
    login.is_some_and(|(login, _)| login.contains(':'))
}

/// Most characters of a value that a problem shows.
const SHOWN_MAX: usize = 80;

/// A value in quotes, on one line. One that looks like a server's address may hold a password and was put
/// under the wrong name, so it stays hidden.
fn shown(value: &str) -> String {
    if value.contains("://") || value.contains("password") {
        return "(hidden)".into();
    }
    match value.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{:?}...", value.get(..end).unwrap_or_default()),
        None => format!("{value:?}"),
    }
}

/// From which similarity on (Jaro-Winkler, 0 to 1) a name is taken for a mistyped one.
const NEAR: f64 = 0.85;

/// The known name that `written` was probably meant to be. What all names of an origin share must not count,
/// or every variable would be near to every other.
fn nearest(written: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let written = written.trim_start_matches('-').replace('-', "_").to_lowercase();
    let written = written.strip_prefix("outboxd_").unwrap_or(&written);
    known
        .map(|name| (strsim::jaro_winkler(written, name), name))
        .filter(|(similarity, _)| *similarity >= NEAR)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_names_are_recognised() {
        let cases = [
            ("intervall", Some("interval")),
            ("OUTBOXD_BATCH_ROW", Some("batch_rows")),
            ("--batch-rows", Some("batch_rows")),
            ("batch-rows", Some("batch_rows")),
            ("batchrows", Some("batch_rows")),
            ("OUTBOXD_DATABASE_URL", Some("database_url")),
            ("OUTBOXD_AMQP_URI", Some("amqp_url")),
            ("backoff", Some("backoff_max")),
            ("OUTBOXD_", None),
            ("OUTBOXD_FOO", None),
            ("log", None),
            ("", None),
            ("größe", None),
        ];
        for (written, expected) in cases {
            assert_eq!(nearest(written, SETTINGS.iter().map(|setting| setting.name)), expected, "{written}");
        }
    }

    #[test]
    fn shown_values_are_short_and_hold_no_address() {
        let (eighty, more) = ("é".repeat(80), "é".repeat(81));
        let cases = [
            ("5", r#""5""#.to_owned()),
            ("", r#""""#.into()),
            ("a\nb\u{1b}", r#""a\nb\u{1b}""#.into()),
            ("amqp://user:hunter2@host", "(hidden)".into()),
            ("host=db password=hunter2", "(hidden)".into()),
            (&eighty, format!("{eighty:?}")),
            (&more, format!("{eighty:?}...")),
        ];
        for (value, expected) in cases {
            assert_eq!(shown(value), expected);
        }
    }
}
