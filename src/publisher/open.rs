//! Opening a connection: name resolution, TCP, TLS and the AMQP handshake, all within one deadline.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use amiquip::{Auth, Connection, ConnectionBlockedNotification, ConnectionOptions, ConnectionTuning};
use crossbeam_channel::{Receiver, Sender, bounded};

use crate::error::{Error, Kind, Result, Server};
use crate::message::FRAME_MAX;

use super::guard::FrameGuard;
use super::socket::{self, KillSwitch};
#[cfg(feature = "tls")]
use super::tls;
use super::url::Address;
use super::wire::opening_failed;

/// Channels are numbered up to this. The client would hang once the numbers ran over.
const CHANNEL_MAX: u16 = 64;

/// By how much the client's own deadline comes after ours.
const CLIENT_MARGIN: Duration = Duration::from_secs(5);

/// A connection just opened.
pub(super) struct Opened {
    pub(super) connection: Connection,
    pub(super) alarms: Receiver<ConnectionBlockedNotification>,
    pub(super) kill: Arc<KillSwitch>,
}

/// Opens a connection on a thread of its own, which is left behind when the time is over: name resolution cannot
/// be ended, and everything after it is ended by the kill switch.
pub(super) fn open_within(address: &Address, limit: Duration) -> Result<Opened> {
    let (kill_sender, kill) = bounded(1);
    let (sender, opened) = bounded(1);
    let deadline = Instant::now() + limit;
    let theirs = address.clone();
    thread::Builder::new()
        .name("outboxd-broker-open".into())
        .spawn(move || {
            let _ = sender.send(open(&theirs, deadline, &kill_sender));
        })
        .map_err(|error| Error::new(Kind::Internal, format!("starting a thread failed: {error}")))?;
    match opened.recv_deadline(deadline) {
        Ok(result) => result,
        Err(_) => {
            let phase = match kill.try_recv() {
                Ok(kill) => {
                    KillSwitch::pull(&kill);
                    "the broker's answer to the connection"
                }
                Err(_) => "its address to answer",
            };
            Err(Error::new(
                Kind::Unavailable(Server::Broker),
                format!(
                    "opening a session on broker {address} waited longer than open_timeout {limit:?} for {phase}"
                ),
            ))
        }
    }
}

fn open(address: &Address, deadline: Instant, kill_sender: &Sender<Arc<KillSwitch>>) -> Result<Opened> {
    let shown = address.to_string();
    let unavailable = |reason: String| {
        Error::new(
            Kind::Unavailable(Server::Broker),
            format!("opening a session on broker {shown} failed: {reason}"),
        )
    };
    #[cfg(feature = "tls")]
    let connector = address.tls.as_ref().map(tls::connector).transpose()?;
    let stream = socket::connect(&address.host, address.port, deadline).map_err(unavailable)?;
    let kill = Arc::new(KillSwitch::new(&stream).map_err(|error| unavailable(error.to_string()))?);
    let _ = kill_sender.send(Arc::clone(&kill));
    let stream = mio::net::TcpStream::from_stream(stream).map_err(|error| unavailable(error.to_string()))?;
    let options = ConnectionOptions::default()
        .auth(auth(address))
        .virtual_host(address.vhost.clone())
        .heartbeat(address.heartbeat_s)
        .channel_max(CHANNEL_MAX)
        .frame_max(FRAME_MAX)
        // Longer than ours, which then ends it: the client would call a silent broker a refused login.
        .connection_timeout(Some(deadline.saturating_duration_since(Instant::now()) + CLIENT_MARGIN));
    let tuning = ConnectionTuning::default();
    #[cfg(feature = "tls")]
    let connection = match connector {
        Some(connector) => {
            let named = address.tls.as_ref().and_then(|it| it.server_name.as_ref()).unwrap_or(&address.host);
            Connection::open_tls_stream(connector, named, stream, options, tuning)
        }
        None => Connection::insecure_open_stream(FrameGuard::new(stream), options, tuning),
    };
    #[cfg(not(feature = "tls"))]
    let connection = Connection::insecure_open_stream(FrameGuard::new(stream), options, tuning);
    let opened = connection.and_then(|mut connection| {
        let alarms = connection.listen_for_connection_blocked()?;
        Ok((connection, alarms))
    });
    match opened {
        Ok((connection, alarms)) => Ok(Opened { connection, alarms, kill }),
        Err(error) => {
            kill.pull();
            Err(opening_failed(&shown, &error))
        }
    }
}

fn auth(address: &Address) -> Auth {
    if address.external {
        return Auth::External;
    }
    Auth::Plain { username: address.user.clone(), password: address.password.clone() }
}
