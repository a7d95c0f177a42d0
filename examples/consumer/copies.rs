//! Something to consume: events that arrive twice, as they do when a relay dies at a bad moment.

use std::error::Error;
use std::time::Duration;

use outboxd::config::Config;
use outboxd::outbox::{Deadline, Filter, Outbox, Redrive, Reference, Status};
use outboxd::postgres::Client;
use outboxd::relay::{Answer, Stage1};
use outboxd::{NewEvent, append_all};
use serde_json::json;

/// How long the broker may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Three orders are paid, and each of their events is sent twice.
pub(crate) fn send(client: &mut Client, config: Config, event_type: &str) -> Result<(), Box<dyn Error>> {
    let paid = (1..=3).map(|order| NewEvent::new(event_type).payload(json!({ "order": order })));
    let mut tx = client.transaction()?;
    let ids = append_all(&mut tx, &paid.collect::<Vec<_>>())?;
    tx.commit()?;

    let stage1 = Stage1::start(config.clone())?;
    published(&stage1, &ids)?;
    // As `outboxd retry --status published --id ...` does. An answer of stage 1 is the broker's; the row says the same
    // a moment later, and is passed over until then.
    let events: Vec<_> = ids.iter().cloned().map(Reference::Event).collect();
    let filter = Filter { events, statuses: vec![Status::Published], ..Filter::default() };
    let again = Redrive { filter, deadline: Deadline::Keep, rate: None, limit: None, dry_run: false };
    let mut outbox = Outbox::new(config.database, config.claim);
    let mut due_again = 0;
    while due_again < 3 {
        due_again += outbox.retry(&again, |_| true)?.changed;
    }
    published(&stage1, &ids)
}

fn published(stage1: &Stage1, ids: &[String]) -> Result<(), Box<dyn Error>> {
    match stage1.publish_now(ids, LIMIT).into_iter().find(|answer| *answer != Answer::Published) {
        Some(answer) => Err(format!("an event was not published: {answer:?}").into()),
        None => Ok(()),
    }
}
