//! `make bench`: the relay against what it is made of and what it promises, on real servers that it starts itself.
//!
//! Rates depend on the machine, so each figure stands beside one that was measured in the same run. The run ends with one
//! table of them all, which is in `benches/FIGURES.md` then. Words after `cargo bench --bench relay --` choose groups of
//! figures: `drain`, `table`, `order`, `deletion`, `restart`, `network`, `embedded`, `curves`; `plots` measures nothing and
//! draws the curves that were measured last. With `OUTBOXD_BENCH_FULL=1` the slow link carries all of its 1,000 events, which takes 100 s instead of
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

#[path = "../page/mod.rs"]
mod page;

mod account;
mod bare;
mod cpu;
mod curves;
mod deletion;
mod drain;
mod embedded;
mod ground;
mod network;
mod order;
mod restart;
mod table;

use ground::Ground;
use page::Page;

/// Measures one group of figures, and puts them onto the page.
type Measure = fn(&Ground, &mut Page);

const GROUPS: [(&str, Measure); 8] = [
    ("drain", drain::measure),
    ("table", table::measure),
    ("order", order::measure),
    ("deletion", deletion::measure),
    ("restart", restart::measure),
    ("network", network::measure),
    ("embedded", embedded::measure),
    ("curves", curves::measure),
];

fn main() {
    // `cargo test` runs benches too, to see that they start; `--bench` says that measuring is wanted.
    let (options, chosen): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    if !options.iter().any(|option| option == "--bench") {
        return;
    }
    let all = chosen.is_empty();
    let is_chosen = |name: &str| all || chosen.iter().any(|word| word == name);
    let groups: Vec<_> = GROUPS.into_iter().filter(|(name, _)| is_chosen(name)).collect();
    if !groups.is_empty() {
        let ground = Ground::new();
        let mut page = Page::open(ground.versions());
        for (name, measure) in groups {
            page.begin(name);
            measure(&ground, &mut page);
            page.end();
        }
        page.write();
    }
    if is_chosen("curves") || is_chosen("plots") {
        curves::draw();
    }
}
