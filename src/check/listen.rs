//! Whether commits would be heard: the trigger, and a NOTIFY from another session. Nothing of it is looked at unless the
//! relay is to listen.

use std::time::{Duration, Instant};

use crate::config::{Database, Secret};
use crate::outbox::Listener;

use super::{Finding, database};

/// How long a message may take.
const HEARD_WITHIN: Duration = Duration::from_secs(5);

/// The message.
const TEST: &str = "outboxd check";

pub(super) fn look(database: &Database, listen: Option<&Option<Secret>>) -> Vec<Finding> {
    let Some(url) = listen else {
        return Vec::new();
    };
    let mut listener = Listener::new(database, url.as_ref());
    let told = match listener.open() {
        Ok(told) => told,
        Err(error) => return vec![Finding::of("notify", &error)],
    };
    let trigger = match told {
        true => Finding::ok("trigger", "tells of each statement that writes events"),
        false => Finding::warning(
            "trigger",
            "the table has no trigger that tells of commits: events wait for the next beat, unless their writer tells",
            "make it with: outboxd init --notify",
        ),
    };
    let heard = hear(&mut listener);
    listener.close();
    vec![trigger, heard]
}

fn hear(listener: &mut Listener) -> Finding {
    let began = Instant::now();
    if let Err(error) = listener.tell(TEST) {
        return Finding::of("notify", &error);
    }
    while let Some(left) = HEARD_WITHIN.checked_sub(began.elapsed()) {
        match listener.wait(left) {
            Ok(heard) if heard.iter().any(|it| it == TEST) => {
                let took = database::short(began.elapsed());
                return Finding::ok(
                    "notify",
                    format!("a message on {} was heard after {took}", listener.channel()),
                );
            }
            Ok(_) => {}
            Err(error) => return Finding::of("notify", &error),
        }
    }
    Finding::warning(
        "notify",
        format!(
            "a message on {} was not heard within {HEARD_WITHIN:?}: events wait for the next beat",
            listener.channel()
        ),
        "is a transaction pooler in between? set listen_url to an address that leads to the server directly",
    )
}
