//! Times in the life of an event: its back-off, and its deadline while it waits for one of its key.

use std::time::Duration;

use super::{Road, arrived, behind_proxy, insert_chain, set, statuses};
use crate::harness::{Direction, wait_until};
use crate::world::{DEADLINE, World};

#[test]
fn events_refused_together_do_not_come_back_together() {
    let mut world = World::new();
    let road = Road::new(&world);
    road.close(&world.broker);
    let ids = insert_chain(&mut world.client, &road.event_type, None, 100);
    set(&mut world.client, &ids[..50], "status = 'FAILED', fail_count = 1");
    world.once(&["--max-failures", "9", "--backoff-base", "100s", "--backoff-max", "1h"], 75);
    let sql = "select extract(epoch from available_at - last_retried_at)::float8 from event_outbox \
         where fail_count = $1 order by 1";
    for (fail_count, most) in [(1, 100.0), (2, 200.0)] {
        let rows = world.client.query(sql, &[&fail_count]).unwrap();
        let backoffs: Vec<f64> = rows.iter().map(|row| row.get(0)).collect();
        assert_eq!(backoffs.len(), 50);
        let (least, longest) = (backoffs[0], backoffs[49]);
        // Half of it is fixed, half is by chance; the two moments are taken within one statement.
        assert!(least > most / 2.0 - 1.0 && longest < most + 1.0, "{least} to {longest} s");
        // By chance alone, fifty of them come so close together once in 10 ^ 13 times.
        assert!(longest - least > most / 4.0, "{least} to {longest} s");
    }
}

/// It is claimed before its deadline, and its turn comes after it.
#[test]
fn an_event_that_expires_while_it_waits_for_its_key_is_not_sent() {
    let (mut world, proxy, queue) = behind_proxy();
    let relay = world.start(&["--interval", "50ms"]);
    world.insert(&queue, "{}");
    wait_until("the relay works", DEADLINE, || (world.count("PUBLISHED") == 1).then_some(()));
    world.arrivals(&queue);
    // Each event of the chain waits that long for the one before it.
    proxy.delay(Direction::ToClient, Duration::from_millis(300));
    let mut writer = world.client.transaction().unwrap();
    let sql = "insert into event_outbox (event_id, event_type, payload, created_at, ordering_key, expired_at) \
         select 'event ' || n, $1, '{}', '2020-01-01', 'k', \
             case when n = 4 then clock_timestamp() + interval '700 ms' end \
         from generate_series(1, 5) as n returning id";
    let rows = writer.query(sql, &[&queue]).unwrap();
    writer.commit().unwrap();
    let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    wait_until(&format!("all are finished:\n{relay}"), DEADLINE, || {
        (world.count("WAITING") == 0).then_some(())
    });
    assert_eq!(statuses(&mut world, &ids[3..]), ["EXPIRED", "PUBLISHED"], "{relay}");
    assert_eq!(arrived(&mut world, &queue), [&ids[..3], &ids[4..]].concat());
}

/// A back-off of a millisecond is over before the drain is: an event is tried once per drain all the same.
#[test]
fn a_drain_does_not_spin_on_a_back_off_of_a_millisecond() {
    let mut world = World::new();
    let road = Road::new(&world);
    road.close(&world.broker);
    let chain = insert_chain(&mut world.client, &road.event_type, Some("k"), 3);
    let loose = insert_chain(&mut world.client, &road.event_type, None, 3);
    for round in 1..=3 {
        let arguments =
            ["--backoff-base", "1ms", "--backoff-max", "1ms", "--max-failures", "9", "--batch-rows", "1"];
        let output = world.once(&arguments, 75);
        assert!(output.stdout.starts_with("claimed 4: failed 4\n"), "{output:?}");
        assert_eq!(world.row(chain[0]).fail_count, round);
        assert!(loose.iter().all(|id| world.row(*id).fail_count == round));
        wait_until("the back-offs are over", Duration::from_secs(5), || {
            (!world.row(chain[0]).backs_off && !loose.iter().any(|id| world.row(*id).backs_off)).then_some(())
        });
    }
    assert_eq!(statuses(&mut world, &chain[1..]), ["WAITING"; 2]);
}
