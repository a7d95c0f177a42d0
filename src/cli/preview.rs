//! `outboxd once --dry-run`: what a run would do.

use clap::{Arg, ArgAction, ArgMatches};
use outboxd::config::Config;
use outboxd::relay::{Plan, Previewed, preview as look};

use super::exit::Exit;
use super::print;

/// Most events that are shown.
const SHOWN_MAX: usize = 100;

const DRY_RUN: &str = "dry_run";

/// Its flag.
pub(super) fn flag() -> Arg {
    Arg::new(DRY_RUN)
        .long("dry-run")
        .action(ArgAction::SetTrue)
        .help("say what would be published, change nothing")
}

/// Whether it was given.
pub(super) fn is_asked_for(matches: &ArgMatches) -> bool {
    matches.get_flag(DRY_RUN)
}

/// Prints what would be done with the first events that are due.
pub(crate) fn preview(config: &Config) -> Exit {
    let seen = match look(config, SHOWN_MAX) {
        Ok(seen) => seen,
        Err(error) => {
            print::error(&error);
            return error.kind().into();
        }
    };
    seen.events.iter().for_each(|it| print::line(print::one_line(&sentence(it))));
    let types = seen.types().into_iter().map(|(event_type, count)| format!("{event_type} {count}"));
    let types = types.collect::<Vec<_>>().join(", ");
    let count = seen.events.len();
    let of = match (seen.more, seen.due) {
        (false, _) => format!("{count} due"),
        (true, Some(due)) => format!("the first {count} of {due} due"),
        (true, None) => format!("the first {count} due"),
    };
    let separator = if types.is_empty() { "" } else { ": " };
    print::line(print::one_line(&format!("{of}{separator}{types}; nothing was sent or changed")));
    Exit::Done
}

/// `publish 4711 01JD... order.paid key "order-7" to exchange "orders", routing key "order.paid"`
fn sentence(event: &Previewed) -> String {
    let (what, how) = match &event.plan {
        Plan::Publish { exchange, routing_key } => {
            ("publish", format!(" to exchange {exchange:?}, routing key {routing_key:?}"))
        }
        Plan::Refuse(reason) => ("refuse", format!(": {reason}")),
        Plan::Dead(reason) => ("dead", format!(": {reason}")),
        Plan::Expire(reason) => ("expire", format!(": {reason}")),
    };
    let key = event.ordering_key.as_ref().map(|key| format!(" key {key:?}")).unwrap_or_default();
    let Previewed { id, event_id, event_type, .. } = event;
    format!("{what:<8} {id} {event_id} {event_type}{key}{how}")
}
