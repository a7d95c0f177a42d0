//! Where the machine's time goes while a relay works: what stands in the way when all cores are busy.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::process;
use std::time::Instant;

use crate::cpu;
use crate::ground::Ground;

/// CPU seconds, and what they are part of.
#[derive(Default)]
pub struct Account {
    /// All cores' time together.
    pub cores: f64,
    pub relay: f64,
    /// By the threads' names. What a thread used after the last look at it is in none.
    pub threads: BTreeMap<String, f64>,
    pub postgres: f64,
    pub rabbit: f64,
    /// This program, which watches.
    pub bench: f64,
    /// The kernel on its own behalf, and every other program.
    pub others: f64,
    /// Nothing to do, or waiting for the disk.
    pub idle: f64,
}

/// The counters when it began.
pub struct Opened {
    began: Instant,
    postgres: f64,
    rabbit: f64,
    bench: f64,
    machine: cpu::Machine,
}

impl Account {
    pub fn open(ground: &Ground) -> Opened {
        Opened {
            machine: cpu::of_machine(),
            postgres: cpu::of_server(ground.servers.postgres().unwrap()),
            rabbit: cpu::of_broker(ground.servers.rabbit().unwrap()),
            bench: cpu::of_process(process::id()),
            began: Instant::now(),
        }
    }
}

impl Opened {
    /// With what the relay has used, which has ended.
    pub fn close(self, ground: &Ground, relay: f64, threads: &Threads) -> Account {
        let seconds = self.began.elapsed().as_secs_f64();
        let machine = cpu::of_machine();
        let postgres = cpu::of_server(ground.servers.postgres().unwrap()) - self.postgres;
        let rabbit = cpu::of_broker(ground.servers.rabbit().unwrap()) - self.rabbit;
        let bench = cpu::of_process(process::id()) - self.bench;
        let (cores, idle) = (seconds * machine.cores as f64, machine.idle - self.machine.idle);
        let busy = relay + postgres + rabbit + bench;
        // Counters of ten milliseconds do not add up exactly.
        let others = (cores - idle - busy).max(0.0);
        Account { cores, relay, threads: threads.by_name(), postgres, rabbit, bench, others, idle }
    }
}

/// What the threads of a process have used, as far as anyone looked.
#[derive(Default)]
pub struct Threads(HashMap<String, (String, f64)>);

impl Threads {
    /// Looks at the threads that run now. Those that have ended stay as they were.
    pub fn look(&mut self, process: u32) {
        let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else { return };
        for task in tasks.flatten() {
            let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
            // In nanoseconds.
            let used = read("schedstat").split(' ').next().and_then(|it| it.parse::<f64>().ok());
            let (name, Some(used)) = (read("comm"), used) else { continue };
            // A thread begins with the name of the one that made it.
            let name = name.trim().trim_end_matches(|c: char| c.is_ascii_digit() || c == '-').to_owned();
            if !name.is_empty() {
                self.0.insert(task.file_name().to_string_lossy().into(), (name, used / 1e9));
            }
        }
    }

    fn by_name(&self) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for (name, seconds) in self.0.values() {
            *sums.entry(name.clone()).or_default() += seconds;
        }
        sums
    }
}
