//! From arguments and environment to a command, and from its end to an exit code. Knows no SQL and no AMQP.

mod args;
mod check;
mod enqueue;
mod exit;
mod init;
mod logging;
mod once;
mod operate;
mod preview;
mod print;
mod progress;
mod relay;
mod secrets;
mod settings;
mod signals;
mod status;
mod systemd;
mod trouble;
mod watch;

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use outboxd::config::Problems;

use args::{Action, Args};
use exit::Exit;
use systemd::Manager;

/// Runs the command that `arguments` name.
pub(crate) fn main(
    arguments: impl IntoIterator<Item = OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Exit {
    let args = match args::parse(arguments) {
        Ok(args) => args,
        Err(error) => {
            if !error.use_stderr() {
                let _ = error.print();
                return Exit::Done;
            }
            logging::start(0);
            logging::say_all(&error.render().to_string());
            return Exit::Usage;
        }
    };
    logging::start(args.verbose);
    // A panic is a bug of ours. It has been logged by then, and must not look like anything else.
    let exit = catch_unwind(AssertUnwindSafe(|| perform(&args, environment))).unwrap_or(Exit::Internal);
    logging::flush();
    exit
}

fn perform(args: &Args, environment: impl IntoIterator<Item = (OsString, OsString)>) -> Exit {
    let environment: Vec<_> = environment.into_iter().collect();
    // `check` tells of them itself.
    if !matches!(args.action, Action::Check { .. }) {
        settings::warn_of_passwords(&args.matches);
    }
    let done = match &args.action {
        Action::Init { print: true, inbox: true, .. } => Ok(init::print_inbox()),
        Action::Init { print: false, inbox: true, .. } => {
            settings::database(&args.matches, environment).map(|it| init::apply_inbox(&it))
        }
        Action::Init { print: true, inbox: false, notify } => {
            settings::table(&args.matches, environment).map(|table| init::print(&table, *notify))
        }
        Action::Init { print: false, inbox: false, notify } => {
            settings::database(&args.matches, environment).map(|it| init::apply(&it, *notify))
        }
        Action::Enqueue(event) => {
            settings::database(&args.matches, environment).map(|it| enqueue::enqueue(&it, event.clone()))
        }
        Action::Run => {
            let manager = Manager::of(&environment, std::process::id());
            settings::config(&args.matches, environment).map(|it| relay::run(it, manager))
        }
        Action::Once(asked) => settings::config(&args.matches, environment).map(|it| match asked.dry_run {
            true => preview::preview(&it),
            false => once::once(it, asked),
        }),
        Action::Check { json } => Ok(check::check(settings::checked(&args.matches, environment), *json)),
        Action::Status { json } => {
            settings::config(&args.matches, environment).map(|it| status::status(it, *json))
        }
        Action::Operate(asked) => {
            settings::operator(&args.matches, environment).map(|it| operate::perform(it, asked))
        }
    };
    done.unwrap_or_else(|problems| misconfigured(&problems))
}

fn misconfigured(problems: &Problems) -> Exit {
    for problem in &problems.0 {
        print::error(problem);
    }
    Exit::Configuration
}
