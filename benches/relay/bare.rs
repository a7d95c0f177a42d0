//! A publisher without an outbox: messages from memory, as fast as the broker and the window allow.

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::thread;
use std::time::Instant;

use amiquip::{
    AmqpProperties, Auth, Channel, Confirm, Connection, ConnectionOptions, ConnectionTuning, Publish,
};
use crossbeam_channel::Receiver;

use crate::ground::QUEUE;

/// How a bare publisher works, with the relay's socket options, properties and queue.
pub struct Bare<'a> {
    /// The broker's, or a proxy's, on 127.0.0.1.
    pub port: u16,
    /// Threads, each with its channel.
    pub workers: usize,
    /// The most unconfirmed messages per channel.
    pub window: usize,
    pub body: &'a [u8],
}

impl Bare<'_> {
    /// Publishes so many messages and waits for all confirms; in seconds, without the opening.
    pub fn publish(&self, messages: usize) -> f64 {
        let mut connection = open(self.port);
        let channels: Vec<_> = (0..self.workers).map(|_| connection.open_channel(None).unwrap()).collect();
        let started = Instant::now();
        thread::scope(|scope| {
            for (worker, channel) in channels.into_iter().enumerate() {
                scope.spawn(move || {
                    let numbers = (1..=messages).skip(worker).step_by(self.workers);
                    self.publish_on(&channel, numbers);
                });
            }
        });
        let seconds = started.elapsed().as_secs_f64();
        connection.close().unwrap();
        seconds
    }

    fn publish_on(&self, channel: &Channel, numbers: impl Iterator<Item = usize>) {
        let confirms = channel.listen_for_publisher_confirms().unwrap();
        let returns = channel.listen_for_returns().unwrap();
        channel.enable_publisher_confirms().unwrap();
        let mut open = BTreeSet::new();
        let settle = |confirm: Confirm, open: &mut BTreeSet<u64>| match confirm {
            Confirm::Ack(ack) if ack.multiple => *open = open.split_off(&(ack.delivery_tag + 1)),
            Confirm::Ack(ack) => drop(open.remove(&ack.delivery_tag)),
            Confirm::Nack(nack) => panic!("{nack:?}"),
        };
        let mut tag = 0;
        for number in numbers {
            while open.len() >= self.window {
                settle(confirms.recv().unwrap(), &mut open);
                confirms.try_iter().for_each(|confirm| settle(confirm, &mut open));
            }
            publish(channel, number, self.body);
            tag += 1;
            open.insert(tag);
        }
        while !open.is_empty() {
            settle(confirms.recv().unwrap(), &mut open);
        }
        assert!(returns.is_empty());
    }
}

/// A publisher of one message at a time, on a connection that is kept open.
pub struct OneByOne {
    // Closed when it is dropped, after the channel.
    channel: Channel,
    _connection: Connection,
    confirms: Receiver<Confirm>,
    published: usize,
}

impl OneByOne {
    pub fn open(port: u16) -> Self {
        let mut connection = open(port);
        let channel = connection.open_channel(None).unwrap();
        let confirms = channel.listen_for_publisher_confirms().unwrap();
        channel.enable_publisher_confirms().unwrap();
        Self { channel, _connection: connection, confirms, published: 0 }
    }

    /// Publishes one message and waits for its confirm.
    pub fn publish(&mut self, body: &[u8]) {
        self.published += 1;
        publish(&self.channel, self.published, body);
        match self.confirms.recv().unwrap() {
            Confirm::Ack(_) => {}
            Confirm::Nack(nack) => panic!("{nack:?}"),
        }
    }
}

fn open(port: u16) -> Connection {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_nonblocking(true).unwrap();
    let stream = mio::net::TcpStream::from_stream(stream).unwrap();
    let options = ConnectionOptions::<Auth>::default().heartbeat(10);
    Connection::insecure_open_stream(stream, options, ConnectionTuning::default()).unwrap()
}

fn publish(channel: &Channel, number: usize, body: &[u8]) {
    let properties = AmqpProperties::default()
        .with_content_type("application/json".into())
        .with_delivery_mode(2)
        .with_message_id(format!("{number:026}"))
        .with_type_(QUEUE.into())
        .with_timestamp(1_700_000_000)
        .with_app_id("outboxd".into());
    let routing_key = QUEUE.to_owned();
    channel
        .basic_publish("", Publish { body, routing_key, mandatory: true, immediate: false, properties })
        .unwrap();
}
