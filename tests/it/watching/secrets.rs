//! What must not be shown: passwords, URLs and payloads, wherever they were put.

use std::time::Duration;
use std::{env, fs, thread};

use super::{address, get, shown, wait_for_samples};
use crate::harness::{Proc, free_port, unique, wait_until};
use crate::world::{DEADLINE, OUTBOXD, World};

const PASSWORD: &str = "s3cr3t-marker";
const PAYLOAD: &str = "payload-marker";

const PATHS: [&str; 5] = ["/", "/metrics", "/healthz", "/readyz", "/nothing"];

#[test]
fn passwords_are_not_shown_whatever_is_in_trouble() {
    let (database, broker) = (free_port(), free_port());
    let database = format!("postgres://app:{PASSWORD}@127.0.0.1:{database}/app?application_name={PASSWORD}");
    let broker = format!("amqp://app:{PASSWORD}@127.0.0.1:{broker}/%2F");
    let file = env::temp_dir().join(unique("outboxd-secrets"));
    let path = file.to_str().unwrap();
    let arguments = [
        "run",
        "--metrics-addr",
        "127.0.0.1:0",
        "--metrics-file",
        path,
        "--listen",
        "--listen-url",
        &database,
    ];
    let environment = [("DATABASE_URL", database.as_str()), ("AMQP_URL", &broker)];
    let mut relay = Proc::spawn(OUTBOXD, &arguments, &environment);
    let addr = address(&mut relay);
    wait_until("the broker's trouble is known", DEADLINE, || {
        let why = get(addr, "/readyz").body;
        assert!(!why.contains(PASSWORD), "{why}");
        why.contains("refused").then_some(())
    });
    // The look at the table has failed by then, too.
    wait_until("the file is there", DEADLINE, || file.exists().then_some(()));
    thread::sleep(Duration::from_millis(300));
    for path in PATHS {
        let response = get(addr, path);
        let told = response.head + &response.body;
        assert!(!told.contains(PASSWORD) && !told.contains("://app"), "{path}: {told}");
    }
    let text = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    assert!(!text.contains(PASSWORD), "{text}");
    let (stdout, stderr) = relay.output();
    assert!(!stdout.contains(PASSWORD) && !stderr.contains(PASSWORD), "{relay}");
}

#[test]
fn payloads_are_not_shown_whatever_becomes_of_them() {
    let mut world = World::new();
    let payload = format!("{{\"{PAYLOAD}\": \"{}\"}}", "x".repeat(2000));
    world.insert("nobody.asks", &format!("{{\"{PAYLOAD}\": 1}}"));
    world.insert("nobody.asks", &payload);
    let headers = format!("now() - interval '1 hour', '[\"{PAYLOAD}\"]'");
    world.insert_with("nobody.asks", "{}", "created_at, headers", &headers);
    let (_relay, addr) = shown(&world, &["--max-failures", "1", "--payload-max", "1KiB"]);
    wait_for_samples(
        addr,
        &[
            ("outboxd_events_dead_total{reason=\"unroutable\"}", 1.0),
            ("outboxd_events_dead_total{reason=\"too_large\"}", 1.0),
            ("outboxd_events_dead_total{reason=\"invalid\"}", 1.0),
        ],
    );
    for path in PATHS {
        let response = get(addr, path);
        assert!(!response.body.contains(PAYLOAD), "{path}: {}", response.body);
    }
}
