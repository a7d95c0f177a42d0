//! The broker: one connection, a channel in confirm mode per worker, and one outcome for each message handed over.
//! The only user of `amiquip`; decides nothing about retries.
//!
//! A [`Session`] never blocks its caller without a deadline, in whatever state the broker is: our own socket under
//! the client, a kill switch on it, and a watchdog that pulls it. What the client does when the broker stalls,
//! blocks or dies is otherwise to wait, in places without end.
//!
//! Replacing the client takes another `socket.rs`, `open.rs`, `wire.rs` and `lane.rs`: a way to
//! open a channel in confirm mode on our own socket, to publish on it without waiting, and a stream of acks, nacks
//! and returns in the order of the wire. Nothing of it shows outside this folder.

mod desk;
mod dispatch;
mod guard;
mod lane;
mod open;
mod queue;
mod session;
mod socket;
#[cfg(feature = "tls")]
mod tls;
mod url;
mod watchdog;
mod wire;

pub use desk::News;
pub use session::{Alarms, BrokerInfo, Session, State, blocked, lost};

#[cfg(any(test, fuzzing))]
pub(crate) use {amiquip::FieldTable, url::Address, wire::table};

use std::time::{Duration, Instant};

use crate::event::Outcome;
use crate::message::{Message, POSSIBLE_DUPLICATE};

/// Which event of which claim a message carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Numbers the claims of a relay.
    pub claim: u64,
    /// The event's row.
    pub id: i64,
}

/// A message to publish.
#[derive(Debug)]
pub struct Job {
    /// What it is for; unique among the jobs of a session.
    pub key: Key,
    /// What to send.
    pub message: Message,
    /// Whether it goes with no other message in flight on its channel.
    pub alone: bool,
    /// Whether it goes with no other message in flight at all: it may be what ended an earlier connection.
    pub risky: bool,
    /// Whether it was sent before and may have arrived.
    in_doubt: bool,
    /// When it was handed to the client.
    sent_at: Option<Instant>,
}

impl Job {
    /// A message to publish, in a window with others.
    pub fn new(key: Key, message: Message) -> Self {
        Self { key, message, alone: false, risky: false, in_doubt: false, sent_at: None }
    }

    /// What it takes of a window.
    fn size(&self) -> usize {
        self.message.body.len()
    }

    /// The same, for a message that may have arrived already.
    fn again(mut self) -> Self {
        self.message.headers.insert(POSSIBLE_DUPLICATE.into(), true.into());
        self.in_doubt = true;
        self
    }

    /// Its outcome when it is not sent (again).
    fn withdrawn(&self) -> Outcome {
        if self.in_doubt {
            Outcome::Unknown("its channel was closed before its confirm".into())
        } else {
            Outcome::Unsent
        }
    }
}

/// Checks a broker URL without using it.
///
/// # Errors
/// What is wrong with it, without repeating any of it.
pub fn check_url(text: &str) -> Result<(), String> {
    url::Address::parse(text).map(|_| ())
}

/// How long the broker keeps a connection whose client has gone silent: it closes it after two missed heartbeats,
/// which it notices within a third ("Detecting Dead TCP Connections with Heartbeats" in its manual). None when the
/// URL switches heartbeats off.
pub fn cut_off(text: &str) -> Option<Duration> {
    let heartbeat_s = url::Address::parse(text).ok()?.heartbeat_s;
    (heartbeat_s > 0).then(|| 3 * Duration::from_secs(heartbeat_s.into()))
}

/// Who we are to the broker that a URL names, and whether the way there is encrypted. None when the certificate says
/// who we are.
pub fn login(text: &str) -> (Option<String>, bool) {
    url::Address::parse(text).map_or((None, false), |address| {
        let is_encrypted = address.tls.is_some();
        ((!address.external).then_some(address.user), is_encrypted)
    })
}

/// The broker that a URL names, as `host:port/vhost`.
pub fn describe_url(text: &str) -> String {
    url::Address::parse(text).map(|address| address.to_string()).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests;
