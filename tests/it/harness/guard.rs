//! Ends servers and programs when the test process ends, even by SIGKILL.
//!
//! A shell waits for the end of its standard input. Only this process holds the other end of that
//! pipe, so the kernel closes it when this process ends, whatever the reason. Everything that a guard
//! is responsible for carries the guard's mark in its environment.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, io};

use std::os::unix::process::CommandExt;

/// The variable that carries the mark.
pub const MARK: &str = "HARNESS_MARK";

const SCRIPT: &str = include_str!("guard.sh");

/// A shell that outlives this process and cleans up after it.
pub struct Guard {
    mark: String,
    folder: Option<PathBuf>,
    prefix: String,
    shell: Child,
}

impl Guard {
    /// A guard for programs that have no folder.
    pub fn for_programs() -> Guard {
        Guard::start(unique_name(), None, String::new())
    }

    /// A guard for one server, with a new private folder that it removes at the end.
    ///
    /// `prefix` is the command that switches to the server's user, or empty.
    pub fn for_server(prefix: &str) -> Guard {
        loop {
            let mark = unique_name();
            let folder = std::env::temp_dir().join(&mark);
            match fs::create_dir(&folder) {
                Ok(()) => return Guard::start(mark, Some(folder), prefix.to_owned()),
                // A folder of a process with our id, left behind by a crash of the machine.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("cannot create {}: {error}", folder.display()),
            }
        }
    }

    fn start(mark: String, folder: Option<PathBuf>, prefix: String) -> Guard {
        let shell = script("watch", &mark, folder.as_deref(), &prefix)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start sh: {error}"));
        Guard { mark, folder, prefix, shell }
    }

    /// The name that marks everything under this guard. It is unique on this machine.
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// The server's folder.
    pub fn folder(&self) -> &Path {
        self.folder.as_deref().expect("this guard was made for a server")
    }

    /// Puts a command under this guard.
    pub fn adopt(&self, command: &mut Command) {
        // A process group of its own, so that Ctrl-C reaches the test process alone.
        command.env(MARK, &self.mark).process_group(0);
    }

    /// Kills everything under this guard and waits until it is gone.
    pub fn kill_all(&self) {
        self.run("kill");
    }

    /// Sends a signal, such as `STOP`, to everything under this guard.
    pub fn signal_all(&self, signal: &str) {
        self.run(&format!("signal={signal}"));
    }

    /// Ends everything and removes the folder before it returns.
    pub fn finish(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }

    fn run(&self, mode: &str) {
        let status = script(mode, &self.mark, self.folder.as_deref(), &self.prefix).status();
        status.unwrap_or_else(|error| panic!("cannot run sh: {error}"));
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.finish();
    }
}

fn script(mode: &str, mark: &str, folder: Option<&Path>, prefix: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT, "guard.sh", mode, mark]);
    command.arg(folder.unwrap_or(Path::new(""))).arg(prefix);
    // The shell must not find itself, must not keep the output of `cargo test` open, must not stand
    // in a folder that someone wants to remove, and must survive Ctrl-C.
    command.env_remove(MARK).current_dir("/").process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// `outboxd-<process id>-<number>`.
fn unique_name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    format!("outboxd-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}
