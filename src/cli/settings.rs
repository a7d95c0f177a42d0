//! Gathers what was given: flags, environment, configuration file. What wins and whether it is valid, the
//! library decides; here is only where it comes from.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use outboxd::config::{
    Config, Database, Given, GivenRoute, LogFormat, Operator, Origin, Parts, Problem, Problems, SETTINGS,
    Setting, TableName, exposed_flags, is_ignored_variable, is_libpq_variable, origins, parse_toml,
};

use super::args::CONFIG;
use super::logging;
use super::secrets::Secrets;

/// The configuration for a command that relays or looks.
///
/// `environment` is the process's own in the binary, anything in a test.
///
/// # Errors
/// All problems of all sources at once.
pub(crate) fn config(
    matches: &ArgMatches,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Config, Problems> {
    let gathered = gather(matches, environment);
    let config = Config::from_given(&gathered.given, &gathered.routes);
    gathered.finish(config)
}

/// The configuration for a command that works on the table by hand.
///
/// # Errors
/// All problems of all sources at once.
pub(crate) fn operator(
    matches: &ArgMatches,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Operator, Problems> {
    let gathered = gather(matches, environment);
    let operator = Operator::from_given(&gathered.given, &gathered.routes);
    gathered.finish(operator)
}

/// The configuration for a command that knows no broker.
///
/// # Errors
/// All problems of all sources at once.
pub(crate) fn database(
    matches: &ArgMatches,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Database, Problems> {
    let gathered = gather(matches, environment);
    let database = Database::from_given(&gathered.given);
    gathered.finish(database)
}

/// The table alone, for a command that only prints.
///
/// # Errors
/// All problems of all sources at once.
pub(crate) fn table(
    matches: &ArgMatches,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<TableName, Problems> {
    let gathered = gather(matches, environment);
    let table = TableName::from_given(&gathered.given);
    gathered.finish(table)
}

/// What `check` looks at.
pub(crate) struct Checked {
    /// As much of the configuration as is right.
    pub(crate) parts: Parts,
    /// What is wrong with it.
    pub(crate) problems: Vec<Problem>,
    /// Where the values come from that are not defaults.
    pub(crate) origins: Vec<String>,
    /// The flags that hold a password.
    pub(crate) exposed: Vec<&'static Setting>,
    /// How many routes there are.
    pub(crate) routes: usize,
}

/// The configuration for `check`, which looks at what is right even where something is wrong.
pub(crate) fn checked(
    matches: &ArgMatches,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Checked {
    let gathered = gather(matches, environment);
    let (given, routes) = (gathered.given.clone(), gathered.routes.clone());
    let is_unread = !gathered.problems.is_empty();
    let problems = gathered.finish(Config::from_given(&given, &routes)).err();
    let mut parts = Parts::from_given(&given, &routes);
    if is_unread {
        // Where events go may well stand there, and what is missing elsewhere would be told of in vain.
        parts.routing = None;
    }
    let problems = problems.map(|it| it.0).unwrap_or_default();
    let (origins, exposed) = (origins(&given), exposed_flags(&given));
    Checked { parts, problems, origins, exposed, routes: routes.len() }
}

/// Warns of passwords that everyone on the machine can see.
pub(crate) fn warn_of_passwords(matches: &ArgMatches) {
    let mut gathered = Gathered::default();
    gathered.add_flags(matches);
    for setting in exposed_flags(&gathered.given) {
        log::warn!("{}: {}", exposed(setting), hiding(setting));
    }
}

/// What is wrong with a password on the command line.
pub(crate) fn exposed(setting: &Setting) -> String {
    format!("{} holds a password, which everyone on this machine can see (ps)", setting.flag())
}

/// Where it would be hidden.
pub(crate) fn hiding(setting: &Setting) -> String {
    format!("give it as {}, {}, or in the configuration file", setting.variable(), setting.file_variable())
}

#[derive(Default)]
struct Gathered {
    given: Vec<Given>,
    routes: Vec<GivenRoute>,
    problems: Vec<Problem>,
    secrets: Secrets,
    /// Variables that are set and mean nothing here.
    ignored: Vec<String>,
}

impl Gathered {
    /// What could not be read comes first. After that, what is missing may well stand there, so it is not
    /// reported.
    fn finish<T>(mut self, result: Result<T, Problems>) -> Result<T, Problems> {
        match result {
            Ok(value) if self.problems.is_empty() => return Ok(value),
            Ok(_) => {}
            Err(Problems(more)) => {
                let unread = !self.problems.is_empty();
                self.problems.extend(more.into_iter().filter(|problem| !(unread && problem.is_missing())));
            }
        }
        Err(Problems(self.problems))
    }
}

fn gather(matches: &ArgMatches, environment: impl IntoIterator<Item = (OsString, OsString)>) -> Gathered {
    let mut gathered = Gathered::default();
    gathered.add_flags(matches);
    let variable = gathered.add_environment(environment);
    let flag = matches.get_one::<PathBuf>(CONFIG);
    if let Some(path) = flag {
        gathered.add_file("--config", path);
    } else if let Some(path) = variable {
        gathered.add_file(FILE_VARIABLE, &path);
    }
    let Gathered { secrets, given, problems, .. } = &mut gathered;
    secrets.add_files(matches, given, problems);
    secrets.add_credentials(matches, given, problems);
    // The first moment at which it is known.
    logging::use_format(LogFormat::from_given(&gathered.given));
    for name in &gathered.ignored {
        log::warn!(variable = name; "{name} is set, and outboxd does not look at it: what it says must be in DATABASE_URL");
    }
    gathered
}

impl Gathered {
    fn add_flags(&mut self, matches: &ArgMatches) {
        for setting in SETTINGS {
            // An error means that this command has no such flag.
            if let Ok(Some(value)) = matches.try_get_one::<String>(setting.name) {
                self.given.push(Given { name: setting.flag(), value: value.clone(), origin: Origin::Flag });
            }
        }
    }

    /// Adds the settings' variables and gives back the path of the configuration file, if the environment has
    /// one.
    fn add_environment(
        &mut self,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Option<PathBuf> {
        let (mut file, mut home, mut passfile) = (None, None, false);
        for (name, value) in variables {
            let name = name.to_string_lossy();
            if is_ignored_variable(&name) && !value.is_empty() {
                self.ignored.push(name.clone().into());
            }
            passfile |= name == PASSWORD_FILE_VARIABLE && !value.is_empty();
            if self.secrets.take(&name, &value) {
            } else if name == "HOME" {
                home = (!value.is_empty()).then(|| PathBuf::from(value));
            } else if name == FILE_VARIABLE {
                // An empty variable is how a unit file or a container unsets one.
                file = (!value.is_empty()).then(|| value.into());
            } else if is_ours(&name) {
                match value.into_string() {
                    Ok(value) => {
                        self.given.push(Given { name: name.into(), value, origin: Origin::Environment });
                    }
                    Err(_) => self.problems.push(Problem::new(name.escape_debug(), "is not UTF-8")),
                }
            }
        }
        // As psql has it: the file is read if it is there.
        let default = home.and_then(|home| home.join(".pgpass").into_os_string().into_string().ok());
        if let Some(value) = default.filter(|_| !passfile) {
            let name = PASSWORD_FILE_VARIABLE.into();
            self.given.push(Given { name, value, origin: Origin::Environment });
        }
        file
    }

    fn add_file(&mut self, given_as: &str, path: &Path) {
        let shown = path.to_string_lossy();
        // A URL in the wrong place may hold a password.
        let shown = if shown.contains("://") { "(hidden)".into() } else { shown };
        match read(path) {
            Err(why) => self.problems.push(Problem::new(format!("{given_as} {shown:?}"), why)),
            Ok(text) => match parse_toml(&text, &shown) {
                Err(Problems(problems)) => self.problems.extend(problems),
                Ok((given, routes)) => {
                    self.given.extend(given);
                    self.routes = routes;
                }
            },
        }
    }
}

/// The variable that names the configuration file.
const FILE_VARIABLE: &str = "OUTBOXD_CONFIG";

/// The variable that names the password file.
const PASSWORD_FILE_VARIABLE: &str = "PGPASSFILE";

/// Whether a variable is a setting's, or claims to be one, or stands for a part of the database's URL.
fn is_ours(name: &str) -> bool {
    name.starts_with("OUTBOXD_")
        || is_libpq_variable(name)
        || SETTINGS.iter().any(|setting| setting.variable() == name)
}

/// Most bytes of a configuration file; far more than one needs, and an end to `--config /dev/zero`.
const FILE_MAX: u64 = 1024 * 1024;

/// The text of a configuration file, or why there is none.
fn read(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(FILE_MAX + 1).read_to_string(&mut text))
        .map_err(|error| format!("cannot read it: {error}"))?;
    if text.len() as u64 > FILE_MAX {
        return Err(format!("cannot read it: more than {FILE_MAX} bytes"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStringExt;

    use super::*;
    use crate::cli::args;

    /// A file in the system's folder for temporary ones, removed at the end of the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str, text: &[u8]) -> Self {
            let path = std::env::temp_dir().join(format!("outboxd-settings-{}-{name}", std::process::id()));
            fs::write(&path, text).unwrap();
            Self(path)
        }

        fn path(&self) -> &str {
            self.0.to_str().unwrap()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn matches(line: &[&str]) -> ArgMatches {
        args::parse(["outboxd"].iter().chain(line).map(OsString::from)).unwrap().matches
    }

    fn environment(variables: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        let urls = [("DATABASE_URL", "postgres://db/app"), ("AMQP_URL", "amqp://mq")];
        urls.iter().chain(variables).map(|(name, value)| (name.into(), value.into())).collect()
    }

    fn read_config(line: &[&str], variables: &[(&str, &str)]) -> Result<Config, String> {
        config(&matches(line), environment(variables)).map_err(|problems| problems.to_string())
    }

    #[test]
    fn flags_beat_the_environment_and_that_beats_the_file() {
        let file = Scratch::new("precedence", b"batch_rows = 1\nwindow = 1\nworkers = 1\n");
        let variables =
            [("OUTBOXD_BATCH_ROWS", "2"), ("OUTBOXD_WINDOW", "2"), ("PATH", "/bin"), ("OUTBOX", "x")];
        let config = read_config(&["run", "--config", file.path(), "--batch-rows", "3"], &variables).unwrap();
        assert_eq!((config.claim.batch_rows, config.broker.window, config.broker.workers), (3, 2, 1));
    }

    #[test]
    fn the_file_is_the_one_that_was_named() {
        let (one, two) = (Scratch::new("one", b"workers = 1"), Scratch::new("two", b"workers = 3"));
        let cases = [
            (&["once"][..], &[][..], 2),
            (&["once"], &[("OUTBOXD_CONFIG", "")], 2),
            (&["once"], &[("OUTBOXD_CONFIG", one.path())], 1),
            (&["once", "--config", two.path()], &[("OUTBOXD_CONFIG", "/nowhere")], 3),
            (&["--config", two.path(), "once"], &[("OUTBOXD_CONFIG", one.path())], 3),
        ];
        for (line, variables, workers) in cases {
            assert_eq!(read_config(line, variables).unwrap().broker.workers, workers, "{line:?}");
        }
    }

    #[test]
    fn a_file_that_was_named_must_be_readable() {
        let (latin, large) =
            (Scratch::new("latin", b"\xe9"), Scratch::new("large", &vec![b'#'; 1024 * 1024 + 1]));
        let cases = [
            ("/nowhere/o.toml", "No such file"),
            ("/", "directory"),
            (latin.path(), "UTF-8"),
            (large.path(), "more than 1048576 bytes"),
            ("/dev/zero", "more than 1048576 bytes"),
        ];
        for (path, why) in cases {
            for (line, variables, given_as) in [
                (&["run", "--config", path][..], &[][..], "--config"),
                (&["run"], &[("OUTBOXD_CONFIG", path)], "OUTBOXD_CONFIG"),
            ] {
                let problems = read_config(line, variables).unwrap_err();
                assert!(
                    problems.starts_with(&format!("{given_as} {path:?}: cannot read it: ")),
                    "{problems}"
                );
                assert!(problems.contains(why), "{problems}");
            }
        }
    }

    #[test]
    fn all_sources_report_at_once() {
        let file = Scratch::new("all", b"windw = 1\nworkers = [1]\n");
        let text = read_config(
            &["run", "--config", file.path(), "--interval", "-5s"],
            &[("OUTBOXD_GRACE", "10"), ("OUTBOXD_SHARD", "1")],
        );
        let expected = format!(
            "workers in {} line 2: expected a single value, not a list or a table\n\
             OUTBOXD_SHARD: unknown\n\
             --interval \"-5s\": expected a duration from 10ms to 24h, such as 30s, 500ms or 3m\n\
             OUTBOXD_GRACE \"10\": expected a duration from 1s to 10m, such as 10s",
            file.path()
        );
        assert_eq!(text.unwrap_err(), expected);
    }

    #[test]
    fn what_may_stand_in_an_unread_file_is_not_called_missing() {
        let none = || Vec::<(OsString, OsString)>::new();
        let unread = database(&matches(&["init", "--config", "/nowhere"]), none()).unwrap_err();
        assert_eq!(unread.0.len(), 1, "{unread}");
        let missing = database(&matches(&["init"]), none()).unwrap_err();
        assert!(missing.0.iter().all(Problem::is_missing));
        assert_eq!(table(&matches(&["init", "--print"]), none()).unwrap().name, "event_outbox");
    }

    #[test]
    fn the_variables_of_psql_stand_for_what_the_url_leaves_out() {
        let read = |variables: &[(&str, &str)]| {
            let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
            database(&matches(&["init"]), variables).map_err(|problems| problems.to_string())
        };
        let used = |database: &Database| -> Vec<(&str, String)> {
            database.fallbacks.iter().map(|it| (it.variable(), it.value().expose().into())).collect()
        };
        let config =
            read(&[("PGHOST", "h"), ("PGUSER", ""), ("HOME", "/home/app"), ("PGSERVICE", "x")]).unwrap();
        assert_eq!(config.url.expose(), "");
        assert_eq!(used(&config), [("PGHOST", "h".into()), ("PGPASSFILE", "/home/app/.pgpass".into())]);
        let config = read(&[("DATABASE_URL", "postgres://h"), ("HOME", "/x"), ("PGPASSFILE", "/y")]).unwrap();
        assert_eq!(used(&config), [("PGPASSFILE", "/y".into())]);
        // Without a host it would be whatever runs on this machine.
        assert!(read(&[("PGDATABASE", "app")]).unwrap_err().starts_with("database_url: missing"));
        assert!(
            read(&[("PGHOST", "h"), ("DATABASE_URL", "")]).unwrap_err().starts_with("DATABASE_URL: is empty")
        );
        let wrong = read(&[("PGHOST", "h"), ("PGPORT", "hunter2")]).unwrap_err();
        assert!(wrong.contains("PGPORT") && !wrong.contains("hunter2"), "{wrong}");
        assert!(read(&[("DATABASE_URL", "postgres:///app"), ("PGHOST", "h")]).is_ok());
    }

    #[test]
    fn variables_must_be_text() {
        let variable = |name: &str| (name.into(), OsString::from_vec(b"hunter2\xff".into()));
        let problems = config(&matches(&["run"]), [variable("AMQP_URL"), variable("HOME")]).unwrap_err();
        assert_eq!(problems.to_string(), "AMQP_URL: is not UTF-8");
        let foreign = environment(&[]).into_iter().chain([variable("HOME")]);
        assert!(config(&matches(&["run"]), foreign).is_ok());
    }

    #[test]
    fn the_event_of_enqueue_is_no_setting() {
        let line =
            ["enqueue", "order.paid", "--exchange", "orders", "--routing-key", "{", "--table", "app.events"];
        let database = database(&matches(&line), environment(&[])).unwrap();
        assert_eq!(database.table.to_string(), "app.events");
    }
}
