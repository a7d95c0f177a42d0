//! How others see what the relay does: metrics for Prometheus, health, a status page, a file.
//!
//! It only watches: what it knows, the relay's observer has told it, or a session of its own has read. The relay never
//! waits for it, but for the lock while numbers are copied.

mod file;
mod gather;
mod health;
mod histogram;
mod history;
mod names;
mod numbers;
mod once;
mod page;
mod process;
mod request;
mod serve;
mod text;

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use outboxd::config::Config;
use outboxd::relay::Relay;

use super::exit::Exit;
use super::print;
use numbers::Numbers;
use page::Facts;
use process::Process;
use request::Reply;

pub(crate) use gather::Figures;
pub(crate) use health::silence_max;
pub(crate) use once::Leaving;

/// The numbers, as their writer and their readers share them.
#[derive(Debug, Clone)]
struct Shared(Arc<Mutex<Numbers>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Numbers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What takes longer than copying is done with a copy.
    fn copy(&self) -> Numbers {
        self.lock().clone()
    }
}

/// Starts whatever watches a relay that is to run, and has it tell what it does.
///
/// # Errors
/// The address cannot be listened on, which is said; the exit code is 69 where that may pass.
pub(crate) fn start(config: &Config, relay: Relay) -> Result<Relay, Exit> {
    if config.metrics.addr.is_none() && config.metrics.file.is_none() {
        return Ok(relay);
    }
    let shared = Shared(Arc::new(Mutex::new(Numbers { interval: config.interval, ..Numbers::new() })));
    let no_thread = |error: std::io::Error| {
        print::error(format_args!("starting a thread failed: {error}"));
        Exit::Internal
    };
    if let Some(addr) = config.metrics.addr {
        let listener = listen(addr)?;
        let look = Look { shared: shared.clone(), facts: Facts::of(config) };
        serve::start(listener, move |path| look.at(path)).map_err(no_thread)?;
    }
    gather::start(&shared, config).map_err(no_thread)?;
    Ok(relay.observed_by(move |happening| shared.lock().note(happening)))
}

fn listen(addr: SocketAddr) -> Result<TcpListener, Exit> {
    let listener = TcpListener::bind(addr).and_then(|it| it.local_addr().map(|addr| (it, addr)));
    let (listener, bound) = listener.map_err(|error| {
        let (hint, exit) = match error.kind() {
            // Another one may be about to end, or the network about to be there.
            ErrorKind::AddrInUse => (": another program, or another relay, listens there", Exit::Unavailable),
            ErrorKind::AddrNotAvailable => (": this machine does not have it", Exit::Unavailable),
            ErrorKind::PermissionDenied => (": take a port above 1023", Exit::Denied),
            _ => ("", Exit::Configuration),
        };
        print::error(format_args!("listening on metrics_addr {addr} failed: {error}{hint}"));
        exit
    })?;
    log::info!("metrics, health and the status page are at http://{bound}/");
    if !bound.ip().is_loopback() {
        log::warn!(
            "metrics_addr {bound} is open to others: whoever reaches it can read everything that is shown"
        );
    }
    Ok(listener)
}

/// What every answer is made of.
struct Look {
    shared: Shared,
    facts: Facts,
}

impl Look {
    fn at(&self, path: &str) -> Reply {
        let numbers = self.shared.copy();
        let verdict = |problem: Option<String>| match problem {
            None => Reply::plain(200, "ok"),
            Some(problem) => Reply::plain(503, print::one_line(&problem)),
        };
        match path {
            "/" => Reply {
                status: 200,
                content_type: "text/html; charset=utf-8",
                body: page::html(&self.facts, &numbers),
            },
            "/metrics" => Reply {
                status: 200,
                content_type: text::CONTENT_TYPE,
                body: text::of_run(&numbers, &Process::read()),
            },
            "/healthz" => verdict(health::illness(&numbers, self.facts.silence_max, Instant::now())),
            "/readyz" => verdict(health::unreadiness(&numbers)),
            _ => Reply::plain(404, "there are /, /metrics, /healthz and /readyz"),
        }
    }
}
