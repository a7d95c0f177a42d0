//! The proof: relays, writers, consumers and faults by chance, a ledger of what happened, and a checker of what was
//! promised.
//!
//! ```sh
//! make chaos SECONDS_MAX=180 SEED=7    # faults for 180 seconds, drawn by this seed
//! make chaos KINDS=BrokerRoad,Relay    # only faults whose kinds begin so, to look into one
//! make chaos-mutants                   # known defects in the relay, each of which has to be caught
//! ```
//! A plain `cargo test` runs it for 60 seconds with a seed by chance. Any broken promise is printed with the seed and the
//! command that repeats it. What the seed fixes is what is drawn: which faults, on whom, for how long, and what is
//! written. When each meets what is the machine's.

#![allow(
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr
)]

#[path = "../it/harness/mod.rs"]
mod harness;

// Its tests are run by the target `checker`.
#[allow(dead_code, unused_imports)]
mod check;
mod consumers;
mod dice;
mod faults;
mod fleet;
mod ledger;
mod mutants;
mod run;
mod setting;
mod world;
mod writers;

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};
use std::{env, fs};

use run::{Plan, Verdict};

/// How long faults go on in a plain `cargo test`, in seconds.
const SECONDS: u64 = 60;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    if words.iter().any(|word| word == "--list") {
        println!("chaos: test");
        return ExitCode::SUCCESS;
    }
    let seed = number("SEED").unwrap_or_else(by_chance);
    match words.iter().map(String::as_str).find(|word| !word.starts_with("--")) {
        Some("mutants") => mutants::all(seed),
        // Somebody is looking for another test.
        Some(word) if !"chaos".contains(word) => ExitCode::SUCCESS,
        _ => chaos(seed, number("SECONDS_MAX").unwrap_or(SECONDS)),
    }
}

fn chaos(seed: u64, seconds: u64) -> ExitCode {
    println!("chaos: seed {seed}, faults for {seconds} s");
    // Whatever fails, the last words say how to see it again.
    let kinds = env::var("KINDS").unwrap_or_default();
    let only = if kinds.is_empty() { String::new() } else { format!(" KINDS={kinds}") };
    let again = Again(format!("make chaos SECONDS_MAX={seconds} SEED={seed}{only}"));
    let began = Instant::now();
    let mut plan = Plan::all(seed, Duration::from_secs(seconds));
    plan.kinds.retain(|kind| kinds.split(',').any(|start| kind.name().starts_with(start)));
    assert!(!plan.kinds.is_empty(), "no kind of fault begins with any of KINDS={kinds}");
    let Verdict { violations, report, folder } = run::run(&plan);
    println!("{report}");
    println!("chaos: seed {seed}, {} s in all", began.elapsed().as_secs());
    let too_little = report.too_little(plan.kinds.len());
    if violations.is_empty() && too_little.is_none() {
        let _ = fs::remove_dir_all(folder);
        again.not_needed();
        return ExitCode::SUCCESS;
    }
    println!("{violations}");
    println!("{}", too_little.unwrap_or_default());
    println!("The ledger and the relays' logs are in {}", folder.display());
    ExitCode::FAILURE
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a whole number, not {text}")))
}

fn by_chance() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(1, |time| u64::from(time.subsec_nanos()) ^ time.as_secs())
}

/// Says on drop how to repeat a run.
struct Again(String);

impl Again {
    fn not_needed(self) {
        std::mem::forget(self);
    }
}

impl Drop for Again {
    fn drop(&mut self) {
        println!("To see it again: {}", self.0);
    }
}
