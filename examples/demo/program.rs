//! The binary, used as an operator does: commands that end, and the relay with its log.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use crate::harness::{Proc, wait_until};
use crate::screen::{command, output};

/// Generous: a deadline that passes is a failure, however slow the machine is.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The binary and the environment that it gets.
pub(crate) struct Outboxd {
    pub(crate) binary: PathBuf,
    pub(crate) environment: [(&'static str, String); 2],
}

/// The relay as a process, whose log is shown as it comes.
pub(crate) struct Relay {
    process: Proc,
    /// How many bytes of the log were shown.
    shown: usize,
}

impl Outboxd {
    /// The binary of the same build: `target/release/outboxd` for `target/release/examples/demo`.
    pub(crate) fn find() -> Option<PathBuf> {
        let demo = env::current_exe().ok()?;
        let binary = demo.parent()?.parent()?.join("outboxd");
        binary.is_file().then_some(binary)
    }

    /// Runs a command, which must succeed.
    pub(crate) fn run(&self, line: &str) {
        let done = self.spawn(line).wait(DEADLINE);
        output(&(done.stdout + &done.stderr));
        assert_eq!(done.code, Some(0), "outboxd {line}");
    }

    /// Starts the relay.
    pub(crate) fn start(&self, line: &str) -> Relay {
        let process = self.spawn(line);
        Relay { process, shown: 0 }
    }

    fn spawn(&self, line: &str) -> Proc {
        command(&format!("outboxd {line}"));
        // A shell would take the quotes away.
        let line = line.replace('\'', "");
        let arguments: Vec<_> = line.split(' ').collect();
        let [database, amqp] = &self.environment;
        let environment = [(database.0, &*database.1), (amqp.0, &*amqp.1)];
        Proc::spawn(&self.binary, &arguments, &environment)
    }
}

impl Relay {
    /// Shows the log until a new line contains `text`.
    pub(crate) fn show_until(&mut self, text: &str) {
        wait_until(&format!("the relay's log says {text:?}"), DEADLINE, || {
            let running = self.process.is_running();
            assert!(running, "the relay must not end by itself:\n{}", self.process);
            let (_, log) = self.process.output();
            let end = log.rfind('\n').map_or(0, |newline| newline + 1);
            let new = &log[self.shown..end];
            self.shown = end;
            output(new);
            new.contains(text).then_some(())
        });
    }

    /// Ends the relay as a service manager does, and shows the rest of its log.
    pub(crate) fn end(mut self) {
        command(&format!("kill -TERM {}", self.process.id()));
        self.process.signal("TERM");
        let done = self.process.wait(DEADLINE);
        output(&done.stderr[self.shown..]);
        let last = done.stderr.lines().last().unwrap_or_default();
        assert!(last.contains("msg=stopped "), "the relay says goodbye");
        assert_eq!(done.code, Some(0), "the relay's exit code");
        output("exit code 0");
    }
}
