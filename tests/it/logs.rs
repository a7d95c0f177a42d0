//! The log as whoever reads it meets it: what a relay says and what it does not, in which form, and that nobody who
//! does not read it holds the relay up.

mod stalled;

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Proc, free_port, unique, wait_until};
use crate::world::{DEADLINE, OUTBOXD, World};

/// Beats so short that a quiet log is no chance.
const QUICK: [&str; 4] = ["--interval", "50ms", "--min-age", "0s"];

/// A world's servers, apart from it.
struct Urls {
    database: String,
    amqp: String,
}

impl Urls {
    fn of(world: &World) -> Urls {
        Urls { database: world.database.url.clone(), amqp: world.amqp_url.clone() }
    }

    fn and<'a>(&'a self, further: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        [&[("DATABASE_URL", self.database.as_str()), ("AMQP_URL", self.amqp.as_str())], further].concat()
    }
}

/// The relay at its default level.
fn run(world: &World, arguments: &[&str]) -> Proc {
    Proc::spawn(OUTBOXD, &[&["run"], &QUICK[..], arguments].concat(), &Urls::of(world).and(&[]))
}

fn once(world: &World, arguments: &[&str], further: &[(&str, &str)]) -> Vec<String> {
    let arguments = [&["once"], arguments].concat();
    let output = Proc::run(OUTBOXD, &arguments, &Urls::of(world).and(further), DEADLINE);
    assert_eq!(output.code, Some(75), "{output:?}");
    output.stderr.lines().map(str::to_owned).collect()
}

fn all_published(world: &mut World, relay: &Proc, count: i64) {
    wait_until(&format!("{count} are published:\n{relay}"), DEADLINE, || {
        (world.count("PUBLISHED") == count).then_some(())
    });
}

#[test]
fn a_daemon_that_works_is_silent_but_for_start_stop_and_one_summary() {
    let mut world = World::new();
    let queue = world.queue();
    let mut relay = run(&world, &[]);
    for count in 1..=10 {
        world.insert(&queue, "{}");
        all_published(&mut world, &relay, count);
    }
    relay.signal("TERM");
    let ended = relay.wait(DEADLINE);
    let lines: Vec<&str> = ended.stderr.lines().collect();
    let [started, relayed, stopping, stopped] = lines[..] else { panic!("{ended:?}") };
    let expected = [
        (started, "level=info msg=started version="),
        (started, " table=event_outbox database=127.0.0.1:"),
        (started, " interval=50ms"),
        // At once, so that whoever starts it sees that it works; the rest of the minute is silent.
        (relayed, "level=info msg=relayed claimed=1 published=1 seconds="),
        (stopping, "in flight\" signal=SIGTERM grace=10s"),
        (stopped, "level=info msg=stopped claimed=10 published=10"),
    ];
    for (line, part) in expected {
        assert!(line.starts_with("time=20") && line.contains(part), "{part}: {ended:?}");
    }
}

#[test]
fn repeated_refusals_are_one_line_each_time_and_a_number() {
    const EVENTS: i64 = 1500;
    let mut world = World::new();
    let (nobody, other) = (unique("nobody"), unique("other"));
    world.insert_many(&nobody, EVENTS);
    let rare = world.insert(&other, "{}");
    let lines = once(&world, &[], &[]);
    let about = |name: &str| -> Vec<&String> { lines.iter().filter(|line| line.contains(name)).collect() };
    let [first, rest] = about(&format!("type={nobody} "))[..] else { panic!("{lines:#?}") };
    assert!(first.contains("level=warn msg=\"event refused\" id="), "{first}");
    assert!(
        first.contains(" fail_count=1 due_within=30s reason=\"NO_ROUTE (312): there is no queue"),
        "{first}"
    );
    assert!(rest.contains("level=warn msg=\"events refused\""), "{rest}");
    assert!(rest.contains(&format!(" count={} first_id=", EVENTS - 1)), "{rest}");
    assert!(rest.ends_with(" see=\"outboxd list --status failed,dead\""), "{rest}");
    let [single] = about(&format!("type={other} "))[..] else { panic!("{lines:#?}") };
    assert!(single.contains(&format!(" id={rare} event_id={} ", world.row(rare).event_id)), "{single}");
    assert_eq!(lines.len(), 3, "{lines:#?}");
}

/// Arguments and variables.
type Way<'a> = (Vec<&'a str>, Vec<(&'a str, &'a str)>);

#[test]
fn json_holds_the_same_by_flag_variable_and_file() {
    let mut world = World::new();
    let nobody = unique("nobody");
    world.insert_many(&nobody, 3);
    world.configure("log_format = \"json\"");
    let file = world.config_path().to_owned();
    let ways: [Way<'_>; 3] = [
        (vec!["--log-format", "json"], vec![]),
        (vec![], vec![("OUTBOXD_LOG_FORMAT", "json")]),
        (vec!["--config", &file], vec![]),
    ];
    for (arguments, variables) in ways {
        world.client.batch_execute("update event_outbox set available_at = null, fail_count = 0").unwrap();
        // A warning from before the command begins is in the format, too.
        let lines = once(&world, &arguments, &[&variables[..], &[("PGSERVICE", "x")]].concat());
        let lines: Vec<Value> = lines
            .iter()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
            .collect();
        let messages: Vec<_> = lines.iter().map(|line| line["msg"].as_str().unwrap()).collect();
        assert!(messages[0].starts_with("PGSERVICE is set"), "{messages:?}");
        assert_eq!(messages[1..], ["event refused", "events refused"], "{lines:#?}");
        assert!(lines[1]["id"].is_i64() && lines[1]["reason"].as_str().unwrap().contains("NO_ROUTE"));
        assert_eq!((&lines[2]["count"], &lines[2]["level"]), (&Value::from(2), &Value::from("warn")));
        assert_eq!(lines[2]["type"], Value::from(nobody.as_str()));
        assert!(lines.iter().all(|line| line["time"].as_str().unwrap().ends_with('Z')), "{lines:#?}");
    }
}

#[test]
fn what_ends_a_command_is_in_the_format_too() {
    let world = World::new();
    let nowhere = format!("amqp://127.0.0.1:{}", free_port());
    for (arguments, code, words) in [
        (&["once", "--amqp-url", &nowhere][..], 69, "opening a session on broker 127.0.0.1:"),
        (&["once", "--workers", "0"], 78, "--workers \"0\": expected"),
        (&["show", "no-such-event"], 66, "there is no event no-such-event"),
    ] {
        let arguments = [arguments, &["--log-format", "json"]].concat();
        let output = Proc::run(OUTBOXD, &arguments, &Urls::of(&world).and(&[]), DEADLINE);
        assert_eq!((output.code, output.stderr.lines().count()), (Some(code), 1), "{output:?}");
        let line: Value = serde_json::from_str(&output.stderr).unwrap();
        assert!(line["msg"].as_str().unwrap().starts_with(words), "{line}");
        assert!(line["level"] == "error" && line["time"].is_string(), "{line}");
    }
    // What is no command line tells of no format.
    let output = Proc::run(OUTBOXD, &["once", "--log-format", "json", "--wrong"], &[], DEADLINE);
    assert!(output.code == Some(64) && output.stderr.starts_with("error: "), "{output:?}");
}

#[test]
fn a_format_that_is_none_is_an_error_of_every_command() {
    for command in [&["init"][..], &["init", "--print"], &["status"], &["once"], &["list"], &["show", "1"]] {
        let output = Proc::run(
            OUTBOXD,
            command,
            &[("OUTBOXD_LOG_FORMAT", "xml"), ("DATABASE_URL", "postgres://h"), ("AMQP_URL", "amqp://h")],
            DEADLINE,
        );
        let expected = "outboxd: OUTBOXD_LOG_FORMAT \"xml\": expected text or json\n";
        assert_eq!((output.code, output.stderr.as_str()), (Some(78), expected), "{command:?}");
    }
}

#[test]
fn the_level_is_that_of_the_flag_then_of_rust_log() {
    let mut world = World::new();
    world.insert(&unique("nobody"), "{}");
    let refused = |lines: &[String]| lines.iter().any(|line| line.contains("msg=\"event refused\""));
    let cases: [(&[&str], &str, bool); 5] = [
        (&[], "", true),
        (&[], "error", false),
        (&[], "info,outboxd::relay=off", false),
        (&["-v"], "error", true),
        (&["-vv"], "off", true),
    ];
    for (arguments, level, expected) in cases {
        world.client.batch_execute("update event_outbox set available_at = null, fail_count = 0").unwrap();
        let lines = once(&world, arguments, &[("RUST_LOG", level)]);
        assert_eq!(refused(&lines), expected, "{arguments:?} {level:?}: {lines:#?}");
    }
}

#[test]
fn the_journal_gets_priorities_and_keeps_the_time_itself() {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    let mut world = World::new();
    world.insert(&unique("nobody"), "{}");
    // What else runs under the service manager has the variable too, and another standard error.
    // What ends a command is as much of an error as what is logged.
    let wrong = ["once", "--workers", "0"];
    for (arguments, is_its, code, expected) in [
        (&["once"][..], true, 75, "<4>level=warn msg=\"event refused\""),
        (&["once"], false, 75, "time=20"),
        (&wrong, true, 78, "<3>outboxd: --workers"),
        (&wrong, false, 78, "outboxd: --workers"),
    ] {
        world.client.batch_execute("update event_outbox set available_at = null, fail_count = 0").unwrap();
        let (mut journal, stderr) = UnixStream::pair().unwrap();
        let stderr = OwnedFd::from(stderr);
        let file = File::from(stderr.try_clone().unwrap()).metadata().unwrap();
        let stream = format!("{}:{}", file.dev(), if is_its { file.ino() } else { file.ino() + 1 });
        let (urls, stream) = (Urls::of(&world), [("JOURNAL_STREAM", stream.as_str())]);
        let ended =
            Proc::spawn_onto(Stdio::from(stderr), OUTBOXD, arguments, &urls.and(&stream)).wait(DEADLINE);
        assert_eq!(ended.code, Some(code), "{ended:?}");
        journal.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut told = String::new();
        journal.read_to_string(&mut told).unwrap();
        assert!(told.starts_with(expected) && told.lines().count() == 1, "{told}");
    }
}
