//! The TCP socket under the broker's client, opened by us, and the switch that ends it.
//!
//! The client sets no option on its socket and can wait on it without end. NODELAY spares small batches Nagle's
//! 40 ms; keepalive and the user timeout notice a peer that vanished, each in one of two states.

use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};

const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;
const USER_TIMEOUT: Duration = Duration::from_secs(15);

/// Connects to the first address that answers before `deadline`.
///
/// # Errors
/// The last address's reason, in words.
pub(super) fn connect(host: &str, port: u16, deadline: Instant) -> Result<TcpStream, String> {
    let addresses: Vec<SocketAddr> = (host, port)
        .to_socket_addrs()
        .map_err(|error| format!("its name does not resolve: {error}"))?
        .collect();
    let mut reason = String::from("its name resolves to no address");
    for (n, address) in addresses.iter().enumerate() {
        // Each address gets a fair share of what is left, so that one that swallows everything leaves the next
        // one time.
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - n).unwrap_or(1);
        if share.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(address, share).and_then(|stream| tuned(&stream).map(|()| stream)) {
            Ok(stream) => return Ok(stream),
            Err(error) => reason = format!("{address}: {error}"),
        }
    }
    Err(reason)
}

fn tuned(stream: &TcpStream) -> std::io::Result<()> {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_RETRIES);
    stream.set_nodelay(true)?;
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    stream.set_nonblocking(true)
}

/// Ends a connection at once, whatever its client is waiting for.
///
/// A second handle on the client's socket. Once pulled, the client's I/O thread reads the end of the stream and
/// frees everybody who waits for it; and the socket is closed with a reset, so that bytes that are still queued are
/// dropped instead of appearing in a queue after we gave up on them.
#[derive(Debug)]
pub(super) struct KillSwitch {
    stream: TcpStream,
}

impl KillSwitch {
    pub(super) fn new(stream: &TcpStream) -> std::io::Result<Self> {
        Ok(Self { stream: stream.try_clone()? })
    }

    /// Ends the connection. Fails only when it has ended already.
    pub(super) fn pull(&self) {
        #[cfg(feature = "mutants")]
        if crate::mutants::is("kill-switch-off") {
            return;
        }
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        let _ = self.stream.shutdown(Shutdown::Read);
    }
}
