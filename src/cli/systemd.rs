//! What systemd is told of a relay that it started (`sd_notify(3)`): that it runs, that it is alive, how it is doing, that
//! it ends. Without `NOTIFY_SOCKET` nobody is told anything, and nobody is ever waited for.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use outboxd::error::Error;
use outboxd::event::Tally;
use outboxd::relay::Happening;

use super::print;

/// The least time between two statuses that only differ in what ticks have done.
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// How long the first message waits for systemd; no other one waits.
const READY_MAX: Duration = Duration::from_secs(5);

/// Longest status, in characters. An error may be longer.
const STATUS_MAX: usize = 300;

/// What systemd wants to know, by its variables.
#[derive(Debug, Clone, Default)]
pub(crate) struct Manager {
    socket: Option<SocketAddr>,
    /// How long the relay may be silent.
    watchdog: Option<Duration>,
}

impl Manager {
    /// By the environment of the process with this id. A watchdog that waits for another process is none of ours.
    pub(crate) fn of(environment: &[(OsString, OsString)], pid: u32) -> Self {
        let text =
            |name: &str| environment.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str());
        let number = |name: &str| text(name).and_then(OsStr::to_str).and_then(|it| it.parse::<u64>().ok());
        let is_ours =
            text("WATCHDOG_PID").is_none() || number("WATCHDOG_PID").is_some_and(|it| it == u64::from(pid));
        let socket = text("NOTIFY_SOCKET").filter(|it| !it.is_empty()).and_then(|name| {
            address(name).inspect_err(|error| log::warn!("NOTIFY_SOCKET names no socket: {error}")).ok()
        });
        let micros = number("WATCHDOG_USEC").filter(|it| is_ours && *it > 0);
        Self { socket, watchdog: micros.map(Duration::from_micros) }
    }

    /// Says that the relay runs, and what a host of it is to be told from now on; none if there is nobody to tell.
    ///
    /// `silence_max` is how long a relay that works may be silent. A watchdog that is less patient is asked to be.
    pub(crate) fn ready(&self, silence_max: Duration) -> Option<Watching> {
        let socket = self.connect()?;
        let mut text = String::from("READY=1\nSTATUS=started");
        if self.watchdog.is_some_and(|limit| limit < silence_max) {
            text += &format!("\nWATCHDOG_USEC={}", silence_max.as_micros());
        }
        let told = socket.set_write_timeout(Some(READY_MAX)).and_then(|()| socket.send(text.as_bytes()));
        if let Err(error) = told.and_then(|_| socket.set_nonblocking(true)) {
            log::warn!("systemd cannot be told that the relay runs: {error}");
            return None;
        }
        let every = self.watchdog.map(|limit| limit / 2);
        Some(Watching::new(socket, every))
    }

    /// Says that the relay is about to end.
    pub(crate) fn stopping(&self) {
        if let Some(socket) = self.connect() {
            let told = socket.set_nonblocking(true);
            let _ = told.and_then(|()| socket.send(b"STOPPING=1\nSTATUS=stopping"));
        }
    }

    fn connect(&self) -> Option<UnixDatagram> {
        let address = self.socket.as_ref()?;
        let socket = UnixDatagram::unbound().and_then(|it| it.connect_addr(address).map(|()| it));
        socket.inspect_err(|error| log::warn!("NOTIFY_SOCKET cannot be reached: {error}")).ok()
    }
}

/// A path, or with `@` before it a name in Linux' abstract namespace.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes() {
        #[cfg(target_os = "linux")]
        [b'@', rest @ ..] => <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(rest),
        [b'/', ..] => SocketAddr::from_pathname(name),
        _ => Err(io::Error::from(io::ErrorKind::Unsupported)),
    }
}

/// The telling. It is done on the relay's own thread: when that is stuck, systemd hears nothing any more.
#[derive(Debug)]
pub(crate) struct Watching {
    socket: UnixDatagram,
    /// Between two signs of life, at least; none without a watchdog.
    every: Option<Duration>,
    alive: Instant,
    published: u64,
    in_trouble: bool,
    /// The last status, and when it was told.
    status: String,
    status_at: Instant,
}

impl Watching {
    fn new(socket: UnixDatagram, every: Option<Duration>) -> Self {
        let now = Instant::now();
        let (alive, status_at) = (now, now);
        Self { socket, every, alive, published: 0, in_trouble: false, status: String::new(), status_at }
    }

    /// Tells systemd what it is to know of this.
    pub(crate) fn note(&mut self, happening: Happening<'_>) {
        match happening {
            Happening::TroubleBegan(error) => self.trouble(error),
            Happening::TroubleEnded => self.in_trouble = false,
            Happening::Ticked { tally, trouble, .. } => {
                self.published += tally.published;
                match trouble {
                    Some(error) => self.trouble(error),
                    None => self.ticked(tally),
                }
            }
            _ => {}
        }
        if self.every.is_some_and(|every| self.alive.elapsed() >= every) && self.send("WATCHDOG=1") {
            self.alive = Instant::now();
        }
    }

    fn trouble(&mut self, error: &Error) {
        self.in_trouble = true;
        self.tell(format!("in trouble: {error}"));
    }

    fn ticked(&mut self, tally: &Tally) {
        let was_in_trouble = std::mem::take(&mut self.in_trouble);
        if was_in_trouble || self.status_at.elapsed() >= STATUS_EVERY {
            self.tell(format!("{} published since the start; last tick: {tally}", self.published));
        }
    }

    fn tell(&mut self, status: String) {
        if status != self.status {
            let text: String = print::one_line(&status).chars().take(STATUS_MAX).collect();
            self.send(&format!("STATUS={text}"));
            (self.status, self.status_at) = (status, Instant::now());
        }
    }

    /// Whether it was taken. A manager that does not read is not waited for.
    fn send(&self, text: &str) -> bool {
        self.socket.send(text.as_bytes()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manager(variables: &[(&str, &str)]) -> Manager {
        let variables: Vec<_> =
            variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect();
        Manager::of(&variables, 7)
    }

    #[test]
    fn only_a_watchdog_that_waits_for_this_process_is_fed() {
        for (variables, seconds) in [
            (&[][..], None),
            (&[("WATCHDOG_USEC", "2000000")], Some(2)),
            (&[("WATCHDOG_USEC", "2000000"), ("WATCHDOG_PID", "7")], Some(2)),
            (&[("WATCHDOG_USEC", "2000000"), ("WATCHDOG_PID", "8")], None),
            (&[("WATCHDOG_USEC", "0")], None),
            (&[("WATCHDOG_USEC", "2s")], None),
        ] {
            assert_eq!(manager(variables).watchdog, seconds.map(Duration::from_secs), "{variables:?}");
        }
    }

    #[test]
    fn a_socket_is_a_path_or_an_abstract_name() {
        let of = |name| manager(&[("NOTIFY_SOCKET", name)]).socket;
        assert_eq!(of("/run/x").unwrap().as_pathname(), Some(std::path::Path::new("/run/x")));
        assert!(of("@outboxd").is_some_and(|it| it.as_pathname().is_none()));
        for name in ["", "x", "vsock:1:2"] {
            assert!(of(name).is_none(), "{name}");
        }
        assert!(manager(&[]).ready(Duration::ZERO).is_none());
    }
}
