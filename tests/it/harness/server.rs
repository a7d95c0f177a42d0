//! What the two servers have in common: a guarded process with a log, and readiness read from the log.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{io::Write, thread};

use super::guard::Guard;

/// How long a server may take to get ready. Small machines under load need the most of it.
const READY_DEADLINE: Duration = Duration::from_secs(120);

/// How often a server is started with other ports after it has lost one to someone else.
const PORT_ATTEMPTS: u32 = 3;

/// Why a server did not get ready.
pub enum Failure {
    /// Someone else took a port between our choice and the server's start.
    PortLost(String),
    /// Anything else, with the last lines of the server's log.
    Other(String),
}

/// A server's process with its guard, its folder and its log.
pub struct Server {
    name: &'static str,
    guard: Guard,
    process: Option<Child>,
}

impl Server {
    /// Makes the folder and the guard; nothing runs yet.
    pub fn new(name: &'static str, prefix: &str) -> Server {
        Server { name, guard: Guard::for_server(prefix), process: None }
    }

    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    pub fn folder(&self) -> &Path {
        self.guard.folder()
    }

    pub fn log_path(&self) -> PathBuf {
        self.folder().join("server.log")
    }

    /// Starts the process and waits until its log has a line that contains `ready`.
    pub fn start(&mut self, mut command: Command, ready: &str) -> Result<(), Failure> {
        let log = self.open_log().map_err(|error| Failure::Other(format!("cannot open a log: {error}")))?;
        // After a restart the line of the start before is in the log too.
        let start = log.metadata().map_or(0, |data| data.len() as usize);
        self.guard.adopt(&mut command);
        command.current_dir(self.folder()).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a log can be shared")).stderr(log);
        let process = command
            .spawn()
            .map_err(|error| Failure::Other(format!("cannot start {}: {error}", self.name)))?;
        self.process = Some(process);
        let begin = Instant::now();
        loop {
            let ended = self.ended();
            let output = self.output_from(start);
            if output.contains(ready) {
                return Ok(());
            }
            let what = if ended { "ended while it started" } else { "did not get ready in time" };
            if ended || begin.elapsed() > READY_DEADLINE {
                self.kill();
                let message =
                    format!("{} {what}; the end of its log:\n{}", self.name, last_lines(&output, 40));
                let lost = ["already in use", "eaddrinuse", "epmd error"];
                let lost = lost.iter().any(|text| output.contains(text));
                return Err(if lost { Failure::PortLost(message) } else { Failure::Other(message) });
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a signal to the server's main process, then waits until everything of the server is gone.
    pub fn stop(&mut self, signal: &str, deadline: Duration) {
        if let Some(process) = &self.process {
            signal_process(process, signal);
        }
        let begin = Instant::now();
        while !self.ended() {
            assert!(begin.elapsed() < deadline, "{} did not stop; its log:\n{}", self.name, self.tail());
            thread::sleep(Duration::from_millis(10));
        }
        self.kill();
    }

    /// Kills everything of the server with SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        // Helpers and daemons, which do not all end with the main process.
        self.guard.kill_all();
    }

    /// The last lines of the log.
    pub fn tail(&self) -> String {
        last_lines(&self.output_from(0), 40)
    }

    fn ended(&mut self) -> bool {
        self.process.as_mut().is_none_or(|process| !matches!(process.try_wait(), Ok(None)))
    }

    fn output_from(&self, start: usize) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(bytes.get(start..).unwrap_or_default()).into_owned()
    }

    fn open_log(&self) -> std::io::Result<File> {
        OpenOptions::new().create(true).append(true).open(self.log_path())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The guard knows how to end each server gently enough; then there is a process to reap.
        self.guard.finish();
        if let Some(mut process) = self.process.take() {
            let _ = process.wait();
        }
    }
}

/// Runs `start` again, which must choose other ports, as long as it loses a port to someone else.
pub fn retry_lost_ports<T>(mut start: impl FnMut() -> Result<T, Failure>) -> Result<T, String> {
    let mut attempt = 1;
    loop {
        match start() {
            Ok(server) => return Ok(server),
            Err(Failure::PortLost(_)) if attempt < PORT_ATTEMPTS => attempt += 1,
            Err(Failure::PortLost(message) | Failure::Other(message)) => return Err(message),
        }
    }
}

/// A port of 127.0.0.1 that is free now.
///
/// It lies below the ports that Linux gives to outgoing connections. Those would steal the port of a
/// server that boots for seconds or is down for a test, and a client that dials such a port while
/// nobody listens can even get connected to itself.
pub fn free_port() -> u16 {
    let random = RandomState::new().build_hasher().finish();
    (0..1000)
        .map(|step| 10_000 + ((random >> 16).wrapping_add(step * 37) % 22_000) as u16)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("one of 1000 ports is free")
}

/// Writes a file that only its owner may read; servers refuse to use a private key otherwise.
pub fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

/// Sends a signal by name. The process is our child and not reaped yet, so the id is still its own.
pub fn signal_process(process: &Child, signal: &str) {
    let id = process.id().to_string();
    let status = Command::new("kill").args(["-s", signal, &id]).stderr(Stdio::null()).status();
    status.unwrap_or_else(|error| panic!("cannot run kill: {error}"));
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|data| data.uid() == 0)
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
