//! A broker in memory: what it makes of a message, and what it has taken.

use std::collections::HashMap;

use crate::message::Message;
use crate::simulated::Chance;

/// The exchange that may be missing, and routing keys that mean more than a queue's name.
pub(crate) const GONE: &str = "gone";
pub(crate) const FULL: &str = "full";
pub(crate) const UNBOUND: &str = "unbound";
pub(crate) const MALFORMED: &str = "malformed";
pub(crate) const KILLER: &str = "killer";
pub(crate) const SLOW: &str = "slow";

/// What the broker does with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nature {
    Fine,
    /// Nacked.
    Full,
    /// Returned, and acknowledged.
    Unroutable,
    /// Ends its channel; the broker's text names the exchange.
    NoExchange,
    /// Ends its channel; the text names nothing.
    Malformed,
    /// Ends its connection.
    Killer,
}

#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) chance: Chance,
    pub(crate) is_up: bool,
    /// It reads nothing from those who publish.
    pub(crate) has_alarm: bool,
    /// It is as its operator wants it: no queue is full, none is missing, and no exchange.
    pub(crate) is_well: bool,
    /// What goes to [`SLOW`] is in no queue yet, and has no verdict: a queue without its majority.
    is_slow: bool,
    held: Vec<String>,
    /// The messages that queues have taken, by id, in their order.
    pub(crate) received: Vec<String>,
    /// How often each was refused.
    pub(crate) refused: HashMap<String, u32>,
    /// What ended connections had on the wire, and the broker may look at yet.
    pub(crate) ghosts: Vec<Message>,
    /// Which relay has published which message since somebody looked.
    pub(crate) sent: Vec<(usize, String)>,
    /// How many copies the ends of channels may have made.
    pub(crate) copies_max: u64,
}

impl Broker {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            chance: Chance::new(seed ^ 0xB0),
            is_up: true,
            has_alarm: false,
            is_well: true,
            is_slow: false,
            held: Vec::new(),
            received: Vec::new(),
            refused: HashMap::new(),
            ghosts: Vec::new(),
            sent: Vec::new(),
            copies_max: 0,
        }
    }

    pub(crate) fn nature(&self, message: &Message) -> Nature {
        match message.routing_key.as_str() {
            MALFORMED => Nature::Malformed,
            KILLER => Nature::Killer,
            _ if self.is_well => Nature::Fine,
            _ if message.exchange == GONE => Nature::NoExchange,
            FULL => Nature::Full,
            UNBOUND if message.mandatory => Nature::Unroutable,
            _ => Nature::Fine,
        }
    }

    /// Looks at a message; what it makes of it.
    pub(super) fn look_at(&mut self, message: &Message) -> Nature {
        let nature = self.nature(message);
        match nature {
            Nature::Fine if self.answers_to(&message.routing_key) => {
                self.received.push(message.message_id.clone());
            }
            Nature::Fine => self.held.push(message.message_id.clone()),
            _ => *self.refused.entry(message.message_id.clone()).or_default() += 1,
        }
        nature
    }

    pub(crate) fn set_slow(&mut self, is_slow: bool) {
        self.is_slow = is_slow;
        if !is_slow {
            self.received.append(&mut self.held);
        }
    }

    /// How many messages are in no queue yet.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// Whether it would answer now.
    pub(super) fn answers_to(&self, routing_key: &str) -> bool {
        !(self.is_slow && routing_key == SLOW)
    }

    /// One message of an ended connection arrives, or all that are left are lost.
    pub(crate) fn let_ghosts_arrive(&mut self) {
        if self.chance.one_in(6) {
            self.ghosts.clear();
        } else if !self.ghosts.is_empty() {
            let message = self.ghosts.remove(0);
            if self.nature(&message) == Nature::Fine {
                self.look_at(&message);
            }
        }
    }
}
