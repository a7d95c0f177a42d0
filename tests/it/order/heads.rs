//! The first event of a key, while it cannot be had or does not go through: its followers wait for it, others do not.

use super::{Road, arrived, insert_chain, set, statuses};
use crate::harness::{AmqpValue, unique, wait_until};
use crate::world::{DEADLINE, World};

/// Rows of a key in trouble, of another key, and of none, all for one queue.
struct Scene {
    world: World,
    queue: String,
    /// The key in trouble.
    chain: Vec<i64>,
    others: Vec<i64>,
}

impl Scene {
    /// The same destination for all. The rows in trouble come first.
    fn new(world: World, queue: &str, event_type: &str) -> Scene {
        let mut scene = Scene { world, queue: queue.into(), chain: vec![], others: vec![] };
        scene.chain = insert_chain(&mut scene.world.client, event_type, Some("held"), 5);
        scene.others = insert_chain(&mut scene.world.client, event_type, Some("free"), 5);
        scene.others.extend(insert_chain(&mut scene.world.client, event_type, None, 5));
        scene
    }

    fn simple() -> Scene {
        let world = World::new();
        let queue = world.queue();
        Scene::new(world, &queue, &queue)
    }

    /// Runs once; only the others are sent, and nothing of the chain is touched.
    fn only_others_go(&mut self, arguments: &[&str]) {
        let before = self.rows();
        let output = self.world.once(arguments, 0);
        assert!(output.stdout.starts_with("claimed 10: published 10\n"), "{output:?}");
        let mut arrived = arrived(&mut self.world, &self.queue);
        arrived.sort_unstable();
        assert_eq!(arrived, self.others);
        assert_eq!(self.rows(), before);
        // Nothing is left but what is held back.
        let output = self.world.once(arguments, 0);
        assert!(output.stdout.starts_with("0 due"), "{output:?}");
        assert_eq!(self.rows(), before);
    }

    fn rows(&mut self) -> Vec<String> {
        let sql = "select event_outbox::text from event_outbox where id = any($1) order by id";
        let rows = self.world.client.query(sql, &[&self.chain]).unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Runs once; what is left arrives in order.
    fn all_go(&mut self, arguments: &[&str], expected: &[i64]) {
        self.world.once(arguments, 0);
        assert_eq!(arrived(&mut self.world, &self.queue), expected);
        for id in expected {
            assert_eq!(self.world.row(*id).status, "PUBLISHED");
        }
    }
}

#[test]
fn followers_of_a_locked_event_are_left_alone() {
    for locked in 0..3 {
        let mut scene = Scene::simple();
        let mut other = scene.world.database.connect();
        let mut holder = other.transaction().unwrap();
        holder.execute("select from event_outbox where id = $1 for update", &[&scene.chain[locked]]).unwrap();
        let output = scene.world.once(&[], 0);
        let tally = format!("claimed {n}: published {n}\n", n = 10 + locked);
        assert!(output.stdout.starts_with(&tally), "{output:?}");
        let first = arrived(&mut scene.world, &scene.queue);
        let of_chain: Vec<i64> = first.iter().copied().filter(|id| scene.chain.contains(id)).collect();
        assert_eq!(of_chain, scene.chain[..locked]);
        assert_eq!(statuses(&mut scene.world, &scene.chain[locked..]), vec!["WAITING"; 5 - locked]);
        holder.rollback().unwrap();
        let rest = scene.chain[locked..].to_vec();
        scene.all_go(&[], &rest);
    }
}

#[test]
fn a_scheduled_event_holds_its_key_back_until_its_time() {
    let mut scene = Scene::simple();
    let head = scene.chain[0];
    set(&mut scene.world.client, &[head], "available_at = clock_timestamp() + interval '1 hour'");
    scene.only_others_go(&[]);
    set(&mut scene.world.client, &[head], "available_at = clock_timestamp()");
    let chain = scene.chain.clone();
    scene.all_go(&[], &chain);
}

#[test]
fn a_scheduled_event_in_the_middle_holds_back_only_those_behind_it() {
    let mut scene = Scene::simple();
    let chain = scene.chain.clone();
    set(&mut scene.world.client, &chain[2..3], "available_at = clock_timestamp() + interval '1 hour'");
    let output = scene.world.once(&[], 0);
    assert!(output.stdout.starts_with("claimed 12: published 12\n"), "{output:?}");
    assert_eq!(statuses(&mut scene.world, &chain[2..]), ["WAITING"; 3]);
    scene.world.arrivals(&scene.queue);
    set(&mut scene.world.client, &chain[2..3], "available_at = null");
    scene.all_go(&[], &chain[2..]);
}

#[test]
fn an_event_younger_than_min_age_holds_back_older_ones_behind_it() {
    let mut scene = Scene::simple();
    let head = scene.chain[0];
    set(&mut scene.world.client, &[head], "created_at = clock_timestamp()");
    scene.only_others_go(&["--min-age", "20m"]);
    let chain = scene.chain.clone();
    scene.all_go(&["--min-age", "0s"], &chain);
}

#[test]
fn a_dead_event_blocks_its_key_until_an_operator_decides() {
    // What the operator does, and from where on the chain is sent then.
    for (decision, from) in [
        ("status = 'WAITING', fail_count = 0, available_at = null", 0),
        ("status = 'FAILED', fail_count = 1, available_at = null", 0),
        ("status = 'SKIPPED'", 1),
    ] {
        let mut scene = Scene::simple();
        let head = scene.chain[0];
        set(&mut scene.world.client, &[head], "status = 'DEAD', fail_count = 3");
        scene.only_others_go(&[]);
        set(&mut scene.world.client, &[head], decision);
        let chain = scene.chain.clone();
        scene.all_go(&[], &chain[from..]);
    }
}

#[test]
fn a_dead_event_is_passed_over_where_the_operator_chose_so() {
    let mut scene = Scene::simple();
    let chain = scene.chain.clone();
    set(&mut scene.world.client, &[chain[0], chain[3]], "status = 'DEAD', fail_count = 3");
    let output = scene.world.once(&["--on-dead", "skip"], 0);
    assert!(output.stdout.starts_with("claimed 13: published 13\n"), "{output:?}");
    let all = arrived(&mut scene.world, &scene.queue);
    let of_chain: Vec<i64> = all.into_iter().filter(|id| chain.contains(id)).collect();
    assert_eq!(of_chain, [chain[1], chain[2], chain[4]]);
}

#[test]
fn a_dead_event_in_the_middle_holds_back_only_those_behind_it() {
    let mut scene = Scene::simple();
    let chain = scene.chain.clone();
    set(&mut scene.world.client, &chain[2..3], "status = 'DEAD', fail_count = 3");
    // Also with claims that end before it, at it and behind it.
    let output = scene.world.once(&["--batch-rows", "2"], 0);
    assert!(output.stdout.starts_with("claimed 12: published 12\n"), "{output:?}");
    assert_eq!(statuses(&mut scene.world, &chain[3..]), ["WAITING"; 2]);
}

/// It becomes DEAD under the relay's hands. One run goes on behind it if it may.
#[test]
fn an_event_that_can_never_be_sent_blocks_its_key_or_is_passed_over() {
    let too_long = format!("event_type = '{}'", "t".repeat(300));
    for (on_dead, sent) in [("block", 2), ("skip", 4)] {
        let mut scene = Scene::simple();
        // The column's own limit is for applications that have it; the relay must cope without.
        scene.world.client.batch_execute("alter table event_outbox alter event_type type text").unwrap();
        let chain = scene.chain.clone();
        set(&mut scene.world.client, &chain[2..3], &too_long);
        let output = scene.world.once(&["--on-dead", on_dead], 75);
        let tally = format!("claimed {}: published {}, dead 1\n", sent + 11, sent + 10);
        assert!(output.stdout.starts_with(&tally), "{output:?}");
        assert_eq!(scene.world.row(chain[2]).status, "DEAD");
        let all = arrived(&mut scene.world, &scene.queue);
        let of_chain: Vec<i64> = all.into_iter().filter(|id| chain.contains(id)).collect();
        assert_eq!(of_chain, [0, 1, 3, 4].map(|place| chain[place])[..sent]);
        if on_dead == "block" {
            assert_eq!(statuses(&mut scene.world, &chain[3..]), ["WAITING"; 2]);
            let mended = format!("status = 'WAITING', event_type = '{}'", scene.queue);
            set(&mut scene.world.client, &chain[2..3], &mended);
            scene.all_go(&[], &chain[2..]);
        }
    }
}

#[test]
fn a_failed_event_at_a_limit_lowered_since_dies_and_blocks_or_is_passed_over() {
    for (on_dead, sent) in [("block", 0), ("skip", 4)] {
        let mut scene = Scene::simple();
        let chain = scene.chain.clone();
        set(
            &mut scene.world.client,
            &chain[..1],
            "status = 'FAILED', fail_count = 2, available_at = 'infinity'",
        );
        let output = scene.world.once(&["--max-failures", "2", "--on-dead", on_dead], 75);
        let tally = format!("claimed {}: published {}, dead 1\n", sent + 11, sent + 10);
        assert!(output.stdout.starts_with(&tally), "{output:?}");
        assert_eq!(scene.world.row(chain[0]).status, "DEAD");
        let all = arrived(&mut scene.world, &scene.queue);
        let of_chain: Vec<i64> = all.into_iter().filter(|id| chain.contains(id)).collect();
        assert_eq!(of_chain, chain[1..][..sent]);
    }
}

/// It is ended under its lock, and those behind it leave in the same run.
#[test]
fn an_event_whose_time_is_over_is_expired_and_frees_its_key() {
    for (change, argument) in [
        ("expired_at = clock_timestamp()", "24h"),
        ("expired_at = clock_timestamp(), available_at = 'infinity'", "24h"),
        ("expired_at = clock_timestamp(), status = 'FAILED', available_at = 'infinity'", "24h"),
        ("created_at = '2020-01-01'", "24h"),
    ] {
        for places in [&[0][..], &[0, 1, 3], &[4], &[0, 1, 2, 3, 4]] {
            let mut scene = Scene::simple();
            let chain = scene.chain.clone();
            let over: Vec<i64> = places.iter().map(|place| chain[*place]).collect();
            set(&mut scene.world.client, &over, change);
            let output = scene.world.once(&["--max-age", argument], 0);
            let tally = format!("claimed 15: published {}, expired {}\n", 15 - over.len(), over.len());
            assert!(output.stdout.starts_with(&tally), "{output:?}");
            for id in &over {
                assert_eq!(scene.world.row(*id).status, "EXPIRED", "{change}");
            }
            let all = arrived(&mut scene.world, &scene.queue);
            let of_chain: Vec<i64> = all.into_iter().filter(|id| chain.contains(id)).collect();
            let alive: Vec<i64> = chain.iter().copied().filter(|id| !over.contains(id)).collect();
            assert_eq!(of_chain, alive, "{change}");
        }
    }
}

/// Another relay has it: it is unfinished until that relay has marked it.
#[test]
fn an_expired_event_in_other_hands_holds_its_key_back() {
    let mut scene = Scene::simple();
    let head = scene.chain[0];
    set(&mut scene.world.client, &[head], "expired_at = clock_timestamp()");
    let mut other = scene.world.database.connect();
    let mut holder = other.transaction().unwrap();
    holder.execute("select from event_outbox where id = $1 for no key update", &[&head]).unwrap();
    scene.only_others_go(&[]);
    holder.execute("update event_outbox set status = 'EXPIRED' where id = $1", &[&head]).unwrap();
    holder.commit().unwrap();
    let rest = scene.chain[1..].to_vec();
    scene.all_go(&[], &rest);
}

#[test]
fn a_refused_event_holds_its_followers_back_until_it_went_through() {
    let world = World::new();
    let road = Road::new(&world);
    let mut scene = Scene::new(world, &road.queue, &road.event_type);
    let chain = scene.chain.clone();
    road.close(&scene.world.broker);
    let arguments = ["--backoff-base", "1h", "--backoff-max", "1h"];
    let output = scene.world.once(&arguments, 75);
    // The first of each key, and those without one.
    assert!(output.stdout.starts_with("claimed 7: failed 7\n"), "{output:?}");
    assert_eq!(statuses(&mut scene.world, &chain), ["FAILED", "WAITING", "WAITING", "WAITING", "WAITING"]);
    for id in &chain[1..] {
        let row = scene.world.row(*id);
        assert!(!row.attempted && row.last_error.is_none(), "{row:?}");
    }
    // The road is open again, and its back-off is not over.
    road.open(&scene.world.broker);
    let output = scene.world.once(&arguments, 0);
    assert!(output.stdout.starts_with("0 due"), "{output:?}");
    assert!(arrived(&mut scene.world, &road.queue).is_empty());
    let others = scene.others.clone();
    set(&mut scene.world.client, &others, "status = 'SKIPPED'");
    scene.world.end_backoff();
    scene.all_go(&arguments, &chain);
}

/// With a running relay, through back-offs of its own.
#[test]
fn the_whole_chain_leaves_in_order_once_the_road_is_open_again() {
    let mut world = World::new();
    let road = Road::new(&world);
    road.close(&world.broker);
    let chain = insert_chain(&mut world.client, &road.event_type, Some("k"), 40);
    let relay = world.start(&[
        "--interval",
        "50ms",
        "--backoff-base",
        "100ms",
        "--backoff-max",
        "200ms",
        "--max-failures",
        "1000",
        "--batch-rows",
        "7",
    ]);
    wait_until(&format!("it was refused three times:\n{relay}"), DEADLINE, || {
        (world.row(chain[0]).fail_count >= 3).then_some(())
    });
    let touched = "select count(*) from event_outbox where id <> $1 and (last_retried_at is not null or fail_count > 0)";
    assert_eq!(world.client.query_one(touched, &[&chain[0]]).unwrap().get::<_, i64>(0), 0);
    road.open(&world.broker);
    wait_until(&format!("all are published:\n{relay}"), DEADLINE, || {
        (world.count("PUBLISHED") == 40).then_some(())
    });
    assert_eq!(arrived(&mut world, &road.queue), chain);
}

#[test]
fn a_nacked_event_holds_its_followers_back() {
    let world = World::new();
    let full = unique("full");
    let room = [
        ("x-max-length", AmqpValue::LongLongInt(1)),
        ("x-overflow", AmqpValue::LongString("reject-publish".into())),
    ];
    world.broker.declare_queue(&full, &room);
    let mut world = world;
    let chain = insert_chain(&mut world.client, &full, Some("k"), 4);
    for place in 0..4 {
        // A queue takes a message or two above its limit when they come together; one by one it does not.
        let output =
            world.once(&["--backoff-base", "1h", "--backoff-max", "1h"], if place < 3 { 75 } else { 0 });
        assert!(output.stdout.starts_with("claimed "), "{output:?}");
        let mut expected = vec!["PUBLISHED"; place + 1];
        expected.extend((place + 1..4).map(|it| if it == place + 1 { "FAILED" } else { "WAITING" }));
        assert_eq!(statuses(&mut world, &chain), expected, "{output:?}");
        assert_eq!(arrived(&mut world, &full), chain[place..=place]);
        world.end_backoff();
    }
}
