//! A commit wakes the relay; where it is not heard, polling goes on and the log says so, once.

use std::time::{Duration, Instant};

use outboxd::config::Config;
use outboxd::relay::{Relay, Stop, WakeUp};

use crate::harness::{Database, Pooler, Proc, Servers, wait_until};
use crate::world::{DEADLINE, OUTBOXD, World};

mod trouble;

/// Woken or not at all: no beat comes within a test.
const WOKEN: [&str; 3] = ["--listen", "--interval", "1h"];

/// What the log says when it works.
const HEARD: &str = "commits are heard on outboxd_";

/// A world whose table has the trigger.
fn world() -> World {
    World::on(Servers::shared().database_from("notifying", init_notify), Servers::shared().amqp_url())
}

fn init_notify(database_url: &str) {
    let made = Proc::run(OUTBOXD, &["init", "--notify"], &[("DATABASE_URL", database_url)], DEADLINE);
    assert_eq!(made.code, Some(0), "{made:?}");
}

/// An event of now, as an application writes it.
fn write(world: &mut World, event_type: &str) -> i64 {
    world.insert_with(event_type, "{}", "created_at", "clock_timestamp()")
}

fn is_published(world: &mut World, id: i64, relay: &Proc) {
    wait_until(&format!("event {id} is published:\n{relay}"), DEADLINE, || {
        (world.row(id).status == "PUBLISHED").then_some(())
    });
}

/// Ends every session on this database but the caller's.
fn terminate_others(world: &mut World) {
    let sql = "select count(pg_terminate_backend(pid)) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()";
    let ended: i64 = world.client.query_one(sql, &[]).unwrap().get(0);
    assert!(ended > 0);
}

#[test]
fn a_commit_wakes_the_relay_and_min_age_is_zero_then() {
    let mut world = world();
    let queue = world.queue();
    let mut relay = world.start(&WOKEN);
    relay.wait_for_line(HEARD, DEADLINE);
    for _ in 0..3 {
        let id = write(&mut world, &queue);
        is_published(&mut world, id, &relay);
    }
    assert_eq!(world.arrivals(&queue).len(), 3);
    assert!(!relay.output().1.contains("level=warn "), "{relay}");
}

#[test]
fn what_is_rolled_back_wakes_nobody_and_min_age_may_be_set_all_the_same() {
    let mut world = world();
    let queue = world.queue();
    let mut relay = world.start(&[&WOKEN[..], &["--min-age", "1h"]].concat());
    relay.wait_for_line(HEARD, DEADLINE);
    let young = write(&mut world, &queue);
    world.client.batch_execute("begin").unwrap();
    world.insert(&queue, "{}");
    world.client.batch_execute("rollback").unwrap();
    let old = world.insert(&queue, "{}");
    is_published(&mut world, old, &relay);
    assert_eq!(world.row(young).status, "WAITING");
    assert_eq!(world.arrivals(&queue).len(), 1);
}

#[test]
fn without_the_trigger_a_notify_of_the_application_will_do_and_the_log_says_what_is_missing() {
    let mut world = World::new();
    let queue = world.queue();
    let mut relay = world.start(&WOKEN);
    relay.wait_for_line(HEARD, DEADLINE);
    relay.wait_for_line("run outboxd init --notify", DEADLINE);
    let id = write(&mut world, &queue);
    let sql = "select pg_notify('outboxd_' || 'event_outbox'::regclass::oid, '')";
    world.client.batch_execute(sql).unwrap();
    is_published(&mut world, id, &relay);
}

#[test]
fn a_listener_whose_connection_is_killed_listens_on_a_new_one() {
    let mut world = world();
    let queue = world.queue();
    let mut relay = world.start(&WOKEN);
    relay.wait_for_line(HEARD, DEADLINE);
    for _ in 0..5 {
        terminate_others(&mut world);
        let id = write(&mut world, &queue);
        is_published(&mut world, id, &relay);
    }
    assert_eq!(world.arrivals(&queue).len(), 5);
}

#[test]
fn a_listener_that_has_gone_deaf_is_found_said_and_replaced() {
    let mut world = world();
    let queue = world.queue();
    let mut relay = world.start(&WOKEN);
    relay.wait_for_line(HEARD, DEADLINE);
    // Another table of that name has another channel.
    world.client.batch_execute("drop table event_outbox").unwrap();
    init_notify(&world.database.url);
    relay.wait_for_line("has gone deaf", DEADLINE);
    // The next two are told on the new channel; the first may still be found by the nudge of the new listener.
    for _ in 0..2 {
        let id = write(&mut world, &queue);
        is_published(&mut world, id, &relay);
    }
    assert_eq!(relay.output().1.matches("has gone deaf").count(), 1, "{relay}");
}

/// The same database behind a transaction pooler, where LISTEN is taken and nothing is ever heard.
fn behind_a_pooler(database: &mut Database) -> Pooler {
    let port = postgres_port(&database.url);
    let pooler = Pooler::to(port, &[]);
    database.url = pooler.url(&database.name);
    pooler
}

fn postgres_port(url: &str) -> u16 {
    let (_, rest) = url.rsplit_once(':').unwrap();
    rest.split(['/', '?']).next().unwrap().parse().unwrap()
}

#[test]
fn a_transaction_pooler_is_found_and_polled_around() {
    let mut world = world();
    let queue = world.queue();
    let _pooler = behind_a_pooler(&mut world.database);
    let mut relay = world.start(&["--listen", "--interval", "500ms"]);
    relay.wait_for_line("is a transaction pooler in between? set listen_url", DEADLINE);
    let id = write(&mut world, &queue);
    is_published(&mut world, id, &relay);
    assert!(!relay.output().1.contains(HEARD), "{relay}");
}

#[test]
fn listen_url_leads_around_the_pooler() {
    let mut world = world();
    let queue = world.queue();
    let direct = world.database.url.clone();
    let _pooler = behind_a_pooler(&mut world.database);
    let mut relay = world.start(&[&WOKEN[..], &["--listen-url", &direct]].concat());
    relay.wait_for_line(HEARD, DEADLINE);
    for _ in 0..2 {
        let id = write(&mut world, &queue);
        is_published(&mut world, id, &relay);
    }
}

#[test]
fn a_listener_that_cannot_be_opened_is_said_once_and_events_flow() {
    let mut world = world();
    let queue = world.queue();
    let nowhere = "postgres://postgres@127.0.0.1:1/x";
    let mut relay = world.start(&["-v", "--listen", "--interval", "300ms", "--listen-url", nowhere]);
    relay.wait_for_line("level=debug msg=\"still: commits are not heard", DEADLINE);
    let id = write(&mut world, &queue);
    is_published(&mut world, id, &relay);
    assert_eq!(relay.output().1.matches("level=warn msg=\"commits are not heard").count(), 1, "{relay}");
}

#[test]
fn a_relay_that_listens_stops_at_once_and_one_in_a_host_with_its_own_loop_is_woken() {
    let mut world = world();
    let queue = world.queue();
    let config = Config::new(&world.database.url, &world.amqp_url).unwrap().listening();
    let stop = Stop::new();
    let wake_up = WakeUp::start(&config, &stop).unwrap();
    let mut relay = Relay::new(config);
    let id = write(&mut world, &queue);
    let until = Instant::now() + DEADLINE;
    while world.row(id).status != "PUBLISHED" && Instant::now() < until {
        stop.wait_for_nudge(until);
        relay.tick(&stop);
    }
    assert_eq!(world.row(id).status, "PUBLISHED");
    let began = Instant::now();
    drop(wake_up);
    relay.close();
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[test]
fn init_notify_may_run_again_is_printed_and_leaves_a_foreign_function_alone() {
    let mut world = World::new();
    let says = |arguments: &[&str], code: i32| {
        let output = world.outboxd(arguments);
        assert_eq!(output.code, Some(code), "{output:?}");
        output.stdout + &output.stderr
    };
    let notify = ["init", "--notify"];
    assert!(says(&notify, 0).contains("has what it lacked"));
    assert!(says(&notify, 0).contains("is complete already"));
    let printed = says(&["init", "--notify", "--print"], 0);
    assert!(!says(&["init", "--print"], 0).contains("pg_notify"));
    // What is printed is what is applied, in another schema too.
    world.client.batch_execute(&printed).unwrap();
    let output = world.outboxd(&notify);
    assert!(output.stdout.contains("is complete already"), "{output:?}");
    let elsewhere = world.outboxd(&["init", "--notify", "--table", r#"app."My Events""#]);
    assert!(elsewhere.stdout.contains("is created"), "{elsewhere:?}");
    let foreign = "drop trigger event_outbox_notify on event_outbox;
        create or replace function event_outbox_notify() returns trigger language plpgsql as 'begin return null; end'";
    world.client.batch_execute(foreign).unwrap();
    let refused = world.outboxd(&notify);
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!(refused.stderr.contains("event_outbox_notify"), "{refused:?}");
    let text: String = world
        .client
        .query_one("select prosrc from pg_proc where proname = 'event_outbox_notify'", &[])
        .unwrap()
        .get(0);
    assert_eq!(text, "begin return null; end");
}
