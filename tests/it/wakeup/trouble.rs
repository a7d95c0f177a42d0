//! Wake-up under floods, frozen servers and wrong addresses.

use std::time::Instant;

use crate::database::signal;
use crate::harness::{Postgres, PostgresOptions, Servers, wait_until};
use crate::world::{DEADLINE, World};

use super::{HEARD, WOKEN, init_notify, is_published, write};

/// Anybody may send messages on the channel, and large ones.
#[test]
fn a_flood_of_large_messages_costs_no_memory() {
    const MEMORY_MAX_KIB: u64 = 64 * 1024;
    let mut world = super::world();
    let queue = world.queue();
    let mut relay = world.start(&WOKEN);
    relay.wait_for_line(HEARD, DEADLINE);
    let sql = "select count(pg_notify('outboxd_' || 'event_outbox'::regclass::oid, repeat('x', 7990) || n))
        from generate_series(1, 20000) as n";
    for _ in 0..3 {
        world.client.query_one(sql, &[]).unwrap();
    }
    // What is told last is heard last.
    let id = write(&mut world, &queue);
    is_published(&mut world, id, &relay);
    let status = std::fs::read_to_string(format!("/proc/{}/status", relay.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < MEMORY_MAX_KIB, "{peak} KiB");
}

/// A server of the test's own, because a frozen backend must not outlive it.
#[test]
fn a_frozen_listener_does_not_use_up_a_short_grace() {
    let server = Postgres::start(&PostgresOptions::default());
    let mut world = World::on(server.database_from("notifying", init_notify), Servers::shared().amqp_url());
    let mut relay = world.start(&[&WOKEN[..], &["--grace", "1s"]].concat());
    relay.wait_for_line(HEARD, DEADLINE);
    let sql = "select pid from pg_stat_activity
        where datname = current_database() and application_name = 'outboxd' and state = 'idle' and query = 'commit'";
    let frozen: i32 = wait_until("the listener", DEADLINE, || {
        let found = world.client.query(sql, &[]).unwrap();
        found.first().map(|row| row.get(0))
    });
    signal(frozen, "STOP");
    // What it hears from here on, it hears too late.
    let told = Instant::now();
    relay.signal("TERM");
    let ended = relay.wait(DEADLINE);
    signal(frozen, "CONT");
    assert_eq!(ended.code, Some(0), "after {:?}: {ended:?}", told.elapsed());
}

#[test]
fn what_is_wrong_with_listen_url_is_said_of_listen_url() {
    let mut world = super::world();
    let url = world.database.url.clone();
    let other = Servers::shared().database_from("notifying", init_notify);
    let nobody = url.replacen("postgres://postgres@", "postgres://nobody:hunter2@", 1);
    for (listen_url, expected) in [
        (&nobody, "check user and password in listen_url; polling every 1h meanwhile"),
        (&other.url, "does listen_url lead to the database that database_url leads to"),
    ] {
        let mut relay = world.start(&[&WOKEN[..], &["--listen-url", listen_url]].concat());
        relay.wait_for_line(expected, DEADLINE);
        let (_, log) = relay.output();
        assert!(!log.contains("hunter2") && !log.contains(HEARD), "{log}");
    }
    let mut relay = world.start(&[&WOKEN[..], &["--table", "no_such"]].concat());
    relay.wait_for_line(
        "commits are not heard: table no_such does not exist: create it with: outboxd init --table",
        DEADLINE,
    );
    let queue = world.queue();
    write(&mut world, &queue);
}
