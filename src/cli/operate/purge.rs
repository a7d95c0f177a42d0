//! `outboxd purge`.

use std::time::Duration;

use clap::{ArgMatches, Command};
use outboxd::outbox::{self, Filter, Listed, Outbox, PURGEABLE};

use super::super::args::{examples, settings};
use super::super::exit::Exit;
use super::named::{self, Named};
use super::{filter, report};

/// Which events to delete.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Purge {
    filter: Filter,
    older_than: Option<Duration>,
    limit: Option<u64>,
    dry_run: bool,
    json: bool,
}

pub(super) fn command() -> Command {
    let command = settings(
        Command::new("purge"),
        &["database_url", "table", "time_zone", "open_timeout", "retention"],
    )
    .about("Delete finished events: published, expired and skipped ones, dead ones only by --status dead");
    let command = filter::flags(command, &["filter_older_than"])
        .mut_arg("filter_older_than", |arg| arg.help("finished at least so long ago"));
    filter::change_flags(command).after_help(examples(
        "outboxd purge --older-than 30d",
        "outboxd purge --older-than 90d --status dead --limit 10000 --dry-run",
    ))
}

pub(super) fn read(matches: &ArgMatches) -> Purge {
    let mut filter = filter::read(matches);
    // Here it is the age since the end.
    let older_than = filter.older_than.take();
    let limit = filter::limit(matches);
    let (dry_run, json) = (matches.get_flag("dry_run"), matches.get_flag("json"));
    Purge { filter, older_than, limit, dry_run, json }
}

pub(super) fn purge(outbox: &mut Outbox, retention: Option<Duration>, asked: &Purge) -> Exit {
    let Some(finished_before) = asked.older_than.or(retention) else {
        return report::usage("purge: say how old, with --older-than TIME or the setting retention");
    };
    if let Some(problem) = filter::refuse(&asked.filter, &PURGEABLE, "unfinished events are never purged") {
        return report::usage(&problem);
    }
    let purge = outbox::Purge {
        filter: asked.filter.clone(),
        finished_before,
        limit: asked.limit,
        after: None,
        dry_run: asked.dry_run,
    };
    let named = match Named::look(outbox, &asked.filter) {
        Ok(named) => named,
        Err(error) => return report::failed(&error),
    };
    let mut kept = 0;
    let progress = report::show("purged", asked.dry_run, |go_on| {
        outbox.purge(&outbox::Purge { dry_run: true, ..purge.clone() }, go_on)
    });
    let result = outbox.purge(&purge, |so_far| report::note("purge", so_far, &mut kept, progress.as_ref()));
    drop(progress);
    let left = result.as_ref().map(|changes| named.left(changes, why_left)).unwrap_or_default();
    let words = report::Words {
        command: "purge",
        done: "purged",
        left: "held by someone else, or gone meanwhile",
        dry_run: asked.dry_run,
        json: asked.json,
    };
    let fields = [("left", named::json(&left))];
    named.exit(report::changes(&words, result, kept, &named::sentences(&left), &fields))
}

fn why_left(event: &Listed) -> String {
    match event.status.as_str() {
        "WAITING" | "FAILED" => "it is not finished; see: outboxd skip".into(),
        "DEAD" => "it is DEAD: add --status dead".into(),
        status => format!("it is {status}, and not for so long, or another condition does not fit"),
    }
}
