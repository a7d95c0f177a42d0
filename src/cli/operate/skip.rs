//! `outboxd skip`.

use clap::{Arg, ArgAction, ArgMatches, Command};
use outboxd::outbox::{self, Filter, Outbox, SKIPPABLE};

use super::super::args::{examples, settings};
use super::super::exit::Exit;
use super::{filter, report};

/// Which events to give up.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Skip {
    filter: Filter,
    limit: Option<u64>,
    all: bool,
    head: bool,
    reason: Option<String>,
    dry_run: bool,
    json: bool,
}

pub(super) fn command() -> Command {
    let command =
        settings(Command::new("skip"), &["database_url", "table", "time_zone", "open_timeout", "on_dead"])
            .about("Give unfinished events up: they are never sent");
    let command = filter::flags(command, &["filter_older_than", "filter_newer_than"])
        .arg(filter::all().help_heading("Which events"))
        .arg(
            Arg::new("head")
                .long("head")
                .action(ArgAction::SetTrue)
                .requires("filter_key")
                .help_heading("Which events")
                .help("only the first unfinished one of the key, which holds the others back"),
        )
        .arg(
            Arg::new("reason")
                .long("reason")
                .value_name("TEXT")
                .allow_hyphen_values(true)
                .help("why; becomes their last error"),
        );
    filter::change_flags(command).after_help(examples(
        "outboxd skip --key order-7 --head --reason 'cancelled by hand'",
        "outboxd skip --status dead --error NO_ROUTE --dry-run",
    ))
}

pub(super) fn read(matches: &ArgMatches) -> Skip {
    Skip {
        filter: filter::read(matches),
        limit: filter::limit(matches),
        all: matches.get_flag("all"),
        head: matches.get_flag("head"),
        reason: filter::one(matches, "reason"),
        dry_run: matches.get_flag("dry_run"),
        json: matches.get_flag("json"),
    }
}

pub(super) fn skip(outbox: &mut Outbox, asked: &Skip) -> Exit {
    if asked.filter.is_empty() && !asked.all {
        return report::usage("skip: say which events, or --all for every unfinished one");
    }
    if let Some(problem) = filter::refuse(&asked.filter, &SKIPPABLE, "such events are finished") {
        return report::usage(&problem);
    }
    let skip = outbox::Skip {
        filter: asked.filter.clone(),
        head_only: asked.head,
        reason: asked.reason.clone(),
        limit: asked.limit,
        dry_run: asked.dry_run,
    };
    let mut kept = 0;
    let result = outbox.skip(&skip, |so_far| report::note("skip", so_far, &mut kept));
    let further = report::unmatched(outbox, &asked.filter, &result);
    let words = report::Words {
        command: "skip",
        done: "skipped",
        left: "being sent right now, or finished meanwhile",
        dry_run: asked.dry_run,
        json: asked.json,
    };
    report::changes(&words, result, kept, &further, &[])
}
