//! The relays as processes: started, watched, ended, and started anew.

use std::collections::HashSet;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{Output, Proc};
use crate::ledger::{End, Entry, Ledger, Life, Millis, Sample, now};
use crate::setting::{self, RELAYS};
use crate::world::{OUTBOXD, World, lock};

/// How long a relay that was asked to end is waited for. What is too long is the checker's to say.
const END_DEADLINE: Duration = Duration::from_secs(90);

/// How long a command that ends by itself may take, with everything down.
const COMMAND_DEADLINE: Duration = Duration::from_secs(180);

const SAMPLES_EVERY: Duration = Duration::from_secs(1);

/// All relays of a run.
pub struct Fleet<'a> {
    world: &'a World,
    ledger: &'a Ledger,
    /// The known defect that the binary is to have, by name.
    mutant: Option<&'a str>,
    ships: Vec<Mutex<Ship>>,
    logs: AtomicU64,
}

/// A relay's place, and its process. Who holds its lock may do with it what he likes.
pub struct Ship {
    relay: usize,
    process: Option<Proc>,
    from: Millis,
}

impl<'a> Fleet<'a> {
    /// Starts all relays.
    pub fn launch(world: &'a World, ledger: &'a Ledger, mutant: Option<&'a str>) -> Fleet<'a> {
        let ship = |relay| Mutex::new(Ship { relay, process: None, from: 0 });
        let ships = (0..RELAYS).map(ship).collect();
        let fleet = Fleet { world, ledger, mutant, ships, logs: AtomicU64::new(0) };
        for relay in 0..RELAYS {
            fleet.start(&mut lock(fleet.ship(relay)));
        }
        fleet
    }

    pub fn ship(&self, relay: usize) -> &Mutex<Ship> {
        &self.ships[relay]
    }

    pub fn start(&self, ship: &mut Ship) {
        let flags = setting::flags(&setting::settings(ship.relay), false);
        let arguments: Vec<&str> = std::iter::once("run").chain(flags.iter().map(String::as_str)).collect();
        ship.from = now();
        ship.process = Some(self.spawn(ship.relay, &arguments));
    }

    fn spawn(&self, relay: usize, arguments: &[&str]) -> Proc {
        let mut environment = self.world.environment(relay);
        environment.extend(self.mutant.map(|name| ("MUTANT".to_owned(), name.to_owned())));
        let environment: Vec<(&str, &str)> =
            environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        Proc::spawn(OUTBOXD, arguments, &environment)
    }

    /// Ends a relay with SIGKILL.
    pub fn kill(&self, ship: &mut Ship) {
        if let Some(process) = ship.process.take() {
            let pid = process.id();
            self.note(ship, pid, End::Killed, &process.kill());
        }
    }

    /// Asks a relay to end, and waits until it has.
    pub fn ask(&self, ship: &mut Ship) {
        let Some(mut process) = ship.process.take() else { return };
        let (pid, began) = (process.id(), Instant::now());
        process.signal("TERM");
        while process.is_running() && began.elapsed() < END_DEADLINE {
            thread::sleep(Duration::from_millis(10));
        }
        let waited_ms = began.elapsed().as_millis() as u64;
        if process.is_running() {
            self.note(ship, pid, End::Stuck { waited_ms }, &process.kill());
        } else {
            let output = process.wait(Duration::from_secs(10));
            self.note(ship, pid, End::Asked { took_ms: waited_ms, code: output.code }, &output);
        }
    }

    /// Runs a command that ends by itself: `once`, or an operator's. `number` is who it is in the ledger.
    pub fn command(&self, number: usize, arguments: &[&str]) {
        let (from, mut process) = (now(), self.spawn(number, arguments));
        let (pid, began) = (process.id(), Instant::now());
        while process.is_running() && began.elapsed() < COMMAND_DEADLINE {
            thread::sleep(Duration::from_millis(20));
        }
        let ship = Ship { relay: number, process: None, from };
        let waited_ms = began.elapsed().as_millis() as u64;
        if process.is_running() {
            self.note(&ship, pid, End::Stuck { waited_ms }, &process.kill());
        } else {
            let output = process.wait(Duration::from_secs(10));
            self.note(&ship, pid, End::Done { code: output.code }, &output);
        }
    }

    fn note(&self, ship: &Ship, pid: u32, end: End, output: &Output) {
        let (relay, from, to) = (ship.relay, ship.from, now());
        let log = &output.stderr;
        let file = format!("log-{}-{relay}-{pid}", self.logs.fetch_add(1, Ordering::Relaxed));
        fs::write(self.world.folder.join(file), format!("{}{log}", output.stdout)).expect("a relay's log");
        let (log_lines, log_bytes) = (log.lines().count() as u64, log.len() as u64);
        self.ledger.append(&[Entry::Life(Life { relay, pid, from, to, end, log_lines, log_bytes })]);
    }

    /// Looks at the relays each second until the end, and starts those anew that ended by themselves.
    pub fn watch(&self, healed: &AtomicBool, end: &AtomicBool) {
        while !end.load(Ordering::Relaxed) {
            let mut samples = Vec::new();
            for relay in 0..RELAYS {
                // Whoever has its lock does something to it just now.
                let Ok(mut ship) = self.ship(relay).try_lock() else { continue };
                let Some(process) = &mut ship.process else { continue };
                let pid = process.id();
                if !process.is_running() {
                    let Some(process) = ship.process.take() else { continue };
                    let output = process.wait(Duration::from_secs(10));
                    let end = End::Unasked { code: output.code, signal: output.signal };
                    self.note(&ship, pid, end, &output);
                    self.start(&mut ship);
                    continue;
                }
                samples.extend(self.sample(relay, pid, healed.load(Ordering::Relaxed)));
            }
            self.ledger.append(&samples);
            thread::sleep(SAMPLES_EVERY);
        }
    }

    fn sample(&self, relay: usize, pid: u32, healed: bool) -> Option<Entry> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        let (broker_opened, database_opened) = self.world.opened(relay);
        Some(Entry::Sample(Sample {
            relay,
            pid,
            at: now(),
            rss_kib: field("VmRSS:")?,
            threads: field("Threads:")?,
            files: fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64,
            broker_held: connections(pid, self.world.broker_roads[relay].proxy.port()),
            broker_opened,
            database_opened,
            healed,
        }))
    }
}

impl Ship {
    /// Sends a signal, if there is a process.
    pub fn signal(&mut self, name: &str) {
        if let Some(process) = &mut self.process {
            process.signal(name);
        }
    }
}

/// How many established connections to this port of 127.0.0.1 a process holds.
fn connections(pid: u32, port: u16) -> u64 {
    let own = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let own: HashSet<String> = own
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let is_one = |line: &&str| {
        // Number, own address, the other's, state, queues, timer, retransmits, user, timeout, inode.
        let words: Vec<&str> = line.split_whitespace().collect();
        let there = words.get(2).is_some_and(|address| address.ends_with(&format!(":{port:04X}")));
        there && words.get(3) == Some(&"01") && words.get(9).is_some_and(|inode| own.contains(*inode))
    };
    fs::read_to_string("/proc/net/tcp").unwrap_or_default().lines().filter(is_one).count() as u64
}
