//! The command line: which commands there are and what each takes. Reads no environment, opens no file, and
//! knows no setting by heart: their flags come from the library's table.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use outboxd::config::{Group, SETTINGS, Setting};

use super::check;
use super::enqueue::{self, Enqueue};
use super::once::{self, Once};
use super::operate::{self, Operate};

/// A command line that was understood.
#[derive(Debug)]
pub(crate) struct Args {
    /// What to do.
    pub(crate) action: Action,
    /// How often `-v` was given.
    pub(crate) verbose: u8,
    /// What else was given: the flags of settings and `--config`, for `settings.rs`.
    pub(crate) matches: ArgMatches,
}

/// What the relay is asked to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    /// Creates the outbox, or only prints the SQL that would.
    Init {
        /// Print instead.
        print: bool,
        /// The consumer's inbox, and not the outbox.
        inbox: bool,
        /// Also the trigger that tells relays of commits.
        notify: bool,
    },
    /// Relays until it is told to end.
    Run,
    /// Relays what is due and ends.
    Once(Once),
    /// Looks at everything that could keep events from being sent.
    Check {
        /// As JSON.
        json: bool,
    },
    /// Appends one event.
    Enqueue(Enqueue),
    /// Says what the outbox holds.
    Status {
        /// As JSON.
        json: bool,
    },
    /// Works on events by hand.
    Operate(Operate),
}

/// The id of `--config`.
pub(super) const CONFIG: &str = "config";

/// Understands a command line, program name first.
///
/// # Errors
/// A usage error, or a request for help or the version: `use_stderr()` of the error tells them apart, and the
/// exit codes are 64 and 0. Never clap's own `exit()`, whose code is 2.
pub(crate) fn parse(line: impl IntoIterator<Item = OsString>) -> Result<Args, clap::Error> {
    let mut matches = command().try_get_matches_from(line).map_err(without_addresses)?;
    // `command` requires one of its subcommands, and `action` knows them all.
    let missing = || command().error(ErrorKind::MissingSubcommand, "a command is required");
    let (name, matches) = matches.remove_subcommand().ok_or_else(missing)?;
    let action = action(&name, &matches).ok_or_else(missing)?;
    Ok(Args { action, verbose: matches.get_count("verbose"), matches })
}

/// clap repeats what it could not place. An address among the arguments may hold a password.
fn without_addresses(mut error: clap::Error) -> clap::Error {
    let holds_address = |value: &ContextValue| match value {
        ContextValue::String(text) => text.contains("://") || text.contains("password"),
        _ => false,
    };
    let suspects: Vec<ContextKind> =
        error.context().filter(|(_, value)| holds_address(value)).map(|(kind, _)| kind).collect();
    for kind in suspects {
        error.insert(kind, ContextValue::String("(hidden)".into()));
    }
    error
}

fn action(name: &str, matches: &ArgMatches) -> Option<Action> {
    Some(match name {
        "init" => Action::Init {
            print: matches.get_flag("print"),
            inbox: matches.get_flag("inbox"),
            notify: matches.get_flag("notify"),
        },
        "run" => Action::Run,
        "once" => Action::Once(once::read(matches)),
        "check" => Action::Check { json: matches.get_flag("json") },
        "enqueue" => Action::Enqueue(enqueue::read(matches)?),
        "status" => Action::Status { json: matches.get_flag("json") },
        name => Action::Operate(operate::read(name, matches)?),
    })
}

/// The whole command line.
fn command() -> Command {
    let verbose = Arg::new("verbose").short('v').long("verbose").action(ArgAction::Count).global(true);
    Command::new("outboxd")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Relays committed events from a PostgreSQL outbox table to RabbitMQ, at least once")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .arg(
            Arg::new(CONFIG)
                .long("config")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .allow_hyphen_values(true)
                .global(true)
                .help("read settings from this TOML file [OUTBOXD_CONFIG]"),
        )
        .arg(verbose.help("log ticks and retries, too; wins over RUST_LOG"))
        .args(SETTINGS.iter().filter(|it| it.group == Group::Log).map(|it| flag(it).global(true)))
        .subcommands([init(), check::command(), run(), once_command(), enqueue::command(), status()])
        .subcommands(operate::commands())
        .after_help(
            "Examples:\n  \
             outboxd init --print\n  \
             DATABASE_URL=postgres://app@db/app AMQP_URL=amqp://app@mq outboxd run",
        )
}

fn init() -> Command {
    settings(Command::new("init"), &["database_url", "table", "open_timeout"])
        .about("Create the outbox table, or bring it up to date")
        .arg(Arg::new("print").long("print").action(ArgAction::SetTrue).help("print the SQL, change nothing"))
        .arg(
            Arg::new("inbox")
                .long("inbox")
                .action(ArgAction::SetTrue)
                .conflicts_with("notify")
                .help("the table of a consumer instead, event_inbox"),
        )
        .arg(
            Arg::new("notify")
                .long("notify")
                .action(ArgAction::SetTrue)
                .help("also the trigger that tells a relay with --listen of commits"),
        )
        .after_help(examples("outboxd init --print | psql", "outboxd init --table app.event_outbox"))
}

fn run() -> Command {
    settings(Command::new("run"), &all()).about("Relay at a fixed rate until SIGTERM or SIGINT").after_help(
        examples("outboxd run --config /etc/outboxd.toml", "outboxd run --interval 5s --min-age 0s"),
    )
}

fn once_command() -> Command {
    let mut names = all();
    names.retain(|name| !["interval", "listen", "listen_url", "metrics_addr"].contains(name));
    once::flags(settings(Command::new("once"), &names))
        .about("Relay everything that is due, then end: for cron")
        .after_help(examples(
            "outboxd once --config /etc/outboxd.toml",
            "outboxd once --max-duration 50s --json",
        ))
}

fn status() -> Command {
    let names = [
        "database_url",
        "amqp_url",
        "table",
        "time_zone",
        "open_timeout",
        "min_age",
        "max_age",
        "listen",
        "max_failures",
        "on_dead",
    ];
    settings(Command::new("status"), &names)
        .about("Say what the outbox holds and whether both servers are there")
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("print JSON"))
        .after_help(examples("outboxd status", "outboxd status --json --config /etc/outboxd.toml"))
}

pub(super) fn all() -> Vec<&'static str> {
    SETTINGS.iter().map(|setting| setting.name).collect()
}

/// The flags of these settings, under the headings of their groups.
pub(super) fn settings(command: Command, names: &[&str]) -> Command {
    // Those of the log are there already, for all commands.
    let used = SETTINGS.iter().filter(|it| it.group != Group::Log && names.contains(&it.name));
    command.args(used.map(flag))
}

fn flag(setting: &Setting) -> Arg {
    let default = match setting.default {
        Some("") => "\"\"; ".into(),
        Some(default) => format!("{default}; "),
        None => String::new(),
    };
    // clap wants names that outlive it, and there is one command line per process.
    let long: &'static str = setting.name.replace('_', "-").leak();
    let argument = Arg::new(setting.name);
    let argument = match setting.is_switch() {
        // Only after a =, or it would take the next word for its value.
        true => argument.num_args(0..=1).require_equals(true).default_missing_value("on"),
        false => argument,
    };
    argument
        .long(long)
        .value_name(setting.placeholder)
        // Our own parser knows the accepted form of `-5s`; clap would only see an unknown flag.
        .allow_hyphen_values(true)
        .help_heading((setting.group != Group::Log).then(|| heading(setting.group)))
        .help(format!("{} [{default}{}]", setting.meaning, setting.variable()))
}

fn heading(group: Group) -> &'static str {
    match group {
        // The first heading explains the brackets of all.
        Group::Servers => "Servers [default; environment]",
        group => group.title(),
    }
}

pub(super) fn examples(first: &str, second: &str) -> String {
    format!("Examples:\n  {first}\n  {second}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn parsed(line: &[&str]) -> Result<Args, clap::Error> {
        parse(["outboxd"].iter().chain(line).map(OsString::from))
    }

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn commands_say_what_to_do() {
        let cases: [(&[&str], Action); 10] = [
            (&["init"], Action::Init { print: false, inbox: false, notify: false }),
            (&["init", "--print", "--notify"], Action::Init { print: true, inbox: false, notify: true }),
            (&["run"], Action::Run),
            (&["-v", "once", "--workers", "1"], Action::Once(Once::default())),
            (&["once", "--dry-run"], Action::Once(Once { dry_run: true, ..Once::default() })),
            (
                &["once", "--max-duration", "50s", "--max-events=7", "--json"],
                Action::Once(Once {
                    dry_run: false,
                    max_duration: Some(Duration::from_secs(50)),
                    max_events: Some(7),
                    json: true,
                }),
            ),
            (&["check", "--json"], Action::Check { json: true }),
            (&["status", "--json"], Action::Status { json: true }),
            (
                &["enqueue", "order.paid"],
                Action::Enqueue(Enqueue {
                    event_type: "order.paid".into(),
                    payload: "{}".into(),
                    ordering_key: None,
                    headers: None,
                    exchange: None,
                    routing_key: None,
                    expires_in: None,
                    delay: None,
                }),
            ),
            (
                &[
                    "enqueue",
                    "t",
                    "-5",
                    "--ordering-key",
                    "-k",
                    "--headers",
                    "{\"a\": 1}",
                    "--exchange",
                    "",
                    "--routing-key=r",
                    "--expires-in",
                    "1h 30m",
                    "--delay",
                    "0s",
                ],
                Action::Enqueue(Enqueue {
                    event_type: "t".into(),
                    payload: "-5".into(),
                    ordering_key: Some("-k".into()),
                    headers: Some("{\"a\": 1}".into()),
                    exchange: Some(String::new()),
                    routing_key: Some("r".into()),
                    expires_in: Some(Duration::from_secs(5400)),
                    delay: Some(Duration::ZERO),
                }),
            ),
        ];
        for (line, expected) in cases {
            assert_eq!(parsed(line).unwrap().action, expected, "{line:?}");
        }
        let standard_input = parsed(&["enqueue", "t", "-"]).unwrap().action;
        assert!(matches!(standard_input, Action::Enqueue(event) if event.payload == "-"));
        for (line, verbose) in [(&["run"][..], 0), (&["run", "-v"], 1), (&["-vv", "run"], 2)] {
            assert_eq!(parsed(line).unwrap().verbose, verbose, "{line:?}");
        }
    }

    #[test]
    fn each_command_has_the_settings_that_it_uses() {
        let cases = [
            ("init", "--table", true),
            ("init", "--amqp-url", false),
            ("enqueue", "--database-url", true),
            ("enqueue", "--workers", false),
            ("status", "--min-age", true),
            ("status", "--interval", false),
            ("once", "--interval", false),
            ("once", "--grace", true),
            ("run", "--interval", true),
        ];
        for (name, flag, expected) in cases {
            let mut line = vec![name];
            line.extend((name == "enqueue").then_some("type"));
            line.extend([flag, "-x"]);
            assert_eq!(parsed(&line).is_ok(), expected, "{line:?}");
        }
        for setting in SETTINGS {
            let given = [setting.flag(), "-1".into()].join("=");
            assert!(parsed(&["run", &given]).is_ok(), "{}", setting.name);
            let apart = parsed(&["run", &setting.flag(), "-1"]).is_ok();
            assert_eq!(apart, !setting.is_switch(), "{}", setting.name);
        }
    }

    #[test]
    fn usage_errors_are_told_from_help() {
        let cases: [(&[&str], bool); 13] = [
            (&["--help"], false),
            (&["run", "-h"], false),
            (&["help", "once"], false),
            (&["--version"], false),
            (&[], true),
            (&["relay"], true),
            (&["run", "--workres", "1"], true),
            (&["run", "--workers", "1", "--workers", "2"], true),
            (&["enqueue", "t", "{}", "--delay", "-5s"], true),
            (&["enqueue", "t", "{}", "--delay", "3651d"], true),
            (&["once", "--max-duration", "0s"], true),
            (&["once", "--max-events", "0"], true),
            (&["once", "--dry-run", "--max-events", "1"], true),
        ];
        for (line, expected) in cases {
            assert_eq!(parsed(line).unwrap_err().use_stderr(), expected, "{line:?}");
        }
    }

    #[test]
    fn usage_errors_repeat_no_address() {
        let cases: [&[&str]; 8] = [
            &["postgres://u:hunter2@h"],
            &["run", "postgres://u:hunter2@h"],
            &["run", "host=h password=hunter2"],
            &["run", "--postgres://u:hunter2@h"],
            &["run", "-postgres://u:hunter2@h"],
            &["run", "--amqp", "amqp://u:hunter2@h"],
            &["run", "--amqp=amqp://u:hunter2@h"],
            &["enqueue", "t", "{}", "--delay", "amqp://u:hunter2@h"],
        ];
        for line in cases {
            let message = parsed(line).unwrap_err().to_string();
            assert!(!message.contains("hunter2"), "{message}");
        }
    }

    #[test]
    fn help_fits_a_screen() {
        for name in
            ["init", "check", "run", "once", "enqueue", "status", "list", "show", "retry", "skip", "purge"]
        {
            let help = parsed(&[name, "--help"]).unwrap_err().to_string();
            assert!(help.lines().count() <= 56, "{help}");
            assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
            assert_eq!(help.lines().filter(|line| line.starts_with("  outboxd ")).count(), 2, "{help}");
        }
    }
}
