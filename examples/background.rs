//! A relay on a thread of an application's own: started, watched, nudged, stopped.
//!
//! `cargo run --release --example background`, with `DATABASE_URL` and `AMQP_URL`. Each line that is typed becomes an
//! event; the end of input (Ctrl-D) ends it.

#![allow(clippy::print_stdout, reason = "an example is there to be watched")]

mod common;

use std::error::Error;
use std::io;
use std::sync::mpsc;
use std::time::Duration;

use outboxd::NewEvent;
use outboxd::policy::Settlement;
use outboxd::postgres::{Client, NoTls};
use outboxd::relay::{Happening, Relay, Stopped};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let servers = common::Servers::from_environment()?;
    servers.prepare("note.written")?;
    let mut client = Client::connect(&servers.database_url, NoTls)?;

    let mut config = servers.config()?;
    // This application has no stage 1 that would want to be the first. With the default of 30 s, a nudge would find
    // nothing that is due yet.
    config.claim.min_age = Duration::ZERO;

    let (tell, told) = mpsc::channel();
    let relay = Relay::new(config).observed_by(move |happening| match happening {
        // On the relay's own thread: a host counts here, or passes it on. Anything slow would hold the relay up.
        Happening::Decided { event, settlement } => {
            match settlement {
                Settlement::Published(_) => println!("{}: published", event.event_id),
                other => println!("{}: {other:?}", event.event_id),
            }
            let _ = tell.send(event.event_id.clone());
        }
        Happening::TroubleBegan(error) => println!("trouble: {error}"),
        Happening::TroubleEnded => println!("all is well again"),
        _ => {}
    });
    // Returns at once. A server that is not there is no error: the relay says so, and goes on trying.
    let handle = relay.spawn()?;

    println!("Each line becomes an event; the end of input ends it.");
    for line in io::stdin().lines() {
        let mut tx = client.transaction()?;
        let event_id =
            outboxd::append(&mut tx, &NewEvent::new("note.written").payload(json!({ "text": line? })))?;
        tx.commit()?;
        // Without a nudge the event would wait for the next beat.
        handle.nudge();
        // Only so that what is typed and what comes of it stand together: a host has no need to wait.
        while told.recv_timeout(Duration::from_secs(5)).is_ok_and(|it| it != event_id) {}
        if let Some(trouble) = handle.status().trouble {
            println!("not now: {}", trouble.error);
        }
    }

    // What is in flight is finished or handed back. Whichever way it ends, nothing is lost.
    match handle.stop(Duration::from_secs(10)) {
        Stopped::Ended(total) => println!("ended; {total}"),
        Stopped::Panicked(reason) => println!("ended by a bug: {reason}"),
        Stopped::LeftBehind => println!("left behind; its events are due again by the server's limits"),
    }
    Ok(())
}
