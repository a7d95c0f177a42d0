//! `outboxd retry`.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use outboxd::outbox::{Deadline, Filter, Listed, Outbox, RETRYABLE, Redrive, Status, When};
use serde_json::json;

use super::super::args::{examples, settings};
use super::super::exit::Exit;
use super::named::{self, Named};
use super::{filter, report};

/// Which events to make due again, and how.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Retry {
    filter: Filter,
    limit: Option<u64>,
    all: bool,
    expires_in: Option<Duration>,
    no_deadline: bool,
    rate: Option<f64>,
    dry_run: bool,
    json: bool,
}

pub(super) fn command() -> Command {
    let names = ["database_url", "table", "time_zone", "open_timeout"];
    let command = settings(Command::new("retry"), &names)
        .about("Make events due again: dead ones and those that back off, or as --status says");
    let command = filter::flags(command, &filter::TIMES)
        .arg(filter::all().help_heading("Which events"))
        .arg(
            Arg::new("rate")
                .long("rate")
                .value_name("N")
                .value_parser(rate)
                .allow_hyphen_values(true)
                .help("spread them, so many events a second"),
        )
        .arg(
            Arg::new("retry_expires_in")
                .long("expires-in")
                .value_name("TIME")
                .value_parser(filter::duration)
                .allow_hyphen_values(true)
                .help("their new deadline, from when they are due"),
        )
        .arg(
            Arg::new("no_deadline")
                .long("no-deadline")
                .action(ArgAction::SetTrue)
                .conflicts_with("retry_expires_in")
                .help("they have no deadline any more"),
        );
    filter::change_flags(command).after_help(examples(
        "outboxd retry --status dead --type 'order.*' --dry-run",
        "outboxd retry --status published --since 2h --until 2026-01-31T12:00:00Z --rate 200",
    ))
}

pub(super) fn read(matches: &ArgMatches) -> Retry {
    Retry {
        filter: filter::read(matches),
        limit: filter::limit(matches),
        all: matches.get_flag("all"),
        expires_in: filter::one(matches, "retry_expires_in"),
        no_deadline: matches.get_flag("no_deadline"),
        rate: filter::one(matches, "rate"),
        dry_run: matches.get_flag("dry_run"),
        json: matches.get_flag("json"),
    }
}

pub(super) fn retry(outbox: &mut Outbox, asked: &Retry) -> Exit {
    if let Some(problem) = problem(asked) {
        return report::usage(&problem);
    }
    if let Some(until @ When::At(_)) = asked.filter.published_until {
        match outbox.now() {
            Ok(now) if until.is_before(now) => {}
            Ok(_) => return report::usage("--until: is still to come; expected a moment before now"),
            Err(error) => return report::failed(&error),
        }
    }
    let deadline = match asked.expires_in {
        _ if asked.no_deadline => Deadline::Drop,
        Some(life) => Deadline::Within(life),
        None => Deadline::Keep,
    };
    let redrive = Redrive {
        filter: asked.filter.clone(),
        deadline,
        rate: asked.rate,
        limit: asked.limit,
        dry_run: asked.dry_run,
    };
    let named = match Named::look(outbox, &asked.filter) {
        Ok(named) => named,
        Err(error) => return report::failed(&error),
    };
    let mut kept = 0;
    let progress = report::show("retried", asked.dry_run, |go_on| {
        outbox.retry(&Redrive { dry_run: true, ..redrive.clone() }, go_on)
    });
    let result = outbox.retry(&redrive, |so_far| report::note("retry", so_far, &mut kept, progress.as_ref()));
    drop(progress);
    let left =
        result.as_ref().map(|changes| named.left(changes, |it| why_left(asked, it))).unwrap_or_default();
    let mut further = named::sentences(&left);
    let mut last_due = None;
    if let Ok(changes) = &result {
        if changes.overdue > 0 {
            let count = report::events(changes.overdue);
            further.push(format!("left {count}: past the deadline; give --expires-in or --no-deadline"));
        }
        if let Some(rate) = asked.rate {
            let count = if asked.dry_run { changes.matched - changes.overdue } else { changes.changed };
            let seconds = count.saturating_sub(1) as f64 / rate;
            let text = Duration::try_from_secs_f64(seconds).map(report::short_age).unwrap_or_default();
            further.push(format!("the last is due in {text}"));
            last_due = Some(seconds);
        }
        if asked.filter.statuses.contains(&Status::Published) {
            let count = report::events(changes.matched);
            further.push(format!("matched {count}; what was purged is not among them"));
        }
    }
    let words = report::Words {
        command: "retry",
        done: "retried",
        left: "being sent right now, or finished meanwhile",
        dry_run: asked.dry_run,
        json: asked.json,
    };
    let fields = [("last_due_in_seconds", json!(last_due)), ("left", named::json(&left))];
    named.exit(report::changes(&words, result, kept, &further, &fields))
}

/// What to add for this event, if anything helps.
fn why_left(asked: &Retry, event: &Listed) -> String {
    let statuses = &asked.filter.statuses;
    let unnamed = |status| statuses.is_empty() || !statuses.contains(&status);
    match Status::parse(&event.status) {
        Some(Status::Published) if unnamed(Status::Published) => {
            "it was published: add --status published to send it again".into()
        }
        Some(Status::Expired) if unnamed(Status::Expired) => {
            "it expired: add --status expired, with --expires-in TIME or --no-deadline".into()
        }
        Some(Status::Skipped) => "a SKIPPED event cannot be retried".into(),
        Some(Status::Waiting) => {
            format!("it is WAITING, and was not refused; see: outboxd show {}", event.id)
        }
        Some(Status::Failed) if !unnamed(Status::Failed) || statuses.is_empty() => {
            format!("it was made due already; see: outboxd show {}", event.id)
        }
        _ => format!("it is {}, and another condition does not fit", event.status),
    }
}

/// What the flags together must not say.
fn problem(asked: &Retry) -> Option<String> {
    let Retry { filter, .. } = asked;
    if filter.is_empty() && !asked.all {
        return Some(
            "retry: say which events, or --all for every dead one and every one that backs off".into(),
        );
    }
    if let Some(problem) = filter::refuse(filter, &RETRYABLE, "such events cannot be retried") {
        return Some(problem);
    }
    let has = |status| filter.statuses.contains(&status);
    if has(Status::Expired) && asked.expires_in.is_none() && !asked.no_deadline {
        return Some(
            "--status expired: they would expire again; give --expires-in TIME or --no-deadline".into(),
        );
    }
    let whole = filter.published_since.is_some() && matches!(filter.published_until, Some(When::At(_)));
    if has(Status::Published) && !whole && filter.events.is_empty() {
        return Some(
            "--status published: say from when, with --since TIME, and to when, with --until and a moment before now, \
             such as 2026-01-31T12:00:00Z, so that what is sent again is not found again; or which, with --id"
                .into(),
        );
    }
    None
}

/// `200`, `200/s` or `0.5`.
fn rate(text: &str) -> Result<f64, &'static str> {
    let number = text.trim().trim_end_matches("/s");
    let plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let rate = number.parse().ok().filter(|rate| plain && (0.001..=1_000_000.0).contains(rate));
    rate.ok_or("expected events a second, from 0.001 to 1000000, such as 200")
}
