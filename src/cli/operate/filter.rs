//! The flags that say which events are meant, the same for every command.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use outboxd::config::parse_duration;
use outboxd::outbox::{Filter, Reference, Status, When};
use outboxd::route::Pattern;

/// The flags of times.
pub(super) const TIMES: [&str; 4] =
    ["filter_older_than", "filter_newer_than", "filter_since", "filter_until"];

/// Adds the flags. Not every command has all of the times.
pub(super) fn flags(command: Command, times: &[&str]) -> Command {
    let flag = |id: &'static str, long: &'static str, value: &'static str| {
        Arg::new(id).long(long).value_name(value).allow_hyphen_values(true).help_heading("Which events")
    };
    let many = |arg: Arg| arg.action(ArgAction::Append);
    let time = |id, long| flag(id, long, "TIME").value_parser(duration);
    let moment = |id, long| flag(id, long, "TIME").value_parser(when);
    let all = [
        many(flag("filter_id", "id", "ID")).help("this one, by row id or event id; may be repeated"),
        many(flag("filter_type", "type", "TYPE").value_parser(pattern))
            .help("of this type, * stands for anything; may be repeated"),
        flag("filter_key", "key", "KEY").help("with this ordering key"),
        many(flag("filter_status", "status", "STATUS").value_parser(status).value_delimiter(','))
            .help("with this status, or one of several: dead,failed"),
        time("filter_older_than", "older-than").help("created at least so long ago"),
        time("filter_newer_than", "newer-than").help("created at most so long ago"),
        moment("filter_since", "since").help("published then or later: so long ago, or 2026-01-31T12:00:00Z"),
        moment("filter_until", "until").help("published then or earlier"),
        flag("filter_error", "error", "TEXT").help("whose last error contains this text"),
        flag("filter_limit", "limit", "N")
            .value_parser(value_parser!(u64).range(1..))
            .help("at most so many"),
    ];
    let wanted = |arg: &Arg| {
        let id = arg.get_id().as_str();
        !TIMES.contains(&id) || times.contains(&id)
    };
    command.args(all.into_iter().filter(wanted))
}

/// The flags of a command that changes events.
pub(super) fn change_flags(command: Command) -> Command {
    command
        .arg(
            Arg::new("dry_run")
                .long("dry-run")
                .action(ArgAction::SetTrue)
                .help("change nothing, say what would be changed"),
        )
        .arg(json())
}

/// `--json`.
pub(super) fn json() -> Arg {
    Arg::new("json").long("json").action(ArgAction::SetTrue).help("print JSON")
}

/// `--all`.
pub(super) fn all() -> Arg {
    Arg::new("all")
        .long("all")
        .action(ArgAction::SetTrue)
        .help("yes, all of them: needed when nothing else says which")
}

/// What the flags say.
pub(super) fn read(matches: &ArgMatches) -> Filter {
    let texts = |id: &str| many::<String>(matches, id);
    Filter {
        events: texts("filter_id").iter().map(|text| Reference::parse(text)).collect(),
        event_types: many(matches, "filter_type"),
        ordering_key: one(matches, "filter_key"),
        statuses: many(matches, "filter_status"),
        older_than: one(matches, "filter_older_than"),
        newer_than: one(matches, "filter_newer_than"),
        published_since: one(matches, "filter_since"),
        published_until: one(matches, "filter_until"),
        error: one(matches, "filter_error"),
    }
}

/// `--limit`.
pub(super) fn limit(matches: &ArgMatches) -> Option<u64> {
    one(matches, "filter_limit")
}

/// A flag's value; none when it was not given, or the command has no such flag.
pub(super) fn one<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, id: &str) -> Option<T> {
    matches.try_get_one::<T>(id).ok().flatten().cloned()
}

fn many<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, id: &str) -> Vec<T> {
    matches.try_get_many::<T>(id).ok().flatten().map(|values| values.cloned().collect()).unwrap_or_default()
}

/// Longest time that means anything here: a hundred years.
const TIME_MAX: Duration = Duration::from_secs(36_500 * 24 * 60 * 60);

pub(super) fn duration(text: &str) -> Result<Duration, &'static str> {
    parse_duration(text).filter(|time| *time <= TIME_MAX).ok_or("expected a duration, such as 30s, 5m or 7d")
}

/// A duration, or a moment.
fn when(text: &str) -> Result<When, &'static str> {
    let moment = || humantime::parse_rfc3339(text).ok().map(When::At);
    let ago = duration(text).ok().map(When::Ago);
    ago.or_else(moment)
        .ok_or("expected a duration, such as 2h, or a moment in UTC, such as 2026-01-31T12:00:00Z")
}

fn pattern(text: &str) -> Result<Pattern, String> {
    Pattern::parse(text)
}

fn status(text: &str) -> Result<Status, String> {
    let names = || Status::ALL.map(|status| status.name().to_lowercase()).join(", ");
    Status::parse(text).ok_or_else(|| format!("expected one of {}", names()))
}

/// Why a command refuses these statuses, if it does: it takes only some, because of `why`.
pub(super) fn refuse(filter: &Filter, taken: &[Status], why: &str) -> Option<String> {
    let other = filter.statuses.iter().find(|status| !taken.contains(status))?;
    let taken: Vec<_> = taken.iter().map(|status| status.name()).collect();
    Some(format!(
        "--status {}: {why}, expected one of {}",
        other.name().to_lowercase(),
        taken.join(", ").to_lowercase()
    ))
}
