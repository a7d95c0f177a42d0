//! `outboxd skip`.

use clap::{Arg, ArgAction, ArgMatches, Command};
use outboxd::outbox::{self, Changes, Filter, Listed, Outbox, SKIPPABLE};

use super::super::args::{examples, settings};
use super::super::exit::Exit;
use super::super::print;
use super::named::{self, Named};
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
                .help("only the key's first unfinished one, if it blocks the others"),
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
    let named = match Named::look(outbox, &asked.filter) {
        Ok(named) => named,
        Err(error) => return report::failed(&error),
    };
    let mut kept = 0;
    let result = outbox.skip(&skip, |so_far| report::note("skip", so_far, &mut kept, None));
    let (mut further, mut left) = (Vec::new(), Vec::new());
    match &result {
        Ok(changes) if asked.head => further = about_head(outbox, asked, changes),
        Ok(changes) => left = named.left(changes, why_left),
        Err(_) => {}
    }
    further.extend(named::sentences(&left));
    let words = report::Words {
        command: "skip",
        done: "skipped",
        left: "being sent right now, or finished meanwhile",
        dry_run: asked.dry_run,
        json: asked.json,
    };
    named.exit(report::changes(&words, result, kept, &further, &[("left", named::json(&left))]))
}

fn why_left(event: &Listed) -> String {
    match event.status.as_str() {
        status @ ("PUBLISHED" | "EXPIRED" | "SKIPPED") => format!("it is finished: {status}"),
        status => format!("it is {status}, and another condition does not fit"),
    }
}

/// Which event went, or why none did.
fn about_head(outbox: &mut Outbox, asked: &Skip, changes: &Changes) -> Vec<String> {
    if let Some(head) = changes.examples.first() {
        return vec![format!("event {}: {}", head.id, print::one_line(&head.event_id))];
    }
    let key = asked.filter.ordering_key.clone().unwrap_or_default();
    let shown = print::one_line(&key);
    vec![match outbox.head(key) {
        Ok(Some(head)) if head.standing.blocks_key() => {
            format!(
                "key {shown} is blocked by event {}, which is not one of those that are meant",
                head.listed.id
            )
        }
        Ok(Some(head)) => {
            format!("key {shown} is not blocked: its first event, {}, is {}", head.listed.id, head.standing)
        }
        Ok(None) => format!("key {shown} is not blocked: it has no unfinished event"),
        // What was asked for is done; this was only an explanation.
        Err(_) => return Vec::new(),
    }]
}
