//! The connections of those who look: one thread serves them all without ever waiting for one of them.
//!
//! Everything is bounded: how many there are, how much one may send, and how long it may take. Where there are too many,
//! the oldest has to go, so whoever holds connections open keeps nobody else from being answered.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use super::request::{self, HEAD_MAX, Head, Reply};

/// Most connections at once, and most that are taken before the others have their turn.
const CONNECTIONS_MAX: usize = 64;
const ACCEPTED_MAX: usize = 16;

/// How long a client may take for the head of its request, for reading the response, and for closing after that.
const HEAD_TIME: Duration = Duration::from_secs(5);
const RESPONSE_TIME: Duration = Duration::from_secs(10);
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// Most bytes that are read and thrown away, so that a client that sends too much still gets to read why that is wrong.
const REST_MAX: usize = 4 * 1024 * 1024;

/// Between two rounds in which nothing happened: doubles from one to the other.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// After the system refused to take a connection, such as for want of file descriptors.
const REFUSED_PAUSE: Duration = Duration::from_millis(200);

/// Starts the thread; it ends with the process.
///
/// # Errors
/// The operating system gives no thread.
pub(super) fn start(
    listener: TcpListener,
    answer: impl Fn(&str) -> Reply + Send + 'static,
) -> std::io::Result<()> {
    thread::Builder::new().name("outboxd-http".into()).spawn(move || {
        let mut connections = Vec::new();
        let mut pause = PAUSE_MIN;
        loop {
            let mut moved = accept(&listener, &mut connections);
            connections.retain_mut(|it: &mut Connection| {
                let step = it.step(&answer);
                moved |= step != Step::Waits;
                step != Step::Done
            });
            pause = if moved { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
            // With nobody there, the next one is waited for where the system waits.
            if !moved && !connections.is_empty() {
                thread::sleep(pause);
            }
        }
    })?;
    Ok(())
}

/// Takes the connections that wait; whether there were any. Waits for one when there is none at all.
fn accept(listener: &TcpListener, connections: &mut Vec<Connection>) -> bool {
    let mut taken = 0;
    while taken < ACCEPTED_MAX {
        let may_wait = connections.is_empty();
        let accepted = listener.set_nonblocking(!may_wait).and_then(|()| listener.accept());
        match accepted {
            Ok((stream, _)) => {
                taken += 1;
                if connections.len() >= CONNECTIONS_MAX {
                    connections.remove(0);
                }
                if stream.set_nonblocking(true).is_ok() {
                    let _ = stream.set_nodelay(true);
                    connections.push(Connection::new(stream));
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(_) => {
                thread::sleep(REFUSED_PAUSE);
                break;
            }
        }
    }
    taken > 0
}

struct Connection {
    stream: TcpStream,
    stage: Stage,
    /// When it is closed, whatever it is doing.
    until: Instant,
}

enum Stage {
    Reading(Vec<u8>),
    Writing {
        response: Vec<u8>,
        written: usize,
    },
    /// The response is written, and ended; what still comes is read so that it does not reset the connection.
    Closing {
        left: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It is the client's turn.
    Waits,
    Moved,
    Done,
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        Self { stream, stage: Stage::Reading(Vec::new()), until: Instant::now() + HEAD_TIME }
    }

    /// Goes on as far as that is possible without waiting, and in one bounded step.
    fn step(&mut self, answer: &impl Fn(&str) -> Reply) -> Step {
        if Instant::now() >= self.until {
            return Step::Done;
        }
        let moved = match &mut self.stage {
            Stage::Reading(head) => {
                let mut buffer = [0; HEAD_MAX];
                let room = HEAD_MAX.saturating_sub(head.len());
                match self.stream.read(buffer.get_mut(..room).unwrap_or_default()) {
                    // It has gone, or will send no more of it.
                    Ok(0) => return Step::Done,
                    Ok(count) => {
                        head.extend_from_slice(buffer.get(..count).unwrap_or_default());
                        if let Some(response) = respond(head, answer) {
                            self.stage = Stage::Writing { response, written: 0 };
                            self.until = Instant::now() + RESPONSE_TIME;
                        }
                        Ok(())
                    }
                    Err(error) => Err(error),
                }
            }
            Stage::Writing { response, written } => {
                match self.stream.write(response.get(*written..).unwrap_or_default()) {
                    Ok(count) => {
                        *written += count;
                        if *written >= response.len() {
                            if self.stream.shutdown(Shutdown::Write).is_err() {
                                return Step::Done;
                            }
                            self.stage = Stage::Closing { left: REST_MAX };
                            self.until = Instant::now() + CLOSE_TIME;
                        }
                        Ok(())
                    }
                    Err(error) => Err(error),
                }
            }
            Stage::Closing { left } => {
                let mut buffer = [0; HEAD_MAX];
                match self.stream.read(&mut buffer) {
                    Ok(count) if count > 0 && *left > count => {
                        *left -= count;
                        Ok(())
                    }
                    Ok(_) => return Step::Done,
                    Err(error) => Err(error),
                }
            }
        };
        match moved {
            Ok(()) => Step::Moved,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Step::Waits,
            Err(error) if error.kind() == ErrorKind::Interrupted => Step::Moved,
            Err(_) => Step::Done,
        }
    }
}

/// The response to a head, once it is whole or wrong.
fn respond(head: &[u8], answer: &impl Fn(&str) -> Reply) -> Option<Vec<u8>> {
    match request::read(head) {
        Head::Partial => None,
        Head::Wrong(reply) => Some(request::response(&reply, false)),
        Head::Get { path, head_only } => {
            // A bug in what is shown must not end what shows it.
            let reply = catch_unwind(AssertUnwindSafe(|| answer(&path)));
            let reply = reply.unwrap_or_else(|_| Reply::plain(500, "a bug: see the log"));
            Some(request::response(&reply, head_only))
        }
    }
}
