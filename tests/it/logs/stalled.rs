//! A standard error that nobody reads: the relay goes on, ends in time, and says afterwards what was dropped.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use super::{QUICK, Urls, all_published};
use crate::harness::{Direction, Proc, Proxy, free_port, unique, wait_until};
use crate::world::{DEADLINE, OUTBOXD, World};

/// A standard error that takes nothing until it is read.
fn full() -> (UnixStream, Stdio) {
    let (reader, mut stderr) = UnixStream::pair().unwrap();
    stderr.set_nonblocking(true).unwrap();
    loop {
        match stderr.write(&[b'.'; 1]) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    stderr.set_nonblocking(false).unwrap();
    (reader, Stdio::from(OwnedFd::from(stderr)))
}

#[test]
fn a_log_that_nobody_reads_holds_nothing_up_and_is_told_short() {
    const EVENTS: i64 = 4000;
    let mut world = World::new();
    let proxy = Proxy::to(url::Url::parse(&world.amqp_url).unwrap().port().unwrap());
    let amqp_url = format!("amqp://guest:guest@127.0.0.1:{}/%2F", proxy.port());
    let queue = world.queue();
    let (mut reader, stderr) = full();
    let urls = Urls { amqp: amqp_url, ..Urls::of(&world) };
    let hasty = ["--publish-timeout", "1s", "--batch-rows", "2000", "--window", "2000", "-v"];
    let arguments = [&["run"], &QUICK[..], &hasty].concat();
    let mut relay = Proc::spawn_onto(stderr, OUTBOXD, &arguments, &urls.and(&[]));
    world.insert(&queue, "{}");
    all_published(&mut world, &relay, 1);

    // No confirm comes: at this level that is a line per event, more than wait for a reader.
    proxy.swallow(Direction::ToClient, true);
    world.insert_many(&queue, EVENTS);
    let sent = "select count(*) from event_outbox where last_error like 'unconfirmed%'";
    wait_until(&format!("they are unconfirmed:\n{relay}"), DEADLINE, || {
        (world.client.query_one(sent, &[]).unwrap().get::<_, i64>(0) == EVENTS).then_some(())
    });
    proxy.heal();
    all_published(&mut world, &relay, EVENTS + 1);

    let reading = thread::spawn(move || {
        let mut told = String::new();
        reader.read_to_string(&mut told).map(|_| told)
    });
    relay.signal("TERM");
    let ended = relay.wait(DEADLINE);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let told = reading.join().unwrap().unwrap();
    let told = told.trim_start_matches('.');
    let about = |words: &str| told.lines().filter(|line| line.contains(words)).count();
    let count = |line: &str| line.rsplit_once(" dropped=").and_then(|(_, count)| count.parse::<usize>().ok());
    let dropped: usize = told.lines().filter_map(count).sum();
    assert_eq!(about("msg=started"), 1, "{told}");
    assert!(about("level=warn msg=\"log lines were dropped: standard error was not read\"") >= 1, "{told}");
    // Whatever else was dropped, each of these was written or counted.
    assert!(about("msg=\"event not confirmed\"") + dropped >= usize::try_from(EVENTS).unwrap(), "{dropped}");
    assert_eq!(about("msg=stopped"), 1, "what comes after is written: {told}");
}

#[test]
fn a_relay_ends_although_nobody_reads_its_log() {
    let mut world = World::new();
    let queue = world.queue();
    let (_reader, stderr) = full();
    let urls = Urls::of(&world);
    let mut relay = Proc::spawn_onto(stderr, OUTBOXD, &[&["run"], &QUICK[..]].concat(), &urls.and(&[]));
    world.insert(&queue, "{}");
    all_published(&mut world, &relay, 1);
    let asked = Instant::now();
    relay.signal("TERM");
    let ended = relay.wait(DEADLINE);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
}

#[test]
fn a_command_ends_with_its_code_although_nobody_reads_why() {
    let world = World::new();
    let (_reader, stderr) = full();
    let file = std::env::temp_dir().join(unique("outboxd-stalled"));
    let nowhere = format!("amqp://127.0.0.1:{}", free_port());
    let arguments = ["once", "--amqp-url", &nowhere, "--metrics-file", file.to_str().unwrap()];
    let ended = Proc::spawn_onto(stderr, OUTBOXD, &arguments, &Urls::of(&world).and(&[])).wait(DEADLINE);
    assert_eq!(ended.code, Some(69), "{ended:?}");
    let left = std::fs::read_to_string(&file).unwrap();
    assert!(left.contains("\noutboxd_last_run_exit_code 69\n"), "{left}");
    std::fs::remove_file(&file).unwrap();
    for (arguments, code) in [(&["once", "--workers", "0", "--window", "0"][..], 78), (&["ones"], 64)] {
        let (_reader, stderr) = full();
        let ended = Proc::spawn_onto(stderr, OUTBOXD, arguments, &[]).wait(DEADLINE);
        assert_eq!(ended.code, Some(code), "{arguments:?}: {ended:?}");
    }
}
