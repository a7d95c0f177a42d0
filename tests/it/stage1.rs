//! Stage 1: what is committed is published at once, whatever it cannot do is left to the poller.

mod asked;
mod order;
mod settling;
mod together;
mod trouble;

use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant};

use outboxd::config::Config;
use outboxd::relay::{Answer, Stage1};

use crate::harness::{Rabbit, RabbitOptions, unique, wait_until};
use crate::world::{DEADLINE, World};

/// The defaults, so that `min_age` is half a minute.
fn stage1(world: &World) -> Stage1 {
    Stage1::start(Config::new(&world.database.url, &world.amqp_url).unwrap()).unwrap()
}

/// Writes an event as an application does: now.
fn write(world: &mut World, event_type: &str) -> String {
    let id = world.insert_with(event_type, "{}", "created_at", "clock_timestamp()");
    world.row(id).event_id
}

fn now(stage1: &Stage1, event_id: &str) -> Answer {
    let answers = stage1.publish_now(&[event_id], DEADLINE);
    assert_eq!(answers.len(), 1);
    answers.into_iter().next().unwrap()
}

#[test]
fn a_committed_event_is_published_at_once_and_settled() {
    let mut world = World::new();
    let queue = world.queue();
    let event_id = write(&mut world, &queue);
    let stage1 = stage1(&world);
    assert_eq!(now(&stage1, &event_id), Answer::Published);
    assert_eq!(world.arrivals(&queue), std::slice::from_ref(&event_id));
    wait_until("the event is settled", DEADLINE, || (world.count("PUBLISHED") == 1).then_some(()));
    assert_eq!(now(&stage1, &event_id), Answer::AlreadyPublished);
    assert_eq!(world.arrivals(&queue).len(), 0);
}

#[test]
fn every_event_has_its_own_answer() {
    let mut world = World::new();
    let queue = world.queue();
    let nobody = unique("nobody");
    let keyed = |world: &mut World, values: &str| {
        let id = world.insert_with(&queue, "{}", "status, ordering_key, available_at", values);
        world.row(id).event_id
    };
    let dead = keyed(&mut world, "'DEAD', 'a', null");
    let behind_dead = keyed(&mut world, "'WAITING', 'a', null");
    let later = keyed(&mut world, "'WAITING', 'b', clock_timestamp() + interval '1 hour'");
    let locked = keyed(&mut world, "'WAITING', null, null");
    let good = keyed(&mut world, "'WAITING', 'c', null");
    let refused = write(&mut world, &nobody);
    let mut other = world.database.connect();
    let mut holder = other.transaction().unwrap();
    holder.execute("select from event_outbox where event_id = $1 for update", &[&locked]).unwrap();

    let asked = [&dead, &behind_dead, &later, &locked, &good, &refused, &String::from("nowhere"), &good];
    let answers = stage1(&world).publish_now(&asked, DEADLINE);
    assert_eq!(
        answers[..5],
        [
            Answer::Finished("DEAD".into()),
            Answer::HeldBack,
            Answer::NotDue,
            Answer::BeingSent,
            Answer::Published
        ]
    );
    assert!(matches!(&answers[5], Answer::Refused(reason) if reason.contains("NO_ROUTE")), "{answers:?}");
    assert_eq!(answers[6..], [Answer::NotFound, Answer::Published]);
    drop(holder);
    assert_eq!(world.arrivals(&queue), [good]);
}

#[test]
fn the_events_of_a_key_leave_in_order_although_they_are_asked_for_in_another() {
    let mut world = World::new();
    let queue = world.queue();
    let ids: Vec<String> = (0..20)
        .map(|_| {
            let id = world.insert_with(&queue, "{}", "ordering_key", "'key'");
            world.row(id).event_id
        })
        .collect();
    let asked: Vec<&String> = ids.iter().rev().collect();
    let answers = stage1(&world).publish_now(&asked, DEADLINE);
    assert!(answers.iter().all(|it| *it == Answer::Published), "{answers:?}");
    assert_eq!(world.arrivals(&queue), ids);
}

#[test]
fn many_threads_race_the_poller_and_nothing_is_sent_twice() {
    const THREADS: usize = 8;
    const EACH: usize = 40;
    let mut world = World::new();
    let queue = world.queue();
    let _relays: Vec<_> = (0..2).map(|_| world.start(&["--interval", "50ms", "--min-age", "0s"])).collect();
    let stage1 = stage1(&world);
    let answers: Vec<Answer> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (mut client, stage1, queue) = (world.database.connect(), stage1.clone(), &queue);
                scope.spawn(move || {
                    let mut answers = Vec::new();
                    for _ in 0..EACH {
                        let event_id = ulid::Ulid::generate().to_string();
                        let sql =
                            "insert into event_outbox (event_id, event_type, payload) values ($1, $2, '{}')";
                        client.execute(sql, &[&event_id, queue]).unwrap();
                        answers.extend(stage1.publish_now(&[event_id], DEADLINE));
                    }
                    answers
                })
            })
            .collect();
        threads.into_iter().flat_map(|it| it.join().unwrap()).collect()
    });
    let total = (THREADS * EACH) as i64;
    for answer in &answers {
        let fine = [Answer::Published, Answer::AlreadyPublished, Answer::BeingSent];
        assert!(fine.contains(answer), "{answer:?}");
    }
    assert!(answers.contains(&Answer::Published));
    wait_until("all are PUBLISHED", DEADLINE, || (world.count("PUBLISHED") == total).then_some(()));
    let arrived = world.arrivals(&queue);
    let distinct: HashSet<&String> = arrived.iter().collect();
    assert_eq!((arrived.len() as i64, distinct.len() as i64), (total, total));
}

#[test]
fn without_a_broker_the_caller_is_told_in_time_and_the_poller_delivers_later() {
    let mut rabbit = Rabbit::start(&RabbitOptions::default());
    let mut world = World::with_broker(&rabbit.url());
    let queue = world.queue();
    rabbit.stop();
    let event_id = write(&mut world, &queue);
    let stage1 = stage1(&world);
    let started = Instant::now();
    let answers = stage1.publish_now(&[&event_id], Duration::from_secs(5));
    assert!(matches!(&answers[..], [Answer::Left(_)]), "{answers:?}");
    assert!(started.elapsed() < DEADLINE);
    let row = world.client.query_one("select status, fail_count from event_outbox", &[]).unwrap();
    assert_eq!((row.get::<_, &str>(0), row.get::<_, i32>(1)), ("WAITING", 0));
    rabbit.restart();
    wait_until("stage 1 publishes again", DEADLINE, || {
        let answers = stage1.publish_now(&[&event_id], Duration::from_secs(5));
        [Answer::Published, Answer::AlreadyPublished].contains(&answers[0]).then_some(())
    });
}

#[test]
fn a_silent_database_does_not_hold_the_caller() {
    let world = World::new();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://u@127.0.0.1:{}/d", silent.local_addr().unwrap().port());
    let stage1 = Stage1::start(Config::new(&url, &world.amqp_url).unwrap()).unwrap();
    let answers = stage1.publish_now(&["x"], Duration::from_millis(300));
    assert!(matches!(&answers[..], [Answer::Left(reason)] if reason.contains("300ms")), "{answers:?}");
    let started = Instant::now();
    drop(stage1);
    assert!(started.elapsed() < DEADLINE);
}
