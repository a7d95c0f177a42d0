//! The page as a whole: what it says, and that nothing of a row is more than text in it.

use outboxd::config::Config;
use outboxd::outbox::{Backlog, BlockedKeys, Unfinished};
use outboxd::relay::Happening;

use super::super::gather::Figures;
use super::*;

const EVIL: &str = "<script>alert('x')</script>\"&";

fn facts() -> Facts {
    let config = Config::new("postgres://u:hunter2@db/app", "amqp://u:hunter2@mq/shop").unwrap();
    Facts::of(&config)
}

fn figures() -> Figures {
    Figures {
        at: SystemTime::now(),
        looked: Instant::now(),
        unfinished: Some(Unfinished { waiting: 12_345, failed: 2, dead: 1 }),
        backlog: Some(Backlog {
            due: 3,
            young: 1,
            backing_off: 2,
            scheduled: 1,
            held_back: 4,
            oldest_due: Some(Duration::from_secs(400)),
        }),
        blocked: Some(BlockedKeys {
            count: 3,
            more: false,
            heads: vec![BlockedKey {
                key: format!("it's {EVIL}"),
                id: 7,
                event_id: "01".into(),
                event_type: EVIL.into(),
                status: "DEAD".into(),
                last_error: Some(EVIL.into()),
                due_at: None,
                age: Some(Duration::from_secs(90)),
                depth: 1001,
            }],
        }),
    }
}

fn numbers() -> Numbers {
    let mut numbers = Numbers::new();
    let tally = outboxd::event::Tally::default();
    let took = Duration::ZERO;
    numbers.note(Happening::Ticked { tally: &tally, took, trouble: None });
    numbers
}

#[test]
fn a_relay_that_is_well_says_so() {
    let page = html(&facts(), &numbers());
    for text in
        ["All is well", "<title>outboxd: well</title>", "db:5432/app", "mq:5672/shop", "None since the start"]
    {
        assert!(page.contains(text), "{text:?} in {page}");
    }
    assert!(!page.contains("hunter2"));
    assert!(html(&facts(), &Numbers::new()).contains("The first tick has not ended yet"));
}

/// What it shows is old then, however well it looks.
#[test]
fn a_relay_that_is_stuck_is_not_called_well() {
    let facts = Facts { silence_max: Duration::ZERO, ..facts() };
    let page = html(&facts, &numbers());
    for text in ["<title>outboxd: trouble</title>", "The relay is stuck", "no sign of life for 0 s"] {
        assert!(page.contains(text), "{text:?} in {page}");
    }
    assert!(!page.contains("All is well"), "{page}");
}

#[test]
fn what_is_wrong_is_said_with_the_commands_to_run() {
    let mut numbers = numbers();
    numbers.figures = Some(figures());
    let since = Some(SystemTime::now());
    numbers.database =
        Standing { up: Some(false), since, reason: Some("refused".into()), ..Standing::default() };
    numbers.broker =
        Standing { up: Some(true), blocked: true, since, reason: Some("memory".into()), reconnects: 2 };
    let page = html(&facts(), &numbers);
    for text in [
        "<title>outboxd: trouble</title>",
        "The broker has blocked publishers",
        "rabbitmq-diagnostics alarms",
        "The database has not been usable",
        "The oldest due event has been due for 6 min",
        "1 dead event waits for a person",
        "outboxd list --status dead",
        "3 keys are blocked",
        "And 2 more.",
        "more than 1,000 wait",
        "outboxd retry --id 7",
        "12,345",
        "back 2 times",
    ] {
        assert!(page.contains(text), "{text:?} in {page}");
    }
}

#[test]
fn texts_of_rows_and_servers_are_only_text() {
    let mut numbers = numbers();
    numbers.figures = Some(figures());
    numbers.not_gathered = Some(EVIL.into());
    numbers.trouble = Some(EVIL.into());
    numbers.broker.reason = Some(EVIL.into());
    numbers.broker.blocked = true;
    numbers.failures.push_front(Failure {
        at: SystemTime::now(),
        id: 1,
        count: 1,
        event_type: EVIL.into(),
        became: "DEAD",
        reason: EVIL.into(),
    });
    let page = html(&Facts { table: EVIL.into(), ..facts() }, &numbers);
    assert!(!page.contains("<script") && !page.contains("alert('"), "{page}");
    assert!(page.matches("&lt;script&gt;").count() >= 8);
    assert!(page.contains("--key &#39;it&#39;\\&#39;&#39;s &lt;script"), "{page}");
}

/// It loads nothing, and runs nothing.
#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let mut numbers = numbers();
    numbers.figures = Some(figures());
    let page = html(&facts(), &numbers);
    for part in ["src=", "@import", "url(", "http://", "https://", "<script", "onclick", "<form", "<button"] {
        assert!(!page.contains(part), "{part}");
    }
    assert_eq!(page.matches("href=").count(), 1, "the icon that there is none of");
    assert_eq!(page.matches("<svg").count(), 3);
    assert!(page.len() < 64 * 1024);
}
