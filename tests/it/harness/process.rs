//! Programs under test: started with a clean environment, watched, and ended with their test.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::guard::Guard;
use super::server::signal_process;
use super::wait::wait_until;

/// A running program. It is killed on drop, and when the test process ends.
pub struct Proc {
    process: Child,
    stdout: Capture,
    stderr: Capture,
}

/// What a program left behind.
#[derive(Clone, Debug)]
pub struct Output {
    /// The exit code, unless a signal ended the program.
    pub code: Option<i32>,
    /// The number of the signal that ended the program.
    pub signal: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Proc {
    /// Starts a program. It sees PATH, an empty HOME and `environment`, and nothing of ours: a
    /// developer's own settings must not leak into a test.
    pub fn spawn(program: impl AsRef<Path>, arguments: &[&str], environment: &[(&str, &str)]) -> Proc {
        Proc::spawn_onto(Stdio::piped(), program, arguments, environment)
    }

    /// The same with a standard error that the test reads itself, or does not.
    pub fn spawn_onto(
        stderr: Stdio,
        program: impl AsRef<Path>,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Proc {
        let program = program.as_ref();
        let mut command = Command::new(program);
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command
            .env("HOME", "/nonexistent")
            .envs(environment.iter().copied())
            .args(arguments.iter().map(OsStr::new));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        static GUARD: OnceLock<Guard> = OnceLock::new();
        GUARD.get_or_init(Guard::for_programs).adopt(&mut command);
        let mut process =
            command.spawn().unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()));
        let stdout = Capture::start(process.stdout.take());
        let stderr = Capture::start(process.stderr.take());
        Proc { process, stdout, stderr }
    }

    /// Starts a program and waits until it ends.
    pub fn run(
        program: impl AsRef<Path>,
        arguments: &[&str],
        environment: &[(&str, &str)],
        deadline: Duration,
    ) -> Output {
        Proc::spawn(program, arguments, environment).wait(deadline)
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal by name, such as `TERM`. A program that has ended gets none.
    pub fn signal(&mut self, name: &str) {
        if self.is_running() {
            signal_process(&self.process, name);
        }
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// What the program has printed so far: standard output and standard error.
    pub fn output(&self) -> (String, String) {
        (self.stdout.text(), self.stderr.text())
    }

    /// Waits for a line that contains `pattern` on either output, counted from the program's start.
    ///
    /// # Panics
    /// Panics when the program ends without it or the deadline passes.
    pub fn wait_for_line(&mut self, pattern: &str, deadline: Duration) -> String {
        let found = wait_until(&format!("a line with {pattern:?}; so far:\n{self}"), deadline, || {
            // Asked first, so that the last lines of a program that just ended are not missed.
            let ended = !self.is_running() && self.stdout.ended() && self.stderr.ended();
            let line = [&self.stdout, &self.stderr].into_iter().find_map(|output| output.line_with(pattern));
            match line {
                Some(line) => Some(Ok(line)),
                None => ended.then_some(Err(())),
            }
        });
        found.unwrap_or_else(|()| panic!("the program ended without a line with {pattern:?}:\n{self}"))
    }

    /// Waits until the program ends.
    ///
    /// # Panics
    /// Panics when the deadline passes first; the program is killed then.
    pub fn wait(mut self, deadline: Duration) -> Output {
        let mut status: Option<ExitStatus> = None;
        let waited = std::time::Instant::now();
        while status.is_none() && waited.elapsed() < deadline {
            status = self.process.try_wait().unwrap_or_else(|error| panic!("cannot wait: {error}"));
            std::thread::sleep(Duration::from_millis(2));
        }
        let Some(status) = status else {
            panic!("the program did not end in {deadline:?}:\n{self}");
        };
        self.finish(status)
    }

    /// Kills the program with SIGKILL, and returns what it left behind.
    pub fn kill(mut self) -> Output {
        let _ = self.process.kill();
        let status = self.process.wait().unwrap_or_else(|error| panic!("cannot wait: {error}"));
        self.finish(status)
    }

    fn finish(&self, status: ExitStatus) -> Output {
        let ended = || (self.stdout.ended() && self.stderr.ended()).then_some(());
        wait_until("the end of the program's output", Duration::from_secs(5), ended);
        let (stdout, stderr) = self.output();
        Output { code: status.code(), signal: status.signal(), stdout, stderr }
    }
}

impl std::fmt::Display for Proc {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (stdout, stderr) = self.output();
        write!(formatter, "--- standard output\n{stdout}\n--- standard error\n{stderr}")
    }
}

impl Drop for Proc {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The bytes that came out of a pipe so far; a thread reads them, so that the program never blocks.
#[derive(Clone, Default)]
struct Capture(Arc<Mutex<Captured>>);

#[derive(Default)]
struct Captured {
    bytes: Vec<u8>,
    ended: bool,
}

impl Capture {
    fn start(pipe: Option<impl Read + Send + 'static>) -> Capture {
        let capture = Capture::default();
        let writer = capture.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 8192];
            if let Some(mut pipe) = pipe {
                while let Ok(count @ 1..) = pipe.read(&mut buffer) {
                    writer.with(|captured| captured.bytes.extend_from_slice(&buffer[..count]));
                }
            }
            writer.with(|captured| captured.ended = true);
        });
        capture
    }

    fn with<T>(&self, action: impl FnOnce(&mut Captured) -> T) -> T {
        action(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn text(&self) -> String {
        self.with(|captured| String::from_utf8_lossy(&captured.bytes).into_owned())
    }

    fn ended(&self) -> bool {
        self.with(|captured| captured.ended)
    }

    /// The first complete line that contains the pattern.
    fn line_with(&self, pattern: &str) -> Option<String> {
        let text = self.text();
        let ended = self.ended();
        let lines = text.split_inclusive('\n').filter(|line| ended || line.ends_with('\n'));
        lines.map(str::trim_end).find(|line| line.contains(pattern)).map(str::to_owned)
    }
}
