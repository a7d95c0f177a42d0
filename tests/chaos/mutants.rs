//! The checker's own proof: relays with known defects, each of which it has to catch.
//!
//! A defect shows only under the faults that it makes wrong, so each has faults, and events, that favour it; the checker is
//! the same for all, and the same as for the relay without defects.

use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::faults::Kind::{self, BrokerRoad, DatabaseCloses, DatabaseRoad, RelayFreeze};
use crate::faults::Trouble::{Refuse, Reset, Swallow, SwallowAnswers};
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
}

const MUTANTS: [Mutant; 7] = [
    Mutant {
        name: "nack-is-ack",
        what: "a nack counts as an ack, as the client's ConfirmSmoother has it",
        breaks: &["I5"],
        kinds: &[BrokerRoad(Reset)],
        poison_percent: 30,
    },
    Mutant {
        name: "returns-ignored",
        what: "an ack counts although the message was returned",
        breaks: &["I5"],
        kinds: &[BrokerRoad(Reset)],
        poison_percent: 30,
    },
    Mutant {
        name: "settle-before-confirm",
        what: "what is sent is published",
        breaks: &["I1", "I5"],
        kinds: &[Kind::BrokerKill, BrokerRoad(Reset), BrokerRoad(Swallow), BrokerRoad(Refuse)],
        poison_percent: 6,
    },
    Mutant {
        name: "outage-counted",
        what: "a lost connection counts as a refusal",
        breaks: &["I7"],
        kinds: &[BrokerRoad(Reset), BrokerRoad(SwallowAnswers), Kind::BrokerCloses],
        poison_percent: 6,
    },
    Mutant {
        name: "hold-back-off",
        what: "the events of a key do not wait for each other",
        breaks: &["I6"],
        kinds: &[BrokerRoad(Reset), Kind::ExchangeGone],
        poison_percent: 6,
    },
    Mutant {
        name: "refusals-without-claim",
        what: "refusals are written after their claim was lost",
        breaks: &["I8"],
        kinds: &[RelayFreeze, DatabaseCloses, DatabaseRoad(Swallow), DatabaseRoad(SwallowAnswers)],
        poison_percent: 60,
    },
    Mutant {
        name: "kill-switch-off",
        what: "a connection that is given up is not ended",
        breaks: &["I3", "I9", "I10"],
        kinds: &[BrokerRoad(Swallow), BrokerRoad(SwallowAnswers), Kind::BrokerFreeze],
        poison_percent: 6,
    },
];

/// Runs each, and fails when one is not caught.
pub fn all(seed: u64) -> ExitCode {
    if !cfg!(feature = "mutants") {
        println!("This relay has no known defects: run make chaos-mutants");
        return ExitCode::FAILURE;
    }
    let chosen = std::env::var("MUTANT").unwrap_or_default();
    let mut missed = 0;
    for mutant in MUTANTS.iter().filter(|it| chosen.is_empty() || it.name == chosen) {
        let began = Instant::now();
        let plan = Plan {
            kinds: mutant.kinds.to_vec(),
            poison_percent: mutant.poison_percent,
            pause_ms: (200, 800),
            // What is lost or stuck by the defect is not waited for.
            drain: Duration::from_secs(20),
            mutant: Some(mutant.name),
            ..Plan::all(seed, Duration::from_secs(SECONDS))
        };
        let verdict = run::run(&plan);
        let seconds = began.elapsed().as_secs();
        let found: Vec<&str> = verdict.violations.0.keys().copied().collect();
        let Mutant { name, what, breaks, .. } = mutant;
        if breaks.iter().any(|invariant| found.contains(invariant)) {
            println!("caught  {name}: {what}. Broken: {} (a run of {seconds} s)", found.join(", "));
            if let Some((_, stories)) = breaks.iter().find_map(|it| verdict.violations.0.get(it)) {
                println!("        {}", stories.first().map_or("", String::as_str));
            }
        } else {
            missed += 1;
            println!("MISSED  {name}: {what}. Broken: {} (a run of {seconds} s)", found.join(", "));
            println!("        To see it again: make chaos-mutants MUTANT={name} SEED={seed}");
        }
        let _ = fs::remove_dir_all(verdict.folder);
    }
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
