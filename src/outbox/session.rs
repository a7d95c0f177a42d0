//! A database session: a thread of its own that holds the client and does what it is told.
//!
//! The client waits for its server without end wherever the server does not end the wait itself: while it opens, while
//! the backend is frozen, while a COMMIT waits for a standby. So nobody but this thread ever waits for the client;
//! whoever waits for the thread has a deadline. A session that misses one is given up, and its thread is left behind
//! until the operating system tells it that the connection is gone.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use postgres::{Client, IsolationLevel, Transaction};

use crate::config::Database;
use crate::error::{Error, Kind, Result, Server};

use super::address::{Address, Place};
use super::failure::failure;
use super::sql::{READ_WRITE, limits_begin, part};

/// The longest wait for one call. Statements end after 15 s by the server's own limit; what takes longer is a COMMIT, or
/// a server that does not answer at all.
const CALL_MAX: Duration = Duration::from_secs(20);

/// Something to be done with the client.
type Call = Box<dyn FnOnce(&mut Client) + Send>;

type Opened = Result<()>;

/// The opening of sessions. When one takes too long, the next try waits for the same attempt: at most one thread per
/// server of the list is left behind by servers that accept connections and say nothing.
#[derive(Default)]
pub(super) struct Opening {
    attempts: Vec<Attempt>,
}

/// An attempt to connect that goes on.
struct Attempt {
    place: Place,
    opened: Receiver<Opened>,
    calls: Sender<Call>,
}

impl Opening {
    /// Opens a session within `open_timeout`, on the first server of the list that can be used.
    ///
    /// # Errors
    /// Names the servers and the reasons; never the URL.
    pub(super) fn open(&mut self, database: &Database) -> Result<Session> {
        self.open_at(&Address::of(database)?, database)
    }

    /// The same, for who must know whether a pooler is in between.
    ///
    /// # Errors
    /// As [`Opening::open`].
    pub(super) fn open_marked(&mut self, database: &Database) -> Result<Session> {
        self.open_at(&Address::of(database)?.marked(), database)
    }

    fn open_at(&mut self, address: &Address, database: &Database) -> Result<Session> {
        let what = format!("opening a session on database {address}");
        let started = Instant::now();
        let mut failures = Vec::new();
        let count = address.places.len();
        for (n, place) in address.places.iter().enumerate() {
            // A server that swallows everything must leave time for those behind it.
            let left = database.open_timeout.saturating_sub(started.elapsed());
            let share = left / u32::try_from(count - n).unwrap_or(1);
            let limit = address.connect_timeout.map_or(share, |it| it.min(share));
            let named = if count == 1 { what.clone() } else { place.to_string() };
            match self.attempt(address, place, limit, &named) {
                Ok(Some(calls)) => {
                    let begin = Arc::from(limits_begin(database));
                    return Ok(Session { calls: Some(calls), begin });
                }
                Ok(None) => failures.push(late(&named, limit, database.open_timeout)),
                Err(error) => failures.push(error),
            }
        }
        Err(of_all(failures, &what))
    }

    /// Tries one server; none when it took too long.
    fn attempt(
        &mut self,
        address: &Address,
        place: &Place,
        limit: Duration,
        what: &str,
    ) -> Result<Option<Sender<Call>>> {
        let attempt = match self.attempts.iter().position(|it| it.place == *place) {
            Some(at) => self.attempts.swap_remove(at),
            None => begin(address, place, limit, what)?,
        };
        match attempt.opened.recv_timeout(limit) {
            Ok(opened) => opened.map(|()| Some(attempt.calls)),
            Err(RecvTimeoutError::Timeout) => {
                self.attempts.push(attempt);
                Ok(None)
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(Error::new(Kind::Internal, format!("{what} ended without a result")))
            }
        }
    }
}

fn late(what: &str, limit: Duration, open_timeout: Duration) -> Error {
    // What little the rounding and the way here took off is not worth a word.
    let whole = limit + Duration::from_millis(500) > open_timeout;
    let text = if whole {
        format!("{what} took longer than open_timeout {open_timeout:?}")
    } else {
        format!("{what} took longer than {limit:.1?}")
    };
    Error::new(Kind::Unavailable(Server::Database), text)
}

/// One error of all servers' failures. It may pass when one of them may.
fn of_all(mut failures: Vec<Error>, what: &str) -> Error {
    match (failures.pop(), failures.is_empty()) {
        (Some(only), true) => only,
        (last, _) => {
            failures.extend(last);
            let decisive = failures.iter().find(|it| it.is_transient()).or(failures.first());
            let kind = decisive.map_or(Kind::Internal, Error::kind);
            let reasons: Vec<_> = failures.iter().map(Error::to_string).collect();
            Error::new(kind, format!("{what} failed: {}", reasons.join("; ")))
        }
    }
}

/// Starts a session's thread. It ends, and the client with it, when nobody can call it any more.
fn begin(address: &Address, place: &Place, limit: Duration, what: &str) -> Result<Attempt> {
    let (tell, opened) = bounded(1);
    let (calls, todo) = bounded::<Call>(1);
    let (address, theirs, what) = (address.clone(), place.clone(), what.to_owned());
    thread::Builder::new()
        .name("outboxd-db".into())
        .spawn(move || match address.connect(&theirs, limit, &what) {
            Ok(mut client) => {
                let _ = tell.send(Ok(()));
                todo.into_iter().for_each(|call| call(&mut client));
            }
            Err(error) => {
                let _ = tell.send(Err(error));
            }
        })
        .map_err(|error| Error::new(Kind::Internal, format!("starting a thread failed: {error}")))?;
    Ok(Attempt { place: place.clone(), opened, calls })
}

/// One session. Dropping it never blocks: the client ends on the session's own thread.
pub(super) struct Session {
    /// None once a call took too long.
    calls: Option<Sender<Call>>,
    /// What opens a transaction within limits.
    begin: Arc<str>,
}

impl Session {
    /// What opens a transaction within limits, for [`within_limits`].
    pub(super) fn begin(&self) -> Arc<str> {
        Arc::clone(&self.begin)
    }

    /// Does `work` with the client, and waits for it.
    ///
    /// # Errors
    /// Those of `work`; that it took longer than [`CALL_MAX`], after which the session is of no use any more.
    pub(super) fn call<T: Send + 'static>(
        &mut self,
        what: &str,
        work: impl FnOnce(&mut Client) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.call_for(CALL_MAX, what, work)
    }

    /// The same with another deadline.
    ///
    /// # Errors
    /// As [`Session::call`].
    pub(super) fn call_for<T: Send + 'static>(
        &mut self,
        limit: Duration,
        what: &str,
        work: impl FnOnce(&mut Client) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = bounded(1);
        let call: Call = Box::new(move |client| {
            // Whoever asked may have gone on without the answer.
            let _ = answer.send(work(client));
        });
        let unavailable =
            |how: String| Error::new(Kind::Unavailable(Server::Database), format!("{what} {how}"));
        let calls =
            self.calls.take().ok_or_else(|| unavailable("failed: the session was given up".into()))?;
        if calls.send(call).is_err() {
            return Err(Error::new(Kind::Internal, format!("{what} failed: the session's thread is gone")));
        }
        match answered.recv_timeout(limit) {
            Ok(result) => {
                self.calls = Some(calls);
                result
            }
            Err(RecvTimeoutError::Timeout) => {
                Err(unavailable(format!("failed: the server did not answer within {limit:?}")))
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(Error::new(Kind::Internal, format!("{what} failed: the session's thread is gone")))
            }
        }
    }

    /// Writes in a transaction of its own, within time limits, whatever the role's default is.
    ///
    /// # Errors
    /// As [`Session::within_limits`].
    pub(super) fn write_within_limits<T: Send + 'static>(
        &mut self,
        what: &str,
        work: impl FnOnce(&mut Client) -> std::result::Result<T, postgres::Error> + Send + 'static,
    ) -> Result<T> {
        self.within_limits(what, |client| client.batch_execute(READ_WRITE).and_then(|()| work(client)))
    }

    /// The same for work that takes a transaction, and has its own errors.
    ///
    /// # Errors
    /// Those of `work`; `what`, and why the database did not begin or commit.
    pub(super) fn transact<T: Send + 'static>(
        &mut self,
        what: &str,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (name, begin) = (what.to_owned(), self.begin());
        self.call(what, move |client| {
            let failed = |error: postgres::Error| failure(&name, &error);
            let begun = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
            let mut transaction = begun.read_only(false).start().map_err(failed)?;
            // It is open already; the limits follow.
            let limits = part(&begin);
            let limits = limits.split_once(';').map_or("", |(_, limits)| limits);
            transaction.batch_execute(limits).map_err(failed)?;
            let done = work(&mut transaction)?;
            transaction.commit().map_err(failed)?;
            Ok(done)
        })
    }

    /// Does `work` in a transaction of its own, within time limits.
    ///
    /// # Errors
    /// `what`, and why the database did not do it. The session is not worth keeping then: it may be in the middle of
    /// the transaction.
    pub(super) fn within_limits<T: Send + 'static>(
        &mut self,
        what: &str,
        work: impl FnOnce(&mut Client) -> std::result::Result<T, postgres::Error> + Send + 'static,
    ) -> Result<T> {
        let (name, begin) = (what.to_owned(), self.begin());
        self.call(what, move |client| within_limits(client, &begin, &name, work))
    }
}

/// Does `work` in a transaction of its own, within time limits, on the session's own thread.
///
/// # Errors
/// As [`Session::within_limits`].
pub(super) fn within_limits<T>(
    client: &mut Client,
    begin: &str,
    what: &str,
    work: impl FnOnce(&mut Client) -> std::result::Result<T, postgres::Error>,
) -> Result<T> {
    client
        .batch_execute(begin)
        .and_then(|()| work(client))
        .and_then(|done| client.batch_execute("commit").map(|()| done))
        .map_err(|error| failure(what, &error))
}
