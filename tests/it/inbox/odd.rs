//! The inbox where less is as usual: made by several at once, in another schema, asked about odd times.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use outboxd::config::Config;
use outboxd::inbox::{first_time, init, purge};
use postgres::IsolationLevel;

use super::{consumer, count, receive};
use crate::harness::Servers;

#[test]
fn several_may_make_it_at_once() {
    const MANY: usize = 6;
    for _ in 0..5 {
        let database = Servers::shared().database();
        let config = Config::new(&database.url, "amqp://h").unwrap().database;
        let together = Barrier::new(MANY);
        thread::scope(|scope| {
            for _ in 0..MANY {
                scope.spawn(|| {
                    together.wait();
                    assert_eq!(init(&config), Ok(()));
                });
            }
        });
        assert!(receive(&mut database.connect(), "billing", "01J"));
    }
}

#[test]
fn the_search_path_decides_where_it_is() {
    let database = Servers::shared().database();
    let mut client = database.connect();
    client.batch_execute("create schema app").unwrap();
    let url = format!("{}?options=-csearch_path%3Dapp", database.url);
    init(&Config::new(&url, "amqp://h").unwrap().database).unwrap();
    client.batch_execute("set search_path = app").unwrap();
    assert!(receive(&mut client, "billing", "01J"));
    let sql = "select count(*) from app.event_inbox";
    assert_eq!(client.query_one(sql, &[]).unwrap().get::<_, i64>(0), 1);
    assert_eq!(purge(&mut client, Duration::ZERO, 10), Ok(1));
}

#[test]
fn nothing_is_older_than_any_time() {
    let database = consumer();
    let mut client = database.connect();
    assert!(receive(&mut client, "billing", "01J"));
    client.batch_execute("update event_inbox set received_at = '-infinity'").unwrap();
    assert!(receive(&mut client, "billing", "01K"));
    assert_eq!(purge(&mut client, Duration::MAX, 10), Ok(1));
    assert_eq!(count(&mut client), 1);
}

/// What is being handled is not forgotten, and does not wait for the purge, nor the purge for it.
#[test]
fn a_purge_and_a_consumer_do_not_meet() {
    let database = consumer();
    let (mut client, mut other) = (database.connect(), database.connect());
    assert!(receive(&mut client, "billing", "old"));
    let mut tx = client.transaction().unwrap();
    assert!(first_time(&mut tx, "billing", "new").unwrap());
    assert_eq!(purge(&mut other, Duration::ZERO, 10), Ok(1));
    assert!(first_time(&mut tx, "billing", "old").unwrap(), "it is forgotten");
    tx.commit().unwrap();
    assert_eq!(count(&mut other), 2);
}

#[test]
fn above_read_committed_a_copy_that_was_handled_meanwhile_is_an_error_and_never_the_first() {
    let database = consumer();
    let (mut client, mut other) = (database.connect(), database.connect());
    for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let id = format!("{level:?}");
        let mut tx = client.build_transaction().isolation_level(level).start().unwrap();
        tx.execute("select 1", &[]).unwrap();
        assert!(receive(&mut other, "billing", &id));
        let error = first_time(&mut tx, "billing", &id).unwrap_err();
        assert!(error.is_transient(), "{error}");
        drop(tx);
        assert!(!receive(&mut client, "billing", &id));
    }
}
