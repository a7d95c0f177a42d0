//! A listener that takes connections as a RabbitMQ broker does, and then misbehaves.
//!
//! The bytes are those of AMQP 0-9-1, written by hand. A frame is: its type, its channel (16 bits), the size of its
//! content (32 bits), the content, and an end mark. Numbers are big-endian.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use socket2::{Domain, SockRef, Socket, Type};

/// The type of a frame that holds a method.
const METHOD: u8 = 1;

/// The last byte of every frame.
const FRAME_END: u8 = 0xCE;

/// The class of the methods that concern a whole connection.
const CONNECTION: u16 = 10;
const START: u16 = 10;
const TUNE: u16 = 30;

/// What a client sends first: the protocol's name and version.
const HEADER: usize = 8;

/// The pause after each byte of `Drip`.
const DRIP: Duration = Duration::from_millis(700);

/// A connection to a full backlog that takes this long is not going to be made.
const BACKLOG_FULL: Duration = Duration::from_millis(300);

/// What the listener does with each connection. It takes what the client sends, but where it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Says nothing.
    Silent,
    /// Sends Connection.Start one byte per 0.7 s, which takes longer than a minute, then says nothing.
    Drip,
    /// Sends Connection.Start, then says nothing.
    StallAfterStart,
    /// Sends Connection.Start, waits for the answer, sends Connection.Tune, then says nothing.
    StallAfterTune,
    /// Answers as a web server does, and closes.
    Garbage,
    /// Closes at once.
    HangUp,
    /// The backlog is full, so that further SYNs are dropped: a connection is neither made nor refused.
    SynSwallowed,
}

/// A running listener. It is gone, with its connections, on drop.
pub struct Hostile {
    port: u16,
    shared: Arc<Shared>,
    /// Dropped to end the pauses.
    stop: Option<Sender<()>>,
    acceptor: Option<JoinHandle<()>>,
    /// The connections that fill the backlog.
    _backlog: Vec<TcpStream>,
}

struct Shared {
    behaviour: Behaviour,
    listener: TcpListener,
    stopped: Receiver<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ended: bool,
    accepted: usize,
    heard: Vec<u8>,
    streams: Vec<Arc<TcpStream>>,
    threads: Vec<JoinHandle<()>>,
}

impl Hostile {
    pub fn start(behaviour: Behaviour) -> Hostile {
        let full = behaviour == Behaviour::SynSwallowed;
        let listener = listen(if full { 0 } else { 128 }).expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let backlog = if full { fill(address) } else { Vec::new() };
        let (stop, stopped) = crossbeam_channel::bounded(0);
        let shared = Arc::new(Shared { behaviour, listener, stopped, state: Mutex::default() });
        let acceptor = (!full).then(|| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || accept(&shared))
        });
        Hostile { port: address.port(), shared, stop: Some(stop), acceptor, _backlog: backlog }
    }

    /// The port of 127.0.0.1 to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A URL as for a broker with its default user.
    pub fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2F", self.port)
    }

    /// How many connections were taken so far.
    pub fn accepted(&self) -> usize {
        self.shared.lock().accepted
    }

    /// What the clients have said so far.
    pub fn heard(&self) -> Vec<u8> {
        self.shared.lock().heard.clone()
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        drop(self.stop.take());
        let threads = {
            let mut state = self.shared.lock();
            state.ended = true;
            for stream in &state.streams {
                let _ = stream.shutdown(Shutdown::Both);
            }
            std::mem::take(&mut state.threads)
        };
        // On Linux this wakes the acceptor.
        let _ = SockRef::from(&self.shared.listener).shutdown(Shutdown::Read);
        for thread in self.acceptor.take().into_iter().chain(threads) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Misbehaves on one connection until the client or the test ends it.
    fn serve(&self, mut stream: &TcpStream) -> std::io::Result<()> {
        match self.behaviour {
            Behaviour::HangUp | Behaviour::SynSwallowed => return Ok(()),
            Behaviour::Silent => {}
            Behaviour::Garbage => {
                self.hear(stream, HEADER)?;
                return stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
            }
            Behaviour::StallAfterStart => stream.write_all(&start())?,
            Behaviour::StallAfterTune => {
                stream.write_all(&start())?;
                // The client's header, and the first byte of its answer; a frame comes in one piece or soon.
                self.hear(stream, HEADER + 1)?;
                stream.write_all(&tune())?;
            }
            Behaviour::Drip => {
                for byte in start() {
                    stream.write_all(&[byte])?;
                    if self.stopped.recv_timeout(DRIP) != Err(RecvTimeoutError::Timeout) {
                        return Ok(());
                    }
                }
            }
        }
        self.hear(stream, usize::MAX)
    }

    /// Takes at least so many bytes, or all until the end.
    fn hear(&self, mut stream: &TcpStream, least: usize) -> std::io::Result<()> {
        let (mut buffer, mut count) = ([0; 4096], 0);
        while count < least {
            let length = stream.read(&mut buffer)?;
            if length == 0 {
                break;
            }
            self.lock().heard.extend_from_slice(&buffer[..length]);
            count += length;
        }
        Ok(())
    }
}

fn accept(shared: &Arc<Shared>) {
    while let Ok((stream, _)) = shared.listener.accept() {
        let mut state = shared.lock();
        if state.ended {
            return;
        }
        let stream = Arc::new(stream);
        state.accepted += 1;
        state.streams.push(Arc::clone(&stream));
        let shared = Arc::clone(shared);
        let thread = thread::spawn(move || {
            // A client that goes away ends it, which is no failure.
            let _ = shared.serve(&stream);
            let _ = stream.shutdown(Shutdown::Both);
        });
        state.threads.push(thread);
    }
}

fn listen(backlog: i32) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    // As servers do: another one may take the port over at once.
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    socket.listen(backlog)?;
    Ok(socket.into())
}

/// Fills the backlog of a listener that accepts nothing.
fn fill(address: SocketAddr) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, BACKLOG_FULL) {
        streams.push(stream);
        assert!(streams.len() < 16, "the backlog does not fill");
    }
    streams
}

/// Connection.Start: the protocol's version, an empty table of properties, the ways to log in, the languages.
fn start() -> Vec<u8> {
    let mut arguments = vec![0, 9];
    arguments.extend(0_u32.to_be_bytes());
    for text in ["PLAIN AMQPLAIN", "en_US"] {
        arguments.extend((text.len() as u32).to_be_bytes());
        arguments.extend(text.bytes());
    }
    method(START, &arguments)
}

/// Connection.Tune: the most channels, the largest frame, and the heartbeat in seconds, as RabbitMQ proposes them.
fn tune() -> Vec<u8> {
    let arguments = [&2047_u16.to_be_bytes()[..], &131_072_u32.to_be_bytes(), &60_u16.to_be_bytes()];
    method(TUNE, &arguments.concat())
}

/// A frame on channel 0 with a method of the class Connection.
fn method(method: u16, arguments: &[u8]) -> Vec<u8> {
    let content = [&CONNECTION.to_be_bytes()[..], &method.to_be_bytes(), arguments].concat();
    let size = (content.len() as u32).to_be_bytes();
    [&[METHOD, 0, 0][..], &size, &content, &[FRAME_END]].concat()
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::time::Instant;

    use super::super::wait::wait_until;
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(60);
    const QUIET: Duration = Duration::from_millis(300);
    const AMQP: &[u8] = b"AMQP\x00\x00\x09\x01";

    /// A client that has sent its header.
    fn client(hostile: &Hostile) -> TcpStream {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, hostile.port())).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(AMQP).unwrap();
        stream
    }

    fn assert_quiet(stream: &mut TcpStream) {
        stream.set_read_timeout(Some(QUIET)).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn a_silent_listener_listens_and_says_nothing() {
        let hostile = Hostile::start(Behaviour::Silent);
        assert_quiet(&mut client(&hostile));
        assert_eq!((hostile.accepted(), hostile.heard()), (1, AMQP.to_vec()));
    }

    #[test]
    fn a_dripping_listener_sends_the_start_byte_by_byte() {
        let hostile = Hostile::start(Behaviour::Drip);
        let (mut stream, begin) = (client(&hostile), Instant::now());
        let mut bytes = [0; 3];
        stream.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, [METHOD, 0, 0]);
        assert!(begin.elapsed() >= DRIP && start().len() as u32 * DRIP > Duration::from_secs(30));
    }

    #[test]
    fn a_listener_that_stalls_after_the_start_has_sent_all_of_it() {
        let hostile = Hostile::start(Behaviour::StallAfterStart);
        let mut stream = client(&hostile);
        let mut bytes = vec![0; start().len()];
        stream.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, start());
        assert_quiet(&mut stream);
    }

    #[test]
    fn a_real_client_gets_as_far_as_asking_for_a_virtual_host_after_the_tune() {
        let hostile = Hostile::start(Behaviour::StallAfterTune);
        let url = hostile.url();
        let client = thread::spawn(move || amiquip::Connection::insecure_open(&url).map(drop));
        // Connection.Tune-Ok and Connection.Open.
        for number in [31, 40] {
            let method = [0, 10, 0, number];
            wait_until("the client's next method", DEADLINE, || {
                hostile.heard().windows(4).any(|bytes| bytes == method).then_some(())
            });
        }
        drop(hostile);
        client.join().unwrap().expect_err("the listener is gone");
    }

    #[test]
    fn a_listener_that_sends_garbage_answers_as_a_web_server() {
        let hostile = Hostile::start(Behaviour::Garbage);
        let mut answer = String::new();
        client(&hostile).read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }

    #[test]
    fn a_listener_that_hangs_up_ends_the_connection() {
        let hostile = Hostile::start(Behaviour::HangUp);
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, hostile.port())).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn a_connection_to_a_full_backlog_is_neither_made_nor_refused() {
        let hostile = Hostile::start(Behaviour::SynSwallowed);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, hostile.port()));
        let error = TcpStream::connect_timeout(&address, QUIET).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn dropping_the_listener_ends_its_connections() {
        for behaviour in [Behaviour::Silent, Behaviour::Drip, Behaviour::StallAfterStart] {
            let hostile = Hostile::start(behaviour);
            let mut stream = client(&hostile);
            wait_until("the connection is taken", DEADLINE, || (hostile.accepted() == 1).then_some(()));
            let port = hostile.port();
            drop(hostile);
            // Whether it is a reset depends on what was on its way.
            let end = stream.read_to_end(&mut Vec::new());
            assert!(!end.is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
            let again = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
            assert_eq!(again.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        }
    }
}
