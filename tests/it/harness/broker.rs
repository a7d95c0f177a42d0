//! The test's own view of a broker: queues, exchanges, and the messages that arrived.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use amiquip::{
    AmqpValue, Channel, Connection, ConsumerMessage, ConsumerOptions, Delivery, ExchangeDeclareOptions,
    ExchangeType, FieldTable, QueueDeclareOptions, QueueDeleteOptions,
};

/// How many unacknowledged messages a consumer may hold; the protocol's limit is 65,535.
const ROUND: usize = 50_000;

/// A connection with one channel. Every failure is a panic.
pub struct Broker {
    channel: Channel,
    /// Empty after a failure: closing the connection tells the failure's real cause.
    connection: RefCell<Option<Connection>>,
}

/// A message with everything that a publisher can set.
#[derive(Clone, Debug)]
pub struct Message {
    pub exchange: String,
    pub routing_key: String,
    pub redelivered: bool,
    pub message_id: Option<String>,
    pub kind: Option<String>,
    pub timestamp: Option<u64>,
    pub content_type: Option<String>,
    pub content_encoding: Option<String>,
    pub delivery_mode: Option<u8>,
    pub priority: Option<u8>,
    pub app_id: Option<String>,
    pub user_id: Option<String>,
    pub correlation_id: Option<String>,
    pub reply_to: Option<String>,
    pub expiration: Option<String>,
    pub headers: FieldTable,
    pub body: Vec<u8>,
}

impl Message {
    /// The message id; a message without one is a failure.
    pub fn id(&self) -> &str {
        self.message_id.as_deref().unwrap_or_else(|| panic!("a message without an id: {self:?}"))
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap_or_else(|error| panic!("a body that is not text: {error}"))
    }
}

impl Broker {
    pub fn open(url: &str) -> Broker {
        // A broker that a test has frozen must not hold the test for longer than two heartbeats.
        let url = if url.contains('?') { url.to_owned() } else { format!("{url}?heartbeat=5") };
        let mut connection = Connection::insecure_open(&url)
            .unwrap_or_else(|error| panic!("cannot connect to the broker: {error}"));
        let channel = connection.open_channel(None).unwrap_or_else(|error| panic!("no channel: {error}"));
        Broker { channel, connection: RefCell::new(Some(connection)) }
    }

    /// What the broker says its version is.
    pub fn version(&self) -> String {
        let connection = self.connection.borrow();
        match connection.as_ref().and_then(|it| it.server_properties().get("version")) {
            Some(AmqpValue::LongString(version)) => version.clone(),
            other => panic!("a broker without a version: {other:?}"),
        }
    }

    /// Declares a durable queue.
    pub fn declare_queue(&self, name: &str, arguments: &[(&str, AmqpValue)]) {
        let arguments = arguments.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        let options = QueueDeclareOptions { durable: true, arguments, ..QueueDeclareOptions::default() };
        self.check(name, self.channel.queue_declare(name, options));
    }

    /// Declares a durable exchange.
    pub fn declare_exchange(&self, name: &str, kind: ExchangeType) {
        let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        self.check(name, self.channel.exchange_declare(kind, name, options));
    }

    pub fn bind(&self, queue: &str, exchange: &str, routing_key: &str) {
        self.check(queue, self.channel.queue_bind(queue, exchange, routing_key, FieldTable::new()));
    }

    pub fn unbind(&self, queue: &str, exchange: &str, routing_key: &str) {
        self.check(queue, self.channel.queue_unbind(queue, exchange, routing_key, FieldTable::new()));
    }

    pub fn delete_queue(&self, name: &str) {
        self.check(name, self.channel.queue_delete(name, QueueDeleteOptions::default()));
    }

    pub fn delete_exchange(&self, name: &str) {
        self.check(name, self.channel.exchange_delete(name, false));
    }

    /// The number of messages that are ready in the queue.
    pub fn queue_len(&self, name: &str) -> u32 {
        let queue = self.check(name, self.channel.queue_declare_passive(name));
        queue.declared_message_count().unwrap_or_default()
    }

    /// Takes exactly `count` messages from the queue, and leaves the rest.
    ///
    /// # Panics
    /// Panics when fewer have arrived before the deadline.
    pub fn drain(&self, queue: &str, count: usize, deadline: Duration) -> Vec<Message> {
        let end = Instant::now() + deadline;
        let mut messages = Vec::with_capacity(count);
        while messages.len() < count {
            let round = ROUND.min(count - messages.len());
            // The broker hands out no more than this, so nothing has to be given back.
            self.check(queue, self.channel.qos(0, round as u16, false));
            let consumer = self.check(queue, self.channel.basic_consume(queue, ConsumerOptions::default()));
            let mut last = None;
            for _ in 0..round {
                let delivery = match consumer.receiver().recv_deadline(end) {
                    Ok(ConsumerMessage::Delivery(delivery)) => delivery,
                    Ok(other) => panic!("the consumer of {queue} ended: {other:?}"),
                    Err(_) => {
                        panic!("{} of {count} messages arrived in {queue} in {deadline:?}", messages.len())
                    }
                };
                last = Some(delivery.clone());
                messages.push(Message::from(delivery));
            }
            // Cancelled before the acknowledgement, which would make the broker hand out more.
            self.check(queue, consumer.cancel());
            // The client's I/O thread ends the whole connection if the consumer is dropped before this
            // last word has arrived, and it comes only after the answer to the cancellation.
            while let Ok(message) = consumer.receiver().recv_timeout(Duration::from_secs(5)) {
                if matches!(message, ConsumerMessage::ClientCancelled) {
                    break;
                }
            }
            // One acknowledgement for the round: many small frames would wait for each other.
            if let Some(delivery) = last {
                self.check(queue, delivery.ack_multiple(&self.channel));
            }
        }
        messages
    }

    /// Takes what is ready in the queue now, in chunks, until the queue is empty.
    pub fn drain_ready(&self, queue: &str) -> Vec<Message> {
        let mut messages = Vec::new();
        loop {
            let ready = self.queue_len(queue) as usize;
            if ready == 0 {
                return messages;
            }
            messages.extend(self.drain(queue, ready, Duration::from_secs(30)));
        }
    }

    fn check<T>(&self, what: &str, result: amiquip::Result<T>) -> T {
        result.unwrap_or_else(|error| {
            let cause = self.connection.take().map(Connection::close);
            panic!("the broker refused ({what}): {error}; closing the connection said {cause:?}")
        })
    }
}

/// Takes exactly `count` messages from a queue over a connection of its own; see [`Broker::drain`].
pub fn drain_queue(url: &str, queue: &str, count: usize, deadline: Duration) -> Vec<Message> {
    Broker::open(url).drain(queue, count, deadline)
}

impl From<Delivery> for Message {
    fn from(delivery: Delivery) -> Message {
        let properties = &delivery.properties;
        Message {
            message_id: properties.message_id().clone(),
            kind: properties.type_().clone(),
            timestamp: *properties.timestamp(),
            content_type: properties.content_type().clone(),
            content_encoding: properties.content_encoding().clone(),
            delivery_mode: *properties.delivery_mode(),
            priority: *properties.priority(),
            app_id: properties.app_id().clone(),
            user_id: properties.user_id().clone(),
            correlation_id: properties.correlation_id().clone(),
            reply_to: properties.reply_to().clone(),
            expiration: properties.expiration().clone(),
            headers: properties.headers().clone().unwrap_or_default(),
            exchange: delivery.exchange,
            routing_key: delivery.routing_key,
            redelivered: delivery.redelivered,
            body: delivery.body,
        }
    }
}
