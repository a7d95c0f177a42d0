//! The commands that work on events by hand: which there are, and how they are read and performed.

mod filter;
mod list;
mod named;
mod purge;
mod report;
mod retry;
mod show;
mod skip;

use clap::{ArgMatches, Command};
use outboxd::config::Operator;
use outboxd::outbox::Outbox;

use super::exit::Exit;

/// One of the commands, with what it was given.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operate {
    List(list::List),
    Show(show::Show),
    Retry(retry::Retry),
    Skip(skip::Skip),
    Purge(purge::Purge),
}

/// Their command lines.
pub(super) fn commands() -> [Command; 5] {
    [list::command(), show::command(), retry::command(), skip::command(), purge::command()]
}

/// Reads one of them; none when `name` is another command.
pub(super) fn read(name: &str, matches: &ArgMatches) -> Option<Operate> {
    Some(match name {
        "list" => Operate::List(list::read(matches)),
        "show" => Operate::Show(show::read(matches)?),
        "retry" => Operate::Retry(retry::read(matches)),
        "skip" => Operate::Skip(skip::read(matches)),
        "purge" => Operate::Purge(purge::read(matches)),
        _ => return None,
    })
}

/// Does it.
pub(super) fn perform(operator: Operator, asked: &Operate) -> Exit {
    let Operator { database, claim, routing, retention } = operator;
    let mut outbox = Outbox::new(database, claim);
    match asked {
        Operate::List(list) => list::list(&mut outbox, list),
        Operate::Show(show) => show::show(&mut outbox, &routing, show),
        Operate::Retry(retry) => retry::retry(&mut outbox, retry),
        Operate::Skip(skip) => skip::skip(&mut outbox, skip),
        Operate::Purge(purge) => purge::purge(&mut outbox, retention, purge),
    }
}
