//! A RabbitMQ broker of the tests' own.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, io};

use super::root::Root;
use super::server::{Failure, Server, free_port, retry_lost_ports, write_private};

/// Names a folder with the `/usr` of another Debian release, whose RabbitMQ is then taken.
const ROOT_VARIABLE: &str = "OUTBOXD_TEST_RABBITMQ_ROOT";

const READY: &str = "Server startup complete";

const STOP_DEADLINE: Duration = Duration::from_secs(60);

/// How a broker differs from the default one.
#[derive(Clone, Default)]
pub struct RabbitOptions {
    /// Lines for `rabbitmq.conf`. In them, `{folder}` stands for the broker's private folder.
    pub config: Vec<String>,
    /// Files for the private folder, as name and text, such as certificates.
    pub files: Vec<(String, String)>,
}

/// A running RabbitMQ broker. It ends, and its data is removed, on drop.
pub struct Rabbit {
    server: Server,
    root: Root,
    scripts: PathBuf,
    ports: Ports,
}

/// Each broker has its own of everything: a port mapper shared with others would outlive it.
struct Ports {
    amqp: u16,
    distribution: u16,
    mapper: u16,
}

impl Rabbit {
    /// Starts a broker. It takes several seconds, most of them for loading code.
    ///
    /// # Panics
    /// Panics when the broker is not installed or does not start.
    pub fn start(options: &RabbitOptions) -> Rabbit {
        Rabbit::try_start(options).unwrap_or_else(|message| panic!("{message}"))
    }

    pub(super) fn try_start(options: &RabbitOptions) -> Result<Rabbit, String> {
        let root = Root::given_by(ROOT_VARIABLE);
        // RabbitMQ's own scripts. The ones in PATH on Debian are wrappers that change the user.
        let scripts = root
            .find("/usr/lib/rabbitmq/lib", "rabbitmq_server-", "sbin", "rabbitmq-server")
            .ok_or("the RabbitMQ broker is not installed; run: make prepare")?;
        retry_lost_ports(|| {
            let ports = Ports { amqp: free_port(), distribution: free_port(), mapper: free_port() };
            let server = Server::new("RabbitMQ", "");
            init(&server, &ports, options)
                .map_err(|error| Failure::Other(format!("cannot configure RabbitMQ: {error}")))?;
            let mut rabbit = Rabbit { server, root: root.clone(), scripts: scripts.clone(), ports };
            rabbit.run()?;
            Ok(rabbit)
        })
    }

    fn run(&mut self) -> Result<(), Failure> {
        let mut command = self.command("rabbitmq-server");
        // With this variable the script becomes the broker instead of waiting for it, so that the
        // process we started is the broker itself. The argument stands in for what it then leaves out.
        command.env("RABBITMQ_ALLOW_INPUT", "1").arg("-noinput");
        self.server.start(command, READY)
    }

    pub fn port(&self) -> u16 {
        self.ports.amqp
    }

    /// The URL of the default virtual host, for the default user.
    pub fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2F", self.ports.amqp)
    }

    /// The Erlang node's name.
    pub fn node(&self) -> String {
        format!("{}@localhost", self.server.guard().mark())
    }

    pub fn folder(&self) -> &Path {
        self.server.folder()
    }

    pub fn log_path(&self) -> PathBuf {
        self.server.log_path()
    }

    /// Runs `rabbitmqctl` against this broker and returns what it printed. It takes about half a second.
    ///
    /// # Panics
    /// Panics when the command fails.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        let mut command = self.command("rabbitmqctl");
        self.server.guard().adopt(&mut command);
        let output = command.arg("--quiet").args(arguments).stdin(Stdio::null()).output();
        let output = output.unwrap_or_else(|error| panic!("cannot run rabbitmqctl: {error}"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "rabbitmqctl {arguments:?} failed: {text}{errors}");
        text
    }

    /// Evaluates an Erlang expression (with its full stop) in the broker, and returns the printed value.
    /// It takes a few milliseconds where `erl_call` is installed, otherwise it goes through `rabbitmqctl`.
    pub fn eval(&self, expression: &str) -> String {
        let Some(folder) = self.root.newest("/usr/lib/erlang/lib", "erl_interface-", "bin", "erl_call")
        else {
            return self.ctl(&["eval", expression]).trim().to_owned();
        };
        let cookie = fs::read_to_string(self.folder().join(".erlang.cookie")).unwrap_or_default();
        let mut command = self.root.command(folder.join("erl_call"));
        command.env("ERL_EPMD_PORT", self.ports.mapper.to_string());
        command.args(["-c", &cookie, "-n", &self.node(), "-e"]);
        let output = feed(&mut command, expression);
        let output = output.unwrap_or_else(|error| panic!("cannot run erl_call: {error}"));
        let text = String::from_utf8_lossy(&output).trim().to_owned();
        let value = text.strip_prefix("{ok, ").and_then(|text| text.strip_suffix('}'));
        value.unwrap_or_else(|| panic!("{expression} failed: {text}")).to_owned()
    }

    /// Raises or clears the memory alarm; while it lasts, the broker reads nothing from publishers.
    pub fn memory_alarm(&self, on: bool) {
        let alarm = "{{resource_limit, memory, node()}, []}";
        if on {
            self.eval(&format!("rabbit_alarm:set_alarm({alarm})."));
        } else {
            self.eval("rabbit_alarm:clear_alarm({resource_limit, memory, node()}).");
        }
    }

    /// Ends the broker as an administrator does: connections are closed, data is written.
    pub fn stop(&mut self) {
        self.server.stop("TERM", STOP_DEADLINE);
    }

    /// Ends the broker as a crash does, with SIGKILL.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Stops the broker's processes, so that it holds its connections open but does nothing.
    pub fn freeze(&self) {
        self.server.guard().signal_all("STOP");
    }

    /// Lets a frozen broker go on.
    pub fn thaw(&self) {
        self.server.guard().signal_all("CONT");
    }

    /// Starts the broker again after `stop` or `kill`, with the same ports and data. If it runs, it is stopped first.
    pub fn restart(&mut self) {
        self.stop();
        if let Err(Failure::PortLost(message) | Failure::Other(message)) = self.run() {
            panic!("{message}");
        }
    }

    /// One of RabbitMQ's scripts in a clean environment that says where everything of this broker is.
    fn command(&self, script: &str) -> Command {
        let folder = self.folder();
        let mut command = self.root.command(self.scripts.join(script));
        command.current_dir(folder).env("HOME", folder).env("LANG", "C.UTF-8");
        command.env("ERL_EPMD_ADDRESS", "127.0.0.1").env("ERL_EPMD_PORT", self.ports.mapper.to_string());
        command.env("RABBITMQ_NODENAME", self.node());
        command.env("RABBITMQ_DIST_PORT", self.ports.distribution.to_string());
        command.env("RABBITMQ_CONFIG_FILE", folder.join("rabbitmq.conf"));
        command.env("RABBITMQ_ENABLED_PLUGINS_FILE", folder.join("enabled_plugins"));
        command.env("RABBITMQ_MNESIA_BASE", folder.join("mnesia"));
        command.env("RABBITMQ_LOG_BASE", folder.join("log"));
        // Standard output only, without colours.
        command.env("RABBITMQ_LOGS", "-").env("RABBITMQ_LOG", "-color");
        // The machine's own settings are for the machine's own broker.
        command.env("RABBITMQ_CONF_ENV_FILE", "/dev/null");
        // The schedulers stay as they are: with one instead of one per core, boot time and throughput
        // were the same on a machine with two cores, and this is how brokers run elsewhere.
        let loopback = "-kernel inet_dist_use_interface {127,0,0,1}";
        command.env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", loopback).env("RABBITMQ_CTL_ERL_ARGS", loopback);
        // The command-line tools listen too; zero lets them take any free port.
        command.env("RABBITMQ_CTL_DIST_PORT_MIN", "0").env("RABBITMQ_CTL_DIST_PORT_MAX", "0");
        command
    }
}

fn init(server: &Server, ports: &Ports, options: &RabbitOptions) -> io::Result<()> {
    let folder = server.folder();
    for (name, text) in &options.files {
        write_private(&folder.join(name), text)?;
    }
    let mut config = vec![
        format!("listeners.tcp.1 = 127.0.0.1:{}", ports.amqp),
        // The machine's disk is not the tests' business.
        "disk_free_limit.absolute = 50MB".to_owned(),
    ];
    config.extend(options.config.iter().cloned());
    let config = config.join("\n").replace("{folder}", &folder.to_string_lossy());
    fs::write(folder.join("rabbitmq.conf"), config + "\n")?;
    // No plugins: each would bring a listener on a fixed port, and seconds of boot time.
    fs::write(folder.join("enabled_plugins"), "[].\n")
}

/// Runs a command with this text as its input, and returns its output.
fn feed(command: &mut Command, text: &str) -> io::Result<Vec<u8>> {
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    // The input is closed at the end of this statement, which is the end of the expression.
    process.stdin.take().map_or(Ok(()), |mut input| writeln!(input, "{text}"))?;
    Ok(process.wait_with_output()?.stdout)
}
