//! The line that says how far a command is: on a terminal, and nowhere else.

use std::time::{Duration, Instant};

use crate::harness::{Proc, unique};
use crate::world::{DEADLINE, OUTBOXD, World};

/// What a command writes to standard error when that is a terminal, and how long it took.
fn on_a_terminal(world: &World, arguments: &str, code: i32) -> (String, Duration) {
    let command = format!("{OUTBOXD} {arguments} >/dev/null");
    let environment = [("DATABASE_URL", world.database.url.as_str()), ("AMQP_URL", &world.amqp_url)];
    let began = Instant::now();
    let output = Proc::run("script", &["-qec", &command, "/dev/null"], &environment, DEADLINE);
    assert_eq!(output.code, Some(code), "{output:?}");
    (output.stdout, began.elapsed())
}

/// What was drawn, one after the other.
fn drawn(told: &str, what: &str) -> Vec<String> {
    told.split(['\r', '\n']).filter(|it| it.starts_with(what)).map(|it| it.trim_end().to_owned()).collect()
}

/// Has every change of a row take some time, so that there is something to be seen.
fn slow_down(world: &mut World, of: &str) {
    let sql = format!(
        "create function slowly() returns trigger language plpgsql as \
             'begin perform pg_sleep(0.0005); return coalesce(new, old); end'; \
         create trigger slowly before {of} on event_outbox for each row execute function slowly()"
    );
    world.client.batch_execute(&sql).unwrap();
}

#[test]
fn a_run_shows_its_progress_and_leaves_nothing_of_it() {
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many(&queue, 1_500);
    world.insert(&unique("nobody"), "{}");
    world.insert_many(&queue, 1_500);
    slow_down(&mut world, "update");
    let (told, took) = on_a_terminal(&world, "once --batch-rows 200", 75);
    let lines = drawn(&told, "relayed ");
    assert!(lines.len() > 2, "{told:?}");
    assert!(lines.len() as f64 <= took.as_secs_f64() * 4.0 + 1.0, "{} in {took:?}: {told:?}", lines.len());
    let full = lines.iter().find(|it| it.ends_with(" left")).unwrap_or_else(|| panic!("{told:?}"));
    assert!(full.contains(" of about 3001, ") && full.contains("/s, "), "{full}");
    // Each line of the log begins where a line begins, and in the end there is nothing but blanks.
    let logged: Vec<&str> = told.split("\r\n").filter(|it| it.contains("level=")).collect();
    assert!(!logged.is_empty(), "{told:?}");
    for line in logged {
        assert!(line.rsplit('\r').next().unwrap().starts_with("time="), "{told:?}");
    }
    assert!(told.ends_with(" \r"), "{told:?}");
}

#[test]
fn changes_by_hand_show_theirs() {
    let mut world = World::new();
    world.insert_many("x", 5_000);
    world.client.batch_execute("update event_outbox set status = 'DEAD'").unwrap();
    slow_down(&mut world, "update or delete");
    for (command, what) in
        [("retry --status dead", "retried"), ("purge --older-than 1s --status dead", "purged")]
    {
        let (told, _) = on_a_terminal(&world, command, 0);
        let lines = drawn(&told, what);
        assert!(lines.iter().any(|it| it.starts_with(&format!("{what} 1000 of 5000, "))), "{told:?}");
        assert!(lines.iter().any(|it| it.ends_with(" left")), "{told:?}");
        assert!(told.ends_with('\r') && drawn(&told, "outboxd").is_empty(), "{told:?}");
        world.client.batch_execute("update event_outbox set status = 'DEAD', available_at = null").unwrap();
    }
    assert_eq!(world.count("DEAD"), 0);
}

#[test]
fn without_a_terminal_there_is_nothing_of_it() {
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many(&queue, 1_000);
    slow_down(&mut world, "update or delete");
    let output = world.once(&["--batch-rows", "100"], 0);
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("claimed 1000: published 1000\n", ""));
    let output = world.outboxd(&["purge", "--older-than", "0s"]);
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("purged 1000 events\n", ""));
}
