//! Any bytes as what a broker does to a channel, two for each step.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let steps = bytes.chunks_exact(2).map(|it| outboxd::properties::Step::of(it[0], it[1]));
    outboxd::properties::ledger(steps);
});
