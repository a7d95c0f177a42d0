//! What a process holds: a fault that leaves a thread or a descriptor behind ends a daemon after enough of them.

use std::path::PathBuf;
use std::time::Duration;
use std::{fs, thread};

use crate::harness::{Proc, wait_until};
use crate::world::DEADLINE;

/// How many descriptors are open and how many threads there are in a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resources {
    pub descriptors: usize,
    pub threads: usize,
}

impl Resources {
    /// What a process holds now.
    pub fn of(process: &Proc) -> Resources {
        Resources { descriptors: entries(process, "fd").len(), threads: entries(process, "task").len() }
    }

    /// What a process holds that has nothing to do: the least of some looks, since a thread that opened a
    /// connection may be on its way out.
    pub fn at_rest(process: &Proc) -> Resources {
        let mut least = Resources::of(process);
        for _ in 0..10 {
            thread::sleep(Duration::from_millis(20));
            let now = Resources::of(process);
            least.descriptors = least.descriptors.min(now.descriptors);
            least.threads = least.threads.min(now.threads);
        }
        least
    }

    /// Waits until a process holds no more than this.
    pub fn return_to(self, process: &Proc) {
        let start = std::time::Instant::now();
        wait_until(&format!("back to {self:?} from {}", describe(process)), DEADLINE, || {
            let now = Resources::of(process);
            let back = now.descriptors <= self.descriptors && now.threads <= self.threads;
            // Said shortly before the wait fails, since what was there at its start says little.
            if !back && start.elapsed() + Duration::from_secs(1) > DEADLINE {
                panic!("still above {self:?}: {}\n{process}", describe(process));
            }
            back.then_some(())
        });
    }
}

/// The names of the threads and the targets of the descriptors.
fn describe(process: &Proc) -> String {
    let threads = entries(process, "task");
    let threads = threads.iter().filter_map(|path| fs::read_to_string(path.join("comm")).ok());
    let threads: Vec<String> = threads.map(|name| name.trim().to_owned()).collect();
    let descriptors = entries(process, "fd");
    let descriptors: Vec<PathBuf> = descriptors.iter().filter_map(|path| fs::read_link(path).ok()).collect();
    format!("{:?}: threads {threads:?}, descriptors {descriptors:?}", Resources::of(process))
}

fn entries(process: &Proc, folder: &str) -> Vec<PathBuf> {
    let folder = fs::read_dir(format!("/proc/{}/{folder}", process.id()));
    folder
        .unwrap_or_else(|error| panic!("the process is gone: {error}\n{process}"))
        .flatten()
        .map(|it| it.path())
        .collect()
}
