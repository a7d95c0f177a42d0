//! A TCP proxy in front of a server, which makes the faults of a network on demand.
//!
//! Each connection has four threads: per direction one reads into a queue and one writes from it, so that latency
//! does not cost throughput. All state is under one lock; a connection is alive as long as it is in there.

mod pipe;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};

use self::pipe::{CHUNK, Content, Faults, Pipe, Step};

/// Small, so that a peer that sends into a stalled direction is stuck soon.
const RECEIVE_BUFFER: usize = 256 * 1024;

/// A server on loopback takes a connection at once, or is frozen.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// How long a write into a full window takes to notice that its connection is over.
const WRITE_POLL: Duration = Duration::from_millis(20);

/// One of the two ways of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToClient,
}

use Direction::{ToClient, ToServer};

/// A proxy for one server. Its connections are reset, and its threads end, on drop.
///
/// A fault holds for the live connections and for new ones, until it is taken back or `heal` is called.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    target: SocketAddr,
    listener: TcpListener,
    state: Mutex<State>,
    /// The sockets of a connection have been closed.
    gone: Condvar,
}

#[derive(Default)]
struct State {
    faults: [Faults; 2],
    refuse: bool,
    ended: bool,
    accepted: u64,
    bytes: [u64; 2],
    live: HashMap<u64, Live>,
    /// The connections whose sockets are open, which are a moment more than the live ones.
    open: HashSet<u64>,
}

struct Live {
    link: Arc<Link>,
    pipes: [Pipe; 2],
}

/// The sockets of a connection, and how to wake those who wait for its state.
struct Link {
    client: TcpStream,
    server: TcpStream,
    wake: [Condvar; 2],
}

impl Proxy {
    /// A proxy for the server that listens, or will listen, on this port of 127.0.0.1.
    pub fn to(port: u16) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        // The connections inherit it.
        SockRef::from(&listener).set_recv_buffer_size(RECEIVE_BUFFER).expect("a receive buffer");
        let own = listener.local_addr().expect("a bound socket has an address").port();
        let target = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (state, gone) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { target, listener, state, gone });
        let acceptor = thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&shared)
        });
        Proxy { port: own, shared, acceptor: Some(acceptor) }
    }

    /// The port of 127.0.0.1 to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Holds everything back for this long, at the same throughput. It holds for what is on its way, too.
    pub fn delay(&self, direction: Direction, delay: Duration) {
        self.change(direction, |faults| faults.delay = delay);
    }

    /// Holds each chunk back for a random time up to this one, in addition to `delay`. The order stays.
    pub fn jitter(&self, direction: Direction, jitter: Duration) {
        self.change(direction, |faults| faults.jitter = jitter);
    }

    /// Reads and forgets. The peers do not even learn of each other's end; they do when it is over.
    /// In both directions it is a black hole.
    pub fn swallow(&self, direction: Direction, on: bool) {
        self.change(direction, |faults| faults.swallow = on);
    }

    /// Stops reading and forwarding until `heal`, so that the sender's window fills.
    pub fn stall(&self, direction: Direction) {
        self.change(direction, |faults| faults.stall = true);
    }

    /// Limits each connection. Beyond what fits into `delay`, the sender feels it as a full window.
    pub fn bandwidth(&self, direction: Direction, bytes_per_second: u64) {
        self.change(direction, |faults| faults.bandwidth = Some(bytes_per_second.max(1)));
    }

    /// Forwards at most so many bytes at once, with a pause after each piece.
    pub fn slice(&self, direction: Direction, max_chunk_bytes: usize, pause: Duration) {
        self.change(direction, |faults| faults.slice = Some((max_chunk_bytes.max(1), pause)));
    }

    /// Resets one connection, once: the one that forwards the last of so many further bytes, counted over all
    /// connections; with 0, the one that has the next byte to forward. The receiver still gets all of them, unless
    /// its window is full.
    pub fn cut_after(&self, direction: Direction, bytes: u64) {
        self.change(direction, |faults| faults.cut_after = Some(bytes));
    }

    /// Resets every live connection on both sides, and returns when that has happened.
    pub fn reset(&self) {
        self.end_all(true);
    }

    /// Closes every live connection on both sides as a process does that exits: whatever is on its way is lost.
    pub fn close(&self) {
        self.end_all(false);
    }

    /// While it is on, new connections are reset at once.
    pub fn refuse(&self, on: bool) {
        self.shared.lock().refuse = on;
    }

    /// Ends all faults. What was held back goes out at once; what was swallowed is lost.
    pub fn heal(&self) {
        self.refuse(false);
        self.change(ToServer, |faults| *faults = Faults::default());
        self.change(ToClient, |faults| *faults = Faults::default());
    }

    /// How many connections were accepted so far; refused ones do not count.
    pub fn accepted(&self) -> u64 {
        self.shared.lock().accepted
    }

    /// How many connections are open now.
    pub fn live(&self) -> usize {
        self.shared.lock().live.len()
    }

    /// How many bytes were forwarded so far, over all connections.
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.shared.lock().bytes[direction as usize]
    }

    fn change(&self, direction: Direction, change: impl FnOnce(&mut Faults)) {
        let mut state = self.shared.lock();
        change(&mut state.faults[direction as usize]);
        for live in state.live.values_mut() {
            // A pause that was due under the fault before is not due any more.
            live.pipes[direction as usize].free_at = None;
            live.link.wake[direction as usize].notify_all();
        }
    }

    fn end_all(&self, reset: bool) {
        let mut state = self.shared.lock();
        let ids: Vec<u64> = state.live.keys().copied().collect();
        for id in &ids {
            state.end(*id, reset);
        }
        let open = |state: &mut State| ids.iter().any(|id| state.open.contains(id));
        drop(self.shared.gone.wait_while(state, open));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        // On Linux this wakes the acceptor.
        let _ = SockRef::from(&self.shared.listener).shutdown(Shutdown::Read);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        self.reset();
        let state = self.shared.lock();
        drop(self.shared.gone.wait_while(state, |state| !state.open.is_empty()));
    }
}

impl State {
    /// What the writer has to do now; nothing when the connection is over.
    fn step(&mut self, id: u64, direction: Direction) -> Option<Step> {
        let live = self.live.get_mut(&id)?;
        let index = direction as usize;
        let step = live.pipes[index].step(&mut self.faults[index], Instant::now());
        // There may be room for the reader now.
        live.link.wake[index].notify_all();
        Some(step)
    }

    /// Takes the connection out of the live ones. Its sockets close when its threads have noticed.
    fn end(&mut self, id: u64, reset: bool) {
        if let Some(Live { link, .. }) = self.live.remove(&id) {
            for socket in [&link.client, &link.server] {
                if reset {
                    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
                }
                // It wakes the reader and sends nothing.
                let _ = socket.shutdown(Shutdown::Read);
            }
            link.wake.iter().for_each(Condvar::notify_all);
        }
    }
}

impl Direction {
    fn back(self) -> Direction {
        if self == ToServer { ToClient } else { ToServer }
    }
}

impl Link {
    fn source(&self, direction: Direction) -> &TcpStream {
        if direction == ToServer { &self.client } else { &self.server }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads from one side into the queue, while there is room.
    fn read(&self, id: u64, link: &Link, direction: Direction) {
        let index = direction as usize;
        let mut buffer = vec![0; CHUNK];
        loop {
            let mut state = self.lock();
            loop {
                let Some(live) = state.live.get(&id) else { return };
                if live.pipes[index].has_room(&state.faults[index]) {
                    break;
                }
                state = link.wake[index].wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            drop(state);
            let content = match link.source(direction).read(&mut buffer) {
                Ok(0) => Content::Close,
                Ok(count) => Content::Data(buffer[..count].to_vec(), 0),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => Content::Reset,
            };
            let mut state = self.lock();
            let swallow = state.faults[index].swallow;
            let Some(live) = state.live.get_mut(&id) else { return };
            match content {
                Content::Data(..) if swallow => {}
                Content::Data(..) => live.push(direction, content),
                Content::Close | Content::Reset => {
                    // A writer may have been the first to be told of a reset; then only the socket's state tells.
                    let reset = !live.pipes[direction.back() as usize].closed
                        && link.source(direction).peer_addr().is_err();
                    live.push(direction, if reset { Content::Reset } else { content });
                    return;
                }
            }
        }
    }

    /// Writes from the queue to the other side, when it is time. It ends with the connection.
    fn write(&self, id: u64, link: &Link, direction: Direction) {
        loop {
            let step = {
                let mut state = self.lock();
                loop {
                    match state.step(id, direction) {
                        None => return,
                        Some(Step::Wait(None)) => {
                            let wake = &link.wake[direction as usize];
                            state = wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                        }
                        Some(Step::Wait(Some(time))) => {
                            let wake = &link.wake[direction as usize];
                            state = wake.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0;
                        }
                        Some(step) => break step,
                    }
                }
            };
            match step {
                Step::Wait(_) => {}
                Step::Forward(data) => self.forward(id, link, direction, &data),
                Step::Cut(data) => {
                    self.forward(id, link, direction, &data);
                    self.lock().end(id, true);
                }
                Step::Reset => self.lock().end(id, true),
                Step::Close => {
                    let _ = link.source(direction.back()).shutdown(Shutdown::Write);
                    let mut state = self.lock();
                    if state.live.get(&id).is_some_and(|live| live.pipes.iter().all(|pipe| pipe.closed)) {
                        state.end(id, false);
                    }
                }
            }
        }
    }

    fn forward(&self, id: u64, link: &Link, direction: Direction, mut data: &[u8]) {
        while !data.is_empty() {
            let result = link.source(direction.back()).write(data);
            let mut state = self.lock();
            match result {
                Ok(count) => {
                    data = &data[count..];
                    state.bytes[direction as usize] += count as u64;
                }
                Err(error) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => {}
                Err(_) => {
                    // The news of the dead receiver travels the other way, through that way's faults.
                    if let Some(live) = state.live.get_mut(&id) {
                        live.push(direction.back(), Content::Reset);
                    }
                    return;
                }
            }
            if !state.live.contains_key(&id) {
                return;
            }
        }
    }
}

impl Live {
    fn push(&mut self, direction: Direction, content: Content) {
        self.pipes[direction as usize].push(content, Instant::now());
        self.link.wake[direction as usize].notify_all();
    }
}

fn accept(shared: &Arc<Shared>) {
    for id in 0.. {
        let client = shared.listener.accept();
        let mut state = shared.lock();
        if state.ended {
            return;
        }
        match client {
            Ok((client, _)) if state.refuse => {
                let _ = SockRef::from(&client).set_linger(Some(Duration::ZERO));
            }
            Ok((client, _)) => {
                state.accepted += 1;
                state.open.insert(id);
                let shared = Arc::clone(shared);
                thread::spawn(move || {
                    serve(&shared, id, client);
                    shared.lock().open.remove(&id);
                    shared.gone.notify_all();
                });
            }
            Err(error) => panic!("the proxy cannot accept: {error}"),
        }
    }
}

/// One connection, from its start to the closing of its sockets.
fn serve(shared: &Shared, id: u64, client: TcpStream) {
    let server = prepare(&client).and_then(|()| connect(shared.target));
    let Ok(server) = server else {
        let _ = SockRef::from(&client).set_linger(Some(Duration::ZERO));
        return;
    };
    let link = Arc::new(Link { client, server, wake: Default::default() });
    {
        let mut state = shared.lock();
        state.live.insert(id, Live { link: Arc::clone(&link), pipes: Default::default() });
        // `reset` may have passed while we connected.
        if state.ended || state.refuse {
            state.end(id, true);
        }
    }
    thread::scope(|scope| {
        for direction in [ToServer, ToClient] {
            let link = &link;
            scope.spawn(move || shared.read(id, link, direction));
            scope.spawn(move || shared.write(id, link, direction));
        }
    });
}

fn connect(target: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    // Only before the connection can it limit the window.
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.connect_timeout(&target.into(), CONNECT_DEADLINE)?;
    let stream = socket.into();
    prepare(&stream)?;
    Ok(stream)
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(WRITE_POLL))
}
