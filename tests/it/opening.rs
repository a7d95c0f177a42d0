//! A connection to the broker that cannot be opened: it is given up in time, the error names the step and what can be
//! done, no event pays for it, and a relay that runs recovers by itself.

mod addresses;
mod refusals;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use std::{io, thread};

use url::Url;

use crate::harness::{Behaviour, Hostile, Output, Proc, wait_until};
use crate::world::{DEADLINE, OUTBOXD, Row, World};

/// A password that no output may hold.
const PASSWORD: &str = "s3cr3t-marker";

/// Options of a relay that gives up and tries again soon.
const HASTY: [&str; 4] = ["--interval", "300ms", "--open-timeout", "1s"];

/// Far more than an `open_timeout` of a second, and far less than what the kernel, the resolver or a dripping peer
/// would make of it.
const IN_TIME: Duration = Duration::from_secs(30);

/// How a broker does not answer, and the step that the error names. Some steps end by our own limit or by the client's,
/// which is the same time; both name the step.
const WAYS: [(Behaviour, &[&str]); 7] = [
    (Behaviour::SynSwallowed, &["for its address to answer", "timed out"]),
    (Behaviour::Silent, &["for the broker's answer to the connection"]),
    (Behaviour::Drip, &["for the broker's answer to the connection"]),
    (Behaviour::StallAfterStart, &["for the broker's answer to the connection"]),
    (Behaviour::StallAfterTune, &["for the broker's answer to the connection"]),
    (Behaviour::Garbage, &["failed: what answers there does not speak AMQP 0-9-1"]),
    (Behaviour::HangUp, &["closed"]),
];

/// The URL with a part changed.
fn changed(url: &str, change: impl FnOnce(&mut Url)) -> String {
    let mut url = Url::parse(url).unwrap();
    change(&mut url);
    url.into()
}

/// The URL with another port.
fn with_port(url: &str, port: u16) -> String {
    changed(url, |url| url.set_port(Some(port)).unwrap())
}

/// Where the broker of this URL listens.
fn address_of(url: &str) -> SocketAddr {
    let url = Url::parse(url).unwrap();
    url.socket_addrs(|| Some(5672)).unwrap()[0]
}

/// Runs `once` with this broker, and expects the exit code, in time and without the password.
fn once(database_url: &str, amqp_url: &str, arguments: &[&str], code: i32) -> Output {
    let environment = [("DATABASE_URL", database_url), ("AMQP_URL", amqp_url)];
    let arguments = [&["once", "-vv"], arguments].concat();
    let output = Proc::run(OUTBOXD, &arguments, &environment, IN_TIME);
    assert_eq!(output.code, Some(code), "{output:?}");
    assert_discreet(&(output.stdout.clone() + &output.stderr));
    output
}

fn assert_discreet(told: &str) {
    assert!(!told.contains(PASSWORD), "{told}");
}

/// Takes connections at this address, and hands them on to `target` until the test process ends.
fn hand_on(address: SocketAddr, target: SocketAddr) {
    // A port that someone has just left may need a moment.
    let listener = wait_until("the port is free", DEADLINE, || TcpListener::bind(address).ok());
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(target) else { return };
            for (from, to) in [(&client, &server), (&server, &client)] {
                let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
}

/// What a row is that has been published without any refusal.
fn assert_published(row: &Row) {
    let found = (row.status.as_str(), row.fail_count, row.published, row.last_error.as_deref());
    assert_eq!(found, ("PUBLISHED", 0, true, None), "{row:?}");
}

#[test]
fn a_broker_that_does_not_answer_is_given_up_in_time_at_a_named_step() {
    let mut world = World::new();
    let id = world.insert("x", "{}");
    let before = world.row(id);
    thread::scope(|scope| {
        for (behaviour, steps) in WAYS {
            let database_url = &world.database.url;
            scope.spawn(move || {
                let hostile = Hostile::start(behaviour);
                let url = hostile.url().replace("guest:guest@", &format!("app:{PASSWORD}@"));
                let output = once(database_url, &url, &["--open-timeout", "1s"], 69);
                let last = output.stderr.lines().last().unwrap();
                let opening = format!("outboxd: opening a session on broker 127.0.0.1:{}", hostile.port());
                assert!(last.starts_with(&opening), "{behaviour:?}: {last}");
                assert!(steps.iter().any(|step| last.contains(step)), "{behaviour:?}: {last}");
                // Nobody has looked at them.
                assert!(!last.contains("password"), "{behaviour:?}: {last}");
            });
        }
    });
    assert_eq!(world.row(id), before);
    assert!(!before.attempted);
}

#[test]
fn a_running_relay_goes_on_when_what_did_not_answer_becomes_a_broker() {
    thread::scope(|scope| {
        for (behaviour, _) in WAYS {
            scope.spawn(move || recovers(behaviour));
        }
    });
}

fn recovers(behaviour: Behaviour) {
    let mut world = World::new();
    let queue = world.queue();
    let id = world.insert(&queue, "{}");
    let before = world.row(id);
    let target = address_of(&world.amqp_url);
    let hostile = Hostile::start(behaviour);
    world.amqp_url = with_port(&world.amqp_url, hostile.port());
    let mut relay = world.start(&HASTY);
    relay.wait_for_line("nothing is claimed and no attempt is spent until that is over", DEADLINE);
    // It tries again, and says no more about it. Who swallows everything cannot count.
    if behaviour != Behaviour::SynSwallowed {
        wait_until("another try", DEADLINE, || (hostile.accepted() > 2).then_some(()));
    }
    assert_eq!(world.row(id), before, "{behaviour:?}");
    let address = SocketAddr::from(([127, 0, 0, 1], hostile.port()));
    drop(hostile);
    hand_on(address, target);
    relay.wait_for_line("claimed=1 published=1", DEADLINE);
    assert_published(&world.row(id));
    assert_eq!(world.arrivals(&queue), [before.event_id], "{behaviour:?}");
    let (_, log) = relay.output();
    // One that is left in the middle of its login cannot know why, and says that too.
    let told = if behaviour == Behaviour::StallAfterStart { 2 } else { 1 };
    assert!(
        (1..=told).contains(&log.matches("level=error msg=\"trouble began").count()),
        "{behaviour:?}: told once\n{log}"
    );
    assert_discreet(&log);
}

/// Text that is read as a frame names a size beyond all bounds.
#[test]
fn a_web_server_at_the_port_costs_neither_memory_nor_threads() {
    const MEMORY_MAX_KIB: u64 = 64 * 1024;
    let mut world = World::new();
    let hostile = Hostile::start(Behaviour::Garbage);
    world.amqp_url = hostile.url();
    let relay = world.start(&HASTY);
    wait_until("a few tries", DEADLINE, || (hostile.accepted() > 5).then_some(()));
    let status = std::fs::read_to_string(format!("/proc/{}/status", relay.id())).unwrap();
    let value = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    let peak = value("VmHWM:");
    assert!(peak < MEMORY_MAX_KIB, "{peak} KiB");
    // Those of one try, and the main ones.
    let threads = value("Threads:");
    assert!(threads <= 8, "{threads} threads");
}
