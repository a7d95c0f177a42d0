//! The consumer's inbox: each event is handled once, however often it is received.

mod odd;

use std::thread;
use std::time::Duration;

use outboxd::error::Kind;
use outboxd::inbox::{first_time, purge};
use postgres::Client;

use crate::harness::{Database, Proc, Servers, wait_until};
use crate::world::{DEADLINE, OUTBOXD};

/// A consumer's database, which has no outbox.
fn consumer() -> Database {
    Servers::shared().database_from("inbox", |url| {
        for _ in 0..2 {
            let made = Proc::run(OUTBOXD, &["init", "--inbox"], &[("DATABASE_URL", url)], DEADLINE);
            assert_eq!(
                (made.code, made.stdout.as_str()),
                (Some(0), "table event_inbox is there\n"),
                "{made:?}"
            );
        }
    })
}

/// Receives an event in a transaction of its own; whether it was handled.
fn receive(client: &mut Client, consumer: &str, id: &str) -> bool {
    let mut tx = client.transaction().unwrap();
    let first = first_time(&mut tx, consumer, id).unwrap();
    tx.commit().unwrap();
    first
}

fn count(client: &mut Client) -> i64 {
    client.query_one("select count(*) from event_inbox", &[]).unwrap().get(0)
}

#[test]
fn the_second_delivery_is_not_the_first() {
    let database = consumer();
    let mut client = database.connect();
    let received = ["billing", "billing", "shipping"].map(|name| receive(&mut client, name, "01J"));
    assert_eq!(received, [true, false, true]);
    // What is rolled back was not handled.
    let mut tx = client.transaction().unwrap();
    assert!(first_time(&mut tx, "billing", "01K").unwrap());
    assert!(!first_time(&mut tx, "billing", "01K").unwrap());
    tx.rollback().unwrap();
    assert!(receive(&mut client, "billing", "01K"));
    assert_eq!(count(&mut client), 3);
}

#[test]
fn of_two_transactions_at_once_the_second_waits_for_the_first() {
    let database = consumer();
    let (mut first, mut watch) = (database.connect(), database.connect());
    for (id, commit) in [("committed", true), ("rolled back", false)] {
        let mut tx = first.transaction().unwrap();
        assert!(first_time(&mut tx, "billing", id).unwrap());
        let mut second = database.connect();
        let waiting = thread::spawn(move || receive(&mut second, "billing", id));
        wait_until("the second waits", DEADLINE, || {
            assert!(!waiting.is_finished(), "it did not wait");
            let sql = "select count(*) from pg_stat_activity \
                where datname = current_database() and wait_event_type = 'Lock'";
            (watch.query_one(sql, &[]).unwrap().get::<_, i64>(0) == 1).then_some(())
        });
        if commit {
            tx.commit().unwrap()
        } else {
            tx.rollback().unwrap()
        }
        assert_eq!(waiting.join().unwrap(), !commit, "{id}");
        assert!(!receive(&mut first, "billing", id));
    }
}

#[test]
fn names_that_cannot_be_are_refused_and_the_transaction_goes_on() {
    let database = consumer();
    let mut client = database.connect();
    let mut tx = client.transaction().unwrap();
    let long = "x".repeat(256);
    for (consumer, id) in [("", "01J"), ("billing", ""), ("billing", long.as_str()), ("a\0", "01J")] {
        assert_eq!(first_time(&mut tx, consumer, id).unwrap_err().kind(), Kind::Invalid);
    }
    assert!(first_time(&mut tx, "billing", &long[1..]).unwrap());
    tx.commit().unwrap();
}

#[test]
fn without_its_table_it_says_what_to_do() {
    let database = Servers::shared().database();
    let mut client = database.connect();
    let missing = first_time(&mut client.transaction().unwrap(), "billing", "01J").unwrap_err();
    assert!(missing.to_string().ends_with("create it with: outboxd init --inbox"), "{missing}");
    let missing = purge(&mut client, Duration::ZERO, 1).unwrap_err();
    assert_eq!(missing.kind(), Kind::Configuration);
    // The printed SQL makes the same.
    let printed = Proc::run(OUTBOXD, &["init", "--print", "--inbox"], &[], DEADLINE);
    assert_eq!((printed.code, printed.stderr.as_str()), (Some(0), ""), "{printed:?}");
    client.batch_execute(&printed.stdout).unwrap();
    assert!(receive(&mut client, "billing", "01J"));
    let tables: i64 =
        client.query_one("select count(*) from pg_class where relname = 'event_outbox'", &[]).unwrap().get(0);
    assert_eq!(tables, 0);
}

#[test]
fn a_purge_takes_what_is_old_within_its_limit_and_passes_over_what_is_held() {
    let database = consumer();
    let mut client = database.connect();
    let fill = "insert into event_inbox (consumer, event_id, received_at) \
        select 'billing', n::text, clock_timestamp() - case when n <= 3500 then interval '2 days' else '1 hour' end \
        from generate_series(1, 4000) as n";
    client.execute(fill, &[]).unwrap();
    let day = Duration::from_secs(24 * 60 * 60);
    assert_eq!(purge(&mut client, day, 0), Ok(0));
    assert_eq!(purge(&mut client, day, 1_200), Ok(1_200));
    assert_eq!(count(&mut client), 2_800);
    let mut other = database.connect();
    let mut holds = other.transaction().unwrap();
    let hold = "select 1 from event_inbox where event_id in ('3400', '3500') for update";
    assert_eq!(holds.query(hold, &[]).unwrap().len(), 2);
    assert_eq!(purge(&mut client, day, 1_000_000), Ok(2_298));
    holds.rollback().unwrap();
    assert_eq!(purge(&mut client, day, 1_000_000), Ok(2));
    assert_eq!(count(&mut client), 500);
    assert_eq!(purge(&mut client, day, 1_000_000), Ok(0));
}

#[test]
fn each_batch_of_a_purge_is_a_transaction_of_its_own() {
    let database = consumer();
    let mut client = database.connect();
    let fill = "insert into event_inbox select 'b', n::text, '2020-01-01' from generate_series(1, 2500) as n";
    client.execute(fill, &[]).unwrap();
    let before: i64 = client.query_one("select txid_current()", &[]).unwrap().get(0);
    assert_eq!(purge(&mut client, Duration::ZERO, 2_500), Ok(2_500));
    let after: i64 = client.query_one("select txid_current()", &[]).unwrap().get(0);
    assert!(after - before > 3, "{before} {after}");
}
