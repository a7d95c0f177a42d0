//! The engine that a tick and stage 1 share: the broker first, then a drain, again on a new connection when it was lost
//! under way. It has the sessions, and the confirms that are not written yet.

use std::time::Duration;

use crate::clock;
use crate::config::Config;
use crate::error::{Error, Kind, Result, Server};
use crate::event::Tally;
use crate::outbox::Outbox;
use crate::publisher::{News, State, blocked};

use super::digest::Digest;
use super::drain::{Drain, End, Progress};
use super::health::{Change, Health};
use super::limit::Limit;
use super::link::{Contact, Link};
use super::observer::Happening;
use super::servers::{Broker, Connection, Rabbit, Table};
use super::source::Source;
use super::unwritten::Unwritten;
use super::{Stop, Trouble};

/// The longest wait for the broker's goodbye.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// How often a tick opens another connection when its own is lost under way. The events that were in flight go
/// alone on the next one, which finds one that ends connections.
const RECONNECTS: u32 = 3;

/// How long late confirms are waited for before their events are claimed again. An alarm that is over lets them all
/// through at once.
const LATE_MAX: Duration = Duration::from_secs(2);

/// The limits of `interval`, for who changed it in the configuration.
const INTERVAL_MIN: Duration = Duration::from_millis(10);
const INTERVAL_MAX: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug)]
pub(super) struct Engine<T = Outbox, B: Broker = Rabbit> {
    pub(super) config: Config,
    pub(super) outbox: T,
    broker: B,
    session: Option<B::Session>,
    /// Confirms are facts, and written before anything else is claimed.
    unwritten: Unwritten,
    claims: u64,
    pub(super) health: Health,
    /// How much is claimed.
    pub(super) limit: Limit,
    pub(super) digest: Digest,
    broker_link: Link,
    database_link: Link,
}

impl Engine {
    pub(super) fn new(config: Config) -> Self {
        let outbox = Outbox::new(config.database.clone(), config.claim.clone());
        Self::on(outbox, Rabbit, config)
    }

    /// Whether the broker takes messages, for a run that had none to send: it speaks of an alarm only to those who
    /// publish, so this publishes a message to nobody. A user who may not do that learns nothing, and no harm is
    /// done.
    pub(super) fn probe_broker(&mut self) -> Option<Trouble> {
        let probed = self.ready_session().and_then(|()| match self.session.as_mut() {
            Some(session) => session.probe().map(|_| ()),
            None => Ok(()),
        });
        self.health.note(probed);
        self.health.trouble().cloned()
    }

    /// Ends the broker's session in order, within a short time; the database's need no goodbye.
    pub(super) fn close(mut self) {
        self.digest.tell_rest();
        if let Some(session) = self.session.take() {
            session.close(CLOSE_MAX.min(self.config.grace / 5));
        }
    }
}

impl<T: Table, B: Broker> Engine<T, B> {
    /// An engine on these servers.
    pub(super) fn on(outbox: T, broker: B, mut config: Config) -> Self {
        // Without a beat there would be no end to catching up with missed ones.
        config.interval = config.interval.clamp(INTERVAL_MIN, INTERVAL_MAX);
        Self {
            config,
            outbox,
            broker,
            session: None,
            unwritten: Unwritten::default(),
            claims: 0,
            health: Health::default(),
            digest: Digest::default(),
            limit: Limit::default(),
            broker_link: Link::default(),
            database_link: Link::default(),
        }
    }

    /// Drains what `source` leads to: what became of it, how it ended if nothing was in its way, and what that changed in
    /// the health.
    pub(super) fn beat(&mut self, stop: &Stop, source: &mut dyn Source) -> (Tally, Option<End>, Change) {
        let mut tally = Tally::default();
        let mut result = self.drain(stop, source, &mut tally);
        for _ in 0..RECONNECTS {
            if result.is_ok() || stop.requested() || !self.lost_session() {
                break;
            }
            // What was left over is claimed, and counted, once more.
            self.limit.give_back(tally.unconfirmed + tally.released);
            tally.claimed -= tally.unconfirmed + tally.released;
            (tally.unconfirmed, tally.released) = (0, 0);
            result = self.drain(stop, source, &mut tally);
        }
        // Confirms in hand are worth one more try before this process may end.
        if let Err(error) = self.write_late(&mut tally, source) {
            result = result.and(Err(error));
        }
        self.tell_of_servers(result.as_ref().err(), source);
        let end = result.as_ref().ok().copied();
        (tally, end, self.health.note(result.map(|_| ())))
    }

    /// Whether there are, or may be, confirms to be written that came too late for their claims.
    pub(super) fn has_late(&self) -> bool {
        !self.unwritten.is_empty() || self.session.as_ref().is_some_and(Connection::awaits_late)
    }

    /// Writes the confirms whose claim was lost, for who has nothing to drain; waits for none.
    pub(super) fn write_what_is_late(&mut self, source: &mut dyn Source) -> Change {
        self.hear_late(Duration::ZERO);
        match self.write_late(&mut Tally::default(), source) {
            // That the database is well says nothing of the broker.
            Ok(()) => Change::None,
            Err(error) => self.health.note(Err(error)),
        }
    }

    fn drain(&mut self, stop: &Stop, source: &mut dyn Source, tally: &mut Tally) -> Result<End> {
        // Nothing is claimed that could not be sent: no attempt is spent on an outage.
        self.look_at_broker(source);
        let ready = self.ready_session();
        self.look_at_broker(source);
        ready?;
        self.hear_late(LATE_MAX);
        self.write_late(tally, source)?;
        self.unwritten.are_few()?;
        let Some(session) = self.session.as_mut() else {
            return Err(Error::new(Kind::Internal, "the session that was just opened is gone"));
        };
        let mut drain = Drain {
            config: &self.config,
            outbox: &mut self.outbox,
            session,
            unwritten: &mut self.unwritten,
            claims: &mut self.claims,
            digest: &mut self.digest,
            link: &mut self.broker_link,
            source,
            limit: &mut self.limit,
            tally: Tally::default(),
            progress: Progress::new(),
        };
        let result = drain.run(stop);
        *tally += drain.tally;
        result
    }

    /// Tells what has become of the broker's connection since; whether it was lost.
    pub(super) fn look_at_broker(&mut self, source: &mut dyn Source) -> bool {
        let contact = self.session.as_mut().and_then(|session| self.broker_link.saw(session.state()));
        if let Some(contact) = contact {
            source.told(Happening::Contact { server: Server::Broker, contact });
        }
        matches!(contact, Some(Contact::Lost(_)))
    }

    /// The same of both servers, by how a drain ended.
    fn tell_of_servers(&mut self, error: Option<&Error>, source: &mut dyn Source) {
        self.look_at_broker(source);
        let server = error.map(|error| match error.kind() {
            Kind::Unavailable(server) | Kind::Denied(server) => server,
            // A table that is missing, or does not fit.
            Kind::Configuration | Kind::Invalid | Kind::Internal => Server::Database,
        });
        let reason = error.map(Error::to_string).unwrap_or_default();
        let contact = match server {
            None => self.database_link.is_up(),
            Some(Server::Database) => self.database_link.is_down(&reason),
            Some(Server::Broker) => None,
        };
        if let Some(contact) = contact {
            source.told(Happening::Contact { server: Server::Database, contact });
        }
        // Of a session that could not even be opened.
        if server == Some(Server::Broker) && self.session.is_none() {
            if let Some(contact) = self.broker_link.is_down(&reason) {
                source.told(Happening::Contact { server: Server::Broker, contact });
            }
        }
    }

    /// Takes in the confirms that came after their claim was given up, such as those that an alarm held back.
    fn hear_late(&mut self, limit: Duration) {
        let Some(session) = self.session.as_mut() else { return };
        let deadline = clock::now() + limit;
        loop {
            let until = if session.awaits_late() { deadline } else { clock::now() };
            match session.wait(until) {
                Some(News::Late(key, receipt)) => self.unwritten.keep([(key.id, receipt)]),
                Some(News::Outcome(..)) => {}
                None => return,
            }
        }
    }

    /// Whether the connection was lost under way, which another one may mend at once. One that cannot even be opened
    /// is for the next try.
    fn lost_session(&mut self) -> bool {
        match self.session.as_mut().map(Connection::state) {
            Some(State::Lost(reason)) => {
                self.digest.lost(reason);
                true
            }
            _ => false,
        }
    }

    /// The live session, or a new one. A blocked one is kept, to hear that it no longer is.
    fn ready_session(&mut self) -> Result<()> {
        if let Some(session) = self.session.as_mut() {
            match session.state() {
                State::Open => return Ok(()),
                State::Blocked { reason, .. } => return Err(blocked(reason)),
                State::Lost(reason) => log::debug!("the broker's connection was lost: {reason}"),
            }
        }
        self.session = None;
        self.session = Some(self.broker.open(&self.config.broker)?);
        Ok(())
    }

    /// Writes the confirms in hand. Those whose rows someone else holds, or which the table refuses, are kept for the next
    /// time.
    fn write_late(&mut self, tally: &mut Tally, source: &mut dyn Source) -> Result<()> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        let began = clock::now();
        let mut refusals = Vec::new();
        let refused = |row, error: &Error| refusals.push((row, error.clone()));
        let (written, open) = self.outbox.settle_late(self.unwritten.confirms(), refused)?;
        for (row, error) in refusals {
            self.digest.unwritable(row, true, &error);
            self.unwritten.refused(&error);
        }
        // The claim that they were lost with was not counted.
        let late = Tally { claimed: written, published: written, ..Tally::default() };
        source.told(Happening::Settled { tally: &late, took: clock::since(began) });
        *tally += late;
        self.unwritten.replace(open);
        Ok(())
    }
}
