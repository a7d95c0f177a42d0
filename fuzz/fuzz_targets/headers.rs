//! Any text as a row's headers.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    outboxd::properties::headers(text, |table| {
        let mut buffer = vec![0; 1 << 18];
        amq_protocol_types::generation::gen_field_table((&mut buffer, 0), table).expect("it fits").1
    });
});
