//! The text as a whole, and the README's table beside it.

use std::time::Instant;

use outboxd::error::Server;
use outboxd::outbox::{Backlog, BlockedKeys, Unfinished};
use outboxd::relay::{Contact, Happening};

use super::*;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn figures() -> Figures {
    Figures {
        at: at(1_700_000_100),
        looked: Instant::now(),
        unfinished: Some(Unfinished { waiting: 5, failed: 2, dead: 1 }),
        backlog: Some(Backlog {
            due: 3,
            young: 1,
            backing_off: 2,
            scheduled: 1,
            held_back: 4,
            oldest_due: Some(Duration::from_millis(90_500)),
        }),
        blocked: Some(BlockedKeys { count: 1, more: false, heads: Vec::new() }),
    }
}

fn run() -> String {
    let mut numbers = Numbers { interval: Duration::from_millis(500), ..Numbers::new() };
    let tally = Tally { claimed: 7, published: 5, failed: 1, expired: 1, ..Tally::default() };
    let ms = Duration::from_millis;
    for happening in [
        Happening::Contact { server: Server::Broker, contact: Contact::Connected },
        Happening::Contact { server: Server::Broker, contact: Contact::Lost("gone") },
        Happening::Contact { server: Server::Broker, contact: Contact::Connected },
        Happening::Contact { server: Server::Broker, contact: Contact::Blocked("low on memory") },
        Happening::Claimed { events: 7, took: ms(3) },
        Happening::Answered { took: ms(1) },
        Happening::Answered { took: ms(400) },
        Happening::Completed { events: 7, took: ms(450) },
        Happening::Settled { tally: &tally, took: ms(2) },
        Happening::Ticked { tally: &tally, took: ms(500), trouble: None },
        Happening::Contact { server: Server::Database, contact: Contact::Connected },
        Happening::Woken,
        Happening::Alive,
    ] {
        numbers.note(happening);
    }
    (numbers.started, numbers.last_success) = (at(1_700_000_000), Some(at(1_700_000_090)));
    numbers.figures = Some(figures());
    let process = Process {
        cpu_seconds: Some(1.25),
        resident_bytes: Some(1_048_576.0),
        virtual_bytes: Some(2_097_152.0),
        threads: Some(9.0),
        open_fds: Some(12.0),
        max_fds: Some(1024.0),
    };
    of_run(&numbers, &process)
}

fn once() -> String {
    of_once(&LastRun {
        ended: at(1_700_000_200),
        took: Duration::from_millis(1500),
        tally: Tally { claimed: 2, published: 1, dead: 1, ..Tally::default() },
        succeeded: true,
        exit_code: 75,
        last_success: Some(1_700_000_200.0),
        figures: Some(figures()),
    })
}

/// Who changes it on purpose writes what it says.
#[test]
fn the_text_is_what_it_was() {
    for (file, text) in [("run.golden", run()), ("once.golden", once())] {
        let path = format!("{}/src/cli/watch/text/{file}", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("OUTBOXD_WRITE_GOLDEN").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "{file}");
    }
}

#[test]
fn what_is_not_known_has_no_sample() {
    let mut numbers = Numbers::new();
    let text = |numbers: &Numbers| of_run(numbers, &Process::default());
    let families = |text: &str| text.lines().filter(|line| line.starts_with("# TYPE")).count();
    assert_eq!(families(&text(&numbers)), families(&run()));
    assert!(!text(&numbers).contains("\noutboxd_oldest_due_age_seconds "));
    assert!(!text(&numbers).contains("\noutboxd_last_success_timestamp_seconds "));
    assert!(text(&numbers).contains("\noutboxd_up{server=\"broker\"} 0\n"));
    numbers.figures = Some(Figures { backlog: None, ..figures() });
    assert!(text(&numbers).contains("\noutboxd_events{status=\"dead\"} 1\n"));
    assert!(!text(&numbers).contains("\noutboxd_backlog_events{"));
    let long_ago = Instant::now().checked_sub(Duration::from_secs(601)).unwrap();
    numbers.figures = Some(Figures { looked: long_ago, ..figures() });
    assert!(!text(&numbers).contains("\noutboxd_events{"));
}

#[test]
fn labels_are_escaped() {
    let mut out = Text::default();
    out.sample(&names::EVENTS, &[("status", "a\"b\\c\nd")], 1.5);
    assert_eq!(out.0, "outboxd_events{status=\"a\\\"b\\\\c\\nd\"} 1.5\n");
}

/// A table of metrics that are not there, or not these, is worse than none.
#[test]
fn the_readme_lists_every_metric() {
    let mut expected: Vec<String> = Vec::new();
    for (command, text) in [("run", run()), ("once", once())] {
        for block in text.split("# HELP ").skip(1) {
            let (name, rest) = block.split_once(' ').unwrap();
            let (help, rest) = rest.split_once('\n').unwrap();
            let kind = rest.lines().next().unwrap().rsplit_once(' ').unwrap().1;
            let begins = format!("| `{name}` |");
            if name.starts_with("process_") {
                continue; // the standard ones, in one sentence
            }
            match expected.iter_mut().find(|row| row.starts_with(&begins)) {
                Some(row) => *row = row.replace("| run |", "| both |"),
                None => expected.push(format!("{begins} {kind} | {} | {command} | {help} |", labels(rest))),
            }
        }
    }
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let (_, rest) = readme.split_once("<!-- metrics -->").unwrap();
    let (table, _) = rest.split_once("<!-- /metrics -->").unwrap();
    let shown: Vec<&str> = table.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(shown, expected, "the README should have\n{}\n", expected.join("\n"));
}

/// `server`: database, broker.
fn labels(samples: &str) -> String {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    let lines = samples.lines().filter_map(|line| line.split_once('{')?.1.rsplit_once("\"} "));
    for (label, value) in
        lines.flat_map(|(labels, _)| labels.split("\",")).filter_map(|it| it.split_once("=\""))
    {
        match found.iter_mut().find(|(known, _)| *known == label) {
            Some((_, values)) => values.push(value),
            None => found.push((label, vec![value])),
        }
    }
    let told = found.iter().filter(|(label, _)| *label != "le").map(|(label, values)| match *label {
        "version" | "tls" => format!("`{label}`"),
        "reason" => "`reason`, see below".into(),
        _ => format!("`{label}`: {}", values.join(", ")),
    });
    told.collect::<Vec<_>>().join("; ")
}
