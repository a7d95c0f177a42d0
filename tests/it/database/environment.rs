//! The address as psql's users know it: `PG*` variables and the password file stand for what the URL leaves out.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::{RUN, amqp_url, goes_on};
use crate::harness::{Output, Postgres, PostgresOptions, Proc, unique, wait_until};
use crate::world::{DEADLINE, OUTBOXD, World, init};

/// A server where `app` needs the password `right`.
fn guarded() -> (Postgres, World) {
    let hba = ["all app 127.0.0.1/32 scram-sha-256", "all app ::1/128 scram-sha-256"];
    let hba =
        hba.iter().map(|it| format!("host {it}")).chain(["local all app scram-sha-256".into()]).collect();
    let server = Postgres::start(&PostgresOptions { hba, ..PostgresOptions::default() });
    let mut world = World::on(server.database_from("outbox", init), amqp_url());
    world
        .client
        .batch_execute("create role app login password 'right'; grant all on event_outbox to app")
        .unwrap();
    (server, world)
}

/// A folder with a `.pgpass`, gone with the test.
struct Home(PathBuf);

impl Home {
    fn with(text: &str) -> Home {
        let home = Home(std::env::temp_dir().join(unique("outboxd-test-home")));
        fs::create_dir(&home.0).unwrap();
        home.write(text);
        home
    }

    fn write(&self, text: &str) {
        fs::write(self.file(), text).unwrap();
        self.mode(0o600);
    }

    fn mode(&self, mode: u32) {
        fs::set_permissions(self.file(), Permissions::from_mode(mode)).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.0.join(".pgpass")
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn enqueue(environment: &[(&str, &str)], code: i32) -> Output {
    let output = Proc::run(OUTBOXD, &["enqueue", "x"], environment, DEADLINE);
    assert_eq!(output.code, Some(code), "{environment:?}: {output:?}");
    output
}

#[test]
fn the_variables_of_psql_are_enough_and_the_url_wins() {
    let (server, mut world) = guarded();
    let port = server.port().to_string();
    let name = world.database.name.clone();
    let all = [
        ("PGHOST", "127.0.0.1"),
        ("PGPORT", port.as_str()),
        ("PGDATABASE", &name),
        ("PGUSER", "app"),
        ("PGPASSWORD", "right"),
        ("PGAPPNAME", "by-variable"),
        ("PGCONNECT_TIMEOUT", "3"),
        ("PGSSLMODE", "disable"),
        ("PGOPTIONS", "-c outboxd.seen=yes"),
    ];
    enqueue(&all, 0);
    let of_the_url = format!("postgres:///{name}");
    enqueue(&[&all[..], &[("DATABASE_URL", &of_the_url)]].concat(), 0);
    let wrong = [("PGPASSWORD", "wrong"), ("PGDATABASE", "nowhere"), ("PGPORT", "1")];
    let of_the_url = format!("postgres://app:right@127.0.0.1:{port}/{name}");
    enqueue(&[&all[..], &wrong[..], &[("DATABASE_URL", &of_the_url)]].concat(), 0);
    let pairs = format!("host=127.0.0.1 port={port} dbname={name} user=app password='right'");
    enqueue(&[("DATABASE_URL", pairs.as_str())], 0);
    // Over the socket, whose folder is the host.
    let folder = server.folder().to_str().unwrap().to_owned();
    enqueue(&[&all[1..], &[("PGHOST", &folder)]].concat(), 0);
    assert_eq!(world.client.query_one("select count(*) from event_outbox", &[]).unwrap().get::<_, i64>(0), 5);

    world.database.url = world.database.url.replace("postgres@", "app:right@");
    let environment = [&all[..], &[("AMQP_URL", amqp_url())]].concat();
    let relay = Proc::spawn(
        OUTBOXD,
        &RUN.iter().fold(vec!["run"], |all, it| [&all[..], &[it]].concat()),
        &environment,
    );
    let named = "select count(*) from pg_stat_activity where application_name = 'by-variable'";
    wait_until(&format!("its session has the name:\n{relay}"), DEADLINE, || {
        (world.client.query_one(named, &[]).unwrap().get::<_, i64>(0) > 0).then_some(())
    });
}

#[test]
fn without_a_host_nothing_is_guessed() {
    for environment in [&[("PGDATABASE", "app")][..], &[("PGUSER", "app"), ("DATABASE_URL", "")]] {
        enqueue(environment, 78);
    }
    let output = enqueue(&[("DATABASE_URL", "postgres:///app")], 78);
    assert!(output.stderr.contains("names no host"), "{output:?}");
    let output = enqueue(&[("PGHOST", "h"), ("PGSSLMODE", "hunter2")], 78);
    assert!(output.stderr.contains("PGSSLMODE") && !output.stderr.contains("hunter2"), "{output:?}");
}

#[test]
fn a_password_file_is_read_where_psql_finds_it() {
    let (server, world) = guarded();
    let port = server.port();
    let url = world.database.url.replace("postgres@", "app@");
    let line = format!("127.0.0.1:{port}:{}:app:right\n", world.database.name);
    let home = Home::with(&format!("# ours\n127.0.0.1:1:*:app:wrong\n{line}"));
    enqueue(&[("DATABASE_URL", &url), ("HOME", home.path())], 0);
    let file = home.file().to_str().unwrap().to_owned();
    enqueue(&[("DATABASE_URL", &url), ("PGPASSFILE", &file)], 0);
    enqueue(&[("DATABASE_URL", &format!("{url}?passfile={file}"))], 0);
    // The socket's folder is `localhost` in the file.
    let socket =
        format!("host={} port={port} user=app dbname={}", server.folder().display(), world.database.name);
    home.write("localhost:*:*:app:right");
    enqueue(&[("DATABASE_URL", &socket), ("HOME", home.path())], 0);

    home.write(&line);
    home.mode(0o644);
    let output = enqueue(&[("DATABASE_URL", &url), ("HOME", home.path())], 77);
    let expected = format!("the password file {file} is ignored: others may read it; its mode must be 0600");
    assert!(output.stderr.contains(&expected), "{output:?}");
    let output = enqueue(&[("DATABASE_URL", &url)], 77);
    assert!(output.stderr.contains("give one in DATABASE_URL, PGPASSWORD or a password file"), "{output:?}");
}

#[test]
fn each_server_of_a_list_has_its_own_password() {
    let (server, world) = guarded();
    let (other, _) = guarded();
    let (first, second) = (other.port(), server.port());
    let home = Home::with(&format!("127.0.0.1:{first}:*:app:wrong\n127.0.0.1:{second}:*:app:right\n"));
    let url = format!("postgres://app@127.0.0.1:{first},127.0.0.1:{second}/{}", world.database.name);
    enqueue(&[("DATABASE_URL", &url), ("HOME", home.path())], 0);
}

#[test]
fn a_password_that_changes_is_found_without_a_restart() {
    let (_server, mut world) = guarded();
    let home = Home::with("*:*:*:app:right");
    let queue = world.queue();
    let url = world.database.url.replace("postgres@", "app@");
    let environment = [("DATABASE_URL", url.as_str()), ("AMQP_URL", amqp_url()), ("HOME", home.path())];
    let mut relay = Proc::spawn(OUTBOXD, &[&["run"], &RUN[..]].concat(), &environment);
    goes_on(&mut world, &queue, &relay);
    world.client.batch_execute("alter role app password 'changed'").unwrap();
    let ended = "select count(pg_terminate_backend(pid)) from pg_stat_activity where usename = 'app'";
    world.client.query_one(ended, &[]).unwrap();
    relay.wait_for_line("password authentication failed", DEADLINE);
    home.write("*:*:*:app:changed");
    goes_on(&mut world, &queue, &relay);
}

#[test]
fn a_refused_password_says_whose_it_is() {
    let (server, world) = guarded();
    let name = &world.database.name;
    let url = format!("postgres://app@127.0.0.1:{}/{name}", server.port());
    let output = enqueue(&[("DATABASE_URL", &url), ("PGPASSWORD", "wrong")], 77);
    assert!(output.stderr.contains("the password is that of PGPASSWORD"), "{output:?}");

    let home = Home::with(&format!("127.0.0.1:{}:{name}:app:wrong\n", server.port()));
    let file = home.file();
    let output = enqueue(&[("DATABASE_URL", &url), ("HOME", home.path())], 77);
    let expected = format!("the password is that of the password file {}", file.display());
    assert!(output.stderr.contains(&expected), "{output:?}");

    home.write("127.0.0.1:1:other:app:right\n");
    let output = enqueue(&[("DATABASE_URL", &url), ("HOME", home.path())], 77);
    let expected = format!("no line of the password file {} is for host 127.0.0.1", file.display());
    assert!(output.stderr.contains(&expected), "{output:?}");
    assert!(!output.stderr.contains("right") && !output.stderr.contains("wrong"), "{output:?}");
}

#[test]
fn what_psql_would_look_at_and_this_does_not_is_named() {
    let output = enqueue(&[("PGSERVICE", "app"), ("PGSSLCRL", "")], 78);
    assert_eq!(
        output.stderr.matches("PGSERVICE is set, and outboxd does not look at it").count(),
        1,
        "{output:?}"
    );
    assert!(!output.stderr.contains("PGSSLCRL") && output.stderr.contains("PGHOST"), "{output:?}");
}
