//! `outboxd list`.

use clap::{Arg, ArgAction, ArgMatches, Command};
use outboxd::outbox::{self, Filter, Outbox};
use serde_json::json;

use super::super::args::{examples, settings};
use super::super::exit::Exit;
use super::super::print;
use super::{filter, report};

/// How many events are listed when nothing else is said.
const LIMIT: u64 = 100;

/// Which events to list, and how.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct List {
    filter: Filter,
    limit: Option<u64>,
    after: Option<i64>,
    newest: bool,
    json: bool,
}

pub(super) fn command() -> Command {
    let command = settings(Command::new("list"), &["database_url", "table", "time_zone", "open_timeout"])
        .about("List events, without their payloads");
    filter::flags(command, &filter::TIMES)
        .arg(
            Arg::new("after")
                .long("after")
                .value_name("ID")
                .value_parser(row)
                .allow_hyphen_values(true)
                .help("go on after this row id"),
        )
        .arg(Arg::new("newest").long("newest").action(ArgAction::SetTrue).help("the highest row ids first"))
        .arg(filter::json())
        .after_help(examples(
            "outboxd list --status dead",
            "outboxd list --type 'order.*' --newer-than 1h --json",
        ))
}

pub(super) fn read(matches: &ArgMatches) -> List {
    List {
        filter: filter::read(matches),
        limit: filter::limit(matches),
        after: filter::one(matches, "after"),
        newest: matches.get_flag("newest"),
        json: matches.get_flag("json"),
    }
}

fn row(text: &str) -> Result<i64, &'static str> {
    text.parse().map_err(|_| "expected the row id of an event, such as 4711")
}

pub(super) fn list(outbox: &mut Outbox, asked: &List) -> Exit {
    let limit = asked.limit.unwrap_or(LIMIT);
    let list = outbox::List { filter: asked.filter.clone(), limit, newest: asked.newest, after: asked.after };
    let listing = match outbox.list(&list) {
        Ok(listing) => listing,
        Err(error) => return report::failed(&error),
    };
    if asked.json {
        let events: Vec<_> = listing.events.iter().map(report::event).collect();
        print::line(json!({ "events": events, "next_after": listing.next_after }));
        return Exit::Done;
    }
    if listing.events.is_empty() {
        print::line("no events");
    } else {
        report::table(&listing.events);
    }
    if let Some(after) = listing.next_after {
        print::line(format_args!("there may be more: --after {after}"));
    }
    Exit::Done
}
