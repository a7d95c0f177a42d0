//! What happens after a broker was silent: nothing is sent twice that was confirmed meanwhile, and nobody is taken
//! for stuck who had nothing to do.

use std::time::Duration;
use std::{sync::Mutex, thread};

use crate::harness::{Proc, Rabbit, RabbitOptions, wait_until};
use crate::world::{DEADLINE, OUTBOXD, World};

/// Of a drain that an alarm interrupts.
const EVENTS: i64 = 3_000;

#[test]
fn an_event_that_goes_alone_after_a_long_rest_goes_once() {
    let mut world = World::new();
    let queue = world.queue();
    world.insert(&queue, "{}");
    // The watch over the workers allows 2 * 1 s + 5 s; the rest between the beats is longer.
    let mut relay = world.start(&["--interval", "9s", "--min-age", "0s", "--publish-timeout", "1s"]);
    relay.wait_for_line("published=1", DEADLINE);
    let id = world.insert_with(&queue, "{}", "last_error", "'unconfirmed x3: connection lost: reset'");
    wait_until("it is published", DEADLINE, || (world.row(id).status == "PUBLISHED").then_some(()));
    let log = relay.output().1;
    assert!(!log.contains("level=warn ") && !log.contains("level=error "), "{log}");
    assert_eq!(world.arrivals(&queue).len(), 2);
}

#[test]
fn confirms_that_an_alarm_held_back_are_written_and_their_events_not_sent_again() {
    // One at a time: the alarm is the whole broker's.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    let rabbit = Rabbit::start(&RabbitOptions::default());
    let mut world = World::with_broker(&rabbit.url());
    let queue = world.queue();
    world.insert_many(&queue, EVENTS);
    let relay = ["--interval", "1s", "--min-age", "0s", "--publish-timeout", "1s", "--batch-rows", "100"];
    let mut relay = world.start(&relay);
    wait_until("some are published", DEADLINE, || (world.count("PUBLISHED") > 0).then_some(()));
    rabbit.memory_alarm(true);
    relay.wait_for_line("error=\"the broker blocks publishers (", DEADLINE);
    thread::sleep(Duration::from_secs(1));
    rabbit.memory_alarm(false);
    wait_until("all are published", DEADLINE, || (world.count("PUBLISHED") == EVENTS).then_some(()));
    assert_eq!(world.arrivals(&queue).len(), usize::try_from(EVENTS).unwrap(), "{relay}");
    let counted = "select coalesce(sum(fail_count), 0) from event_outbox";
    assert_eq!(world.client.query_one(counted, &[]).unwrap().get::<_, i64>(0), 0);
}

#[test]
fn no_level_of_logging_shows_a_password_or_a_payload() {
    let mut world = World::new();
    let queue = world.queue();
    world.insert(&queue, r#"{"card": "hunter2"}"#);
    let wrong = world.amqp_url.replace("guest:guest@", "guest:hunter2@");
    let database = world.database.url.replace("postgres@", "postgres:hunter2@");
    for level in ["trace", "amiquip=trace,postgres=trace,tokio_postgres=trace,mio=trace"] {
        for url in [&wrong, &world.amqp_url] {
            let environment = [("DATABASE_URL", database.as_str()), ("AMQP_URL", url), ("RUST_LOG", level)];
            for command in [&["status"][..], &["once"], &["once", "-vv", "--log-format", "json"]] {
                let output = Proc::run(OUTBOXD, command, &environment, DEADLINE);
                assert!(!format!("{output:?}").contains("hunter2"), "{output:?}");
            }
        }
    }
}
