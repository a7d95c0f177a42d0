//! What callers may ask for: ids that are not there yet, odd ones, very many, with deadlines of any length.

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use outboxd::config::Config;
use outboxd::relay::{Answer, Stage1};
use outboxd::{NewEvent, append, append_all};
use postgres::Client;

use super::{now, stage1, write};
use crate::harness::Servers;
use crate::world::{DEADLINE, World, init};

#[test]
fn an_event_is_found_once_it_is_committed_and_never_when_it_is_rolled_back() {
    let mut world = World::new();
    let (queue, stage1) = (world.queue(), stage1(&world));
    for (commits, answer) in [(false, Answer::NotFound), (true, Answer::Published)] {
        let mut tx = world.client.transaction().unwrap();
        let id = append(&mut tx, &NewEvent::new(&queue)).unwrap();
        assert_eq!(now(&stage1, &id), Answer::NotFound, "not committed yet");
        if commits {
            tx.commit().unwrap()
        } else {
            tx.rollback().unwrap()
        }
        assert_eq!(now(&stage1, &id), answer);
    }
    assert_eq!(world.arrivals(&queue).len(), 1);
}

#[test]
fn an_id_that_no_database_can_store_is_not_found_and_harms_nobody() {
    let mut world = World::new();
    let (queue, stage1) = (world.queue(), stage1(&world));
    let good = write(&mut world, &queue);
    let long = "x".repeat(1 << 20);
    let answers = stage1.publish_now(&["a\0b", "", &good, &long], DEADLINE);
    let missing = Answer::NotFound;
    assert_eq!(answers, [missing.clone(), missing.clone(), Answer::Published, missing]);
}

/// The server cannot even read such an id, and must not be thought to be in trouble.
#[test]
fn an_id_that_this_database_cannot_read_harms_nobody() {
    let database = Servers::shared().database();
    let latin = format!("{}_latin", database.name);
    let mut admin = database.connect();
    admin
        .batch_execute(&format!("create database {latin} encoding 'LATIN1' locale 'C' template template0"))
        .unwrap();
    let url = database.url.replace(&database.name, &latin);
    init(&url);
    let mut client = Client::connect(&url, postgres::NoTls).unwrap();
    let world = World::new();
    let queue = world.queue();
    let mut tx = client.transaction().unwrap();
    let good = append(&mut tx, &NewEvent::new(&queue).payload("é")).unwrap();
    let refused = append(&mut tx.transaction().unwrap(), &NewEvent::new(&queue).payload("日本")).unwrap_err();
    assert_eq!(refused.kind(), outboxd::error::Kind::Invalid, "{refused}");
    tx.commit().unwrap();
    let stage1 = Stage1::start(Config::new(&url, &world.amqp_url).unwrap()).unwrap();
    let answers = stage1.publish_now(&["日本", &good], DEADLINE);
    assert_eq!(answers, [Answer::NotFound, Answer::Published]);
    assert_eq!(world.broker.drain_ready(&queue)[0].text(), "é");
    drop((stage1, client));
    admin.batch_execute(&format!("drop database {latin} with (force)")).unwrap();
}

#[test]
fn any_deadline_is_kept() {
    let mut world = World::new();
    let (queue, stage1) = (world.queue(), stage1(&world));
    let id = write(&mut world, &queue);
    let answers = stage1.publish_now(&[&id], Duration::ZERO);
    assert!(matches!(&answers[..], [Answer::Left(reason)] if reason.contains("0ns")), "{answers:?}");
    assert_eq!(stage1.publish_now(&[&id], Duration::MAX), [Answer::Published]);
    assert_eq!(stage1.publish_now::<&str>(&[], Duration::MAX), []);
}

#[test]
fn ten_thousand_ids_have_an_answer_each() {
    const MANY: usize = 10_000;
    let mut world = World::new();
    let (queue, stage1) = (world.queue(), stage1(&world));
    let mut tx = world.client.transaction().unwrap();
    let mut ids = append_all(&mut tx, &vec![NewEvent::new(&queue); MANY]).unwrap();
    tx.commit().unwrap();
    ids.insert(7, "nowhere".into());
    ids.push(ids[0].clone());
    let mut answers = stage1.publish_now(&ids, DEADLINE);
    assert_eq!(answers.remove(7), Answer::NotFound);
    let others = answers.iter().filter(|it| **it != Answer::Published).collect::<Vec<_>>();
    assert!(answers.len() == MANY + 1 && others.is_empty(), "{others:?}");
    assert_eq!(world.arrivals(&queue).len(), MANY);
}

#[test]
fn beyond_a_thousand_requests_callers_are_told_at_once() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://u@127.0.0.1:{}/d", silent.local_addr().unwrap().port());
    let amqp_url = Servers::shared().amqp_url();
    let mut config = Config::new(&url, amqp_url).unwrap();
    config.database.open_timeout = DEADLINE;
    let stage1 = Stage1::start(config).unwrap();
    let first = stage1.clone();
    let waits = thread::spawn(move || first.publish_now(&["x"], Duration::from_secs(3)));
    // From then on the thread waits for the database.
    let _connection = silent.accept().unwrap();
    for _ in 0..1024 {
        assert!(matches!(&stage1.publish_now(&["x"], Duration::ZERO)[..], [Answer::Left(_)]));
    }
    assert_eq!(stage1.publish_now(&["x"], Duration::MAX), [Answer::Left("stage 1 is busy".into())]);
    assert!(matches!(&waits.join().unwrap()[..], [Answer::Left(reason)] if reason.contains("3s")));
}
