//! `make bench`: the relay against what it is made of, on real servers that it starts itself.
//!
//! Three things, one after the other in each round, so that a noisy machine is noisy for all of them:
//! the *drain* (the binary, `outboxd once`, 50,000 events), a *bare publisher* (the same messages from memory, with
//! the same workers, window, socket options, properties and queue), and *claim and settle* alone (the same rows,
//! with an immediate confirm in place of publishing). Medians and ratios are what to read; the rates depend on
//! the machine.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

#[path = "../tests/it/harness/mod.rs"]
mod harness;

use std::fs;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use amiquip::{AmqpProperties, Auth, Confirm, Connection, ConnectionOptions, ConnectionTuning, Publish};
use harness::{Broker, PostgresOptions, RabbitOptions, Servers};
use outboxd::config::Config;
use outboxd::confirm::{Ledger, Receipt, Verdict};
use outboxd::outbox::Outbox;
use outboxd::policy::Settlement;

const EVENTS: usize = 50_000;
const PAYLOAD_BYTES: usize = 500;
const ROUNDS: usize = 5;
const QUEUE: &str = "bench.event";
const OUTBOXD: &str = env!("CARGO_BIN_EXE_outboxd");

/// The kernel counts a process's time in these; fixed by Linux's interface to user space.
const TICKS_PER_SECOND: f64 = 100.0;

fn main() {
    // `cargo test` runs benches too, to see that they start; `--bench` says that measuring is wanted.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let bench = Bench::new();
    println!("{EVENTS} events of {PAYLOAD_BYTES} bytes, {ROUNDS} interleaved rounds, defaults otherwise\n");
    let mut rounds = Vec::new();
    for round in 1..=ROUNDS {
        let figures = bench.round();
        println!("round {round}: {figures}");
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
    let median = |figure: fn(&Figures) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(figure).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let row = |what: &str, seconds: f64| {
        println!("{what:<28} {seconds:>8.2} s {:>10.0} events/s", EVENTS as f64 / seconds);
    };
    println!("\nmedians");
    row("drain", median(|it| it.drain));
    row("bare publisher", median(|it| it.bare));
    row("claim and settle", median(|it| it.table));
    println!("relay CPU                    {:>8.1} us per event", median(|it| it.cpu_us_per_event));
    println!("relay peak RSS               {:>8.1} MiB", median(|it| it.peak_rss_mib));
    println!("\nratios, medians of the rounds' own");
    println!(
        "drain / (bare + claim and settle)     {:.2}  (to reach: 1.05)",
        median(|it| it.drain / (it.bare + it.table))
    );
    println!(
        "drain / larger of the two             {:.2}  (stretch: 1.15)",
        median(|it| it.drain / it.bare.max(it.table))
    );
}

struct Bench {
    servers: Servers,
    database: harness::Database,
    broker: Broker,
    config: Config,
    payload: String,
}

impl Bench {
    fn new() -> Self {
        let postgres = PostgresOptions { durable: true, ..PostgresOptions::default() };
        let servers = Servers::start(postgres, RabbitOptions::default());
        let database = servers.database();
        let mut config = Config::new(&database.url, servers.amqp_url()).unwrap();
        config.claim.min_age = Duration::ZERO;
        outboxd::outbox::init(&config.database).unwrap();
        let broker = servers.broker();
        broker.declare_queue(QUEUE, &[]);
        let payload = format!("{{\"filler\":\"{}\"}}", "x".repeat(PAYLOAD_BYTES - 13));
        assert_eq!(payload.len(), PAYLOAD_BYTES);
        Self { servers, database, broker, config, payload }
    }

    fn round(&self) -> Figures {
        self.fill();
        let (drain, cpu, peak_rss_mib) = self.drain();
        self.expect("drain");
        let bare = self.bare();
        self.expect("bare publisher");
        self.fill();
        let table = self.claim_and_settle();
        Figures { drain, bare, table, cpu_us_per_event: cpu * 1e6 / EVENTS as f64, peak_rss_mib }
    }

    /// A table with only the events to send, all due, and statistics as autovacuum would keep them.
    fn fill(&self) {
        let mut client = self.database.connect();
        client.batch_execute("truncate event_outbox restart identity").unwrap();
        client
            .execute(
                "insert into event_outbox (event_id, event_type, payload)
                 select lpad(n::text, 26, '0'), $1, $2 from generate_series(1, $3::bigint) as n",
                &[&QUEUE, &self.payload, &i64::try_from(EVENTS).unwrap()],
            )
            .unwrap();
        client.batch_execute("vacuum analyze event_outbox").unwrap();
    }

    /// Everything has arrived; the queue is emptied for the next one.
    fn expect(&self, what: &str) {
        let arrived = self.broker.queue_len(QUEUE) as usize;
        assert_eq!(arrived, EVENTS, "{what}");
        self.broker.delete_queue(QUEUE);
        self.broker.declare_queue(QUEUE, &[]);
    }

    /// The binary as anyone would run it: wall time, CPU seconds, peak RSS in MiB.
    fn drain(&self) -> (f64, f64, f64) {
        let before = children_cpu_seconds();
        let started = Instant::now();
        let mut relay = Command::new(OUTBOXD)
            .args(["once", "--min-age", "0s"])
            .env("DATABASE_URL", &self.database.url)
            .env("AMQP_URL", self.servers.amqp_url())
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
        (seconds, children_cpu_seconds() - before, peak_rss_mib)
    }

    /// Claims and settles with one thread, every confirm at once.
    fn claim_and_settle(&self) -> f64 {
        let started = Instant::now();
        let mut outbox = Outbox::new(self.config.database.clone(), self.config.claim.clone());
        let (mut after, mut settled) = (0, 0);
        while let Some(claimed) = outbox.claim(after, started.elapsed()).unwrap() {
            after = claimed.more_after.unwrap_or(0);
            let published =
                |(event, _): &(outboxd::event::Event, _)| (event.id, Settlement::Published(receipt()));
            let settlements = claimed.events.iter().map(published).collect();
            settled += outbox.settle(claimed.claim, settlements).unwrap().tally.published;
        }
        assert_eq!(settled, EVENTS as u64);
        started.elapsed().as_secs_f64()
    }

    /// As fast as the broker takes them: a thread per worker, each with its channel and window.
    fn bare(&self) -> f64 {
        let workers = self.config.broker.workers;
        let address = self.servers.amqp_url().split(['@', '/']).nth(3).unwrap().to_owned();
        let stream = TcpStream::connect(&address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(true).unwrap();
        let stream = mio::net::TcpStream::from_stream(stream).unwrap();
        let options = ConnectionOptions::<Auth>::default().heartbeat(10);
        let mut connection =
            Connection::insecure_open_stream(stream, options, ConnectionTuning::default()).unwrap();
        let channels: Vec<_> = (0..workers).map(|_| connection.open_channel(None).unwrap()).collect();
        let (window, body) = (self.config.broker.window, self.payload.as_bytes());
        let started = Instant::now();
        thread::scope(|scope| {
            for (worker, channel) in channels.into_iter().enumerate() {
                scope.spawn(move || {
                    let numbers = (1..=EVENTS).skip(worker).step_by(workers);
                    publish_all(&channel, numbers, window, body);
                });
            }
        });
        let seconds = started.elapsed().as_secs_f64();
        connection.close().unwrap();
        seconds
    }
}

fn publish_all(channel: &amiquip::Channel, numbers: impl Iterator<Item = usize>, window: usize, body: &[u8]) {
    let confirms = channel.listen_for_publisher_confirms().unwrap();
    let returns = channel.listen_for_returns().unwrap();
    channel.enable_publisher_confirms().unwrap();
    let mut open = std::collections::BTreeSet::new();
    let settle = |confirm: Confirm, open: &mut std::collections::BTreeSet<u64>| match confirm {
        Confirm::Ack(ack) if ack.multiple => *open = open.split_off(&(ack.delivery_tag + 1)),
        Confirm::Ack(ack) => drop(open.remove(&ack.delivery_tag)),
        Confirm::Nack(nack) => panic!("{nack:?}"),
    };
    let mut tag = 0;
    for number in numbers {
        while open.len() >= window {
            settle(confirms.recv().unwrap(), &mut open);
            confirms.try_iter().for_each(|confirm| settle(confirm, &mut open));
        }
        let properties = AmqpProperties::default()
            .with_content_type("application/json".into())
            .with_delivery_mode(2)
            .with_message_id(format!("{number:026}"))
            .with_type_(QUEUE.into())
            .with_timestamp(1_700_000_000)
            .with_app_id("outboxd".into());
        let routing_key = QUEUE.to_owned();
        channel
            .basic_publish("", Publish { body, routing_key, mandatory: true, immediate: false, properties })
            .unwrap();
        tag += 1;
        open.insert(tag);
    }
    while !open.is_empty() {
        settle(confirms.recv().unwrap(), &mut open);
    }
    assert!(returns.is_empty());
}

/// A receipt for a message that was never sent: what the table costs does not depend on it.
fn receipt() -> Receipt {
    let mut ledger = Ledger::default();
    ledger.sent(());
    match ledger.ack(1, false).pop() {
        Some((_, Verdict::Confirmed(receipt))) => receipt,
        other => panic!("{other:?}"),
    }
}

/// What ended children of this process have used so far.
fn children_cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    // The second field is the name in parentheses and may hold spaces; `cutime` and `cstime` are the 16th and 17th.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[13..15].iter().map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / TICKS_PER_SECOND
}

fn peak_rss(process: u32) -> f64 {
    let Ok(status) = fs::read_to_string(format!("/proc/{process}/status")) else {
        return 0.0;
    };
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.map_or(0.0, |kib| kib / 1024.0)
}
