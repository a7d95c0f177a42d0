//! The order of a key: stage 1 keeps it, whoever asks for what, and leaves nothing back that it could have sent.

use std::thread;
use std::time::Duration;

use outboxd::config::Config;
use outboxd::relay::{Answer, Stage1};
use outboxd::{NewEvent, append, append_all};

use super::{now, stage1};
use crate::harness::{Direction, Proxy, unique, wait_until};
use crate::world::{DEADLINE, World};

fn append_keyed(client: &mut postgres::Client, queue: &str, key: &str, count: usize) -> Vec<String> {
    let mut tx = client.transaction().unwrap();
    let ids = append_all(&mut tx, &vec![NewEvent::new(queue).ordering_key(key); count]).unwrap();
    tx.commit().unwrap();
    ids
}

/// Stage 1 with a broker that answers late.
fn slow_stage1(world: &World) -> (Stage1, Proxy) {
    let port = url::Url::parse(&world.amqp_url).unwrap().port().unwrap();
    let proxy = Proxy::to(port);
    proxy.delay(Direction::ToClient, Duration::from_millis(50));
    let slow = world.amqp_url.replace(&format!(":{port}"), &format!(":{}", proxy.port()));
    (Stage1::start(Config::new(&world.database.url, &slow).unwrap()).unwrap(), proxy)
}

/// A caller is answered before its claim is settled, which may wait for others' events: it is not to pay for that.
#[test]
fn a_caller_that_comes_again_at_once_with_the_same_key_is_not_held_back() {
    let mut world = World::new();
    let (long, queue) = (world.queue(), world.queue());
    let (stage1, _proxy) = slow_stage1(&world);
    let mut first = append_keyed(&mut world.client, &long, "long", 10);
    let mine = append_keyed(&mut world.client, &queue, "k", 1);
    first.extend(mine.iter().cloned());
    let answers = thread::scope(|scope| {
        let waits = scope.spawn(|| stage1.publish_now(&first, DEADLINE));
        wait_until("the first is sent", DEADLINE, || (world.broker.queue_len(&queue) == 1).then_some(()));
        let second = append_keyed(&mut world.client, &queue, "k", 1);
        // The same event again, and the next one.
        let again = [&mine[0], &second[0]];
        assert_eq!(stage1.publish_now(&again, DEADLINE)[1], Answer::Published);
        waits.join().unwrap()
    });
    assert!(answers.iter().all(|it| *it == Answer::Published), "{answers:?}");
    assert_eq!(world.arrivals(&queue).len(), 2);
}

#[test]
fn an_earlier_event_that_nobody_asked_for_holds_back_until_it_has_left() {
    let mut world = World::new();
    let (queue, stage1) = (world.queue(), stage1(&world));
    let ids = append_keyed(&mut world.client, &queue, "k", 2);
    assert_eq!(now(&stage1, &ids[1]), Answer::HeldBack);
    assert_eq!(stage1.publish_now(&ids, DEADLINE), [Answer::Published, Answer::Published]);
    assert_eq!(world.arrivals(&queue), ids);
}

#[test]
fn what_others_have_in_hand_holds_back_and_is_being_sent() {
    let mut world = World::new();
    let (queue, stage1) = (world.queue(), stage1(&world));
    let ids = append_keyed(&mut world.client, &queue, "k", 2);
    let mut other = world.database.connect();
    let mut holder = other.transaction().unwrap();
    holder.execute("select from event_outbox where event_id = $1 for no key update", &[&ids[0]]).unwrap();
    assert_eq!(stage1.publish_now(&ids, DEADLINE), [Answer::BeingSent, Answer::HeldBack]);
    holder.rollback().unwrap();
    assert_eq!(stage1.publish_now(&ids, DEADLINE), [Answer::Published, Answer::Published]);
    assert_eq!(world.arrivals(&queue), ids);
}

/// Nobody has to wait for others' events to learn that one of theirs is not sent.
#[test]
fn what_a_refused_event_holds_back_is_told_before_others_are_done() {
    let mut world = World::new();
    let (long, nobody) = (world.queue(), unique("nobody"));
    let (stage1, _proxy) = slow_stage1(&world);
    let many = append_keyed(&mut world.client, &long, "long", 18);
    let mine = append_keyed(&mut world.client, &nobody, "k", 2);
    thread::scope(|scope| {
        let others = scope.spawn(|| stage1.publish_now(&many, DEADLINE));
        wait_until("the first is sent", DEADLINE, || (world.broker.queue_len(&long) > 0).then_some(()));
        let answers = stage1.publish_now(&mine, DEADLINE);
        assert!(!others.is_finished(), "it waited for the others");
        assert!(matches!(&answers[..], [Answer::Refused(_), Answer::HeldBack]), "{answers:?}");
        assert!(others.join().unwrap().iter().all(|it| *it == Answer::Published));
    });
}

/// A long chain is handed back in slices, so that it keeps nobody else waiting; its caller waits for all of it.
#[test]
fn a_long_chain_on_a_slow_broker_goes_through_in_one_call() {
    let mut world = World::new();
    let queue = world.queue();
    let (stage1, _proxy) = slow_stage1(&world);
    let ids = append_keyed(&mut world.client, &queue, "k", 40);
    let answers = stage1.publish_now(&ids, DEADLINE);
    let others = answers.iter().filter(|it| **it != Answer::Published).count();
    assert_eq!(others, 0, "{answers:?}");
    assert_eq!(world.arrivals(&queue), ids);
}

#[test]
fn two_callers_with_events_of_the_same_keys_interleaved_keep_each_keys_order() {
    const ROUNDS: usize = 60;
    let mut world = World::new();
    let (queue, stage1) = (world.queue(), stage1(&world));
    let mut per_key = [Vec::new(), Vec::new()];
    let (mut even, mut odd) = (Vec::new(), Vec::new());
    for n in 0..ROUNDS {
        for (key, ids) in per_key.iter_mut().enumerate() {
            let mut tx = world.client.transaction().unwrap();
            let event = NewEvent::new(&queue).ordering_key(format!("key {key}"));
            let id = append(&mut tx, &event).unwrap();
            tx.commit().unwrap();
            ids.push(id.clone());
            if n % 2 == 0 { even.push(id) } else { odd.push(id) }
        }
    }
    thread::scope(|scope| {
        for ids in [&even, &odd] {
            let stage1 = stage1.clone();
            scope.spawn(move || {
                let mut open: Vec<&String> = ids.iter().collect();
                while !open.is_empty() {
                    let answers = stage1.publish_now(&open, DEADLINE);
                    let all = open.into_iter().zip(answers);
                    open = all
                        .filter(|(_, answer)| ![Answer::Published, Answer::AlreadyPublished].contains(answer))
                        .map(|(id, _)| id)
                        .collect();
                }
            });
        }
    });
    let arrived = world.arrivals(&queue);
    assert_eq!(arrived.len(), 2 * ROUNDS);
    for ids in per_key {
        let own: Vec<_> = arrived.iter().filter(|id| ids.contains(id)).cloned().collect();
        assert_eq!(own, ids);
    }
}
