//! Pictures of the status page of a relay with trouble in it, on servers of its own: `make page`.
//!
//! It makes some minutes of traffic with dead events and blocked keys, then an alarm of the broker, and has a headless
//! Chromium look at each: wide, on a phone, light and dark. The pictures' paths are printed.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the paths are what it is for")]
#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a picture that cannot be taken is a failure"
)]

#[path = "../../tests/it/harness/mod.rs"]
mod harness;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use postgres::{Client, NoTls};

use harness::{ExchangeType, PostgresOptions, Proc, RabbitOptions, Servers};

const DEADLINE: Duration = Duration::from_secs(60);

/// How long traffic is made: the plots have a sample each 15 s.
const TRAFFIC: Duration = Duration::from_secs(200);

const CONFIG: &str = "[[route]]\nevent_type = \"order.*\"\nexchange = \"shop\"\n\n\
    [[route]]\nevent_type = \"price.*\"\nexchange = \"prices\"\n";

/// An event of a type, with a key perhaps, that is due at once.
const INSERT: &str = "insert into event_outbox (event_id, event_type, payload, ordering_key, created_at)
    select $3 || lpad(n::text, 12, '0'), $1, '{}', $4, clock_timestamp() - interval '1 minute'
    from generate_series(1, $2::bigint) as n";

fn main() -> ExitCode {
    let Some(binary) = binary() else {
        eprintln!("there is no outboxd binary beside this program; build both with: make page");
        return ExitCode::FAILURE;
    };
    let servers = Servers::start(PostgresOptions::default(), RabbitOptions::default());
    let (store, bus) = (servers.postgres().expect("our own"), servers.rabbit().expect("our own"));
    let folder = env::temp_dir().join(harness::unique("outboxd-page"));
    fs::create_dir_all(&folder).expect("a folder for the pictures");
    let database = servers.database();
    let config = folder.join("outboxd.toml");
    fs::write(&config, CONFIG).expect("the folder is ours");
    let environment = [("DATABASE_URL", database.url.as_str()), ("AMQP_URL", servers.amqp_url())];
    let made = Proc::run(&binary, &["init"], &environment, DEADLINE);
    assert_eq!(made.code, Some(0), "{made:?}");
    let broker = servers.broker();
    broker.declare_exchange("shop", ExchangeType::Topic);
    for (queue, key) in [("billing", "order.paid"), ("stock", "order.placed")] {
        broker.declare_queue(queue, &[]);
        broker.bind(queue, "shop", key);
    }

    let arguments = [
        "run",
        "--config",
        config.to_str().expect("a plain path"),
        "--metrics-addr",
        "127.0.0.1:0",
        "--interval",
        "1s",
        "--max-failures",
        "2",
        "--backoff-base",
        "2s",
        "--backoff-max",
        "2s",
    ];
    let mut relay = Proc::spawn(&binary, &arguments, &environment);
    let line = relay.wait_for_line(" are at http://", DEADLINE);
    let (_, rest) = line.split_once("http://").expect("an address");
    let url = format!("http://{}/", rest.split('/').next().unwrap_or_default());
    let mut client = Client::connect(&store.url(&database.name), NoTls).expect("a session");
    println!("making {TRAFFIC:?} of traffic at {url}");
    traffic(&mut client);
    pictures(&url, &folder, "needs-a-look");

    bus.memory_alarm(true);
    insert(&mut client, "order.paid", 300, None);
    harness::wait_until("the page says that the broker blocks", DEADLINE, || {
        read(&url).contains("The broker has blocked").then_some(())
    });
    thread::sleep(Duration::from_secs(20));
    pictures(&url, &folder, "trouble");
    bus.memory_alarm(false);
    ExitCode::SUCCESS
}

/// Orders come in waves; some events have nowhere to go, and some keys are stuck behind them.
fn traffic(client: &mut Client) {
    for number in 0..6 {
        insert(client, "order.cancelled", 1, None);
        insert(client, "price.changed", 1, Some(&format!("article-{number}")));
        insert(client, "price.changed", 3 + number, Some(&format!("article-{number}")));
    }
    client.batch_execute(
        "insert into event_outbox (event_id, event_type, payload, available_at)
            select 'later' || n, 'order.paid', '{}', now() + interval '3 hours' from generate_series(1, 7) as n",
    ).expect("the table is there");
    let start = Instant::now();
    while start.elapsed() < TRAFFIC {
        let wave = (start.elapsed().as_secs_f64() / 25.0).sin() + 1.2;
        #[allow(clippy::cast_possible_truncation, reason = "a few dozen")]
        let orders = (wave * 20.0) as i64;
        insert(client, "order.placed", orders, None);
        insert(client, "order.paid", orders / 2, None);
        thread::sleep(Duration::from_millis(400));
    }
}

fn insert(client: &mut Client, event_type: &str, count: i64, key: Option<&str>) {
    let prefix = &ulid::Ulid::generate().to_string()[12..];
    client.execute(INSERT, &[&event_type, &count, &prefix, &key]).expect("the table is there");
}

/// The binary of the same build: `target/release/outboxd` for `target/release/examples/page`.
fn binary() -> Option<PathBuf> {
    let binary = env::current_exe().ok()?.parent()?.parent()?.join("outboxd");
    binary.is_file().then_some(binary)
}

/// The page's text.
fn read(url: &str) -> String {
    let addr = url.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(addr).expect("the relay answers");
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it is text");
    text.split_once("\r\n\r\n").expect("a response").1.to_owned()
}

/// Four pictures of the page as it is now.
fn pictures(url: &str, folder: &Path, name: &str) {
    // A phone is narrower than the browser lets its window be, so there it is a frame; of a file, as the page itself
    // does not want to be in one.
    let (page, phone) = (folder.join("page.html"), folder.join("phone.html"));
    fs::write(&page, read(url)).expect("the folder is ours");
    let frame = "<body style=\"margin:0;background:#888\"><iframe src=\"page.html\" style=\"width:390px;height:3000px;border:0\">";
    fs::write(&phone, frame).expect("the folder is ours");
    let phone = format!("file://{}", phone.display());
    for (scheme, preferred) in [("light", "1"), ("dark", "0")] {
        for (form, size, url) in [("wide", "1200,1900", url), ("phone", "500,3000", &phone)] {
            let picture = folder.join(format!("{name}-{form}-{scheme}.png"));
            let status = Command::new("chromium")
                .args([
                    "--headless=new",
                    "--no-sandbox",
                    "--disable-gpu",
                    "--hide-scrollbars",
                    "--no-first-run",
                ])
                .arg(format!("--user-data-dir={}", folder.join("profile").display()))
                .arg(format!("--blink-settings=preferredColorScheme={preferred}"))
                .arg(format!("--window-size={size}"))
                .arg(format!("--screenshot={}", picture.display()))
                .arg(url)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .expect("chromium is installed: make page installs it");
            assert!(status.success() && picture.is_file(), "no picture of {url}");
            println!("{}", picture.display());
        }
    }
}
