//! Any lines `NAME=value` as the environment.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let pairs: Vec<_> = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    outboxd::properties::environment(&pairs);
});
