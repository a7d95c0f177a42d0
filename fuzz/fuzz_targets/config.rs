//! Any text as the configuration file.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| outboxd::properties::config_file(text));
