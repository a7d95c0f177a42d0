//! The drain against its parts.
//!
//! Three things, one after the other in each round, so that a noisy machine is noisy for all of them: the *drain*
//! (the binary, `outboxd once`), a *bare publisher* (the same messages from memory, with the same workers, window,
//! socket options, properties and queue), and *claim and settle* alone (the same rows, with an immediate confirm
//! in place of publishing). Medians and ratios are what to read, and where the machine's time went in the drain.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::account::{Account, Threads};
use crate::bare::Bare;
use crate::cpu;
use crate::ground::{Ground, OUTBOXD, PAYLOAD_BYTES, QUEUE, payload};
use crate::page::{Figure, Page, count, median};
use crate::table::claim_and_settle;

const EVENTS: usize = 50_000;
const ROUNDS: usize = 5;

/// How often the relay's memory and threads are looked at.
const LOOK: Duration = Duration::from_millis(10);

pub fn measure(ground: &Ground, page: &mut Page) {
    println!("{EVENTS} events of {PAYLOAD_BYTES} bytes, {ROUNDS} interleaved rounds, defaults otherwise");
    let mut rounds = Vec::new();
    for number in 1..=ROUNDS {
        let round = round(ground);
        println!(
            "round {number}: drain {:.2} s, bare publisher {:.2} s, claim and settle {:.2} s",
            round.drain.seconds, round.bare, round.table
        );
        rounds.push(round);
    }
    against_the_parts(&rounds, page);
    let account = account(&rounds.iter().map(|it| &it.drain.account).collect::<Vec<_>>());
    show(&account, page);
}

/// One round's figures, in seconds.
struct Round {
    drain: Drain,
    bare: f64,
    table: f64,
}

/// The binary as anyone would run it.
struct Drain {
    seconds: f64,
    peak_rss_mib: f64,
    account: Account,
}

fn against_the_parts(rounds: &[Round], page: &mut Page) {
    let middle = |figure: fn(&Round) -> f64| median(rounds.iter().map(figure));
    let ratios = |figure: fn(&Round) -> f64| rounds.iter().map(figure).collect::<Vec<_>>();
    let rate = |figure: fn(&Round) -> f64| EVENTS as f64 / middle(figure);
    let drain = |against: &str| {
        let name = format!(
            "drain of {} events of {PAYLOAD_BYTES} bytes, from process start to end, against {against}",
            count(EVENTS)
        );
        Figure::new(name, middle(|it| it.drain.seconds), "s")
    };
    let (bare, table) = (middle(|it| it.bare), middle(|it| it.table));
    let sum = drain("the sum of its parts")
        .beside(format!("bare publisher {bare:.2} s + claim and settle {table:.2} s"));
    page.add(sum.ratios(&ratios(|it| it.drain.seconds / (it.bare + it.table))).at_most(1.05));
    let larger = drain("the larger of its parts").beside(format!("{:.2} s", bare.max(table)));
    page.add(larger.ratios(&ratios(|it| it.drain.seconds / it.bare.max(it.table))).at_most(1.15));
    page.add(Figure::new("the drain's rate", rate(|it| it.drain.seconds), "events/s"));
    page.add(Figure::new("the bare publisher's rate", rate(|it| it.bare), "events/s"));
    page.add(Figure::new("the rate of claim and settle alone", rate(|it| it.table), "events/s"));
    let cpu = middle(|it| it.drain.account.relay) * 1e6 / EVENTS as f64;
    page.add(Figure::new("the relay's CPU per event", cpu, "us"));
    page.add(Figure::new("the relay's peak RSS", middle(|it| it.drain.peak_rss_mib), "MiB"));
}

/// All drains together.
fn account(drains: &[&Account]) -> Account {
    let mut all = Account::default();
    for it in drains {
        all.cores += it.cores;
        all.relay += it.relay;
        all.postgres += it.postgres;
        all.rabbit += it.rabbit;
        all.bench += it.bench;
        all.others += it.others;
        all.idle += it.idle;
        for (name, seconds) in &it.threads {
            *all.threads.entry(name.clone()).or_default() += seconds;
        }
    }
    all
}

/// When nothing is idle, what has the largest part is what stands in the way.
fn show(account: &Account, page: &mut Page) {
    let share = |seconds: f64| seconds / account.cores * 100.0;
    let mut threads: Vec<_> = account.threads.iter().collect();
    threads.sort_by(|one, other| other.1.total_cmp(one.1));
    let list = threads.iter().map(|(name, seconds)| (name, share(**seconds)));
    let threads = format!(
        "by thread: {}",
        list.filter(|(_, share)| *share >= 0.05)
            .map(|(name, share)| format!("{name} {share:.1} %"))
            .collect::<Vec<_>>()
            .join(", ")
    );
    let shares = [
        ("RabbitMQ", account.rabbit, ""),
        ("PostgreSQL, all its processes", account.postgres, ""),
        ("the relay", account.relay, threads.as_str()),
        ("this benchmark, which watches", account.bench, ""),
        ("the kernel for nobody, and everything else", account.others, ""),
        ("idle, or waiting for the disk", account.idle, ""),
    ];
    for (what, seconds, beside) in shares {
        let per_event =
            format!(" of all cores' time; {:.1} us per event", seconds * 1e6 / (EVENTS * ROUNDS) as f64);
        page.add(
            Figure::new(format!("in the drain: {what}"), share(seconds), "%").and(&per_event).beside(beside),
        );
    }
}

fn round(ground: &Ground) -> Round {
    ground.fill(EVENTS, PAYLOAD_BYTES);
    let drain = drain(ground);
    expect(ground, "drain");
    let broker = &ground.config.broker;
    let (port, body) = (ground.servers.rabbit().unwrap().port(), payload(PAYLOAD_BYTES));
    let bare = Bare { port, workers: broker.workers, window: broker.window, body: body.as_bytes() };
    let bare = bare.publish(EVENTS);
    expect(ground, "bare publisher");
    ground.fill(EVENTS, PAYLOAD_BYTES);
    let batch_rows = ground.config.claim.batch_rows;
    let table = claim_and_settle(ground, &ground.config.database, batch_rows, EVENTS);
    Round { drain, bare, table }
}

/// Everything has arrived; the queue is emptied for the next one.
fn expect(ground: &Ground, what: &str) {
    let arrived = ground.broker.queue_len(QUEUE) as usize;
    assert_eq!(arrived, EVENTS, "{what}");
    ground.renew_queue();
}

fn drain(ground: &Ground) -> Drain {
    let opened = Account::open(ground);
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
    let mut threads = Threads::default();
    let status = loop {
        // A high-water mark, so the last look is nearly the truth.
        peak_rss_mib = peak_rss_mib.max(peak_rss(relay.id()));
        threads.look(relay.id());
        match relay.try_wait().unwrap() {
            Some(status) => break status,
            None => thread::sleep(LOOK),
        }
    };
    let seconds = started.elapsed().as_secs_f64();
    assert!(status.success(), "{status}");
    let account = opened.close(ground, cpu::of_ended_children() - before, &threads);
    Drain { seconds, peak_rss_mib, account }
}

/// In MiB; nothing when the process has ended.
pub fn peak_rss(process: u32) -> f64 {
    let Ok(status) = fs::read_to_string(format!("/proc/{process}/status")) else {
        return 0.0;
    };
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.map_or(0.0, |kib| kib / 1024.0)
}
