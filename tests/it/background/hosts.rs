//! What hosts do: several relays and stage 1 beside each other, panics in every place, calls from async code.

use std::collections::HashSet;
use std::sync::mpsc;
use std::thread;

use outboxd::relay::{Answer, Happening, Relay, Stage1, Stop, Stopped};
use outboxd::{NewEvent, append_all};

use super::config;
use crate::harness::{Rabbit, RabbitOptions, wait_until};
use crate::world::{DEADLINE, World};

#[test]
fn relays_and_stage_1_of_one_process_share_a_table_and_nothing_is_sent_twice() {
    const ROUNDS: usize = 30;
    let mut world = World::new();
    let queue = world.queue();
    let relays: Vec<_> = (0..2)
        .map(|_| {
            let mut config = config(&world);
            config.claim.min_age = std::time::Duration::ZERO;
            Relay::start(config).unwrap()
        })
        .collect();
    let stages: Vec<_> = (0..2).map(|_| Stage1::start(config(&world)).unwrap()).collect();
    thread::scope(|scope| {
        for stage1 in &stages {
            let (mut client, queue, relays) = (world.database.connect(), &queue, &relays);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let mut tx = client.transaction().unwrap();
                    let ids = append_all(&mut tx, &vec![NewEvent::new(queue); 5]).unwrap();
                    tx.commit().unwrap();
                    relays.iter().for_each(|it| it.nudge());
                    for answer in stage1.publish_now(&ids, DEADLINE) {
                        let fine = [Answer::Published, Answer::AlreadyPublished, Answer::BeingSent];
                        assert!(fine.contains(&answer), "{answer:?}");
                    }
                }
            });
        }
    });
    let total = 2 * 5 * ROUNDS;
    wait_until("all are PUBLISHED", DEADLINE, || {
        relays.iter().for_each(|it| it.nudge());
        (world.count("PUBLISHED") == total as i64).then_some(())
    });
    let arrived = world.arrivals(&queue);
    assert_eq!((arrived.len(), arrived.iter().collect::<HashSet<_>>().len()), (total, total));
    for relay in relays {
        assert!(matches!(relay.stop(DEADLINE), Stopped::Ended(_)));
    }
}

#[test]
fn a_nudge_while_it_works_is_heard_when_it_is_done() {
    let mut world = World::new();
    let queue = world.queue();
    let (tell, told) = mpsc::channel();
    let (go_on, waits) = mpsc::channel::<()>();
    let relay = Relay::new(config(&world)).observed_by(move |happening| {
        if matches!(happening, Happening::Ticked { .. }) {
            let _ = tell.send(());
            let _ = waits.recv();
        }
    });
    let handle = relay.spawn().unwrap();
    told.recv().unwrap();
    // The first tick is over, and found nothing.
    world.insert(&queue, "{}");
    handle.nudge();
    drop(go_on);
    wait_until("the event is PUBLISHED", DEADLINE, || (world.count("PUBLISHED") == 1).then_some(()));
    assert!(matches!(handle.stop(DEADLINE), Stopped::Ended(total) if total.published == 1));
}

#[test]
fn a_panic_in_any_place_is_told_and_costs_no_event() {
    let mut rabbit = Rabbit::start(&RabbitOptions::default());
    let mut world = World::with_broker(&rabbit.url());
    let queue = world.queue();
    for place in ["decided", "ticked", "began", "ended"] {
        world.insert(&queue, "{}");
        if place == "began" || place == "ended" {
            rabbit.stop();
        }
        let relay = Relay::new(config(&world)).observed_by(move |happening| {
            let now = match happening {
                Happening::Decided { .. } => "decided",
                Happening::Ticked { .. } => "ticked",
                Happening::TroubleBegan(_) => "began",
                Happening::TroubleEnded => "ended",
                _ => return,
            };
            assert_ne!(now, place, "as it was told to");
        });
        let handle = relay.spawn().unwrap();
        if place == "ended" {
            wait_until("it is in trouble", DEADLINE, || handle.status().trouble.map(|_| ()));
            rabbit.restart();
        }
        let reason = wait_until("the panic is told", DEADLINE, || handle.status().panicked);
        assert!(reason.contains("as it was told to"), "{reason}");
        assert_eq!(handle.stop(DEADLINE), Stopped::Panicked(reason));
        if place == "began" {
            rabbit.restart();
        }
        // Another one sends what it left.
        wait_until("the event is PUBLISHED", DEADLINE, || {
            let _ = Relay::new(config(&world)).tick(&Stop::new());
            (world.count("WAITING") == 0).then_some(())
        });
        let row = world.client.query_one("select max(fail_count) from event_outbox", &[]).unwrap();
        assert_eq!(row.get::<_, i32>(0), 0);
    }
}

#[test]
fn stage_1_does_not_mind_a_thread_of_an_async_runtime() {
    let mut world = World::new();
    let queue = world.queue();
    let id = world.insert(&queue, "{}");
    let id = world.row(id).event_id;
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let answers = runtime.block_on(async {
        let stage1 = Stage1::start(config(&world)).unwrap();
        let answers = stage1.publish_now(&[&id], DEADLINE);
        // On a thread that the runtime has for blocking calls, too.
        let (other, again) = (stage1.clone(), id.clone());
        let blocking = tokio::task::spawn_blocking(move || other.publish_now(&[again], DEADLINE));
        let second = blocking.await.unwrap();
        drop(stage1);
        [answers, second].concat()
    });
    assert_eq!(answers[0], Answer::Published);
    assert!([Answer::AlreadyPublished, Answer::BeingSent].contains(&answers[1]), "{answers:?}");
}
