//! `make size`: how small the relay is, on real servers that it starts itself: the binary, the memory, the time until it
//! has published, and the crates that it is made of. With TLS or without, as it is built.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

#[path = "../../tests/it/harness/mod.rs"]
mod harness;

#[path = "../page/mod.rs"]
mod page;

#[path = "../relay/ground.rs"]
#[allow(dead_code)]
mod ground;

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use ground::{DEADLINE, Ground, OUTBOXD, PAYLOAD_BYTES, QUEUE};
use harness::{Proc, wait_until};
use page::{Figure, Page, count, median, range};

const EVENTS: usize = 50_000;
const STARTS: usize = 21;

/// After this an idle relay has freed what it needed for its start.
const SETTLED: Duration = Duration::from_secs(3);

const MIB: f64 = 1024.0 * 1024.0;

fn main() {
    // `cargo test` runs benches too, to see that they start; `--bench` says that measuring is wanted.
    if !env::args().any(|argument| argument == "--bench") {
        return;
    }
    let ground = Ground::new();
    let mut page = Page::open(ground.versions());
    page.begin(if cfg!(feature = "tls") { "size, with TLS" } else { "size, without TLS" });
    measure(&ground, &mut page);
    page.end();
    page.write();
}

fn measure(ground: &Ground, page: &mut Page) {
    let bytes = fs::metadata(OUTBOXD).unwrap().len();
    page.add(Figure::new("binary, stripped", bytes as f64 / MIB, "MiB").at_most(4.0));
    page.add(Figure::new("crates, outboxd among them", crates() as f64, "").at_most(165.0));

    let starts: Vec<f64> = (0..STARTS).map(|_| first_publish(ground)).collect();
    let figure = Figure::new("process start to first publish, median", median(starts.iter().copied()), "ms");
    page.add(figure.and(&format!(" {}", range(&starts))).at_most(50.0));

    let (idle, own) = idle(ground);
    let figure = Figure::new("resident memory, idle", idle, "MiB");
    page.add(figure.and(&format!(", {own:.1} MiB of it not shared with files")).at_most(12.0));
    let name = format!("resident memory, at most in a drain of {}", count(EVENTS));
    page.add(Figure::new(name, loaded(ground), "MiB"));
}

/// What is compiled for it, for the program or for building it: each version of each crate once.
fn crates() -> usize {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--locked", "--edges", "normal,build", "--prefix", "none", "--format", "{p}"]);
    cargo.args((!cfg!(feature = "tls")).then_some("--no-default-features"));
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    // The name and the version; what follows says where it is from, or that it was listed before.
    let name = |line: &str| line.split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>();
    text.lines().map(name).filter(|name| !name.is_empty()).collect::<BTreeSet<_>>().len()
}

/// From the start of `outboxd run` until its one event is in the queue, in milliseconds.
fn first_publish(ground: &Ground) -> f64 {
    ground.fill(1, PAYLOAD_BYTES);
    let started = Instant::now();
    let relay = run(ground);
    while ground.broker.queue_len(QUEUE) == 0 {
        assert!(started.elapsed() < DEADLINE, "{relay}");
        // Asking without a pause would keep the broker busy.
        thread::sleep(Duration::from_millis(1));
    }
    let took = started.elapsed();
    empty(ground, relay, 1);
    took.as_secs_f64() * 1000.0
}

/// Of a relay that has published something and has nothing to do now: all of its memory, and its own, in MiB.
fn idle(ground: &Ground) -> (f64, f64) {
    ground.fill(1, PAYLOAD_BYTES);
    let relay = run(ground);
    published(ground, &relay, 1);
    thread::sleep(SETTLED);
    let figures = (memory(&relay, "VmRSS:"), memory(&relay, "RssAnon:"));
    empty(ground, relay, 1);
    figures
}

fn loaded(ground: &Ground) -> f64 {
    ground.fill(EVENTS, PAYLOAD_BYTES);
    let relay = run(ground);
    published(ground, &relay, EVENTS);
    let most = memory(&relay, "VmHWM:");
    empty(ground, relay, EVENTS);
    most
}

fn run(ground: &Ground) -> Proc {
    ground.start(ground.servers.amqp_url(), &["run"])
}

fn published(ground: &Ground, relay: &Proc, count: usize) {
    wait_until(&format!("all are published:\n{relay}"), DEADLINE, || {
        (ground.count("status = 'PUBLISHED'") == count).then_some(())
    });
}

/// Ends the relay and takes what it has sent out of the queue.
fn empty(ground: &Ground, mut relay: Proc, count: usize) {
    published(ground, &relay, count);
    relay.signal("TERM");
    let ended = relay.wait(DEADLINE);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let (messages, copies) = ground.take();
    assert_eq!((messages.len(), copies), (count, 0));
}

/// A figure of a process's status, in MiB.
fn memory(process: &Proc, name: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1024.0
}
