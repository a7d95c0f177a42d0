//! The database's server, and what stands before it.

use super::Told;
use crate::harness::{Pooler, Postgres, PostgresOptions, Proc, Servers};
use crate::world::{DEADLINE, OUTBOXD, World, init};

fn port(url: &str) -> u16 {
    url::Url::parse(url).unwrap().port().unwrap()
}

#[test]
fn a_wrong_password_and_a_missing_database_are_told_apart() {
    let hba = ["host all app 127.0.0.1/32 scram-sha-256".to_owned()];
    let server = Postgres::start(&PostgresOptions { hba: hba.into(), ..PostgresOptions::default() });
    let database = server.database_from("outbox", init);
    database.connect().batch_execute("create role app login password 'right'").unwrap();
    let amqp_url = Servers::shared().amqp_url();
    let wrong = database.url.replace("postgres@", &format!("app:{}@", super::PASSWORD));
    let told = Told::by(&[], &[("DATABASE_URL", &wrong), ("AMQP_URL", amqp_url)]);
    told.ends(77).is("database", "error", &["password authentication failed", "check user and password"]);
    let missing = server.url("nowhere");
    let told = Told::by(&[], &[("DATABASE_URL", &missing), ("AMQP_URL", amqp_url)]);
    told.ends(78).is("database", "error", &["\"nowhere\" does not exist", "check the database's name"]);
}

#[test]
fn a_standby_takes_no_writes_and_is_looked_at_all_the_same() {
    let server = Postgres::start(&PostgresOptions::default());
    let database = server.database_from("outbox", init);
    let standby = server.standby();
    let (url, amqp_url) = (standby.url(&database.name), Servers::shared().amqp_url());
    let told = Told::by(&[], &[("DATABASE_URL", &url), ("AMQP_URL", amqp_url)]);
    told.ends(69).is("database", "ok", &["a standby"]).is("writable", "error", &["is it a standby?"]);
    told.is("indexes", "ok", &[]).is("grants", "ok", &[]).is("table", "ok", &[]);
}

#[test]
fn a_role_that_reads_only_by_default_may_write_when_asked() {
    let world = World::new();
    let url = format!("{}?options=-c%20default_transaction_read_only%3Don", world.database.url);
    let told = Told::by(&[], &[("DATABASE_URL", &url), ("AMQP_URL", &world.amqp_url)]);
    told.ends(0).is("writable", "ok", &[]);
}

#[test]
fn a_zone_that_the_server_does_not_know_is_an_error_of_its_own() {
    let world = World::new();
    let told = Told::of(&world, &["--time-zone", "Mars/Olympus"]);
    told.ends(78).is("time_zone", "error", &["Mars/Olympus", "check time_zone"]);
    told.is("plan", "ok", &[]).is("table", "ok", &[]);
    let told = Told::of(&world, &["--time-zone", "Asia/Tokyo"]);
    told.ends(0).is("time_zone", "ok", &["Asia/Tokyo"]);
}

#[test]
fn times_without_a_zone_are_warned_of_until_theirs_is_named() {
    let mut world = World::new();
    world.client.batch_execute("alter table event_outbox alter created_at type timestamp").unwrap();
    let told = Told::of(&world, &[]);
    let found = told.ends(0).about("time_zone");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[1].0 == "warning" && found[1].1.contains("(created_at)"), "{found:?}");
    assert!(found[1].2.contains("set time_zone"), "{found:?}");
    Told::of(&world, &["--time-zone", "UTC"]).ends(0).is("time_zone", "ok", &["UTC"]);
}

#[test]
fn a_pooler_is_noticed_and_is_no_trouble_by_itself() {
    let mut world = World::new();
    let pooler = Pooler::to(port(&world.database.url), &[]);
    world.database.url = pooler.url(&world.database.name);
    let told = Told::of(&world, &[]);
    told.ends(0).is("pooler", "ok", &["one is in between", "directly"]).is("plan", "ok", &["goes along"]);
    // One that drops what it does not pass on.
    let pooler =
        Pooler::to(port(&Servers::shared().database().url), &["ignore_startup_parameters = options"]);
    world.database.url = pooler.url(&world.database.name);
    Told::of(&world, &[]).ends(0).is("pooler", "ok", &["one is in between"]);
}

/// A role that sees no times of others' sessions goes by transactions, of which there can be many without waiting.
#[test]
fn an_old_snapshot_is_told_with_what_ends_it() {
    let server = Postgres::start(&PostgresOptions::default());
    let mut world = World::on(server.database_from("outbox", init), Servers::shared().amqp_url());
    let sql =
        "create role app login; grant select, update on event_outbox to app; create table t (n integer)";
    world.client.batch_execute(sql).unwrap();
    let url = world.database.url.replace("postgres@", "app@");
    let environment = [("DATABASE_URL", url.as_str()), ("AMQP_URL", &world.amqp_url.clone())];
    let mut holder = world.database.connect();
    holder.batch_execute("begin isolation level repeatable read; select count(*) from event_outbox").unwrap();
    let pid: i32 = holder.query_one("select pg_backend_pid()", &[]).unwrap().get(0);
    let sql = "do $$ begin for n in 1..100001 loop
        begin insert into t values (n); exception when others then raise; end;
    end loop; end $$";
    world.client.batch_execute(sql).unwrap();
    let told = Told::by(&[], &environment);
    let remedy = format!("select pg_terminate_backend({pid})");
    told.ends(0).is("snapshots", "warning", &["old snapshot", &format!("session {pid}"), &remedy]);
    holder.batch_execute("rollback").unwrap();
    Told::by(&[], &environment).ends(0).is("snapshots", "ok", &["none"]);
}

#[test]
fn a_notify_is_sent_and_heard_and_the_trigger_is_asked_for() {
    let world = World::new();
    let told = Told::of(&world, &["--listen"]);
    told.ends(0).is("trigger", "warning", &["no trigger", "outboxd init --notify"]);
    told.is("notify", "ok", &["outboxd_", "was heard after"]);
    let made = Proc::run(OUTBOXD, &["init", "--notify"], &[("DATABASE_URL", &world.database.url)], DEADLINE);
    assert_eq!(made.code, Some(0), "{made:?}");
    Told::of(&world, &["--listen"]).ends(0).is("trigger", "ok", &["tells"]);
    Told::of(&world, &[]).lacks("trigger").lacks("notify");
}

#[test]
fn a_notify_that_a_pooler_swallows_is_a_warning_and_listen_url_mends_it() {
    let mut world = World::new();
    let direct = world.database.url.clone();
    let pooler = Pooler::to(port(&direct), &[]);
    world.database.url = pooler.url(&world.database.name);
    let told = Told::of(&world, &["--listen"]);
    told.ends(0).is("notify", "warning", &["was not heard within 5s", "set listen_url"]);
    Told::of(&world, &["--listen", "--listen-url", &direct]).ends(0).is("notify", "ok", &["was heard"]);
    let nowhere = format!("postgres://app:{}@127.0.0.1:1/app", super::PASSWORD);
    let told = Told::of(&world, &["--listen", "--listen-url", &nowhere]);
    told.ends(69).is("notify", "error", &["127.0.0.1:1"]).is("alarms", "ok", &[]);
}
