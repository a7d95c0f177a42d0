//! A database session: a thread of its own that holds the client and does what it is told.
//!
//! The client waits for its server without end wherever the server does not end the wait itself: while it opens, while
//! the backend is frozen, while a COMMIT waits for a standby. So nobody but this thread ever waits for the client;
//! whoever waits for the thread has a deadline. A session that misses one is given up, and its thread is left behind
//! until the operating system tells it that the connection is gone.

use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use postgres::Client;

use crate::config::Database;
use crate::error::{Error, Kind, Result, Server};

use super::address::{connect, describe, options};
use super::failure::failure;
use super::sql::{LIMITS_BEGIN, READ_WRITE};

/// The longest wait for one call. Statements end after 15 s by the server's own limit; what takes longer is a COMMIT, or
/// a server that does not answer at all.
const CALL_MAX: Duration = Duration::from_secs(20);

/// Something to be done with the client.
type Call = Box<dyn FnOnce(&mut Client) + Send>;

type Opened = std::result::Result<(), postgres::Error>;

/// The opening of sessions. When one takes too long, the next try waits for the same attempt: at most one thread is
/// left behind by a server that accepts connections and says nothing.
#[derive(Default)]
pub(super) struct Opening {
    attempt: Option<(Receiver<Opened>, Sender<Call>)>,
}

impl Opening {
    /// Opens a session within `open_timeout`.
    ///
    /// # Errors
    /// Names the server and the reason; never the URL.
    pub(super) fn open(&mut self, database: &Database) -> Result<Session> {
        let options = options(database)?;
        let server = describe(&options);
        let (opened, calls) = match self.attempt.take() {
            Some(attempt) => attempt,
            None => begin(options)?,
        };
        match opened.recv_timeout(database.open_timeout) {
            Ok(Ok(())) => Ok(Session { calls: Some(calls) }),
            Ok(Err(error)) => Err(failure(&format!("opening a session on database {server}"), &error)),
            Err(RecvTimeoutError::Timeout) => {
                self.attempt = Some((opened, calls));
                let limit = database.open_timeout;
                Err(Error::new(
                    Kind::Unavailable(Server::Database),
                    format!("opening a session on database {server} took longer than open_timeout {limit:?}"),
                ))
            }
            Err(RecvTimeoutError::Disconnected) => Err(Error::new(
                Kind::Internal,
                format!("opening a session on database {server} ended without a result"),
            )),
        }
    }
}

/// Starts a session's thread. It ends, and the client with it, when nobody can call it any more.
fn begin(options: postgres::Config) -> Result<(Receiver<Opened>, Sender<Call>)> {
    let (tell, opened) = bounded(1);
    let (calls, todo) = bounded::<Call>(1);
    thread::Builder::new()
        .name("outboxd-db".into())
        .spawn(move || match connect(&options) {
            Ok(mut client) => {
                let _ = tell.send(Ok(()));
                todo.into_iter().for_each(|call| call(&mut client));
            }
            Err(error) => {
                let _ = tell.send(Err(error));
            }
        })
        .map_err(|error| Error::new(Kind::Internal, format!("starting a thread failed: {error}")))?;
    Ok((opened, calls))
}

/// One session. Dropping it never blocks: the client ends on the session's own thread.
pub(super) struct Session {
    /// None once a call took too long.
    calls: Option<Sender<Call>>,
}

impl Session {
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
        let name = what.to_owned();
        self.call(what, move |client| within_limits(client, &name, work))
    }
}

/// Does `work` in a transaction of its own, within time limits, on the session's own thread.
///
/// # Errors
/// As [`Session::within_limits`].
pub(super) fn within_limits<T>(
    client: &mut Client,
    what: &str,
    work: impl FnOnce(&mut Client) -> std::result::Result<T, postgres::Error>,
) -> Result<T> {
    client
        .batch_execute(LIMITS_BEGIN)
        .and_then(|()| work(client))
        .and_then(|done| client.batch_execute("commit").map(|()| done))
        .map_err(|error| failure(what, &error))
}
