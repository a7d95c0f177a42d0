//! A PostgreSQL server of the tests' own.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::database::{Cluster, Database};
use super::root::Root;
use super::server::{Failure, Server, free_port, is_root, retry_lost_ports, write_private};

/// PostgreSQL refuses to run as root, so root hands over to the user that the package has made.
pub(super) const AS_POSTGRES: &str = "setpriv --reuid postgres --regid postgres --clear-groups";

/// Names a folder with the `/usr` of another Debian release, whose PostgreSQL is then taken.
const ROOT_VARIABLE: &str = "OUTBOXD_TEST_POSTGRES_ROOT";

const READY: &str = "database system is ready to accept connections";

const STANDBY_READY: &str = "database system is ready to accept read-only connections";

const STOP_DEADLINE: Duration = Duration::from_secs(60);

/// How a server differs from the default one.
#[derive(Clone, Default)]
pub struct PostgresOptions {
    /// Keeps fsync on, as a benchmark needs it. Tests kill processes, not machines, so they go without.
    pub durable: bool,
    /// Lines for `postgresql.conf`. In them, `{folder}` stands for the server's private folder.
    pub config: Vec<String>,
    /// Lines for `pg_hba.conf`; they come before the line that trusts everyone.
    pub hba: Vec<String>,
    /// Files for the private folder, as name and text, such as certificates.
    pub files: Vec<(String, String)>,
}

/// PostgreSQL's programs, and where they run.
#[derive(Clone)]
struct Programs {
    root: Root,
    folder: PathBuf,
}

impl Programs {
    fn command(&self, program: &str) -> Command {
        as_server_user(&self.root, &self.folder.join(program))
    }
}

/// A running PostgreSQL server. It ends, and its data is removed, on drop.
pub struct Postgres {
    server: Server,
    programs: Programs,
    port: u16,
    cluster: Cluster,
}

impl Postgres {
    /// Starts a server.
    ///
    /// # Panics
    /// Panics when the server is not installed or does not start.
    pub fn start(options: &PostgresOptions) -> Postgres {
        Postgres::try_start(options, true).unwrap_or_else(|message| panic!("{message}"))
    }

    pub(super) fn try_start(options: &PostgresOptions, disposable: bool) -> Result<Postgres, String> {
        let root = Root::given_by(ROOT_VARIABLE);
        let folder = root
            .find("/usr/lib/postgresql", "", "bin", "postgres")
            .ok_or("the PostgreSQL server is not installed; run: make prepare")?;
        let programs = Programs { root, folder };
        retry_lost_ports(|| {
            let mut server = Server::new("PostgreSQL", if is_root() { AS_POSTGRES } else { "" });
            init(&server, &programs, options).map_err(Failure::Other)?;
            let port = free_port();
            server.start(command(&server, &programs, port), READY)?;
            let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
            Ok(Postgres { server, programs: programs.clone(), port, cluster: Cluster::new(url, disposable) })
        })
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a database on this server, for the superuser.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The private folder; it holds the unix socket too.
    pub fn folder(&self) -> &Path {
        self.server.folder()
    }

    pub fn log_path(&self) -> PathBuf {
        self.server.log_path()
    }

    /// A new empty database.
    pub fn database(&self) -> Database {
        self.cluster.database()
    }

    /// A new database with what `prepare` has made once for this template name.
    pub fn database_from(&self, template: &str, prepare: fn(&str)) -> Database {
        self.cluster.database_from(template, prepare)
    }

    /// Ends the server as an administrator does (`fast`): sessions are closed, data is written.
    pub fn stop(&mut self) {
        self.server.stop("INT", STOP_DEADLINE);
    }

    /// Ends the server with another signal: `TERM` waits until all sessions are gone (`smart`), `QUIT` ends them as a
    /// crash does (`immediate`).
    pub fn stop_by(&mut self, signal: &str) {
        self.server.stop(signal, STOP_DEADLINE);
    }

    /// A standby of this server: a copy that follows it, and takes no writes until it is promoted.
    pub fn standby(&self) -> Postgres {
        let started = retry_lost_ports(|| {
            let mut server = Server::new("PostgreSQL (standby)", if is_root() { AS_POSTGRES } else { "" });
            copy(&server, &self.programs, self.port).map_err(Failure::Other)?;
            let port = free_port();
            server.start(command(&server, &self.programs, port), STANDBY_READY)?;
            let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
            Ok(Postgres { server, programs: self.programs.clone(), port, cluster: Cluster::new(url, true) })
        });
        started.unwrap_or_else(|message| panic!("{message}"))
    }

    /// Ends the server as a crash does, with SIGKILL for all of its processes.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Stops all of the server's processes, so that it holds its connections open but does nothing.
    pub fn freeze(&self) {
        self.server.guard().signal_all("STOP");
    }

    /// Lets a frozen server go on.
    pub fn thaw(&self) {
        self.server.guard().signal_all("CONT");
    }

    /// Starts the server again after `stop` or `kill`, with the same port and data. If it runs, it is stopped first.
    pub fn restart(&mut self) {
        self.stop();
        let command = command(&self.server, &self.programs, self.port);
        if let Err(Failure::PortLost(message) | Failure::Other(message)) = self.server.start(command, READY) {
            panic!("{message}");
        }
    }
}

/// Makes the data folder.
fn init(server: &Server, programs: &Programs, options: &PostgresOptions) -> Result<(), String> {
    let folder = server.folder();
    let data = folder.join("data");
    for (name, text) in &options.files {
        write_private(&folder.join(name), text).map_err(|error| format!("cannot write {name}: {error}"))?;
    }
    if is_root() {
        run(Command::new("chown").args(["-R", "postgres:postgres"]).arg(folder))?;
    }
    let mut initdb = programs.command("initdb");
    server.guard().adopt(&mut initdb);
    initdb
        .args(["-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8", "-D"])
        .arg(&data);
    run(initdb.current_dir(folder))?;

    let mut config = vec![
        "listen_addresses = '127.0.0.1'".to_owned(),
        "unix_socket_directories = '{folder}'".to_owned(),
        "max_connections = 200".to_owned(),
        "log_destination = 'stderr'".to_owned(),
        "logging_collector = off".to_owned(),
        // The guard recognises the server's children by it.
        format!("cluster_name = '{}'", server.guard().mark()),
        // Inside the folder, so that nothing stays in /dev/shm after a crash.
        "dynamic_shared_memory_type = mmap".to_owned(),
    ];
    if !options.durable {
        config
            .extend(["fsync = off", "synchronous_commit = off", "full_page_writes = off"].map(String::from));
    }
    config.extend(options.config.iter().cloned());
    let config = config.join("\n").replace("{folder}", &folder.to_string_lossy());
    let written = append(&data.join("postgresql.conf"), &config).and_then(|()| {
        let hba = data.join("pg_hba.conf");
        let trust = fs::read_to_string(&hba)?;
        fs::write(&hba, format!("{}\n{trust}", options.hba.join("\n")))
    });
    written.map_err(|error| format!("cannot configure PostgreSQL: {error}"))
}

/// Copies a running server's data, and makes it a standby's.
fn copy(server: &Server, programs: &Programs, port: u16) -> Result<(), String> {
    let (folder, data) = (server.folder(), server.folder().join("data"));
    if is_root() {
        run(Command::new("chown").args(["-R", "postgres:postgres"]).arg(folder))?;
    }
    let mut backup = programs.command("pg_basebackup");
    server.guard().adopt(&mut backup);
    backup.args(["-h", "127.0.0.1", "-U", "postgres", "-R", "--no-sync", "-c", "fast", "-p"]);
    run(backup.arg(port.to_string()).arg("-D").arg(&data).current_dir(folder))?;
    // The last line of a name counts; the copy has the other server's.
    let own = [
        format!("unix_socket_directories = '{}'", folder.display()),
        format!("cluster_name = '{}'", server.guard().mark()),
    ];
    append(&data.join("postgresql.conf"), &own.join("\n"))
        .map_err(|error| format!("cannot configure the standby: {error}"))
}

fn command(server: &Server, programs: &Programs, port: u16) -> Command {
    let mut command = programs.command("postgres");
    command.arg("-D").arg(server.folder().join("data")).args(["-p", &port.to_string()]);
    command
}

/// A command with a clean environment, run by the server's user. Messages are in English, for `READY`.
pub(super) fn as_server_user(root: &Root, program: &Path) -> Command {
    let mut command = if is_root() {
        let mut words = AS_POSTGRES.split(' ');
        let mut command = root.command(words.next().unwrap_or_default());
        command.args(words).arg(program);
        command
    } else {
        root.command(program)
    };
    command.env("LC_ALL", "C");
    command
}

pub(super) fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr)))
}

fn append(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = fs::OpenOptions::new().append(true).open(path)?;
    writeln!(file, "{text}")
}
