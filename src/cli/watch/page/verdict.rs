//! What is wrong, in the order in which to look at it, with the commands to run. Pure.

use std::time::{Duration, SystemTime};

use super::super::numbers::Numbers;
use super::words::{ago, count, time};

/// The age of the oldest due event from which on something is wrong. The alert that comes along has the same.
const AGE_MAX: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Good,
    /// A person is needed, but not now.
    Attention,
    /// Events do not get through.
    Bad,
}

impl Level {
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Attention => "warn",
            Self::Bad => "bad",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) level: Level,
    pub(super) text: String,
    pub(super) why: Option<String>,
    pub(super) commands: Vec<&'static str>,
}

impl Verdict {
    fn new(level: Level, text: impl Into<String>) -> Self {
        Self { level, text: text.into(), why: None, commands: Vec::new() }
    }

    fn because(mut self, why: Option<&String>) -> Self {
        self.why = why.cloned();
        self
    }

    fn run(mut self, commands: &[&'static str]) -> Self {
        self.commands = commands.into();
        self
    }
}

/// Everything that is to be said; at least one thing. `illness` is why the relay is not alive, if it is not: whatever else
/// is shown is then as old as that.
pub(super) fn of(numbers: &Numbers, illness: Option<&String>, now: SystemTime) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    if illness.is_some() {
        let text = "The relay is stuck: end it and start it again, nothing is lost by that";
        verdicts.push(Verdict::new(Level::Bad, text).because(illness));
    }
    let figures = numbers.figures.as_ref().filter(|it| !it.is_stale());
    let lasts =
        |since: Option<SystemTime>| since.map_or(String::new(), |at| format!(" for {}", ago(at, now)));
    let Numbers { broker, database, .. } = numbers;
    if broker.blocked {
        let text = format!("The broker has blocked publishers{}", lasts(broker.since));
        let it = Verdict::new(Level::Bad, text).because(broker.reason.as_ref());
        verdicts.push(it.run(&["rabbitmq-diagnostics alarms"]));
    }
    for (name, standing) in [("broker", broker), ("database", database)] {
        if standing.up == Some(false) {
            let text = format!("The {name} has not been usable{}", lasts(standing.since));
            let it = Verdict::new(Level::Bad, text).because(standing.reason.as_ref());
            verdicts.push(it.run(&["outboxd status"]));
        }
    }
    if verdicts.is_empty() && numbers.trouble.is_some() {
        verdicts
            .push(Verdict::new(Level::Bad, "The last tick met trouble").because(numbers.trouble.as_ref()));
    }
    let oldest = figures.and_then(|it| it.backlog.as_ref()?.oldest_due).filter(|age| *age > AGE_MAX);
    if let Some(age) = oldest {
        let text = format!("The oldest due event has been due for {}", time(age));
        verdicts.push(Verdict::new(Level::Bad, text).run(&["outboxd status"]));
    }
    match figures.and_then(|it| it.unfinished).map_or(0, |it| it.dead) {
        0 => {}
        dead => {
            let text = if dead == 1 {
                "1 dead event waits for a person".into()
            } else {
                format!("{} dead events wait for a person", count(dead))
            };
            let commands = ["outboxd list --status dead", "outboxd retry --status dead"];
            verdicts.push(Verdict::new(Level::Attention, text).run(&commands));
        }
    }
    match figures.and_then(|it| it.blocked.as_ref()).map_or(0, |it| it.count) {
        0 => {}
        1 => verdicts.push(Verdict::new(Level::Attention, "1 key is blocked by its first event, see below")),
        keys => {
            let text = format!("{} keys are blocked by their first event, see below", count(keys));
            verdicts.push(Verdict::new(Level::Attention, text));
        }
    }
    if numbers.not_gathered.is_some() && database.up != Some(false) {
        let it = Verdict::new(Level::Attention, "A part of the backlog is not known");
        verdicts.push(it.because(numbers.not_gathered.as_ref()));
    }
    if verdicts.is_empty() {
        let text =
            if numbers.last_tick.is_none() { "The first tick has not ended yet" } else { "All is well" };
        verdicts.push(Verdict::new(Level::Good, text));
    }
    verdicts
}

/// The page's title, which is what a browser's tab shows.
pub(super) fn title(verdicts: &[Verdict]) -> String {
    let is = |level: Level| verdicts.iter().any(|it| it.level == level);
    let state = match () {
        () if is(Level::Bad) => "trouble",
        () if is(Level::Attention) => "needs a look",
        () => "well",
    };
    format!("outboxd: {state}")
}
