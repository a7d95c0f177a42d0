//! One connection to the broker: its state, its exchanges, its lanes, its end.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use amiquip::{AmqpValue, Connection, ConnectionBlockedNotification};
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded, unbounded};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::config::Broker;
use crate::error::{Error, Kind, Result, Server};
use crate::event::Outcome;
use crate::message::Message;

use super::desk::{Desk, News};
use super::dispatch::Loss;
use super::lane::{Lane, Report, Shared, Window};
use super::open::open_within;
use super::socket::KillSwitch;
use super::url::Address;
use super::watchdog::Watchdog;
use super::wire::{self, Ending, opening_failed};
use super::{Job, Key};

/// The longest wait for the broker's answer to one request on an open connection.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// How long the answer to a probe is waited for. An alarm is told within milliseconds.
const PROBE_MAX: Duration = Duration::from_secs(2);

/// How long a killed connection has to tell why it ended.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What the session knows of its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It takes messages, as far as is known.
    Open,
    /// The broker has stopped reading from it: a memory or disk alarm.
    Blocked {
        /// When we were told.
        since: Instant,
        /// The broker's words.
        reason: String,
    },
    /// It is gone, and why.
    Lost(String),
}

/// What a probe tells of the broker's alarms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alarms {
    /// It takes messages.
    None,
    /// It did not say.
    NotKnown,
}

/// The error of a broker that has stopped taking messages.
pub fn blocked(reason: &str) -> Error {
    Error::new(Kind::Unavailable(Server::Broker), format!("the broker blocks publishers ({reason})"))
        .with_remedy("free its memory or disk, see rabbitmq-diagnostics alarms")
}

/// The error of a connection that ended under way.
pub fn lost(reason: &str) -> Error {
    Error::new(Kind::Unavailable(Server::Broker), format!("the broker's connection was lost: {reason}"))
}

/// What the broker says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerInfo {
    /// Such as `RabbitMQ`.
    pub product: String,
    /// Such as `3.10.8`.
    pub version: String,
}

/// A connection with its lanes.
pub struct Session {
    pub(super) config: Broker,
    pub(super) state: State,
    pub(super) connection: Option<Connection>,
    /// While it is being opened, the end of the time for that.
    open_by: Option<Instant>,
    kill: Arc<KillSwitch>,
    watchdog: Watchdog,
    alarms: Receiver<ConnectionBlockedNotification>,
    pub(super) shared: Arc<Shared>,
    pool: ThreadPool,
    pub(super) exchanges: HashMap<String, std::result::Result<(), String>>,

    // The jobs' way: see `dispatch.rs`.
    pub(super) feed: Option<Sender<Job>>,
    pub(super) fed: Receiver<Job>,
    pub(super) reports_sender: Sender<Report>,
    pub(super) reports: Receiver<Report>,
    pub(super) lanes: usize,
    pub(super) desk: Desk,
    /// What waits for its turn on the lane that tries suspects, while there is one.
    pub(super) trial: Option<Receiver<Job>>,
    pub(super) last_report: Instant,
    /// How long the broker took for its last answers.
    pub(super) answers: Vec<Duration>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Session {
    /// Opens a connection and its channels within `open_timeout`, name resolution included.
    ///
    /// # Errors
    /// Names the broker and the reason; never the URL.
    pub fn open(config: &Broker) -> Result<Self> {
        let address = Address::parse(config.url.expose())
            .map_err(|reason| Error::new(Kind::Configuration, format!("amqp_url: {reason}")))?;
        let deadline = Instant::now() + config.open_timeout;
        let opened = open_within(&address, config.open_timeout)?;
        let internal = |what: &str, error: &dyn std::fmt::Display| {
            Error::new(Kind::Internal, format!("{what} failed: {error}"))
        };
        let watchdog = Watchdog::new(Arc::clone(&opened.kill))
            .map_err(|error| internal("starting the broker's watchdog", &error))?;
        // One more than the workers: suspects are tried on a lane of their own.
        let pool = ThreadPoolBuilder::new()
            .num_threads(config.workers + 1)
            .thread_name(|n| format!("outboxd-lane-{n}"))
            .panic_handler(|_| {})
            .build()
            .map_err(|error| internal("starting the workers", &error))?;
        let (feed, fed) = unbounded();
        let (reports_sender, reports) = unbounded();
        let mut session = Self {
            config: config.clone(),
            state: State::Open,
            connection: Some(opened.connection),
            open_by: Some(deadline),
            kill: opened.kill,
            watchdog,
            alarms: opened.alarms,
            shared: Arc::new(Shared::new()),
            pool,
            exchanges: HashMap::new(),
            feed: Some(feed),
            fed,
            reports_sender,
            reports,
            lanes: 0,
            desk: Desk::new(),
            trial: None,
            last_report: Instant::now(),
            answers: Vec::new(),
        };
        for number in 0..config.workers {
            session
                .start_lane(number, session.fed.clone(), session.window())
                .map_err(|error| opening_failed(&address.to_string(), &error))?;
        }
        session.open_by = None;
        Ok(session)
    }

    /// The state, after hearing what the broker has said meanwhile.
    pub fn state(&mut self) -> &State {
        self.hear_alarms();
        &self.state
    }

    /// What the broker says of itself.
    pub fn broker(&self) -> BrokerInfo {
        let text = |name: &str| match self.connection.as_ref().and_then(|it| it.server_properties().get(name))
        {
            Some(AmqpValue::LongString(text)) => text.clone(),
            _ => "unknown".into(),
        };
        BrokerInfo { product: text("product"), version: text("version") }
    }

    /// Whether messages can go to `exchange`; the reason when not. Asked once per connection, and a missing one
    /// again after [`Session::forget_missing`].
    ///
    /// # Errors
    /// The connection is lost.
    pub fn check_exchange(&mut self, exchange: &str) -> Result<std::result::Result<(), String>> {
        // The default exchange always exists, and the broker refuses to be asked about it.
        if exchange.is_empty() {
            return Ok(Ok(()));
        }
        if let Some(known) = self.exchanges.get(exchange) {
            return Ok(known.clone());
        }
        // On a channel of its own: the answer "no" closes the channel it is asked on.
        let asked = self.request(|connection| {
            let channel = connection.open_channel(None)?;
            let answer = channel.exchange_declare_passive(exchange).map(|_| ());
            let closed = channel.close();
            answer.and(closed)
        });
        let answer = match asked.as_ref().map_err(Ending::of) {
            Ok(()) => Ok(()),
            Err(Ending::Channel { code: 404, text }) => {
                Err(format!("{text} (404): declare exchange \"{exchange}\", or route the type elsewhere"))
            }
            // A user without any right on it may not even ask; publishing tells whether it may write.
            Err(Ending::Channel { code: 403, .. }) => Ok(()),
            Err(Ending::Channel { code, text }) => Err(format!("{text} ({code})")),
            Err(Ending::Connection(reason)) => {
                self.lose(Loss::Ended(reason.clone()));
                return Err(lost(&reason));
            }
        };
        self.exchanges.insert(exchange.into(), answer.clone());
        Ok(answer)
    }

    /// Learns whether the broker takes messages, by publishing one to nobody: it speaks of an alarm only to those who
    /// publish. A user who may not publish to the default exchange does not learn it.
    ///
    /// # Errors
    /// The broker blocks publishers, or the connection is lost.
    pub fn probe(&mut self) -> Result<Alarms> {
        // Claims are numbered from 1, so the key is no event's.
        self.send(vec![Job::new(Key { claim: 0, id: 0 }, Message::probe())]);
        let heard = self.wait(Instant::now() + PROBE_MAX);
        match self.state() {
            State::Open => match heard {
                Some(News::Outcome(_, Outcome::Confirmed(_))) => Ok(Alarms::None),
                Some(_) => Ok(Alarms::NotKnown),
                None => Err(Error::new(
                    Kind::Unavailable(Server::Broker),
                    format!("the broker gave no answer to a message within {PROBE_MAX:?}"),
                )),
            },
            State::Blocked { reason, .. } => Err(blocked(reason)),
            State::Lost(reason) => Err(lost(reason)),
        }
    }

    /// Makes the next check of an exchange that was missing ask again: it may have been declared meanwhile.
    pub fn forget_missing(&mut self) {
        self.exchanges.retain(|_, known| known.is_ok());
    }

    /// Ends the connection in order, in at most `limit`; by force after that.
    pub fn close(mut self, limit: Duration) {
        self.feed = None;
        let deadline = Instant::now() + limit / 2;
        while self.lanes > 0 && self.state == State::Open {
            match self.reports.recv_deadline(deadline) {
                Ok(Report::Ended(_)) => self.lanes -= 1,
                Ok(Report::Outcomes(..)) => {}
                Err(_) => return, // the drop forces it
            }
        }
        if let Some(connection) = self.connection.take() {
            // How it ends changes nothing any more: every outcome is known.
            let _ = self.watchdog.within(limit / 2, || connection.close());
        }
    }

    /// Makes a request that waits for the broker's answer.
    pub(super) fn request<T>(
        &mut self,
        call: impl FnOnce(&mut Connection) -> amiquip::Result<T>,
    ) -> amiquip::Result<T> {
        let limit = match self.open_by {
            Some(deadline) => deadline.saturating_duration_since(Instant::now()),
            None => ANSWER_LIMIT,
        };
        match self.connection.as_mut() {
            Some(connection) => self.watchdog.within(limit, || call(connection)),
            None => Err(amiquip::Error::EventLoopDropped),
        }
    }

    pub(super) fn window(&self) -> Window {
        Window {
            messages: self.config.window,
            bytes: self.config.window_bytes,
            timeout: self.config.publish_timeout,
        }
    }

    /// Starts a worker on a channel of its own.
    pub(super) fn start_lane(
        &mut self,
        number: usize,
        feed: Receiver<Job>,
        window: Window,
    ) -> amiquip::Result<()> {
        let (channel, confirms, returns) = self.request(|connection| {
            let channel = connection.open_channel(None)?;
            // Both listeners before the first publish: the client would write what nobody listens for to the log.
            let confirms = channel.listen_for_publisher_confirms()?;
            let returns = channel.listen_for_returns()?;
            channel.enable_publisher_confirms()?;
            Ok((channel, confirms, returns))
        })?;
        let (reports, shared) = (self.reports_sender.clone(), Arc::clone(&self.shared));
        let lane = Lane { number, channel, confirms, returns, window, feed, reports, shared };
        self.pool.spawn(move || lane.run());
        self.lanes += 1;
        Ok(())
    }

    /// Where alarms are heard.
    pub(super) fn alarms(&self) -> &Receiver<ConnectionBlockedNotification> {
        &self.alarms
    }

    pub(super) fn hear_alarms(&mut self) {
        loop {
            match self.alarms.try_recv() {
                Ok(alarm) => self.hear(alarm),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    return self.lose(Loss::Ended("the connection ended".into()));
                }
            }
        }
    }

    pub(super) fn hear(&mut self, alarm: ConnectionBlockedNotification) {
        if matches!(self.state, State::Lost(_)) {
            return;
        }
        // The lanes' deadlines start over, and so does the watch over them.
        self.last_report = Instant::now();
        self.state = match (alarm, &self.state) {
            (ConnectionBlockedNotification::Unblocked, _) => State::Open,
            // A second alarm adds its reason; the broker blocks since the first.
            (ConnectionBlockedNotification::Blocked(reason), State::Blocked { since, .. }) => {
                State::Blocked { since: *since, reason }
            }
            (ConnectionBlockedNotification::Blocked(reason), _) => {
                State::Blocked { since: Instant::now(), reason }
            }
        };
        let blocked = self.state != State::Open;
        self.shared.blocked.store(blocked, Ordering::Relaxed);
        self.desk.set_open(!blocked);
        if blocked {
            self.take_back_unsent();
        } else {
            self.flow();
        }
    }

    /// Kills the connection and returns why it had ended, as far as the client knows.
    ///
    /// One that has `ended` by itself is asked for its reason before the switch is pulled: the client may be about to
    /// answer the broker's goodbye, and would otherwise remember our doing instead.
    pub(super) fn kill(&mut self, ended: bool) -> Option<String> {
        if !ended {
            self.kill.pull();
        }
        let reason = self.last_words(ended);
        self.kill.pull();
        reason
    }

    fn last_words(&mut self, ended: bool) -> Option<String> {
        let connection = self.connection.take()?;
        let (sender, receiver) = bounded(1);
        // Closing joins the client's thread. It ends at once after the kill, but that is not ours to prove.
        let closing = thread::Builder::new().name("outboxd-broker-close".into()).spawn(move || {
            let _ = sender.send(connection.close());
        });
        closing.ok()?;
        match receiver.recv_timeout(LAST_WORDS) {
            // After the kill this one is our own doing.
            Ok(Err(amiquip::Error::UnexpectedSocketClose)) if !ended => None,
            Ok(Err(error)) => Some(wire::in_words(&error)),
            _ => None,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.kill(false);
    }
}
