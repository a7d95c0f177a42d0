//! A relay inside an application, on a thread of its own: started, watched, nudged, stopped.
//!
//! `DATABASE_URL` and `AMQP_URL` say where; `outboxd init` has made the table. Try it with
//! `cargo run --example background`, and write events meanwhile with `outboxd enqueue`.

#![allow(clippy::print_stdout, reason = "an example is there to be watched")]

use std::error::Error;
use std::time::Duration;
use std::{env, io, thread};

use outboxd::config::Config;
use outboxd::relay::{Happening, Relay, Stopped};

fn main() -> Result<(), Box<dyn Error>> {
    let mut config = Config::new(&env::var("DATABASE_URL")?, &env::var("AMQP_URL")?)?;
    // This application has no stage 1 that would want to be the first.
    config.claim.min_age = Duration::ZERO;

    let relay = Relay::new(config).observed_by(|happening| match happening {
        // On the relay's own thread, so a host only counts here.
        Happening::Decided { event, settlement } => println!("{}: {settlement:?}", event.event_id),
        Happening::TroubleBegan(error) => println!("trouble: {error}"),
        Happening::TroubleEnded => println!("all is well again"),
        _ => {}
    });
    let handle = relay.spawn()?;

    println!("Return makes it look at the table now; the end of input ends it.");
    let mut line = String::new();
    while io::stdin().read_line(&mut line)? > 0 {
        handle.nudge();
        thread::sleep(Duration::from_millis(200));
        println!("{}", handle.status().total);
    }

    // What is in flight is finished or handed back; nothing is lost whichever way it ends.
    match handle.stop(Duration::from_secs(10)) {
        Stopped::Ended(total) => println!("ended; {total}"),
        Stopped::Panicked(reason) => println!("ended by a bug: {reason}"),
        Stopped::LeftBehind => println!("left behind; its events are due again by the server's limits"),
    }
    Ok(())
}
