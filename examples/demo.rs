//! The relay's main job as a story for a newcomer, on servers of its own: `make demo`.
//!
//! Every command and every statement that is shown is the one that runs, and the story checks itself: it ends with
//! a failure when anything is not as it tells.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a demo is there to be read"
)]
#![allow(
    clippy::panic,
    clippy::expect_used,
    reason = "a story that is not true must fail"
)]

use std::io::{IsTerminal, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, UNIX_EPOCH};
use std::{env, fs};

use postgres::{Client, NoTls, SimpleQueryMessage};

use harness::{
    AmqpValue, Broker, ExchangeType, Message, PostgresOptions, Proc, RabbitOptions, Servers, wait_until,
};

#[path = "../tests/it/harness/mod.rs"]
mod harness;

/// Generous: a deadline that passes is a failure, however slow the machine is.
const DEADLINE: Duration = Duration::from_secs(60);

/// How many columns the story may take.
const WIDTH: usize = 110;

const CONFIG: &str = r#"[[route]]
event_type  = "order.*"         # every event whose type begins so
exchange    = "shop"            # goes to this exchange
routing_key = "{event_type}"    # under its type as the routing key
"#;

const ORDERS: &str = "create table orders (id int primary key, total text not null);";

const RUN: &str = "run --config outboxd.toml --interval 1s --min-age 0s --max-failures 2 --backoff-base 1s";

const EVENTS: &str = "select id, event_type, status, fail_count, last_error from event_outbox order by id;";

const COUNTS: &str =
    "select (select count(*) from orders) as orders, (select count(*) from event_outbox) as events;";

fn main() -> ExitCode {
    let Some(binary) = outboxd() else {
        eprintln!("the demo found no outboxd binary to show; build it and start the demo with: make demo");
        return ExitCode::FAILURE;
    };
    let start = Instant::now();
    println!(
        "outboxd moves committed events from a PostgreSQL table to RabbitMQ. This is how, on two private servers."
    );
    let mut demo = Demo::new(binary);
    println!("Both servers are ready after {} s.\n", start.elapsed().as_secs());
    let [database, amqp] = &demo.environment;
    command(&format!("export {}={}", database.0, database.1));
    command(&format!("export {}={}", amqp.0, amqp.1));
    demo.tell();
    drop(demo);
    println!(
        "\nThe end, after {} s. Both servers and their data are gone.",
        start.elapsed().as_secs()
    );
    ExitCode::SUCCESS
}

/// The binary of the same build: `target/release/outboxd` for `target/release/examples/demo`.
fn outboxd() -> Option<PathBuf> {
    let demo = env::current_exe().ok()?;
    let binary = demo.parent()?.parent()?.join("outboxd");
    binary.is_file().then_some(binary)
}

struct Demo {
    binary: PathBuf,
    environment: [(&'static str, String); 2],
    database: Client,
    broker: Broker,
    /// Last, so that the sessions end before their servers do.
    _servers: Servers,
}

impl Demo {
    fn new(binary: PathBuf) -> Demo {
        let servers = Servers::start(PostgresOptions::default(), RabbitOptions::default());
        let postgres = servers.postgres().expect("the server is our own");
        connect(&postgres.url("postgres"))
            .batch_execute("create database shop")
            .expect("the database is new");
        // The configuration file lies in a folder that is removed with its server, however this process ends.
        let folder = servers.rabbit().expect("the broker is our own").folder();
        env::set_current_dir(folder).expect("the folder is there");
        fs::write("outboxd.toml", CONFIG).expect("the folder is ours");
        let database_url = postgres.url("shop");
        Demo {
            binary,
            database: connect(&database_url),
            broker: servers.broker(),
            environment: [
                ("DATABASE_URL", database_url),
                ("AMQP_URL", servers.amqp_url().into()),
            ],
            _servers: servers,
        }
    }

    /// The story.
    fn tell(&mut self) {
        title("1. Once: the outbox table, a queue, a route");
        let made = self.outboxd("init");
        assert!(made.contains("is created"), "{made}");
        self.sql(ORDERS);
        println!(
            "\nThe billing service listens for paid orders. Who consumes declares this, not the relay:\n"
        );
        self.broker.declare_exchange("shop", ExchangeType::Topic);
        self.broker.declare_queue("billing", &[]);
        self.broker.bind("billing", "shop", "order.paid");
        typed("amqp>", "exchange.declare shop (topic, durable)");
        typed("amqp>", "queue.declare    billing (durable)");
        typed(
            "amqp>",
            "queue.bind       billing to shop, routing key order.paid",
        );
        println!("\nThe relay's configuration file says where events go:\n");
        command("cat outboxd.toml");
        output(CONFIG);

        title("2. The application commits an order and its event in one transaction");
        let first = self.order(1, "commit");

        title("3. Another transaction rolls back: neither the order nor its event ever were");
        self.order(2, "rollback");
        let counts = self.query(COUNTS);
        assert_eq!(counts, [["1", "1"]]);

        title("4. An event that no queue is bound for");
        println!("Billing asked for order.paid only, and nobody for order.shipped:\n");
        self.outboxd("enqueue order.shipped {\"order\":1}");

        title("5. An event whose time is over before it is sent");
        self.sql(&format!(
            "insert into event_outbox (event_id, event_type, payload, expired_at)\n  \
             values ('{}', 'order.offer', '{{\"order\": 1}}', now() - interval '1 minute');",
            event_id()
        ));

        title("6. The relay runs");
        println!(
            "It looks every second, and at events of any age: by default both are 30s, which leaves an application\n\
             the time to publish its events itself. Two refusals make an event DEAD here, a second or less apart.\n"
        );
        let mut relay = self.start(RUN);
        relay.show_until("dead 1");
        println!(
            "\nThe paid order's event is PUBLISHED: the broker has confirmed it. The event that nobody was bound for\n\
             came back twice and is DEAD, which waits for an operator. The late one is EXPIRED and was not sent."
        );

        title("7. What the billing service receives");
        self.receive(&first);

        title("8. One more order while the relay runs: its event leaves at the next beat");
        let second = self.order(3, "commit");
        println!();
        relay.show_until("published 1");
        println!();
        self.receive(&second);

        title("9. The relay ends in order, here and under systemd");
        relay.end();

        title("10. What is left");
        let events = self.query(EVENTS);
        let expected = [
            ["1", "order.paid", "PUBLISHED", "0"],
            ["3", "order.shipped", "DEAD", "2"],
            ["4", "order.offer", "EXPIRED", "0"],
            ["5", "order.paid", "PUBLISHED", "0"],
        ];
        let fates: Vec<_> = events.iter().map(|event| &event[..4]).collect();
        assert_eq!(fates, expected);
        assert!(
            events[1][4].contains("order.shipped"),
            "the reason says what to bind: {events:?}"
        );
        assert_eq!(self.broker.queue_len("billing"), 0, "nothing else has arrived");
        println!("\nNumber 2 was rolled back with its order: it was never seen, and never sent.\n");
        let status = self.outboxd("status");
        let has = |line: &[&str]| {
            status
                .lines()
                .any(|it| it.split_whitespace().eq(line.iter().copied()))
        };
        assert!(
            has(&["PUBLISHED", "2"]) && has(&["DEAD", "1"]) && has(&["EXPIRED", "1"]),
            "{status}"
        );

        title("Next, with servers of your own");
        command(
            "export DATABASE_URL=postgres://user:password@host/database AMQP_URL=amqp://user:password@host",
        );
        command("outboxd init && outboxd run");
    }

    /// Writes an order and its event in a transaction with this end, and returns the event's id.
    fn order(&mut self, order: u32, end: &str) -> String {
        let id = event_id();
        self.sql(&format!(
            "begin;\n\
             insert into orders (id, total) values ({order}, '49.90');\n\
             insert into event_outbox (event_id, event_type, payload, headers)\n  \
             values ('{id}', 'order.paid',\n          \
             '{{\"order\": {order}, \"total\": \"49.90\"}}', '{{\"tenant\": \"acme\", \"version\": 1}}');\n\
             {end};"
        ));
        id
    }

    /// Receives one message, which must be the order's event with this id, and shows it.
    fn receive(&self, id: &str) {
        let messages = self.broker.drain("billing", 1, DEADLINE);
        for message in &messages {
            show(message);
            assert_eq!(message.id(), id, "the order's event and no other has arrived");
            assert_eq!(
                (&*message.exchange, &*message.routing_key),
                ("shop", "order.paid")
            );
            assert!(!message.headers.is_empty());
        }
    }

    /// Runs a command of the binary, which must succeed, and returns what it prints.
    fn outboxd(&self, line: &str) -> String {
        let done = self.start(line).process.wait(DEADLINE);
        output(&done.stdout);
        output(&done.stderr);
        assert_eq!(done.code, Some(0), "outboxd {line}");
        done.stdout
    }

    fn start(&self, line: &str) -> Relay {
        let arguments: Vec<_> = line.split(' ').collect();
        // Only JSON has characters that a shell would not take as they are.
        let shown = arguments.iter().map(|it| {
            if it.contains('{') {
                format!("'{it}'")
            } else {
                (*it).into()
            }
        });
        command(&format!("outboxd {}", shown.collect::<Vec<String>>().join(" ")));
        let environment = self
            .environment
            .each_ref()
            .map(|(name, value)| (*name, value.as_str()));
        Relay {
            process: Proc::spawn(&self.binary, &arguments, &environment),
            shown: 0,
        }
    }

    /// Runs statements.
    fn sql(&mut self, statements: &str) {
        typed("sql>", statements);
        self.database
            .batch_execute(statements)
            .unwrap_or_else(|error| panic!("{}", harness::describe(&error)));
    }

    /// Runs a query, shows its result as a table, and returns its rows.
    fn query(&mut self, query: &str) -> Vec<Vec<String>> {
        typed("sql>", query);
        let answer = self
            .database
            .simple_query(query)
            .unwrap_or_else(|error| panic!("{}", harness::describe(&error)));
        let (mut names, mut rows) = (Vec::new(), Vec::new());
        for message in answer {
            if let SimpleQueryMessage::Row(row) = message {
                names = row
                    .columns()
                    .iter()
                    .map(|column| column.name().to_owned())
                    .collect();
                rows.push(
                    (0..row.len())
                        .map(|column| row.get(column).unwrap_or("").to_owned())
                        .collect(),
                );
            }
        }
        show_table(&names, &rows);
        rows
    }
}

/// The relay as a process, whose log is shown as it comes.
struct Relay {
    process: Proc,
    /// How many bytes of its log were shown.
    shown: usize,
}

impl Relay {
    /// Shows the log up to the next line that contains `text`.
    fn show_until(&mut self, text: &str) {
        wait_until(&format!("the relay's log says {text:?}"), DEADLINE, || {
            let running = self.process.is_running();
            let (_, log) = self.process.output();
            let said = self.show(&log).contains(text);
            assert!(said || running, "the relay has ended");
            said.then_some(())
        });
    }

    /// Shows the complete lines that are new, and returns them.
    fn show<'log>(&mut self, log: &'log str) -> &'log str {
        let end = log.rfind('\n').map_or(0, |newline| newline + 1);
        let new = &log[self.shown..end];
        self.shown = end;
        output(new);
        new
    }

    /// Ends the relay as a service manager does.
    fn end(mut self) {
        command(&format!("kill -TERM {}", self.process.id()));
        self.process.signal("TERM");
        let Relay { process, shown } = self;
        let done = process.wait(DEADLINE);
        output(&done.stderr[shown..]);
        output(&format!(
            "exit code {}",
            done.code.map_or("none".into(), |code| code.to_string())
        ));
        let last = done.stderr.lines().last().unwrap_or_default();
        assert!(last.contains("ended; since the start"), "{last}");
        assert_eq!(done.code, Some(0));
    }
}

fn connect(url: &str) -> Client {
    Client::connect(url, NoTls).unwrap_or_else(|error| panic!("{}", harness::describe(&error)))
}

/// Any unique text of up to 26 characters is an event id; ULIDs sort by time.
fn event_id() -> String {
    ulid::Ulid::generate().to_string()
}

fn show(message: &Message) {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".into());
    let time = UNIX_EPOCH + Duration::from_secs(message.timestamp.unwrap_or_default());
    let header = |(name, value): (&String, &AmqpValue)| match value {
        AmqpValue::LongString(text) => format!("{name}: {text:?}"),
        other => format!("{name}: {other:?}"),
    };
    let headers: Vec<_> = message.headers.iter().map(header).collect();
    let lines = [
        ("exchange", message.exchange.clone()),
        ("routing key", message.routing_key.clone()),
        ("message_id", text(&message.message_id)),
        ("type", text(&message.kind)),
        ("content_type", text(&message.content_type)),
        (
            "delivery_mode",
            format!("{} (2 is persistent)", message.delivery_mode.unwrap_or_default()),
        ),
        ("timestamp", humantime::format_rfc3339_seconds(time).to_string()),
        ("app_id", text(&message.app_id)),
        ("headers", headers.join(", ")),
        ("body", message.text().to_owned()),
    ];
    for (name, value) in lines {
        output(&format!("{name:<13} {value}"));
    }
}

/// Shows rows in aligned columns; the last column is cut where the line must end.
fn show_table(names: &[String], rows: &[Vec<String>]) {
    let lines = || [names].into_iter().chain(rows.iter().map(Vec::as_slice));
    let widths: Vec<usize> = (0..names.len())
        .map(|column| {
            lines()
                .map(|line| line[column].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    for line in lines() {
        let cells: Vec<_> = line
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        let line = cells.join("  ").replace('\n', " ");
        let cut: String = line.trim_end().chars().take(WIDTH - INDENT.len()).collect();
        output(&cut);
    }
}

const INDENT: &str = "    ";

fn title(text: &str) {
    println!("\n{}\n", bold(text));
}

fn command(line: &str) {
    typed("$", line);
}

/// Shows what a newcomer would type at this prompt.
fn typed(prompt: &str, text: &str) {
    for line in text.lines() {
        println!("{prompt} {}", bold(line));
    }
}

/// Shows what came back, indented and broken between words where it would be too wide.
fn output(text: &str) {
    for line in text.lines() {
        let mut rest = line;
        let mut indent = INDENT.to_owned();
        while indent.len() + rest.len() > WIDTH {
            let Some(space) = rest[..=WIDTH - indent.len()].rfind(' ') else {
                break;
            };
            println!("{indent}{}", &rest[..space]);
            rest = &rest[space + 1..];
            indent = INDENT.repeat(2);
        }
        println!("{indent}{rest}");
    }
}

/// Bold on a terminal, plain in a file or a pipe.
fn bold(text: &str) -> String {
    if stdout().is_terminal() {
        format!("\x1b[1m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}
