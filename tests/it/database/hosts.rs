//! Several servers in one address: standbys are passed over, a dead or silent one does not use up the time of the next,
//! and a failover is followed.

use super::{RUN, amqp_url, goes_on, lines, port};
use crate::harness::{Behaviour, Hostile, Postgres, PostgresOptions, Proc, Servers, free_port, wait_until};
use crate::world::{DEADLINE, OUTBOXD, World, init};

fn list(ports: &[u16], database: &str) -> String {
    let hosts: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    format!("postgres://postgres@{}/{database}", hosts.join(","))
}

#[test]
fn a_failover_is_followed_and_a_standby_is_passed_over() {
    let mut primary = Postgres::start(&PostgresOptions::default());
    let mut world = World::on(primary.database_from("outbox", init), amqp_url());
    let standby = primary.standby();
    // The standby comes first, and must not be taken while it is one.
    world.database.url = list(&[standby.port(), primary.port()], &world.database.name);
    let queue = world.queue();
    world.insert(&queue, "{}");
    let mut relay = world.start(&[&RUN[..], &["-v"]].concat());
    wait_until(&format!("it is published:\n{relay}"), DEADLINE, || {
        (world.count("PUBLISHED") == 1).then_some(())
    });
    // The standby has it all.
    let mut follower =
        postgres::Client::connect(&standby.url(&world.database.name), postgres::NoTls).unwrap();
    let published = "select count(*) from event_outbox where status = 'PUBLISHED'";
    wait_until("the standby has followed", DEADLINE, || {
        (follower.query_one(published, &[]).unwrap().get::<_, i64>(0) == 1).then_some(())
    });
    primary.kill();
    let line = relay.wait_for_line("nothing is claimed and no attempt is spent", DEADLINE);
    let (last, of_standby) = (world.database.url.clone(), format!("127.0.0.1:{}", standby.port()));
    wait_until(&format!("both are tried:\n{relay}"), DEADLINE, || {
        (lines(&relay, "msg=\"still in trouble\"") > 3).then_some(())
    });
    let told = relay.output().1;
    assert!(told.contains(&of_standby) && told.contains("database does not allow writes"), "{line}\n{told}");
    assert!(!told.contains(&last), "{told}");
    // A pause of 200 ms that doubles: no more than that many tries in the time until here.
    assert!(lines(&relay, "msg=\"still in trouble\"") < 12, "{relay}");
    follower.query_one("select pg_promote()", &[]).unwrap();
    relay.wait_for_line("the database is usable again after", DEADLINE);
    world.client = follower;
    goes_on(&mut world, &queue, &relay);
    assert_eq!(world.arrivals(&queue).len(), 2);
}

#[test]
fn a_standby_alone_is_told_from_a_server_that_is_ill() {
    let primary = Postgres::start(&PostgresOptions::default());
    let database = primary.database_from("outbox", init);
    let standby = primary.standby();
    let url = standby.url(&database.name);
    let environment = [("DATABASE_URL", url.as_str()), ("AMQP_URL", amqp_url())];
    for arguments in [&["once"][..], &["enqueue", "x"]] {
        let output = Proc::run(OUTBOXD, arguments, &environment, DEADLINE);
        assert_eq!(output.code, Some(69), "{output:?}");
        assert!(output.stderr.contains("the server takes no writes; is it a standby?"), "{output:?}");
    }
}

/// It answers, and would even let itself be overruled, but an operator has closed it for writing.
#[test]
fn a_server_that_is_closed_for_writing_is_passed_over_and_one_that_becomes_so_is_left() {
    let server = Postgres::start(&PostgresOptions::default());
    let mut world = World::new();
    let open = port(&world.database.url);
    let mut admin = postgres::Client::connect(&server.url("postgres"), postgres::NoTls).unwrap();
    admin.batch_execute(&format!("create database {}", world.database.name)).unwrap();
    init(&server.url(&world.database.name));
    world.database.url = list(&[server.port(), open], &world.database.name);
    let queue = world.queue();
    let relay = world.start(&RUN);
    let on_first = "select count(*) from pg_stat_activity where application_name = 'outboxd'";
    wait_until(&format!("it works on the first:\n{relay}"), DEADLINE, || {
        (admin.query_one(on_first, &[]).unwrap().get::<_, i64>(0) > 0).then_some(())
    });
    let id = world.insert(&queue, "{}");
    admin.batch_execute("alter system set default_transaction_read_only = on").unwrap();
    admin.batch_execute("select pg_reload_conf()").unwrap();
    // When its sessions have served their time.
    wait_until(&format!("it works on the second:\n{relay}"), DEADLINE * 2, || {
        (world.row(id).status == "PUBLISHED").then_some(())
    });
    let id = world.insert(&queue, "{}");
    world.once(&["--min-age", "0s"], 0);
    assert_eq!(world.row(id).status, "PUBLISHED");
}

#[test]
fn a_dead_and_a_silent_server_leave_time_for_the_third() {
    let silent = Hostile::start(Behaviour::Silent);
    let mut world = World::new();
    let queue = world.queue();
    let id = world.insert(&queue, "{}");
    let hosts = [free_port(), silent.port(), port(&world.database.url)];
    world.database.url = list(&hosts, &world.database.name);
    let started = std::time::Instant::now();
    world.once(&["--open-timeout", "4s"], 0);
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
    assert_eq!(world.row(id).status, "PUBLISHED");
    assert!(silent.accepted() > 0);
}

#[test]
fn when_no_server_can_be_used_each_is_named_with_its_reason_within_the_time() {
    let silent = Hostile::start(Behaviour::Silent);
    let dead = free_port();
    let missing = port(&Servers::shared().database().url);
    let url = list(&[dead, silent.port(), missing], "nowhere");
    let environment = [("DATABASE_URL", url.as_str()), ("AMQP_URL", amqp_url())];
    let started = std::time::Instant::now();
    let output = Proc::run(OUTBOXD, &["once", "--open-timeout", "3s"], &environment, DEADLINE);
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
    assert_eq!(output.code, Some(69), "{output:?}");
    let line = output.stderr.lines().last().unwrap();
    for expected in [
        format!("127.0.0.1:{dead} failed: error connecting to server"),
        format!("127.0.0.1:{} took longer than", silent.port()),
        "database \"nowhere\" does not exist".into(),
    ] {
        assert!(line.contains(&expected), "{expected}: {line}");
    }
}
