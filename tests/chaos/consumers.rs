//! Consumers: one at a time for each queue. What comes is in the ledger before it is acknowledged.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use amiquip::{AmqpValue, Connection, ConsumerMessage, ConsumerOptions, Delivery};
use crossbeam_channel::RecvTimeoutError;
use sha2::{Digest, Sha256};

use crate::ledger::{Entry, Ledger, Receipt, now};
use crate::writers::hex;

/// How many messages are on their way to a consumer, and the most in one entry of the ledger.
const PREFETCH: u16 = 100;

/// How often a consumer that waits looks at whether it is to end.
const PATROL: Duration = Duration::from_millis(200);

/// Consumes until the end. Whatever goes wrong, it begins anew.
pub fn consume(url: &str, queue: &str, ledger: &Ledger, end: &AtomicBool) {
    while !end.load(Ordering::Relaxed) {
        // A broker that is frozen is given up after two heartbeats.
        if let Ok(mut connection) = Connection::insecure_open(&format!("{url}?heartbeat=5")) {
            let _ = session(&mut connection, queue, ledger, end);
            let _ = connection.close();
        }
        thread::sleep(PATROL);
    }
}

fn session(
    connection: &mut Connection,
    queue: &str,
    ledger: &Ledger,
    end: &AtomicBool,
) -> amiquip::Result<()> {
    let channel = connection.open_channel(None)?;
    channel.qos(0, PREFETCH, false)?;
    let consumer = channel.basic_consume(queue, ConsumerOptions::default())?;
    while !end.load(Ordering::Relaxed) {
        let first = match consumer.receiver().recv_timeout(PATROL) {
            Ok(first) => first,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        let mut last = None;
        let mut entries = Vec::new();
        let mut ended = false;
        for message in std::iter::once(first).chain(consumer.receiver().try_iter()) {
            match message {
                ConsumerMessage::Delivery(delivery) => {
                    entries.push(Entry::Receipt(receipt(queue, &delivery)));
                    last = Some(delivery);
                }
                _ => ended = true,
            }
        }
        ledger.append(&entries);
        if let Some(delivery) = last {
            delivery.ack_multiple(&channel)?;
        }
        if ended {
            break;
        }
    }
    consumer.cancel()
}

fn receipt(queue: &str, delivery: &Delivery) -> Receipt {
    let headers = delivery.properties.headers().clone().unwrap_or_default();
    let text = |name: &str| match headers.get(name) {
        Some(AmqpValue::LongString(text)) => Some(text.clone()),
        _ => None,
    };
    let n = match headers.get("n") {
        Some(AmqpValue::LongLongInt(n)) => *n as u64,
        _ => u64::MAX,
    };
    Receipt {
        queue: queue.into(),
        event_id: delivery.properties.message_id().clone().unwrap_or_default(),
        event_type: delivery.properties.type_().clone().unwrap_or_default(),
        exchange: delivery.exchange.clone(),
        routing_key: delivery.routing_key.clone(),
        sha256: hex(&Sha256::digest(&delivery.body)),
        key: text("key"),
        n,
        redelivered: delivery.redelivered,
        at: now(),
    }
}
