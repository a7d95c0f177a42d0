//! The relay's main job as a story for a newcomer, on servers of its own: `make demo`.
//!
//! Every command and statement of its ten steps is the one that runs, and the story checks itself: it ends with
//! a failure when anything is not as it tells. With the argument `servers` it only starts the servers, for the other
//! examples and whatever else is to be tried: `make servers`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a demo is there to be read")]
#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a story that is not true must fail"
)]

#[path = "../../tests/it/harness/mod.rs"]
mod harness;
mod program;
mod screen;
mod servers;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use std::{env, fs};

use postgres::{Client, NoTls, SimpleQueryMessage};
use ulid::Ulid;

use harness::{Broker, ExchangeType, PostgresOptions, RabbitOptions, Servers, describe};
use program::{DEADLINE, Outboxd};
use screen::{command, output, title, typed};

const CONFIG: &str = r#"[[route]]
event_type  = "order.*"         # every event whose type begins so
exchange    = "shop"            # goes to this exchange
routing_key = "{event_type}"    # with its type as the routing key
"#;

const RUN: &str =
    "run -v --config outboxd.toml --interval 1s --min-age 0s --max-failures 2 --backoff-base 1s";

const COUNTS: &str =
    "select (select count(*) from orders) as orders, (select count(*) from event_outbox) as events;";

const EVENTS: &str = "select id, event_type, status, fail_count, last_error from event_outbox order by id;";

fn main() -> ExitCode {
    match env::args().nth(1).as_deref() {
        None => demo(),
        Some("servers") => servers::run(),
        Some(_) => {
            eprintln!("the demo takes no argument but: servers");
            ExitCode::FAILURE
        }
    }
}

fn demo() -> ExitCode {
    let Some(binary) = Outboxd::find() else {
        eprintln!("the demo found no outboxd binary beside it; build both and start it with: make demo");
        return ExitCode::FAILURE;
    };
    let start = Instant::now();
    let elapsed = || start.elapsed().as_secs();
    println!("outboxd moves committed events from a PostgreSQL table to RabbitMQ, at least once.");
    println!("This is how, on two private servers, which take some seconds to start.");
    let mut demo = Demo::new(binary);
    println!("They are ready after {} s.\n", elapsed());
    demo.tell();
    drop(demo);
    println!("\nThe end, after {} s. Both servers and their data are gone.", elapsed());
    ExitCode::SUCCESS
}

struct Demo {
    outboxd: Outboxd,
    database: Client,
    broker: Broker,
    /// Last, so that the sessions end before their servers do.
    _servers: Servers,
}

impl Demo {
    fn new(binary: PathBuf) -> Demo {
        let servers = Servers::start(PostgresOptions::default(), RabbitOptions::default());
        let postgres = servers.postgres().expect("the server is our own");
        let rabbit = servers.rabbit().expect("the broker is our own");
        execute(&mut connect(&postgres.url("postgres")), "create database shop");
        // The configuration file lies in a folder that is removed with its server, however this process ends.
        env::set_current_dir(rabbit.folder()).expect("the folder is there");
        fs::write("outboxd.toml", CONFIG).expect("the folder is ours");
        let (database, amqp) = (postgres.url("shop"), rabbit.url());
        Demo {
            database: connect(&database),
            broker: servers.broker(),
            outboxd: Outboxd { binary, environment: [("DATABASE_URL", database), ("AMQP_URL", amqp)] },
            _servers: servers,
        }
    }

    /// The story.
    fn tell(&mut self) {
        for (name, value) in &self.outboxd.environment {
            command(&format!("export {name}={value}"));
        }

        title("1. Once: the outbox table, a queue, a route");
        self.outboxd.run("init");
        self.sql("create table orders (id int primary key, total text not null);");
        println!("\nThe billing service asks for paid orders. Consumers declare it, the relay never does:\n");
        typed("amqp>", "exchange.declare shop (topic, durable)");
        self.broker.declare_exchange("shop", ExchangeType::Topic);
        typed("amqp>", "queue.declare    billing (durable)");
        self.broker.declare_queue("billing", &[]);
        typed("amqp>", "queue.bind       billing to shop with routing key order.paid");
        self.broker.bind("billing", "shop", "order.paid");
        println!("\nThe relay's configuration says where events go:\n");
        command("cat outboxd.toml");
        output(CONFIG);

        title("2. The application commits an order and its event in one transaction");
        let first = self.order(1, "commit");

        title("3. Another transaction rolls back: neither the order nor its event is there");
        self.order(2, "rollback");
        assert_eq!(self.query(COUNTS), [["1", "1"]]);

        title("4. An event that no queue is bound for: billing asked for order.paid only");
        self.outboxd.run("enqueue order.shipped '{\"order\":1}'");

        title("5. An event that has expired before it is sent");
        self.sql(&format!(
            "insert into event_outbox (event_id, event_type, payload, expired_at)\n  \
             values ('{}', 'order.offer', '{{\"order\": 1}}', now() - interval '1 minute');",
            Ulid::generate()
        ));

        title("6. The relay runs");
        println!(
            "It looks every second and takes events of any age; both are 30s by default. For the demo, an event"
        );
        println!(
            "is DEAD after two refusals instead of three, and a refused one is due again within a second.\n"
        );
        let mut relay = self.outboxd.start(RUN);
        relay.show_until(" dead=1");
        println!("\norder.paid     the broker has confirmed it: PUBLISHED.");
        println!("order.shipped  came back from the broker twice: DEAD, until an operator decides.");
        println!("order.offer    was not sent: EXPIRED.");

        title("7. What the billing service receives");
        self.receive(&first);

        title("8. One more order while the relay runs: its event leaves at the next beat");
        let second = self.order(3, "commit");
        relay.show_until(" published=1");
        println!();
        self.receive(&second);

        title("9. The relay ends in order, as under systemd");
        relay.end();

        title("10. What the table says");
        let events = self.query(EVENTS);
        let fates: Vec<_> = events.iter().map(|event| event[..4].join(" ")).collect();
        let expected = [
            "1 order.paid PUBLISHED 0",
            "3 order.shipped DEAD 2",
            "4 order.offer EXPIRED 0",
            "5 order.paid PUBLISHED 0",
        ];
        assert_eq!(fates, expected);
        assert!(events[1][4].contains("NO_ROUTE"), "{events:?}");
        assert_eq!(self.broker.queue_len("billing"), 0, "nothing else has arrived");
        println!("\nNumber 2 was rolled back with its order. No relay ever saw it.\n");
        self.outboxd.run("status");

        title("Next, with servers of your own");
        command(
            "export DATABASE_URL=postgres://user:password@host/database AMQP_URL=amqp://user:password@host",
        );
        command("outboxd init && outboxd run");
        println!("\nOr on private servers again, and with the library's examples: make servers");
    }

    /// Writes an order and its event in a transaction that ends so, and returns the event's id.
    fn order(&mut self, order: u32, end: &str) -> String {
        let id = Ulid::generate().to_string();
        self.sql(&format!(
            "begin;\n\
             insert into orders (id, total) values ({order}, '49.90');\n\
             insert into event_outbox (event_id, event_type, headers, payload)\n  \
             values ('{id}', 'order.paid', '{{\"tenant\": \"acme\", \"version\": 1}}',\n          \
             '{{\"order\": {order}, \"total\": \"49.90\"}}');\n\
             {end};"
        ));
        id
    }

    /// Receives a message, which must be the one of this event, and shows it.
    fn receive(&self, event_id: &str) {
        for message in self.broker.drain("billing", 1, DEADLINE) {
            screen::message(&message);
            assert_eq!(message.id(), event_id, "no other event has arrived");
            assert_eq!(message.exchange, "shop");
            assert_eq!(message.routing_key, "order.paid");
            assert_eq!(message.kind.as_deref(), Some("order.paid"));
            assert_eq!(message.delivery_mode, Some(2));
            assert_eq!(message.headers.len(), 2);
        }
    }

    fn sql(&mut self, statements: &str) {
        typed("sql>", statements);
        execute(&mut self.database, statements);
    }

    /// Runs a query, shows its answer, and returns the rows.
    fn query(&mut self, query: &str) -> Vec<Vec<String>> {
        typed("sql>", query);
        let answer = self.database.simple_query(query);
        let (mut names, mut rows) = (Vec::new(), Vec::new());
        for message in answer.unwrap_or_else(|error| panic!("{}", describe(&error))) {
            if let SimpleQueryMessage::Row(row) = message {
                let columns = row.columns().iter();
                names = columns.map(|column| column.name().to_owned()).collect();
                let cells = (0..row.len()).map(|column| row.get(column).unwrap_or(""));
                rows.push(cells.map(str::to_owned).collect());
            }
        }
        screen::table(&names, &rows);
        rows
    }
}

fn connect(url: &str) -> Client {
    Client::connect(url, NoTls).unwrap_or_else(|error| panic!("{}", describe(&error)))
}

fn execute(client: &mut Client, statements: &str) {
    client.batch_execute(statements).unwrap_or_else(|error| panic!("{}", describe(&error)));
}
