//! Which servers these tests run on.

use std::env;
use std::path::PathBuf;

use crate::harness::Servers;

/// `make matrix` reads what this prints: a run on the wrong servers must not pass for one on the right ones.
#[test]
fn each_server_comes_from_the_root_that_is_asked_for() {
    let servers = Servers::shared();
    let (postgres, rabbit) = servers.versions();
    println!("servers: PostgreSQL {postgres}, RabbitMQ {rabbit}");
    if servers.postgres().is_some() {
        let major = postgres.split('.').next().unwrap();
        let binaries = root("OUTBOXD_TEST_POSTGRES_ROOT").join("usr/lib/postgresql").join(major);
        assert!(binaries.is_dir(), "PostgreSQL {postgres} is not from {}", binaries.display());
    }
    if servers.rabbit().is_some() {
        let library = root("OUTBOXD_TEST_RABBITMQ_ROOT").join("usr/lib/rabbitmq/lib");
        let folder = library.join(format!("rabbitmq_server-{rabbit}"));
        assert!(folder.is_dir(), "RabbitMQ {rabbit} is not from {}", folder.display());
    }
}

fn root(variable: &str) -> PathBuf {
    env::var_os(variable).filter(|root| !root.is_empty()).map_or_else(|| "/".into(), PathBuf::from)
}
