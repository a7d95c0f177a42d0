//! A relay's session on the modelled broker.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::discriminant;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::clock;
use crate::error::{Error, Kind, Result, Server};
use crate::message::Message;
use crate::simulated::{Pause, Wish};

use super::super::{Job, News, State, lost};
use super::broker::Broker;
use super::connection::Connection;

/// The broker with the connections that are open on it.
pub(crate) struct Hub {
    pub(crate) broker: Broker,
    pub(crate) connections: BTreeMap<u64, Connection>,
    last: u64,
    pub(crate) now: u64,
}

impl Hub {
    pub(crate) fn new(seed: u64) -> Self {
        Self { broker: Broker::new(seed), connections: BTreeMap::new(), last: 0, now: 0 }
    }

    /// Whether anything may happen without anyone's doing.
    pub(crate) fn is_busy(&self) -> bool {
        self.connections.values().any(|it| it.is_busy(&self.broker))
    }
}

/// Where sessions come from.
pub(crate) struct Door<'y> {
    pub(crate) hub: Rc<RefCell<Hub>>,
    pub(crate) pause: &'y Pause<'y>,
    pub(crate) relay: usize,
}

pub(crate) struct Session<'y> {
    hub: Rc<RefCell<Hub>>,
    pause: &'y Pause<'y>,
    number: u64,
    state: State,
}

impl<'y> Door<'y> {
    pub(crate) fn open(&self, config: &crate::config::Broker) -> Result<Session<'y>> {
        (self.pause)(Wish::Time(Duration::from_millis(5)));
        let mut hub = self.hub.borrow_mut();
        if !hub.broker.is_up {
            let what = "opening a modelled session failed";
            return Err(Error::new(Kind::Unavailable(Server::Broker), what));
        }
        hub.last += 1;
        let timeout = u64::try_from(config.publish_timeout.as_micros()).unwrap();
        let (number, now) = (hub.last, hub.now);
        let connection = Connection::new(self.relay, config.workers, config.window, timeout, now);
        hub.connections.insert(number, connection);
        let hub = Rc::clone(&self.hub);
        Ok(Session { hub, pause: self.pause, number, state: State::Open })
    }
}

impl Session<'_> {
    fn with<T>(&self, work: impl FnOnce(&mut Connection, &mut Broker, u64) -> T) -> T {
        let mut hub = self.hub.borrow_mut();
        let Hub { broker, connections, now, .. } = &mut *hub;
        work(connections.get_mut(&self.number).unwrap(), broker, *now)
    }

    pub(crate) fn state(&mut self) -> &State {
        self.state = self.with(|it, _, _| it.state.clone());
        &self.state
    }

    pub(crate) fn check_exchange(&mut self, exchange: &str) -> Result<std::result::Result<(), String>> {
        if exchange.is_empty() || self.with(|it, _, _| it.exchanges.contains_key(exchange)) {
            return Ok(self.with(|it, _, _| it.exchanges.get(exchange).cloned().unwrap_or(Ok(()))));
        }
        (self.pause)(Wish::Time(Duration::from_millis(1)));
        if let State::Lost(reason) = self.state() {
            return Err(lost(reason));
        }
        let message = Message { exchange: exchange.into(), ..Message::probe() };
        Ok(self.with(|it, broker, _| it.check_exchange(broker, &message)))
    }

    pub(crate) fn forget_missing(&mut self) {
        self.with(|it, _, _| it.exchanges.retain(|_, known| known.is_ok()));
    }

    pub(crate) fn send(&mut self, jobs: Vec<Job>) {
        self.with(|it, broker, now| it.send(broker, jobs, now));
    }

    pub(crate) fn wait(&mut self, deadline: Instant) -> Option<News> {
        let before = discriminant(&self.state);
        loop {
            if let Some(news) = self.with(|it, _, _| it.news()) {
                return Some(news);
            }
            self.with(|it, _, _| it.has_changed = false);
            let state = self.state();
            let is_news = discriminant(state) != before || matches!(state, State::Lost(_));
            if is_news || clock::now() >= deadline {
                return None;
            }
            (self.pause)(Wish::News(deadline));
        }
    }

    pub(crate) fn recall(&mut self) {
        self.with(|it, _, _| it.recall());
    }

    pub(crate) fn forsake(&mut self, reason: &str) {
        self.with(|it, broker, _| it.forsake(broker, reason));
    }

    pub(crate) fn awaits_late(&self) -> bool {
        self.with(|it, _, _| it.desk.awaits_late())
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let mut hub = self.hub.borrow_mut();
        let Hub { broker, connections, .. } = &mut *hub;
        if let Some(mut connection) = connections.remove(&self.number) {
            connection.lose(broker, "dropped");
        }
    }
}
