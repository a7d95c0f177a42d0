//! What systemd sees of a relay that it starts, and the units that it starts it by.

pub mod units;

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};
use std::{env, fs};

use crate::harness::{Postgres, PostgresOptions, Proc, Servers, free_port, unique};
use crate::world::{DEADLINE, OUTBOXD, World, init};

/// Longer than any relay is silent that is not stuck, with the shortest watchdog below.
const SILENCE: Duration = Duration::from_secs(5);

/// In place of systemd.
struct Manager {
    socket: UnixDatagram,
    name: String,
}

impl Manager {
    /// One that listens in the file system.
    fn new() -> Manager {
        let path = env::temp_dir().join(unique("outboxd-notify"));
        let socket = UnixDatagram::bind(&path).unwrap();
        Manager { socket, name: path.to_str().unwrap().into() }
    }

    /// One that listens at a name of its own.
    fn abstract_one() -> Manager {
        let name = unique("outboxd-notify");
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        Manager { socket: UnixDatagram::bind_addr(&address).unwrap(), name: format!("@{name}") }
    }

    /// Starts a relay that tells this one.
    fn start(&self, world: &World, arguments: &[&str], further: &[(&str, &str)]) -> Proc {
        let told = [("NOTIFY_SOCKET", self.name.as_str()), ("WATCHDOG_USEC", "400000")];
        let urls = [("DATABASE_URL", world.database.url.as_str()), ("AMQP_URL", world.amqp_url.as_str())];
        let arguments = [&["run", "--config", world.config_path()], arguments].concat();
        Proc::spawn(OUTBOXD, &arguments, &[&told[..], &urls, further].concat())
    }

    /// The next message, if there is one in this time.
    fn next_within(&self, limit: Duration) -> Option<String> {
        self.socket.set_read_timeout(Some(limit)).unwrap();
        let mut buffer = [0; 8192];
        let length = self.socket.recv(&mut buffer).ok()?;
        Some(String::from_utf8(buffer[..length].to_vec()).unwrap())
    }

    /// All messages up to the first one with this text, which is the last of them.
    fn until(&self, text: &str) -> Vec<String> {
        let mut messages = Vec::new();
        let start = Instant::now();
        while !messages.last().is_some_and(|last: &String| last.contains(text)) {
            assert!(start.elapsed() < DEADLINE, "no {text:?}, but {messages:?}");
            messages.extend(self.next_within(Duration::from_millis(100)));
        }
        messages
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.name);
    }
}

fn signs_of_life(messages: &[String]) -> usize {
    messages.iter().filter(|it| it.as_str() == "WATCHDOG=1").count()
}

#[test]
fn a_relay_tells_that_it_runs_that_it_lives_while_idle_and_that_it_ends() {
    let manager = Manager::new();
    let world = World::new();
    let mut relay = manager.start(&world, &["--interval", "1h"], &[]);
    let first = manager.next_within(DEADLINE).unwrap();
    // What both servers may make it wait for together, in microseconds.
    assert_eq!(first, "READY=1\nSTATUS=started\nWATCHDOG_USEC=180000000");
    for _ in 0..3 {
        manager.until("WATCHDOG=1");
    }
    relay.signal("TERM");
    manager.until("STOPPING=1\nSTATUS=stopping");
    assert_eq!(relay.wait(DEADLINE).code, Some(0));
}

#[test]
fn a_long_drain_is_full_of_signs_of_life_and_ends_in_a_status() {
    const MANY: i64 = 5_000;
    let manager = Manager::abstract_one();
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many(&queue, MANY);
    let arguments = ["--interval", "1h", "--workers", "1", "--window", "1"];
    let mut relay = manager.start(&world, &arguments, &[]);
    manager.until("READY=1");
    let began = Instant::now();
    let messages =
        manager.until("STATUS=5000 published since the start; last tick: claimed 5000: published 5000");
    // One for each fifth of a second, but for what a busy machine takes.
    let expected = began.elapsed().as_secs().max(1);
    assert!(signs_of_life(&messages) as u64 >= expected, "{expected} expected: {messages:?}");
    relay.signal("TERM");
    assert_eq!(relay.wait(DEADLINE).code, Some(0));
}

#[test]
fn a_server_that_is_down_is_no_reason_not_to_start_and_shows_in_the_status() {
    let manager = Manager::new();
    let world = World::new();
    let url = format!("postgres://nobody@127.0.0.1:{}/nowhere", free_port());
    let mut relay = manager.start(&world, &[], &[("DATABASE_URL", &url)]);
    let messages = manager.until("STATUS=in trouble: ");
    assert!(messages[0].starts_with("READY=1\n"), "{messages:?}");
    let status = messages.last().unwrap();
    assert!(
        status.contains("opening a session on database 127.0.0.1:") && !status.contains('\n'),
        "{status}"
    );
    manager.until("WATCHDOG=1");
    assert!(relay.is_running());
}

#[test]
fn a_loop_that_is_stuck_gives_no_sign_of_life() {
    let postgres = Postgres::start(&PostgresOptions::default());
    let world = World::on(postgres.database_from("outbox", init), Servers::shared().amqp_url());
    let manager = Manager::new();
    let mut relay = manager.start(&world, &["--interval", "200ms"], &[]);
    manager.until("WATCHDOG=1");
    postgres.freeze();
    // It waits for the answer to a call, as it would for whatever else it was stuck in.
    let start = Instant::now();
    while let Some(message) = manager.next_within(SILENCE) {
        assert!(start.elapsed() < DEADLINE, "{message} while nothing goes on:\n{relay}");
    }
    assert!(relay.is_running());
    postgres.thaw();
    manager.until("WATCHDOG=1");
}

#[test]
fn whoever_is_not_asked_tells_nothing() {
    let manager = Manager::new();
    let world = World::new();
    let mut others = manager.start(&world, &["--interval", "100ms"], &[("WATCHDOG_PID", "1")]);
    let mut messages = manager.until("last tick: claimed 0");
    assert_eq!(messages[0], "READY=1\nSTATUS=started");
    others.signal("TERM");
    messages.extend(manager.until("STOPPING=1"));
    assert_eq!(signs_of_life(&messages), 0, "{messages:?}");
    let wrong = manager.start(&world, &[], &[("OUTBOXD_INTERVAL", "soon")]).wait(DEADLINE);
    let told = manager.next_within(Duration::from_millis(100));
    assert_eq!((wrong.code, told), (Some(78), None), "a wrong configuration is not ready");
}
