//! `make bench`: the relay against what it is made of and what it promises, on real servers that it starts itself.
//!
//! Rates depend on the machine, so each figure stands beside one that was measured in the same run. Words after
//! `cargo bench --bench relay --` choose groups of figures: `drain`, `table`, `order`, `deletion`, `restart`, `network`,
//! `embedded`. With `OUTBOXD_BENCH_FULL=1` the slow link carries all of its 1,000 events, which takes 100 s instead of
//! 20 s, and the table holds 7 million rows instead of 700,000, which takes some minutes and 5 GB.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

#[path = "../../tests/it/harness/mod.rs"]
mod harness;

mod bare;
mod cpu;
mod deletion;
mod drain;
mod embedded;
mod ground;
mod network;
mod order;
mod restart;
mod table;

use ground::Ground;

/// Measures and prints one group of figures.
type Measure = fn(&Ground);

const GROUPS: [(&str, Measure); 7] = [
    ("drain", drain::measure),
    ("table", table::measure),
    ("order", order::measure),
    ("deletion", deletion::measure),
    ("restart", restart::measure),
    ("network", network::measure),
    ("embedded", embedded::measure),
];

fn main() {
    // `cargo test` runs benches too, to see that they start; `--bench` says that measuring is wanted.
    let (options, chosen): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    if !options.iter().any(|option| option == "--bench") {
        return;
    }
    let ground = Ground::new();
    let (postgres, rabbit) = ground.servers.versions();
    println!("PostgreSQL {postgres}, RabbitMQ {rabbit}");
    for (name, measure) in GROUPS {
        if chosen.is_empty() || chosen.iter().any(|word| word == name) {
            measure(&ground);
        }
    }
}

/// Prints a figure beside what it is to reach.
fn promise(what: &str, measured: &str, to_reach: &str, reached: bool) {
    let verdict = if reached { "" } else { "  MISSED" };
    println!("\n{what}\n    measured: {measured}\n    to reach: {to_reach}{verdict}");
}

/// The middle one of an odd number of figures.
fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
