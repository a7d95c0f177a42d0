//! Servers in trouble: the caller has its answer in time, nothing is counted as a failure, and the relay delivers.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use outboxd::config::Config;
use outboxd::relay::{Answer, Stage1};
use outboxd::{NewEvent, append_all};

use super::{now, stage1, write};
use crate::harness::{Postgres, PostgresOptions, Rabbit, RabbitOptions, Servers, wait_until};
use crate::world::{DEADLINE, World, init};

/// How much later than its deadline a caller may have its answer, on a machine that others use too.
const SLACK: Duration = Duration::from_secs(2);

/// Asks with this deadline, and holds stage 1 to it.
fn in_time(stage1: &Stage1, ids: &[String], limit: Duration) -> Vec<Answer> {
    let started = Instant::now();
    let answers = stage1.publish_now(ids, limit);
    assert!(started.elapsed() < limit + SLACK, "{:?} instead of {limit:?}", started.elapsed());
    assert_eq!(answers.len(), ids.len());
    answers
}

/// Has a relay send what is left; everything has arrived then, and no failure was counted.
fn the_relay_delivers(world: &mut World, queue: &str, ids: &HashSet<String>) {
    let relay = world.start(&["--interval", "100ms", "--min-age", "0s", "--open-timeout", "2s"]);
    let total = ids.len() as i64;
    wait_until("all are PUBLISHED", DEADLINE, || (world.count("PUBLISHED") == total).then_some(()));
    drop(relay);
    let sql = "select coalesce(sum(fail_count), 0) from event_outbox";
    assert_eq!(world.client.query_one(sql, &[]).unwrap().get::<_, i64>(0), 0);
    // Some may have arrived twice.
    let arrived: HashSet<String> = world.arrivals(queue).into_iter().collect();
    assert_eq!(arrived, *ids);
    world.client.execute("delete from event_outbox", &[]).unwrap();
}

fn many(world: &mut World, queue: &str, count: usize) -> Vec<String> {
    let mut tx = world.client.transaction().unwrap();
    let ids = append_all(&mut tx, &vec![NewEvent::new(queue); count]).unwrap();
    tx.commit().unwrap();
    ids
}

#[test]
fn a_blocked_a_frozen_and_a_dying_broker_keep_nobody_longer_than_asked() {
    let mut rabbit = Rabbit::start(&RabbitOptions::default());
    let mut world = World::with_broker(&rabbit.url());
    let queue = world.queue();
    let stage1 = stage1(&world);
    let two = Duration::from_secs(2);
    for fault in ["alarm", "freeze", "kill"] {
        let warm = write(&mut world, &queue);
        wait_until("stage 1 publishes", DEADLINE, || {
            let answer = now(&stage1, &warm);
            [Answer::Published, Answer::AlreadyPublished].contains(&answer).then_some(())
        });
        let count = if fault == "kill" { 3_000 } else { 3 };
        let mut ids = many(&mut world, &queue, count);
        let answers = thread::scope(|scope| match fault {
            "alarm" => {
                rabbit.memory_alarm(true);
                let answers = in_time(&stage1, &ids, two);
                // Another caller, while the first one's events are on their way still.
                let further = many(&mut world, &queue, 1);
                assert!(matches!(&in_time(&stage1, &further, two)[..], [Answer::Left(_)]));
                ids.extend(further);
                rabbit.memory_alarm(false);
                answers
            }
            "freeze" => {
                rabbit.freeze();
                let answers = in_time(&stage1, &ids, two);
                rabbit.thaw();
                answers
            }
            _ => {
                let asks = scope.spawn(|| in_time(&stage1, &ids, DEADLINE));
                wait_until("some are there", DEADLINE, || {
                    (world.broker.queue_len(&queue) > 10).then_some(())
                });
                rabbit.kill();
                rabbit.restart();
                asks.join().unwrap()
            }
        });
        let unsaid = |it: &&Answer| {
            !matches!(it, Answer::Left(_) | Answer::Unknown(_) | Answer::Published | Answer::BeingSent)
        };
        assert_eq!(answers.iter().find(unsaid), None, "{fault}");
        if fault == "kill" {
            world.broker = crate::harness::Broker::open(&rabbit.url());
        } else {
            assert!(!answers.contains(&Answer::Published), "{fault}: {answers:?}");
        }
        ids.push(warm);
        the_relay_delivers(&mut world, &queue, &ids.into_iter().collect());
    }
}

#[test]
fn a_frozen_and_a_restarted_database_keep_nobody_longer_than_asked() {
    // What is committed must outlive an immediate shutdown.
    let config = vec!["synchronous_commit = on".to_owned()];
    let mut postgres = Postgres::start(&PostgresOptions { config, ..PostgresOptions::default() });
    let database = postgres.database_from("outbox", init);
    let mut world = World::on(database, Servers::shared().amqp_url());
    let queue = world.queue();
    let stage1 = stage1(&world);
    let first = write(&mut world, &queue);
    assert_eq!(now(&stage1, &first), Answer::Published);
    let mut ids = many(&mut world, &queue, 3);
    postgres.freeze();
    let answers = in_time(&stage1, &ids, Duration::from_secs(1));
    postgres.thaw();
    assert!(answers.iter().all(|it| matches!(it, Answer::Left(_))), "{answers:?}");
    for ends in ["INT", "QUIT"] {
        postgres.stop_by(ends);
        let more: Vec<String> = vec!["gone".into()];
        let answers = in_time(&stage1, &more, Duration::from_secs(2));
        assert!(matches!(&answers[..], [Answer::Left(_)]), "{answers:?}");
        postgres.restart();
        world.client = world.database.connect();
        let new = many(&mut world, &queue, 1);
        wait_until("stage 1 publishes again", DEADLINE, || {
            let answers = in_time(&stage1, &new, Duration::from_secs(2));
            [Answer::Published, Answer::AlreadyPublished].contains(&answers[0]).then_some(())
        });
        ids.extend(new);
    }
    ids.push(first);
    the_relay_delivers(&mut world, &queue, &ids.into_iter().collect());
}

#[test]
fn sessions_that_are_ended_in_the_middle_of_claims_lose_nothing() {
    let mut world = World::new();
    let queue = world.queue();
    let mut config = Config::new(&world.database.url, &world.amqp_url).unwrap();
    config.interval = Duration::from_millis(100);
    let stage1 = Stage1::start(config).unwrap();
    let mut killer = world.database.connect();
    let own: i32 = world.client.query_one("select pg_backend_pid()", &[]).unwrap().get(0);
    let (mut ids, over) = (HashSet::new(), AtomicBool::new(false));
    thread::scope(|scope| {
        let over = &over;
        let kills = scope.spawn(move || {
            let sql = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                where datname = current_database() and pid not in (pg_backend_pid(), $1) \
                    and state like '%in transaction%'";
            let mut ended = 0;
            while !over.load(Ordering::Relaxed) {
                ended += killer.query_one(sql, &[&own]).unwrap().get::<_, i64>(0);
                thread::sleep(Duration::from_millis(20));
            }
            ended
        });
        for _ in 0..15 {
            let new = many(&mut world, &queue, 400);
            let answers = in_time(&stage1, &new, DEADLINE);
            let odd = |it: &&Answer| !matches!(it, Answer::Published | Answer::Left(_) | Answer::Unknown(_));
            assert_eq!(answers.iter().find(odd), None);
            ids.extend(new);
        }
        over.store(true, Ordering::Relaxed);
        assert!(kills.join().unwrap() > 0, "no claim was hit");
    });
    the_relay_delivers(&mut world, &queue, &ids);
}

#[test]
fn the_last_handle_ends_an_idle_stage_1_at_once() {
    let mut world = World::new();
    let queue = world.queue();
    let stage1 = stage1(&world);
    let id = write(&mut world, &queue);
    assert_eq!(now(&stage1, &id), Answer::Published);
    wait_until("the event is settled", DEADLINE, || (world.count("PUBLISHED") == 1).then_some(()));
    let other = stage1.clone();
    drop(stage1);
    assert_eq!(now(&other, &id), Answer::AlreadyPublished);
    drop(other);
    // Its database session is gone, which a thread that was left behind would have.
    let sql = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
    wait_until("its session is gone", DEADLINE, || {
        (world.client.query_one(sql, &[]).unwrap().get::<_, i64>(0) == 0).then_some(())
    });
}
