//! `outboxd check`: each item failing and passing on real servers, and `once --dry-run`. No output holds a password.

mod broker;
mod database;
mod grants;
mod preview;
mod routes;
mod secrets;
mod table;

use std::net::TcpListener;
use std::time::Instant;

use serde_json::Value;

use crate::harness::{Output, Proc, Servers};
use crate::world::{DEADLINE, OUTBOXD, World};

/// A password that no output may hold.
const PASSWORD: &str = "s3cr3t-marker";

/// Runs `outboxd` with these arguments and this environment; it must not tell the password, nor panic.
fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let output = Proc::run(OUTBOXD, arguments, environment, DEADLINE);
    let told = format!("{}{}", output.stdout, output.stderr);
    assert!(!told.contains(PASSWORD) && !told.contains("panic"), "{arguments:?}: {output:?}");
    output
}

/// Everything that `check --json` told.
struct Told {
    output: Output,
    document: Value,
}

impl Told {
    fn by(arguments: &[&str], environment: &[(&str, &str)]) -> Told {
        let output = run(&[&["check", "--json"], arguments].concat(), environment);
        let document = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        Told { output, document }
    }

    fn of(world: &World, arguments: &[&str]) -> Told {
        let arguments = [&["--config", world.config_path()], arguments].concat();
        Told::by(&arguments, &[("DATABASE_URL", &world.database.url), ("AMQP_URL", &world.amqp_url)])
    }

    /// What was found about an item: state, text and remedy of each.
    fn about(&self, item: &str) -> Vec<(String, String, String)> {
        let findings = self.document["findings"].as_array().unwrap();
        let text = |it: &Value, name: &str| it[name].as_str().unwrap_or_default().to_owned();
        let of_item = findings.iter().filter(|it| it["item"] == item);
        of_item.map(|it| (text(it, "state"), text(it, "text"), text(it, "remedy"))).collect()
    }

    /// The only finding about the item: it must be in this state, and its text and remedy hold these words.
    fn is(&self, item: &str, state: &str, words: &[&str]) -> &Told {
        let found = self.about(item);
        assert_eq!(found.len(), 1, "{item}: {found:?} in {:?}", self.output);
        assert_eq!(found[0].0, state, "{item}: {found:?}");
        let told = format!("{} -> {}", found[0].1, found[0].2);
        for word in words {
            assert!(told.contains(word), "{word:?} in {told:?}");
        }
        self
    }

    fn ends(&self, code: i32) -> &Told {
        assert_eq!(self.output.code, Some(code), "{:?}", self.output);
        self
    }

    /// What `item` was not looked at.
    fn lacks(&self, item: &str) -> &Told {
        assert_eq!(self.about(item), [], "{:?}", self.output);
        self
    }
}

#[test]
fn everything_in_order_is_ok_and_ends_with_0() {
    let world = World::new();
    let (postgres, rabbit) = Servers::shared().versions();
    let told = Told::of(&world, &[]);
    told.ends(0);
    for (item, words) in [
        ("configuration", "valid; given by DATABASE_URL, AMQP_URL"),
        ("database", "answers as postgres, round trip"),
        ("database_version", &format!("PostgreSQL {postgres}")),
        ("writable", "takes writes"),
        ("clock", "this machine's"),
        ("time_zone", "the session's zone is"),
        ("pooler", "none"),
        ("snapshots", "none"),
        ("grants", "role postgres may select, update the table"),
        ("table", "event_outbox is complete, its payload is text"),
        ("status", "every status"),
        ("indexes", "all four"),
        ("plan", "goes along the index event_outbox_unfinished"),
        ("broker", "lets us in as guest, without TLS"),
        ("broker_version", &format!("RabbitMQ {rabbit}; outboxd is tested on")),
        ("alarms", "none"),
    ] {
        told.is(item, "ok", &[words]);
    }
    for item in ["command_line", "claim_max_idle", "routes", "trigger", "notify", "exchange", "route"] {
        told.lacks(item);
    }
    assert_eq!((&told.document["errors"], &told.document["warnings"]), (&0.into(), &0.into()));
    assert_eq!(told.document["routes"], serde_json::json!([]));
}

#[test]
fn people_read_lines_with_the_remedy_below() {
    let mut world = World::new();
    world.client.batch_execute("drop index event_outbox_held").unwrap();
    let output = world.outboxd(&["check"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let lines: Vec<&str> = output.stdout.lines().collect();
    let at = lines.iter().position(|it| it.starts_with("warning  indexes ")).unwrap();
    assert!(lines[at].ends_with("lacks the index \"event_outbox_held\""), "{output:?}");
    assert_eq!(lines[at + 1].trim_start(), "-> run outboxd init");
    assert_eq!(*lines.last().unwrap(), "0 errors, 1 warning");
    assert!(lines[0].starts_with("ok       configuration     valid"), "{output:?}");
}

#[test]
fn a_dead_server_does_not_hide_the_other() {
    let world = World::new();
    let nowhere = format!("amqp://app:{PASSWORD}@127.0.0.1:1/%2F");
    let told = Told::by(&[], &[("DATABASE_URL", &world.database.url), ("AMQP_URL", &nowhere)]);
    told.ends(69).is("broker", "error", &["127.0.0.1:1", "refused"]).is("indexes", "ok", &[]).lacks("alarms");
    let nowhere = format!("postgres://app:{PASSWORD}@127.0.0.1:1/app");
    let told = Told::by(&[], &[("DATABASE_URL", &nowhere), ("AMQP_URL", &world.amqp_url)]);
    told.ends(69).is("database", "error", &["127.0.0.1:1", "refused"]).is("alarms", "ok", &[]).lacks("table");
}

#[test]
fn servers_that_accept_and_say_nothing_are_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let (database, broker) =
        (format!("postgres://u:{PASSWORD}@{address}/d"), format!("amqp://u:{PASSWORD}@{address}"));
    let began = Instant::now();
    let told = Told::by(&["--open-timeout", "1s"], &[("DATABASE_URL", &database), ("AMQP_URL", &broker)]);
    told.ends(69).is("database", "error", &["longer than open_timeout 1s"]);
    told.is("broker", "error", &["longer than open_timeout 1s"]);
    assert!(began.elapsed() < DEADLINE / 2);
}
