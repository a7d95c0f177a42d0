//! The demo's servers without its story: they run until they are told to end, and leave nothing behind.

use std::io;
use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use outboxd::config::Config;
use outboxd::{inbox, outbox};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::harness::{PostgresOptions, RabbitOptions, Servers};
use crate::screen::title;
use crate::{connect, execute};

/// The queues that the examples use, each named after the type of event that goes there.
const QUEUES: [&str; 3] = ["order.created", "order.paid", "note.written"];

/// Starts them, says what can be done with them, and ends them when somebody asks for it.
pub(crate) fn run() -> ExitCode {
    let (end, ended) = channel();
    // From here on, so that a signal during the start ends it in order, too.
    listen(end.clone());
    println!("Two private servers start; that takes some seconds.");
    let servers = Servers::start(PostgresOptions::default(), RabbitOptions::default());
    prepare(&servers);
    thread::spawn(move || wait_for_end_of_input(&end));
    let why = ended.recv().unwrap_or("nobody is left to ask for it");
    println!("\n{why}: both servers end, and their data is removed.");
    drop(servers);
    ExitCode::SUCCESS
}

fn prepare(servers: &Servers) {
    let postgres = servers.postgres().expect("the server is our own");
    execute(&mut connect(&postgres.url("postgres")), "create database shop");
    let (database, amqp) = (postgres.url("shop"), servers.amqp_url());
    let config = Config::new(&database, amqp).expect("both are URLs");
    outbox::init(&config.database).unwrap_or_else(|error| panic!("{error}"));
    inbox::init(&config.database).unwrap_or_else(|error| panic!("{error}"));
    let broker = servers.broker();
    QUEUES.iter().for_each(|name| broker.declare_queue(name, &[]));

    title("They are ready, with the tables event_outbox and event_inbox. In another terminal:");
    println!("export DATABASE_URL={database} AMQP_URL={amqp}");
    for (arguments, about) in [
        ("--example embed", "an order, and its event right after the commit"),
        ("--example background", "a relay in an application: each line you type is an event"),
        ("--example consumer", "events that come twice, and are handled once"),
        ("--example consumer -- order.created", "receives what embed has sent, until Ctrl-C"),
        ("-- status", "or any other command: outboxd is the binary's name"),
    ] {
        println!("cargo run --release {arguments:<36} # {about}");
    }
    println!("psql {database}");
    println!("\nCtrl-C, or the end of input, ends both.");
}

fn listen(end: Sender<&'static str>) {
    let mut signals = Signals::new([SIGTERM, SIGINT]).expect("the system takes a signal handler");
    thread::spawn(move || {
        for signal in signals.forever() {
            let _ = end.send(if signal == SIGINT { "Ctrl-C" } else { "SIGTERM" });
        }
    });
}

/// An error is no end: a terminal gives one to whoever reads in the background.
fn wait_for_end_of_input(end: &Sender<&'static str>) {
    if io::copy(&mut io::stdin(), &mut io::sink()).is_ok() {
        let _ = end.send("the end of input");
    }
}
