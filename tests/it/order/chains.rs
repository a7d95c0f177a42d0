//! Long chains, many keys, and odd ones.

use std::time::Duration;

use super::oracle::{Oracle, Verdict};
use super::{arrived, behind_proxy, insert_chain, insert_keys};
use crate::harness::{Direction, wait_until};
use crate::world::{DEADLINE, World};

#[test]
fn a_chain_longer_than_a_batch_leaves_in_one_run() {
    for batch in ["1", "2", "7", "10000"] {
        let mut world = World::new();
        let queue = world.queue();
        let mut chain = insert_chain(&mut world.client, &queue, Some("k"), 30);
        insert_chain(&mut world.client, &queue, None, 10);
        chain.extend(insert_chain(&mut world.client, &queue, Some("k"), 30));
        let output = world.once(&["--batch-rows", batch], 0);
        assert!(output.stdout.starts_with("claimed 70: published 70\n"), "{batch}: {output:?}");
        let all = arrived(&mut world, &queue);
        assert_eq!(all.len(), 70);
        let of_chain: Vec<i64> = all.into_iter().filter(|id| chain.contains(id)).collect();
        assert_eq!(of_chain, chain, "{batch}");
    }
}

/// The chain comes first in the table, and pays a round trip per event.
#[test]
fn events_without_a_key_do_not_wait_for_a_long_chain() {
    let (mut world, proxy, queue) = behind_proxy();
    proxy.delay(Direction::ToClient, Duration::from_millis(2));
    let chain = insert_chain(&mut world.client, &queue, Some("k"), 2000);
    let loose = insert_chain(&mut world.client, &queue, None, 2000);
    let output = world.once(&[], 0);
    assert!(output.stdout.starts_with("claimed 4000: published 4000\n"), "{output:?}");
    let verdict = Oracle::read(&mut world.client).check(&world.arrivals(&queue)).unwrap();
    assert_eq!(verdict, Verdict { received: 4000, twice: 0, compared: 1999 });
    let last = "select max(published_at) < (select max(published_at) from event_outbox where id = any($1)), \
         extract(epoch from (select max(published_at) from event_outbox where id = any($1)) \
             - max(published_at))::float8 \
         from event_outbox where id = any($2)";
    let row = world.client.query_one(last, &[&chain, &loose]).unwrap();
    let (before, ahead): (bool, f64) = (row.get(0), row.get(1));
    assert!(before, "the last of the others came {ahead} s before the last of the chain");
}

#[test]
fn many_keys_keep_their_order_interleaved_and_one_after_the_other() {
    for grouped in [false, true] {
        let mut world = World::new();
        let queue = world.queue();
        let keys: Vec<String> =
            (0..3000).map(|n| format!("key {}", if grouped { n / 10 } else { n % 300 })).collect();
        let keys: Vec<Option<&str>> = keys.iter().map(|it| Some(it.as_str())).collect();
        insert_keys(&mut world.client, &queue, &keys);
        let output = world.once(&[], 0);
        assert!(output.stdout.starts_with("claimed 3000: published 3000\n"), "{output:?}");
        let verdict = Oracle::read(&mut world.client).check(&world.arrivals(&queue)).unwrap();
        assert_eq!(verdict, Verdict { received: 3000, twice: 0, compared: 2700 });
    }
}

/// Keys are compared by their bytes, and are no text of SQL or of an array.
#[test]
fn odd_keys_are_keys_of_their_own() {
    let long = "é".repeat(512);
    let other = format!("{}e", "é".repeat(511));
    let odd: [&str; 30] = [
        "", " ", "  ", "NULL", "null", "{}", "{NULL}", "{a,b}", "\"", "\"\"", "'", "''", "\\", "\\\\",
        "\\x41", ",", "a,b", "a", "A", "á", "a\u{301}", "ß", "ss", "ﬁ", "fi", "\u{200b}", "a\nb", "日本",
        &long, &other,
    ];
    for batch in ["4", "500"] {
        let mut world = World::new();
        let queue = world.queue();
        let keys: Vec<Option<&str>> = (0..4).flat_map(|_| odd.iter().map(|it| Some(*it))).collect();
        let ids = insert_keys(&mut world.client, &queue, &keys);
        // The first of each second one is scheduled: only its own key waits for it.
        let held: Vec<i64> = ids.iter().copied().take(odd.len()).step_by(2).collect();
        super::set(&mut world.client, &held, "available_at = clock_timestamp() + interval '1 hour'");
        let output = world.once(&["--batch-rows", batch], 0);
        assert!(output.stdout.starts_with("claimed 60: published 60\n"), "{batch}: {output:?}");
        world.client.batch_execute("update event_outbox set available_at = null").unwrap();
        world.once(&["--batch-rows", batch], 0);
        let arrived = world.arrivals(&queue);
        let verdict = Oracle::read(&mut world.client).check(&arrived).unwrap();
        assert_eq!(verdict, Verdict { received: 120, twice: 0, compared: 90 });
    }
}

/// A database whose own collation takes texts for equal that are not the same.
#[test]
fn keys_that_a_collation_takes_for_equal_are_different_keys() {
    let mut world = World::new();
    let queue = world.queue();
    let ignorant =
        "create collation ignorant (provider = icu, locale = 'und-u-ks-level1', deterministic = false);
        alter table event_outbox alter column ordering_key type text collate ignorant";
    if world.client.batch_execute(ignorant).is_err() {
        // A server without ICU has no such collation.
        return;
    }
    let keys: Vec<Option<&str>> = (0..3).flat_map(|_| ["a", "A", "á"].map(Some)).collect();
    let ids = insert_keys(&mut world.client, &queue, &keys);
    super::set(&mut world.client, &ids[..1], "available_at = clock_timestamp() + interval '1 hour'");
    let output = world.once(&[], 0);
    assert!(output.stdout.starts_with("claimed 6: published 6\n"), "{output:?}");
    assert_eq!(world.count("WAITING"), 3);
}

#[test]
fn sigterm_in_a_long_chain_hands_the_rest_back_in_order() {
    const EVENTS: i64 = 600;
    let (mut world, proxy, queue) = behind_proxy();
    proxy.delay(Direction::ToClient, Duration::from_millis(20));
    let chain = insert_chain(&mut world.client, &queue, Some("k"), EVENTS);
    let mut relay = world.start(&["--interval", "1h", "--grace", "10s"]);
    wait_until(&format!("some are published:\n{relay}"), DEADLINE, || {
        (world.count("PUBLISHED") > 10).then_some(())
    });
    relay.signal("TERM");
    let ended = relay.wait(Duration::from_secs(20));
    assert_eq!((ended.code, ended.signal), (Some(0), None), "{ended:?}");
    assert!(!ended.stderr.contains("level=warn ") && !ended.stderr.contains("level=error "), "{ended:?}");
    let first = arrived(&mut world, &queue);
    assert!(first.len() < chain.len(), "all were sent before the signal");
    assert_eq!(first, chain[..first.len()]);
    assert_eq!(world.count("PUBLISHED"), first.len() as i64);
    let touched =
        "select count(*) from event_outbox where status = 'WAITING' and last_retried_at is not null";
    assert_eq!(world.client.query_one(touched, &[]).unwrap().get::<_, i64>(0), 0);
    proxy.heal();
    world.once(&[], 0);
    assert_eq!(arrived(&mut world, &queue), chain[first.len()..]);
}

/// The byte bound cuts chains, and leaves keys out that a claim was asked for.
#[test]
fn chains_of_large_events_keep_their_order_within_the_byte_bound() {
    let mut world = World::new();
    let queue = world.queue();
    let keys: Vec<String> = (0..90).map(|n| format!("key {}", n % 9)).collect();
    let keys: Vec<Option<&str>> = keys.iter().map(|it| Some(it.as_str())).collect();
    let ids = insert_keys(&mut world.client, &queue, &keys);
    super::set(&mut world.client, &ids, "payload = repeat('x', 20000)");
    // Some are larger than the bound, and are claimed alone.
    let large: Vec<i64> = ids.iter().copied().skip(4).step_by(11).collect();
    super::set(&mut world.client, &large, "payload = repeat('x', 120000)");
    let output = world.once(&["--batch-bytes", "100KiB"], 0);
    assert!(output.stdout.starts_with("claimed 90: published 90\n"), "{output:?}");
    let verdict = Oracle::read(&mut world.client).check(&world.arrivals(&queue)).unwrap();
    assert_eq!(verdict, Verdict { received: 90, twice: 0, compared: 81 });
}
