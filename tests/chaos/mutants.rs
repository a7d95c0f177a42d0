//! The checker's own proof: relays with known defects, each of which it has to catch.
//!
//! A defect shows only under the faults that it makes wrong, so each has faults, and events, that favour it; the checker is
//! the same for all, and the same as for the relay without defects.

use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::faults::Kind::{self, BrokerRoad, DatabaseCloses, RelayFreeze};
use crate::faults::Trouble::{Refuse, Reset, Slow, Stall, Swallow, SwallowAnswers};
use crate::run::{self, Plan};

/// How long faults go on for each.
const SECONDS: u64 = 30;

/// A defect: its name in the relay's sources, what it is, the invariants of which one at least has to be found broken,
/// the faults that favour it, and how many events in a hundred are made to be refused.
struct Mutant {
    name: &'static str,
    what: &'static str,
    breaks: &'static [&'static str],
    kinds: &'static [Kind],
    poison_percent: u64,
    /// How many faults in a hundred outlast the relay's timeouts.
    long_percent: u64,
}

/// The last one is the relay as it is, under the faults of all the others: it must not be caught.
const MUTANTS: [Mutant; 8] = [
    Mutant {
        name: "nack-is-ack",
        what: "a nack counts as an ack, as the client's ConfirmSmoother has it",
        breaks: &["I5"],
        kinds: &[BrokerRoad(Reset)],
        poison_percent: 20,
        long_percent: 20,
    },
    Mutant {
        name: "returns-ignored",
        what: "an ack counts although the message was returned",
        breaks: &["I5"],
        kinds: &[BrokerRoad(Reset)],
        poison_percent: 20,
        long_percent: 20,
    },
    Mutant {
        name: "settle-before-confirm",
        what: "what is sent is published",
        breaks: &["I1", "I5"],
        kinds: &[Kind::BrokerKill, BrokerRoad(Reset), BrokerRoad(Swallow), BrokerRoad(Refuse)],
        poison_percent: 6,
        long_percent: 20,
    },
    Mutant {
        name: "outage-counted",
        what: "a lost connection counts as a refusal",
        breaks: &["I7"],
        kinds: &[BrokerRoad(Reset), BrokerRoad(SwallowAnswers), Kind::BrokerCloses],
        poison_percent: 6,
        long_percent: 20,
    },
    Mutant {
        name: "hold-back-off",
        what: "the events of a key do not wait for each other",
        breaks: &["I6"],
        kinds: &[BrokerRoad(Reset), Kind::ExchangeGone],
        poison_percent: 6,
        long_percent: 20,
    },
    Mutant {
        name: "refusals-without-claim",
        what: "refusals are written after their claim was lost",
        breaks: &["I8"],
        // A slow road keeps the claim's events on their way while its session ends.
        kinds: &[BrokerRoad(Slow), BrokerRoad(Slow), DatabaseCloses, DatabaseCloses, RelayFreeze],
        poison_percent: 25,
        long_percent: 20,
    },
    Mutant {
        name: "kill-switch-off",
        what: "a connection that is given up is not ended",
        breaks: &["I3", "I9", "I10"],
        kinds: &[BrokerRoad(Swallow), BrokerRoad(Stall), Kind::BrokerFreeze],
        poison_percent: 6,
        long_percent: 100,
    },
    Mutant {
        name: "none",
        what: "no defect",
        breaks: &[],
        kinds: &[
            Kind::BrokerKill,
            Kind::BrokerCloses,
            Kind::BrokerFreeze,
            Kind::ExchangeGone,
            RelayFreeze,
            DatabaseCloses,
            BrokerRoad(Reset),
            BrokerRoad(Refuse),
            BrokerRoad(Swallow),
            BrokerRoad(SwallowAnswers),
            BrokerRoad(Stall),
            BrokerRoad(Slow),
        ],
        poison_percent: 20,
        long_percent: 50,
    },
];

/// Runs each, and fails when one with a defect is not caught, or the one without is.
pub fn all(seed: u64) -> ExitCode {
    if !cfg!(feature = "mutants") {
        println!("This relay has no known defects: run make chaos-mutants");
        return ExitCode::FAILURE;
    }
    let chosen = std::env::var("MUTANT").unwrap_or_default();
    let mut wrong = 0;
    for mutant in MUTANTS.iter().filter(|it| chosen.is_empty() || it.name == chosen) {
        let began = Instant::now();
        let plan = Plan {
            kinds: mutant.kinds.to_vec(),
            poison_percent: mutant.poison_percent,
            long_percent: mutant.long_percent,
            hands: 3,
            pause_ms: (200, 800),
            // What is lost or stuck by the defect is not waited for.
            drain: Duration::from_secs(45),
            mutant: Some(mutant.name),
            ..Plan::all(seed, Duration::from_secs(SECONDS))
        };
        let verdict = run::run(&plan);
        let seconds = began.elapsed().as_secs();
        let found: Vec<&str> = verdict.violations.0.keys().copied().collect();
        let Mutant { name, what, breaks, .. } = mutant;
        let caught = breaks.iter().find(|invariant| found.contains(invariant));
        let verdict_is_right = if breaks.is_empty() { found.is_empty() } else { caught.is_some() };
        let word = match (verdict_is_right, breaks.is_empty()) {
            (true, true) => "clean ",
            (true, false) => "caught",
            (false, true) => "BLAMED",
            (false, false) => "MISSED",
        };
        println!("{word}  {name}: {what}. Broken: {} (a run of {seconds} s)", found.join(", "));
        match caught.and_then(|invariant| verdict.violations.0.get(invariant)) {
            Some((_, stories)) => println!("        {}", stories.first().map_or("", String::as_str)),
            None => print!("{}", verdict.violations),
        }
        if !verdict_is_right {
            wrong += 1;
            println!("        To see it again: make chaos-mutants MUTANT={name} SEED={seed}");
        }
        let _ = fs::remove_dir_all(verdict.folder);
    }
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
