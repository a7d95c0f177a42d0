//! Any three lines as a pattern or template, an event type and an ordering key.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    let mut parts = text.splitn(3, '\n');
    let (rule, event_type) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    outboxd::properties::pattern(rule, event_type);
    outboxd::properties::template(rule, event_type, parts.next());
});
