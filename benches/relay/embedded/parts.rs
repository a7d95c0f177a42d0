//! What it takes at least to get an event to the broker: one small transaction, and one message with its confirm.

use std::time::Instant;

use outboxd::NewEvent;
use postgres::Client;

use super::percentile;
use crate::bare::OneByOne;
use crate::ground::{Ground, PAYLOAD_BYTES, QUEUE, payload};

/// An application's session, and a bare publisher, both kept open.
pub struct Parts {
    client: Client,
    publisher: OneByOne,
    payload: String,
}

/// A transaction that is committed.
pub struct Committed {
    pub event_id: String,
    pub at: Instant,
    /// From its begin to the commit's return.
    pub ms: f64,
}

impl Parts {
    pub fn new(ground: &Ground) -> Self {
        let publisher = OneByOne::open(ground.servers.rabbit().unwrap().port());
        Self { client: ground.database.connect(), publisher, payload: payload(PAYLOAD_BYTES) }
    }

    /// A transaction that appends one event.
    pub fn transaction(&mut self, ordering_key: Option<String>) -> Committed {
        let mut event = NewEvent::new(QUEUE).payload(self.payload.as_str());
        if let Some(key) = ordering_key {
            event = event.ordering_key(key);
        }
        append(&mut self.client, &event)
    }

    /// Publishes one message and waits for its confirm; in milliseconds.
    pub fn publish(&mut self) -> f64 {
        let began = Instant::now();
        self.publisher.publish(self.payload.as_bytes());
        ms(began)
    }

    /// The sum of both medians, in milliseconds.
    pub fn sum(&mut self, samples: usize) -> f64 {
        let figures: Vec<_> = (0..samples).map(|_| (self.publish(), self.transaction(None).ms)).collect();
        let (published, committed): (Vec<_>, Vec<_>) = figures.into_iter().unzip();
        percentile(&published, 50) + percentile(&committed, 50)
    }
}

/// Commits a transaction that appends one event.
pub fn append(client: &mut Client, event: &NewEvent) -> Committed {
    let began = Instant::now();
    let mut transaction = client.transaction().unwrap();
    let event_id = outboxd::append(&mut transaction, event).unwrap();
    transaction.commit().unwrap();
    Committed { event_id, at: Instant::now(), ms: ms(began) }
}

/// Since this moment, in milliseconds.
pub fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}
