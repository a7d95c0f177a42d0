//! The checker of the chaos run by itself, with its tests: that it finds what is wrong, and takes what is right.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod check;
mod ledger;
mod setting;

#[test]
fn the_ledger_gives_back_what_was_put_in() {
    use ledger::{End, Entry, Fault, Ledger, Life, Outcome};
    let path = std::env::temp_dir().join(format!("outboxd-ledger-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let ledger = Ledger::create(&path);
    let entries = vec![
        Entry::Ended { tx: 1, outcome: Outcome::Unknown, at: 5 },
        Entry::Fault(Fault { kind: "BrokerKill".into(), relay: Some(1), start: 1, healed: 2 }),
        Entry::Life(Life {
            relay: 0,
            pid: 1,
            from: 1,
            to: 2,
            end: End::Asked { took_ms: 1, code: Some(0) },
            log_lines: 1,
            log_bytes: 2,
        }),
    ];
    ledger.append(&entries[..1]);
    ledger.append(&entries[1..]);
    let read = ledger.read();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(read, entries);
}
