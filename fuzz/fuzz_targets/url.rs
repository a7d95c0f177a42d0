//! Any text as either server's URL.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    outboxd::properties::amqp_url(text);
    outboxd::properties::database_url(text);
});
