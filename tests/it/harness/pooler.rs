//! PgBouncer, a transaction pooler, in front of a PostgreSQL server.

use std::path::PathBuf;
use std::process::Command;

use super::postgres::{AS_POSTGRES, as_server_user, run};
use super::root::{Root, find_in_path};
use super::server::{Failure, Server, free_port, is_root, retry_lost_ports, write_private};

const READY: &str = "process up";

/// A running pooler in transaction mode. It lets everyone in, and ends on drop.
pub struct Pooler {
    server: Server,
    port: u16,
}

impl Pooler {
    /// Starts a pooler for the server on this port, with further lines for its section `[pgbouncer]`.
    ///
    /// # Panics
    /// Panics when PgBouncer is not installed or does not start.
    pub fn to(postgres: u16, config: &[&str]) -> Pooler {
        let debian = PathBuf::from("/usr/sbin/pgbouncer");
        let program = find_in_path("pgbouncer")
            .or_else(|| debian.is_file().then_some(debian))
            .unwrap_or_else(|| panic!("PgBouncer is not installed; run: make prepare"));
        let started = retry_lost_ports(|| {
            let mut server = Server::new("PgBouncer", if is_root() { AS_POSTGRES } else { "" });
            let port = free_port();
            let text = format!(
                "[databases]\n* = host=127.0.0.1 port={postgres} user=postgres\n[pgbouncer]\n\
                 listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
                 pool_mode = transaction\ndefault_pool_size = 20\n{}\n",
                config.join("\n")
            );
            let file = server.folder().join("pgbouncer.ini");
            write_private(&file, &text).map_err(|error| Failure::Other(error.to_string()))?;
            if is_root() {
                let mut owner = Command::new("chown");
                run(owner.args(["-R", "postgres:postgres"]).arg(server.folder())).map_err(Failure::Other)?;
            }
            let mut command = as_server_user(&Root::machine(), &program);
            command.arg(&file);
            server.start(command, READY)?;
            Ok(Pooler { server, port })
        });
        started.unwrap_or_else(|message| panic!("{message}"))
    }

    /// The URL of a database behind it.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.server.log_path()).unwrap_or_default()
    }
}
