//! `outboxd once`: what is due is relayed, and what became of it said in one line.

mod run;

use std::thread;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use outboxd::config::{Config, parse_duration};
use outboxd::event::Tally;
use outboxd::outbox::{Backlog, Outbox};
use outboxd::relay::Trouble;
use serde_json::{Value, json};

use super::exit::Exit;
use super::progress::{Progress, Total};
use super::relay::stop_on_signals;
use super::systemd::Manager;
use super::watch::Leaving;
use super::{preview, print};
use run::Run;

const MAX_DURATION: &str = "max_duration";
const MAX_EVENTS: &str = "max_events";

/// How a run is bounded, and how it reports.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Once {
    /// Only says what it would do.
    pub(crate) dry_run: bool,
    /// Claims nothing after this time.
    pub(crate) max_duration: Option<Duration>,
    /// Claims no more than so many events.
    pub(crate) max_events: Option<u64>,
    /// As JSON.
    pub(crate) json: bool,
}

/// Adds its flags.
pub(super) fn flags(command: Command) -> Command {
    command
        .arg(
            Arg::new(MAX_DURATION)
                .long("max-duration")
                .value_name("TIME")
                .value_parser(duration)
                .allow_hyphen_values(true)
                .help("claim nothing once this time is over"),
        )
        .arg(
            Arg::new(MAX_EVENTS)
                .long("max-events")
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..))
                .allow_hyphen_values(true)
                .help("claim at most so many events"),
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("print the summary as JSON"))
        .arg(preview::flag().conflicts_with_all([MAX_DURATION, MAX_EVENTS, "json"]))
}

/// What the flags say.
pub(super) fn read(matches: &ArgMatches) -> Once {
    Once {
        dry_run: preview::is_asked_for(matches),
        max_duration: matches.get_one(MAX_DURATION).copied(),
        max_events: matches.get_one(MAX_EVENTS).copied(),
        json: matches.get_flag("json"),
    }
}

fn duration(text: &str) -> Result<Duration, &'static str> {
    parse_duration(text).filter(|time| !time.is_zero()).ok_or("expected a duration, such as 50s or 10m")
}

/// How a run went.
struct Report {
    tally: Tally,
    took: Duration,
    stopped: bool,
    /// Which bound ended it, if one did: its flag, and its name in JSON.
    bound: Option<(String, &'static str)>,
    /// Whether events were refused or are due still.
    leaves_work: bool,
    /// Why nothing was due, if nothing was.
    backlog: Option<Backlog>,
    min_age: String,
    error: Option<String>,
    exit: Exit,
}

/// Drains what is due and ends.
pub(crate) fn once(config: Config, asked: &Once) -> Exit {
    let mut leaving = Leaving::new(config.metrics.file.clone());
    let report = relay(config, asked, &mut leaving);
    let exit = report.as_ref().map_or(Exit::Internal, |it| it.exit);
    // Before anything is said: whoever reads that may take long.
    leaving.write(exit);
    if let Some(report) = report {
        report.print(asked.json);
    }
    exit
}

/// Relays; none when it could not even begin, which is said.
fn relay(config: Config, asked: &Once, leaving: &mut Leaving) -> Option<Report> {
    let stop = stop_on_signals(&config, &Manager::default())?;
    let (min_age, grace) = (config.claim.min_age, config.grace);
    let progress = show(&config, asked);
    let count = progress.as_ref().map(Progress::count);
    let run = run::run(config, asked, stop, count, leaving.is_wanted())
        .inspect_err(|error| print::error(format_args!("starting a thread failed: {error}")))
        .ok()?;
    drop(progress);
    let Run { tally, tick, took, trouble, backlog, figures, is_late } = run;
    let ended = tick.is_some();
    leaving.note(tally, ended && trouble.is_none(), figures);
    if !ended && !is_late {
        // It has panicked, which is told.
        return None;
    }
    let (stopped, more, idle) =
        tick.map(|it| (it.stopped, it.more, run::is_idle(&it))).unwrap_or((false, true, false));
    let bound = more.then(|| asked.bound(&tally));
    let is_left = more && !matches!(&backlog, Some(Ok(backlog)) if backlog.due == 0);
    let leaves_work = stopped || is_left || tally.leaves_work();
    let (backlog, unseen) = match backlog.filter(|_| idle) {
        Some(Ok(backlog)) => (Some(backlog), None),
        Some(Err(error)) => (None, Some(error)),
        None => (None, None),
    };
    let (error, exit) = match (&trouble, &unseen) {
        (Some(trouble), _) => (Some(since(trouble)), trouble.error.kind().into()),
        (None, Some(error)) => (Some(error.to_string()), error.kind().into()),
        // Only a server that does not answer keeps it for so long.
        (None, None) if !ended => (Some(late(grace)), Exit::Unavailable),
        (None, None) if leaves_work => (None, Exit::Incomplete),
        (None, None) => (None, Exit::Done),
    };
    let min_age = humantime::format_duration(min_age).to_string();
    Some(Report { tally, took, stopped, bound, leaves_work, backlog, min_age, error, exit })
}

fn late(grace: Duration) -> String {
    format!(
        "still not done {grace:?} (grace) after --max-duration: a server does not answer; what was in flight is due again"
    )
}

/// Shows how far it is, where somebody looks. How much there is to do is asked on a session of its own, beside the work.
fn show(config: &Config, asked: &Once) -> Option<Progress> {
    let progress = Progress::start("relayed")?;
    let (count, most) = (progress.count(), asked.max_events.unwrap_or(u64::MAX));
    let (database, claim) = (config.database.clone(), config.claim.clone());
    // Without a thread, or an answer, the line does without.
    let _ = thread::Builder::new().name("outboxd-count".into()).spawn(move || {
        if let Ok(backlog) = Outbox::new(database, claim).backlog() {
            count.is_of(Total::About(count.done().saturating_add(backlog.due).min(most)));
        }
    });
    Some(progress)
}

fn since(trouble: &Trouble) -> String {
    let Trouble { error, since, .. } = trouble;
    format!("{error} (since {})", DateTime::<Utc>::from(*since).to_rfc3339_opts(SecondsFormat::Secs, true))
}

impl Once {
    /// Which of its bounds a run has met that claimed so much.
    fn bound(&self, tally: &Tally) -> (String, &'static str) {
        match (self.max_events, self.max_duration) {
            (Some(events), None) => (format!("--max-events {events}"), MAX_EVENTS),
            (Some(events), _) if tally.claimed >= events => (format!("--max-events {events}"), MAX_EVENTS),
            (_, time) => {
                let time = humantime::format_duration(time.unwrap_or_default()).to_string();
                (format!("--max-duration {time}"), MAX_DURATION)
            }
        }
    }
}

impl Report {
    /// The summary on standard output, the error on standard error.
    fn print(&self, json: bool) {
        if json {
            print::line(self.json());
        } else if let Some(text) = self.text() {
            print::line(text);
        }
        if let Some(error) = &self.error {
            print::error(error);
        }
    }

    fn text(&self) -> Option<String> {
        match (&self.backlog, &self.bound) {
            (Some(backlog), _) if self.error.is_none() => Some(nothing_due(backlog, &self.min_age)),
            // The error says what kept it from looking.
            _ if self.tally.claimed == 0 && self.error.is_some() => None,
            (_, Some((flag, _))) => {
                let left = if self.leaves_work { "more is due" } else { "nothing more is due" };
                Some(format!("{}; {flag} ended it, {left}", self.tally))
            }
            _ => Some(self.tally.to_string()),
        }
    }

    fn json(&self) -> Value {
        let Tally { claimed, published, failed, dead, expired, unconfirmed, released, gone, unwritten } =
            self.tally;
        let not_due = self.backlog.as_ref().map(|it| {
            json!({
                "young": it.young,
                "backing_off": it.backing_off,
                "scheduled": it.scheduled,
                "held_back": it.held_back,
                "being_sent": it.due,
            })
        });
        json!({
            "claimed": claimed,
            "published": published,
            "failed": failed,
            "dead": dead,
            "expired": expired,
            "unconfirmed": unconfirmed,
            "released": released,
            "gone": gone,
            "unwritten": unwritten,
            "seconds": self.took.as_secs_f64(),
            "stopped": self.stopped,
            "limit": self.bound.as_ref().map(|it| it.1),
            "leaves_work": self.leaves_work,
            "not_due": not_due,
            "error": self.error,
            "exit_code": self.exit.code(),
        })
    }
}

/// Why nothing was due, and what sends it.
fn nothing_due(backlog: &Backlog, min_age: &str) -> String {
    let reasons = [
        (backlog.young, format!("younger than min_age {min_age}: --min-age 0s sends it now")),
        (backlog.backing_off, "failed and backing off".into()),
        (backlog.scheduled, "scheduled for later".into()),
        (backlog.held_back, "held back by the first event of their key: outboxd status names it".into()),
        (backlog.due, "being sent by another relay".into()),
    ];
    let mut text = String::from("0 due");
    for (count, reason) in reasons.iter().filter(|(count, _)| *count > 0) {
        text += &format!("; {count} {reason}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_due_says_why() {
        let backlog =
            Backlog { due: 0, young: 1, backing_off: 0, scheduled: 0, held_back: 0, oldest_due: None };
        assert_eq!(
            nothing_due(&backlog, "30s"),
            "0 due; 1 younger than min_age 30s: --min-age 0s sends it now"
        );
        let backlog =
            Backlog { due: 4, young: 0, backing_off: 2, scheduled: 3, held_back: 0, oldest_due: None };
        assert_eq!(
            nothing_due(&backlog, "30s"),
            "0 due; 2 failed and backing off; 3 scheduled for later; 4 being sent by another relay"
        );
    }
}
