//! What a run was, in numbers.

use std::collections::BTreeMap;
use std::fmt;

use crate::ledger::{End, Fault, Millis, Outcome};
use crate::setting::RELAYS;

use super::copies::{bound, copies};
use super::delivery::is_kept;
use super::order::compared;
use super::processes::memory;
use super::{Facts, Violations};

/// How many kinds of faults a run has to meet, of so many that could be drawn; one that met fewer proves too little.
pub fn kinds_least(kinds: usize) -> usize {
    (kinds / 4).max(1)
}

#[derive(Debug, Default, PartialEq)]
pub struct Report {
    pub attempted: usize,
    pub committed: usize,
    pub rolled_back: usize,
    /// Transactions' events whose writer never learnt the end.
    pub unknown: usize,
    pub received: usize,
    pub lost: usize,
    pub unexpected: usize,
    pub duplicated: u64,
    pub bound: u64,
    pub redelivered: usize,
    pub compared: usize,
    pub reordered: usize,
    pub stuck: usize,
    pub published: usize,
    pub ends: BTreeMap<&'static str, usize>,
    /// Of each kind of fault: for each the time from its end, or that of an outage that went on then, to the next message,
    /// in milliseconds.
    pub faults: BTreeMap<String, Vec<u64>>,
    /// The longest time from SIGTERM to a relay's end, in milliseconds.
    pub longest_end_ms: u64,
    /// Of each relay: its memory before the first fault, and at rest after the last one, in KiB.
    pub memory: Vec<(u64, u64)>,
}

impl Report {
    pub fn of(facts: &Facts, violations: &Violations) -> Report {
        let count = |invariant: &str| violations.0.get(invariant).map_or(0, |(count, _)| *count);
        let mut report = Report {
            bound: bound(&facts.faults),
            compared: compared(facts),
            memory: (0..RELAYS).filter_map(|relay| memory(relay, facts)).collect(),
            ..Report::default()
        };
        for event in facts.events.values() {
            report.attempted += 1;
            report.committed += usize::from(event.committed());
            report.rolled_back += usize::from(!event.committed());
            report.unknown += usize::from(event.outcome == Outcome::Unknown);
            report.received += usize::from(!event.receipts.is_empty());
            report.redelivered += event.receipts.iter().filter(|(_, it)| it.redelivered).count();
            report.lost += usize::from(event.committed() && is_kept(event) && event.receipts.is_empty());
            report.duplicated += copies(event);
            report.published += usize::from(event.was("PUBLISHED"));
        }
        (report.unexpected, report.reordered, report.stuck) = (count("I2"), count("I6"), count("I4"));
        for life in &facts.lives {
            let end = match life.end {
                End::Killed => "killed",
                End::Asked { took_ms, .. } => {
                    report.longest_end_ms = report.longest_end_ms.max(took_ms);
                    "asked to end"
                }
                End::Stuck { .. } => "stuck",
                End::Unasked { .. } => "ended by themselves",
                End::Done { .. } => "commands",
            };
            *report.ends.entry(end).or_default() += 1;
        }
        let mut arrivals: Vec<u64> =
            facts.events.values().flat_map(|event| event.receipts.iter().map(|(_, it)| it.at)).collect();
        arrivals.sort_unstable();
        for fault in &facts.faults {
            let whole = whole_at(fault, &facts.faults);
            let next = arrivals.get(arrivals.partition_point(|at| *at < whole));
            let times = report.faults.entry(fault.kind.clone()).or_default();
            times.push(next.map_or(0, |at| at - whole));
        }
        report
    }

    /// Why the run proves too little, if it does.
    pub fn too_little(&self, kinds: usize) -> Option<String> {
        let met = self.faults.len();
        let needed = kinds_least(kinds);
        if met < needed {
            return Some(format!("only {met} kinds of faults were met, {needed} are the least of {kinds}"));
        }
        (self.received == 0 || self.compared == 0)
            .then(|| "nothing was received, or nothing of it had an order to compare".into())
    }
}

/// When a fault was over, and every outage of a whole server that went on then.
fn whole_at(fault: &Fault, faults: &[Fault]) -> Millis {
    let is_outage = |it: &&Fault| {
        let (kind, is_road) = (&it.kind, it.kind.contains("Road"));
        !is_road && (kind.starts_with("Broker") || kind.starts_with("Database"))
    };
    let mut at = fault.healed;
    while let Some(later) = faults.iter().filter(is_outage).find(|it| it.start <= at && at < it.healed) {
        at = later.healed;
    }
    at
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: usize = self.faults.values().map(Vec::len).sum();
        writeln!(f, "attempted    {:>7}", self.attempted)?;
        writeln!(
            f,
            "committed    {:>7}   of {} whose end the writer never learnt",
            self.committed, self.unknown
        )?;
        writeln!(f, "rolled back  {:>7}", self.rolled_back)?;
        writeln!(f, "published    {:>7}", self.published)?;
        writeln!(f, "received     {:>7}", self.received)?;
        writeln!(f, "lost         {:>7}", self.lost)?;
        writeln!(f, "unexpected   {:>7}", self.unexpected)?;
        writeln!(
            f,
            "duplicated   {:>7}   of at most {}; {} more by the broker itself",
            self.duplicated, self.bound, self.redelivered
        )?;
        writeln!(f, "reordered    {:>7}   of {} pairs of one key", self.reordered, self.compared)?;
        writeln!(f, "stuck        {:>7}", self.stuck)?;
        let ends: Vec<String> = self.ends.iter().map(|(end, count)| format!("{count} {end}")).collect();
        writeln!(
            f,
            "relays       {}; at most {} ms from SIGTERM to the end",
            ends.join(", "),
            self.longest_end_ms
        )?;
        let mib = |kib: u64| kib as f64 / 1024.0;
        let memory: Vec<String> = self
            .memory
            .iter()
            .map(|(before, after)| format!("{:.1} -> {:.1}", mib(*before), mib(*after)))
            .collect();
        writeln!(f, "memory       MiB before the first fault and after the last: {}", memory.join(", "))?;
        writeln!(
            f,
            "faults       {faults:>7}   and from when both servers were there again to the next message:"
        )?;
        writeln!(f, "    {:<30} {:>5} {:>8} {:>8}", "", "times", "p50 ms", "max ms")?;
        for (kind, times) in &self.faults {
            let mut times = times.clone();
            times.sort_unstable();
            let (p50, max) = (times[(times.len() - 1) / 2], times[times.len() - 1]);
            writeln!(f, "    {kind:<30} {:>5} {p50:>8} {max:>8}", times.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::event;
    use super::*;
    use crate::ledger::Fate;

    #[test]
    fn a_run_is_told_in_numbers() {
        let mut facts = Facts::default();
        let events = [
            event("a", Fate::Kept).row(1, "k").published().arrived(1).arrived(3),
            event("b", Fate::Kept).row(2, "k").published().arrived(2),
            event("c", Fate::Kept).rolled_back(),
            event("d", Fate::Kept).published(),
        ];
        facts.events.extend(events.map(|event| (event.attempt.event_id.clone(), event)));
        let fault = |kind: &str, start, healed| Fault { kind: kind.into(), relay: None, start, healed };
        facts.faults = vec![
            fault("BrokerKill", 0, 1050),
            fault("BrokerKill", 1100, 1150),
            fault("Once", 0, 9999),
            // The broker was down until 1150, and a message came at 1200.
            fault("RelayKill", 0, 1120),
        ];
        let violations = facts.judge();
        let report = Report::of(&facts, &violations);
        assert_eq!(
            (report.attempted, report.committed, report.rolled_back, report.received, report.lost),
            (4, 3, 1, 2, 1)
        );
        assert_eq!((report.duplicated, report.compared), (1, 1));
        assert_eq!(report.faults["BrokerKill"], [50, 50]);
        assert_eq!(report.faults["Once"], [0]);
        assert_eq!(report.faults["RelayKill"], [50]);
        assert_eq!(report.too_little(8), None);
        assert!(report.too_little(40).is_some_and(|text| text.contains("only 3 kinds")));
        let shown = report.to_string();
        assert!(shown.contains("lost               1") && shown.contains("BrokerKill"), "{shown}");
    }

    #[test]
    fn a_run_without_faults_or_order_proves_too_little() {
        assert!(Report::default().too_little(1).is_some());
        let report = Report { faults: [("Once".to_owned(), vec![1])].into(), ..Report::default() };
        assert!(report.too_little(1).is_some());
    }
}
