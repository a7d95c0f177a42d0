//! The examples, run as a newcomer does: what they leave in the table and in the queue, and that they end.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::{env, fs, thread};

use outboxd::config::Config;
use outboxd::outbox;
use postgres::{Client, NoTls};

use crate::harness::{AmqpValue, Broker, Message, Output, Proc, Servers, wait_until};
use crate::world::{DEADLINE, OUTBOXD, World};

/// The example of the same build. `cargo test` builds them beside the binary; `cargo test --test it` alone takes those
/// that are there.
fn example(name: &str) -> PathBuf {
    let path = Path::new(OUTBOXD).parent().unwrap().join("examples").join(name);
    assert!(path.is_file(), "{} is not built; run: cargo build --examples", path.display());
    path
}

/// A database without anything, which the example prepares itself.
fn world() -> World {
    World::on(Servers::shared().database(), Servers::shared().amqp_url())
}

/// Runs an example with this as its standard input, and expects that it succeeds.
fn run(world: &World, name: &str, input: &str) -> Output {
    let (path, script) = (example(name), "printf '%s' \"$1\" | \"$0\"");
    let environment = [("DATABASE_URL", world.database.url.as_str()), ("AMQP_URL", &world.amqp_url)];
    let output = Proc::run("sh", &["-c", script, path.to_str().unwrap(), input], &environment, DEADLINE);
    assert_eq!(output.code, Some(0), "{output:?}");
    output
}

/// The events' ids and statuses, in their order.
fn events(world: &mut World) -> Vec<(String, String)> {
    let sql = "select event_id::text, status::text from event_outbox order by id";
    world.client.query(sql, &[]).unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// What has come of these events; the queue's name is the example's own, so earlier runs may have left something there.
fn arrived(world: &World, queue: &str, events: &[(String, String)]) -> Vec<Message> {
    let messages = world.broker.drain_ready(queue).into_iter();
    messages.filter(|message| events.iter().any(|(id, _)| id == message.id())).collect()
}

#[test]
fn embed_sends_what_is_committed_and_nothing_else() {
    let mut world = world();
    let output = run(&world, "embed", "");
    let events = events(&mut world);
    let statuses: Vec<&str> = events.iter().map(|(_, status)| status.as_str()).collect();
    assert_eq!(statuses, ["PUBLISHED", "PUBLISHED"], "{output:?}");
    let orders: i64 = world.client.query_one("select count(*) from orders", &[]).unwrap().get(0);
    assert_eq!(orders, 2);

    let messages = arrived(&world, "order.created", &events);
    let bodies: Vec<&str> = messages.iter().map(Message::text).collect();
    assert_eq!(bodies, [r#"{"item":"a kettle","order":1}"#, r#"{"item":"a teapot","order":3}"#]);
    let tenant = AmqpValue::LongString("acme".into());
    assert!(messages.iter().all(|it| it.headers.get("tenant") == Some(&tenant)), "{messages:?}");

    // Each of the three stories was told as it is meant to be.
    for line in ["order 1 is placed. Its event: published", "order 2 was rolled back. Its event: not found"] {
        assert!(output.stdout.contains(line), "{output:?}");
    }
    assert!(output.stdout.contains("ended in order; claimed 1: published 1"), "{output:?}");
}

#[test]
fn background_sends_each_line_and_ends_with_its_input() {
    let mut world = world();
    let output = run(&world, "background", "first\nsecond\n");
    let events = events(&mut world);
    assert!(events.iter().all(|(_, status)| status == "PUBLISHED"), "{output:?}");
    let messages = arrived(&world, "note.written", &events);
    let bodies: Vec<&str> = messages.iter().map(Message::text).collect();
    assert_eq!(bodies, [r#"{"text":"first"}"#, r#"{"text":"second"}"#]);
    assert!(output.stdout.ends_with("ended; claimed 2: published 2\n"), "{output:?}");
}

#[test]
fn consumer_handles_once_what_comes_twice() {
    let mut world = world();
    let output = run(&world, "consumer", "");
    let events = events(&mut world);
    assert_eq!(events.len(), 3);
    assert!(events.iter().all(|(_, status)| status == "PUBLISHED"), "{output:?}");
    let mut lines = BTreeMap::new();
    for (id, _) in &events {
        for line in output.stdout.lines().filter(|line| line.starts_with(id)) {
            *lines.entry(&line[id.len() + 2..][..7]).or_insert(0) += 1;
        }
    }
    assert_eq!(lines, BTreeMap::from([("handled", 3), ("a copy,", 3)]), "{output:?}");
    // One invoice for each, and everything is acknowledged.
    let sql = "select count(*), count(distinct paid) from invoices where paid ~ '^{\"order\":[123]}$'";
    let row = world.client.query_one(sql, &[]).unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (3, 3));
    assert_eq!(arrived(&world, "order.paid", &events).len(), 0);
}

/// The demo's servers. They end with their input, so also when the tests are killed.
struct Demo {
    process: Child,
    database_url: String,
    amqp_url: String,
}

impl Demo {
    fn start() -> Demo {
        let mut command = Command::new(example("demo"));
        command.arg("servers").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        // Read to its end, or the demo would fail over a pipe that nobody reads.
        let (tell, told) = mpsc::channel();
        thread::spawn(move || output.lines().for_each(|line| drop(tell.send(line.unwrap()))));
        let mut lines = std::iter::from_fn(|| told.recv_timeout(DEADLINE).ok());
        let line = lines.find(|line| line.starts_with("export ")).expect("the line with both URLs");
        let value = |name: &str| {
            let (_, rest) = line.split_once(name).unwrap();
            rest.split(' ').next().unwrap().to_owned()
        };
        Demo { process, database_url: value("DATABASE_URL="), amqp_url: value("AMQP_URL=") }
    }

    /// The folders of its servers, which are named after it.
    fn folders(&self) -> usize {
        let mine = format!("outboxd-{}-", self.process.id());
        let entries = fs::read_dir(env::temp_dir()).unwrap().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&mine)).count()
    }

    /// Waits until it has ended, and leaves nothing behind.
    fn ends(mut self) {
        wait_until("the demo's servers have ended", DEADLINE, || self.process.try_wait().unwrap());
        assert!(self.process.wait().unwrap().success());
        assert_eq!(self.folders(), 0);
        assert!(Client::connect(&self.database_url, NoTls).is_err());
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // Where a test fails; what it has started ends with it, whatever the reason.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The first command of the README. It asserts what it shows, so its exit code says whether all of it was true.
#[test]
fn the_demo_runs_to_its_end() {
    let output = Proc::run(example("demo"), &[], &[], DEADLINE * 2);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stdout.contains("Both servers and their data are gone."), "{output:?}");
}

#[test]
fn the_demos_servers_have_what_the_examples_need_and_end_when_told() {
    let mut demo = Demo::start();
    let config = Config::new(&demo.database_url, &demo.amqp_url).unwrap();
    let mut client = Client::connect(&demo.database_url, NoTls).unwrap();
    let sql = "select (select count(*) from event_outbox) + (select count(*) from event_inbox)";
    assert_eq!(client.query_one(sql, &[]).unwrap().get::<_, i64>(0), 0);
    let broker = Broker::open(&demo.amqp_url);
    for queue in ["order.created", "order.paid", "note.written"] {
        assert_eq!(broker.queue_len(queue), 0);
    }
    // It is the newest schema: there is nothing left to do for another `init`.
    assert!(outbox::init(&config.database).is_ok());
    assert_eq!(demo.folders(), 2);
    let id = demo.process.id().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &id]).status().unwrap().success());
    demo.ends();

    demo = Demo::start();
    drop(demo.process.stdin.take());
    demo.ends();
}
