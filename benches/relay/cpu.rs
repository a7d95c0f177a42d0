//! The CPU time of other processes, as Linux counts it.

use std::fs;

use crate::harness::{Postgres, Rabbit};

/// The kernel counts a process's time in these; fixed by Linux's interface to user space.
const TICKS_PER_SECOND: f64 = 100.0;

/// What a process has used so far, in seconds: itself, and its children that have ended.
struct Used {
    parent: u32,
    own: f64,
    ended_children: f64,
}

/// None once the process has ended.
fn of(process: &str) -> Option<Used> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is the name in parentheses and may hold spaces. The parent is the 4th, and the times are the 14th
    // to the 17th.
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let seconds = |at: usize| fields[at].parse::<f64>().unwrap() / TICKS_PER_SECOND;
    let parent = fields[1].parse().unwrap();
    Some(Used { parent, own: seconds(11) + seconds(12), ended_children: seconds(13) + seconds(14) })
}

/// What ended children of this process have used so far, in seconds.
pub fn of_ended_children() -> f64 {
    of("self").unwrap().ended_children
}

/// What a process has used so far, in seconds.
pub fn of_process(process: u32) -> f64 {
    of(&process.to_string()).unwrap().own
}

/// What all processes of a server have used so far, in seconds, those that have ended too.
pub fn of_server(server: &Postgres) -> f64 {
    let lock = fs::read_to_string(server.folder().join("data/postmaster.pid")).unwrap();
    let postmaster: u32 = lock.lines().next().unwrap().trim().parse().unwrap();
    let Used { own, ended_children, .. } = of(&postmaster.to_string()).unwrap();
    let names = fs::read_dir("/proc").unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
    let processes = names.filter(|name| name.parse::<u32>().is_ok()).filter_map(|name| of(&name));
    let children: f64 = processes.filter(|it| it.parent == postmaster).map(|it| it.own).sum();
    own + ended_children + children
}

/// What the broker's process has used so far, in seconds.
pub fn of_broker(broker: &Rabbit) -> f64 {
    // Printed as Erlang prints a string.
    of_process(broker.eval("os:getpid().").trim().trim_matches('"').parse().unwrap())
}

/// All cores together.
pub struct Machine {
    pub cores: usize,
    /// With nothing to do, or waiting for a disk, since the machine's start; in seconds.
    pub idle: f64,
}

pub fn of_machine() -> Machine {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let lines = stat.lines().filter(|line| line.starts_with("cpu"));
    let fields: Vec<f64> =
        stat.lines().next().unwrap().split_whitespace().filter_map(|it| it.parse().ok()).collect();
    // User, nice, system, idle, iowait. The first line is the sum of the others.
    Machine { cores: lines.count() - 1, idle: (fields[3] + fields[4]) / TICKS_PER_SECOND }
}
