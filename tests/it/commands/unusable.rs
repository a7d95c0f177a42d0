//! Servers that cannot be reached, or that refuse us.

use std::net::TcpListener;

use super::{PASSWORD, changed, ends, no_broker, no_database};
use crate::harness::{Broker, Database, Postgres, PostgresOptions, Rabbit, RabbitOptions, Servers};
use crate::world::{World, init};

/// The commands that need both servers.
const RELAYS: [&[&str]; 2] = [&["once", "-vv"], &["status"]];

#[test]
fn an_unreachable_broker_ends_with_69_although_nothing_is_due() {
    let world = World::new();
    let url = no_broker();
    let environment = [("DATABASE_URL", world.database.url.as_str()), ("AMQP_URL", &url)];
    let output = ends(69, &["once"], &environment);
    let last = output.stderr.lines().last().unwrap();
    assert!(last.starts_with("outboxd: opening a session on broker 127.0.0.1:"), "{output:?}");
    assert!(
        last.contains("Connection refused") && last.contains("(since 20") && last.ends_with("Z)"),
        "{last}"
    );
}

#[test]
fn an_unreachable_broker_costs_no_event_anything() {
    let mut world = World::new();
    let id = world.insert("x", "{}");
    let before = world.row(id);
    let url = no_broker();
    ends(69, &["once"], &[("DATABASE_URL", &world.database.url), ("AMQP_URL", &url)]);
    assert_eq!(world.row(id), before);
    assert!(!before.attempted);
}

#[test]
fn an_unreachable_database_ends_with_69() {
    let url = no_database();
    let amqp_url = Servers::shared().amqp_url();
    let environment = [("DATABASE_URL", url.as_str()), ("AMQP_URL", amqp_url)];
    let output = ends(69, &["once"], &environment);
    let last = output.stderr.lines().last().unwrap();
    assert!(last.starts_with("outboxd: opening a session on database 127.0.0.1:"), "{output:?}");
    assert!(last.contains("Connection refused") && last.contains("(since 20"), "{last}");
    for arguments in [&["init"][..], &["enqueue", "x"], &["status"]] {
        ends(69, arguments, &environment);
    }
}

#[test]
fn a_server_that_accepts_and_says_nothing_is_given_up_after_open_timeout() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let world = World::new();
    let database = format!("postgres://app:{PASSWORD}@{address}/app");
    let broker = format!("amqp://app:{PASSWORD}@{address}/%2F");
    for (database, broker, side) in
        [(database.as_str(), world.amqp_url.as_str(), "database"), (&world.database.url, &broker, "broker")]
    {
        let environment = [("DATABASE_URL", database), ("AMQP_URL", broker)];
        let output = ends(69, &["once", "--open-timeout", "1s"], &environment);
        assert!(output.stderr.contains(&format!("opening a session on {side} {address}")), "{output:?}");
    }
}

#[test]
fn a_wrong_broker_password_ends_with_77() {
    let mut world = World::new();
    let id = world.insert("x", "{}");
    let url = changed(&world.amqp_url, |url| url.set_password(Some(PASSWORD)).unwrap());
    for arguments in RELAYS {
        let output = ends(77, arguments, &[("DATABASE_URL", &world.database.url), ("AMQP_URL", &url)]);
        let told = output.stdout + &output.stderr;
        assert!(told.contains("check user and password in AMQP_URL"), "{told}");
    }
    assert!(!world.row(id).attempted);
}

#[test]
fn an_unknown_virtual_host_ends_with_77() {
    let world = World::new();
    let url = changed(&world.amqp_url, |url| url.set_path("/nowhere"));
    for arguments in RELAYS {
        let output = ends(77, arguments, &[("DATABASE_URL", &world.database.url), ("AMQP_URL", &url)]);
        let told = output.stdout + &output.stderr;
        assert!(told.contains("nowhere") && told.contains("check the virtual host in AMQP_URL"), "{told}");
    }
}

#[test]
fn a_broker_user_without_rights_ends_with_77_or_is_refused_by_event() {
    let rabbit = Rabbit::start(&RabbitOptions::default());
    rabbit.ctl(&["add_user", "app", PASSWORD]);
    let url = rabbit.url().replace("guest:guest@", &format!("app:{PASSWORD}@"));
    let mut world = World::with_broker(&rabbit.url());
    let queue = world.queue();
    let id = world.insert(&queue, "{}");
    let environment = [("DATABASE_URL", world.database.url.clone()), ("AMQP_URL", url)];
    let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
    // Without any right on the virtual host the broker refuses the connection.
    let output = ends(77, &["once"], &environment);
    assert!(output.stderr.contains("the user's permissions"), "{output:?}");
    assert!(!world.row(id).attempted);

    // With rights on other names it refuses the event.
    rabbit.ctl(&["set_permissions", "app", "^$", "^$", "^$"]);
    let output = ends(75, &["once"], &environment);
    assert_eq!(output.stdout, "claimed 1: failed 1\n", "{output:?}");
    let row = world.row(id);
    let reason = row.last_error.unwrap_or_default();
    assert_eq!((row.status.as_str(), row.fail_count), ("FAILED", 1));
    assert!(reason.contains("ACCESS_REFUSED") && reason.contains("403"), "{reason}");
    assert!(Broker::open(&rabbit.url()).drain_ready(&queue).is_empty());
}

/// A server where the role `app` must have the password `right`.
fn guarded() -> (Postgres, Database) {
    let hba = ["host all app 127.0.0.1/32 scram-sha-256".to_owned()];
    let server = Postgres::start(&PostgresOptions { hba: hba.into(), ..PostgresOptions::default() });
    let database = server.database_from("outbox", init);
    database.connect().batch_execute("create role app login password 'right'").unwrap();
    (server, database)
}

#[test]
fn a_wrong_database_password_ends_with_77() {
    let (_server, database) = guarded();
    let url = database.url.replace("postgres@", &format!("app:{PASSWORD}@"));
    let environment = [("DATABASE_URL", url.as_str()), ("AMQP_URL", Servers::shared().amqp_url())];
    for arguments in [&["once", "-vv"][..], &["status"], &["init"], &["enqueue", "x"]] {
        let output = ends(77, arguments, &environment);
        let told = output.stdout + &output.stderr;
        assert!(told.contains("password authentication failed for user \"app\""), "{told}");
        assert!(told.contains("check user and password in DATABASE_URL"), "{told}");
    }
}

#[test]
fn a_database_role_without_rights_ends_with_77_and_with_them_it_relays() {
    let (_server, database) = guarded();
    let mut world = World::on(database, Servers::shared().amqp_url());
    let queue = world.queue();
    let id = world.insert(&queue, "{}");
    let url = world.database.url.replace("postgres@", "app:right@");
    let amqp_url = world.amqp_url.clone();
    let environment = [("DATABASE_URL", url.as_str()), ("AMQP_URL", &amqp_url)];
    let denied = "permission denied for table event_outbox (SQLSTATE 42501): grant it to the relay's role";
    for rights in ["", "grant select on event_outbox to app"] {
        world.client.batch_execute(rights).unwrap();
        let output = ends(77, &["once"], &environment);
        assert!(output.stderr.contains(denied), "{rights}: {output:?}");
    }
    assert!(ends(77, &["enqueue", "x"], &environment).stderr.contains("permission denied"));
    assert!(!world.row(id).attempted);

    // What the message asks for is enough.
    world.client.batch_execute("grant update on event_outbox to app").unwrap();
    ends(0, &["once"], &environment);
    assert_eq!(world.row(id).status, "PUBLISHED");
    world.client.batch_execute("grant insert on event_outbox to app").unwrap();
    ends(0, &["enqueue", "x"], &environment);
}

#[test]
fn a_database_that_does_not_exist_ends_with_78() {
    let servers = Servers::shared();
    let url = changed(&servers.database().url, |url| url.set_path("/nowhere"));
    let output = ends(78, &["once"], &[("DATABASE_URL", &url), ("AMQP_URL", servers.amqp_url())]);
    assert!(output.stderr.contains("database \"nowhere\" does not exist"), "{output:?}");
}
