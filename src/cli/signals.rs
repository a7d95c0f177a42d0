//! SIGTERM and SIGINT: the first asks the relay to end, the second ends it at once, and so does the end of the
//! grace. Whatever the process leaves behind then, the database frees and the broker forgets.

use std::io;
use std::thread;
use std::time::Duration;

use outboxd::relay::Stop;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

use super::exit::Exit;
use super::logging;
use super::systemd::Manager;

/// Starts listening.
///
/// # Errors
/// The system refuses a signal handler or a thread.
pub(crate) fn listen(stop: Stop, grace: Duration, manager: Manager) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    thread::Builder::new().name("outboxd-signals".into()).spawn(move || {
        let mut signals = signals.forever();
        let Some(signal) = signals.next() else { return };
        let name = low_level::signal_name(signal).unwrap_or("a signal");
        log::info!(signal = name, grace:? = grace; "stopping: finishing or handing back what is in flight");
        stop.request();
        manager.stopping();
        let timer = thread::Builder::new().name("outboxd-grace".into()).spawn(move || {
            thread::sleep(grace);
            log::error!(grace:? = grace; "still not done after the grace: ending; what was in flight is due again");
            logging::flush();
            low_level::exit(i32::from(Exit::Incomplete.code()));
        });
        if let Err(error) = timer {
            log::error!(error:%; "no thread for the end of the grace");
        }
        if let Some(signal) = signals.next() {
            logging::flush();
            low_level::exit(128 + signal);
        }
    })?;
    Ok(())
}
