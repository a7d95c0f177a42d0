//! What a run would do, without doing it: events are claimed as a run claims them, looked at, and given back.

use std::collections::BTreeMap;

use crate::config::{Claim, Config};
use crate::error::Result;
use crate::event::{Event, Outcome, Payload};
use crate::message::encode;
use crate::outbox::{Claimed, Look, Outbox, Scope};
use crate::policy::{Settlement, end, settlement};

/// Most looks for the events that are listed: behind many that are held back there may be none for long.
const LOOKS_MAX: usize = 20;

/// What a run would do, as far as it was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Preview {
    /// The first events that are due, in the order in which they would leave.
    pub events: Vec<Previewed>,
    /// Whether there are, or may be, more.
    pub more: bool,
    /// How many are due in all, where there are more; none when that could not be counted.
    pub due: Option<u64>,
}

/// An event that is due, and what a run would do with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Previewed {
    /// Its row.
    pub id: i64,
    /// Its id.
    pub event_id: String,
    /// Its type.
    pub event_type: String,
    /// Its ordering key.
    pub ordering_key: Option<String>,
    /// What would become of it.
    pub plan: Plan,
}

/// What a run would do with an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// It would be published there. What the broker says of it, nobody knows before.
    Publish {
        /// Empty for the default exchange.
        exchange: String,
        /// Its routing key.
        routing_key: String,
    },
    /// It would be refused unsent, and due again later.
    Refuse(String),
    /// It would become DEAD.
    Dead(String),
    /// It would become EXPIRED.
    Expire(String),
}

impl Preview {
    /// How many of the events are of each type.
    pub fn types(&self) -> BTreeMap<&str, usize> {
        let mut types = BTreeMap::new();
        for event in &self.events {
            *types.entry(event.event_type.as_str()).or_default() += 1;
        }
        types
    }
}

/// Looks at the first `limit` events that are due, under their locks, and gives them back. Speaks to no broker.
///
/// # Errors
/// The database cannot be reached, refuses, or does not hold the table.
pub fn preview(config: &Config, limit: usize) -> Result<Preview> {
    let mut outbox =
        Outbox::new(config.database.clone(), Claim { batch_rows: limit, ..config.claim.clone() });
    let mut seen = Preview { more: true, ..Preview::default() };
    let (mut after, mut barred) = (0, Vec::new());
    for look in 0..LOOKS_MAX {
        let scope = Scope::Walk { after, fresh: look == 0, barred: barred.clone() };
        let Look { claimed, barred: held, more_after, .. } =
            outbox.claim(&scope, std::time::Duration::ZERO)?;
        barred.extend(held);
        let events = match claimed {
            Some(Claimed { claim, events, .. }) => {
                claim.give_back()?;
                events
            }
            None => Vec::new(),
        };
        seen.events.extend(events.into_iter().map(|(event, payload)| previewed(event, payload, config)));
        match more_after {
            Some(last) if seen.events.len() < limit => after = last,
            more => {
                seen.more = more.is_some() || seen.events.len() > limit;
                break;
            }
        }
    }
    seen.events.truncate(limit);
    if seen.more {
        seen.due = outbox.backlog().ok().map(|it| it.due);
    }
    Ok(seen)
}

fn previewed(event: Event, payload: Payload, config: &Config) -> Previewed {
    let plan = match end(&event, &config.retry) {
        Some(ended) => unsent(ended),
        None => match encode(&event, payload, &config.routing) {
            Ok(message) => Plan::Publish { exchange: message.exchange, routing_key: message.routing_key },
            Err(outcome @ (Outcome::Refused(_) | Outcome::Invalid(_))) => {
                unsent(settlement(&event, outcome, &config.retry))
            }
            Err(_) => Plan::Refuse("it cannot be sent".into()),
        },
    };
    let Event { id, event_id, event_type, ordering_key, .. } = event;
    Previewed { id, event_id, event_type, ordering_key, plan }
}

fn unsent(settlement: Settlement) -> Plan {
    match settlement {
        Settlement::Dead { reason, .. } => Plan::Dead(reason),
        Settlement::Expired { reason } => Plan::Expire(reason),
        Settlement::Failed { reason, .. } | Settlement::Unconfirmed { reason, .. } => Plan::Refuse(reason),
        Settlement::Published(_) | Settlement::Released => Plan::Refuse("it cannot be sent".into()),
    }
}
