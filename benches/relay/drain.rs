//! The drain against its parts.
//!
//! Three things, one after the other in each round, so that a noisy machine is noisy for all of them: the *drain*
//! (the binary, `outboxd once`), a *bare publisher* (the same messages from memory, with the same workers, window,
//! socket options, properties and queue), and *claim and settle* alone (the same rows, with an immediate confirm
//! in place of publishing). Medians and ratios are what to read.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::bare::Bare;
use crate::ground::{Ground, OUTBOXD, PAYLOAD_BYTES, QUEUE, payload};
use crate::table::claim_and_settle;
use crate::{cpu, median};

const EVENTS: usize = 50_000;
const ROUNDS: usize = 5;

pub fn measure(ground: &Ground) {
    println!("{EVENTS} events of {PAYLOAD_BYTES} bytes, {ROUNDS} interleaved rounds, defaults otherwise\n");
    let mut rounds = Vec::new();
    for number in 1..=ROUNDS {
        let figures = round(ground);
        println!("round {number}: {figures}");
        rounds.push(figures);
    }
    report(&rounds);
}

/// One round's figures, in seconds unless said otherwise.
struct Figures {
    drain: f64,
    bare: f64,
    table: f64,
    cpu_us_per_event: f64,
    peak_rss_mib: f64,
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { drain, bare, table, cpu_us_per_event, peak_rss_mib } = self;
        write!(
            f,
            "drain {drain:.2} s, bare publisher {bare:.2} s, claim and settle {table:.2} s; \
             relay CPU {cpu_us_per_event:.1} us per event, peak RSS {peak_rss_mib:.1} MiB"
        )
    }
}

fn report(rounds: &[Figures]) {
    let middle = |figure: fn(&Figures) -> f64| median(rounds.iter().map(figure));
    let row = |what: &str, seconds: f64| {
        println!("{what:<28} {seconds:>8.2} s {:>10.0} events/s", EVENTS as f64 / seconds);
    };
    println!("\nmedians");
    row("drain", middle(|it| it.drain));
    row("bare publisher", middle(|it| it.bare));
    row("claim and settle", middle(|it| it.table));
    println!("relay CPU                    {:>8.1} us per event", middle(|it| it.cpu_us_per_event));
    println!("relay peak RSS               {:>8.1} MiB", middle(|it| it.peak_rss_mib));
    // A change below the noise is none: the least and the most of the rounds tell what the noise is.
    println!("\nratios, medians of the rounds' own [least..most]");
    let ratio = |what: &str, figure: fn(&Figures) -> f64, goal: &str| {
        let least = rounds.iter().map(figure).fold(f64::INFINITY, f64::min);
        let most = rounds.iter().map(figure).fold(0.0, f64::max);
        println!("{what:<37} {:.2} [{least:.2}..{most:.2}]  ({goal})", middle(figure));
    };
    ratio("drain / (bare + claim and settle)", |it| it.drain / (it.bare + it.table), "to reach: 1.05");
    ratio("drain / larger of the two", |it| it.drain / it.bare.max(it.table), "stretch: 1.15");
}

fn round(ground: &Ground) -> Figures {
    ground.fill(EVENTS, PAYLOAD_BYTES);
    let (drain, cpu, peak_rss_mib) = drain(ground);
    expect(ground, "drain");
    let broker = &ground.config.broker;
    let (port, body) = (ground.servers.rabbit().unwrap().port(), payload(PAYLOAD_BYTES));
    let bare = Bare { port, workers: broker.workers, window: broker.window, body: body.as_bytes() };
    let bare = bare.publish(EVENTS);
    expect(ground, "bare publisher");
    ground.fill(EVENTS, PAYLOAD_BYTES);
    let batch_rows = ground.config.claim.batch_rows;
    let table = claim_and_settle(ground, &ground.config.database, batch_rows, EVENTS);
    Figures { drain, bare, table, cpu_us_per_event: cpu * 1e6 / EVENTS as f64, peak_rss_mib }
}

/// Everything has arrived; the queue is emptied for the next one.
fn expect(ground: &Ground, what: &str) {
    let arrived = ground.broker.queue_len(QUEUE) as usize;
    assert_eq!(arrived, EVENTS, "{what}");
    ground.broker.delete_queue(QUEUE);
    ground.broker.declare_queue(QUEUE, &[]);
}

/// The binary as anyone would run it: wall time, CPU seconds, peak RSS in MiB.
fn drain(ground: &Ground) -> (f64, f64, f64) {
    let before = cpu::of_ended_children();
    let started = Instant::now();
    let mut relay = Command::new(OUTBOXD)
        .args(["once", "--min-age", "0s"])
        .env("DATABASE_URL", &ground.database.url)
        .env("AMQP_URL", ground.servers.amqp_url())
        .env("RUST_LOG", "warn")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut peak_rss_mib = 0.0_f64;
    let status = loop {
        // A high-water mark, so the last look is nearly the truth.
        peak_rss_mib = peak_rss_mib.max(peak_rss(relay.id()));
        match relay.try_wait().unwrap() {
            Some(status) => break status,
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    let seconds = started.elapsed().as_secs_f64();
    assert!(status.success(), "{status}");
    (seconds, cpu::of_ended_children() - before, peak_rss_mib)
}

fn peak_rss(process: u32) -> f64 {
    let Ok(status) = fs::read_to_string(format!("/proc/{process}/status")) else {
        return 0.0;
    };
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.map_or(0.0, |kib| kib / 1024.0)
}
