//! The setting `retention` in `run`.

use super::{DEAD, EXPIRED, FAILED, PUBLISHED, SCHEDULED, SKIPPED, write};
use crate::harness::wait_until;
use crate::world::{DEADLINE, World};

#[test]
fn run_purges_what_is_old_enough_and_goes_on_relaying() {
    let mut world = World::new();
    let queue = world.queue();
    let kept = [DEAD, FAILED, SCHEDULED].map(|kind| write(&mut world, kind));
    let gone = [PUBLISHED, EXPIRED, SKIPPED].map(|kind| write(&mut world, kind));
    let young = world.insert_with("x", "{}", "status, published_at", "'PUBLISHED', now()");
    let mut relay = world.start(&["--retention", "1h", "--interval", "100ms"]);
    relay.wait_for_line("msg=\"retention: purged\" events=3", DEADLINE);
    let id = world.insert(&queue, "{}");
    wait_until("the event to be published", DEADLINE, || (world.row(id).status == "PUBLISHED").then_some(()));
    relay.signal("TERM");
    assert_eq!(relay.wait(DEADLINE).code, Some(0));
    let rows = world.client.query("select id from event_outbox order by id", &[]).unwrap();
    let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(ids, [&kept[..], &[young, id]].concat(), "{gone:?}");
}

#[test]
fn a_large_purge_spans_beats_and_delays_no_event() {
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many("old", 30_000);
    let sql = "update event_outbox set status = 'PUBLISHED', published_at = now() - interval '2 days'";
    world.client.execute(sql, &[]).unwrap();
    let mut relay = world.start(&["--retention", "1d", "--interval", "20ms", "-v"]);
    relay.wait_for_line("so far", DEADLINE);
    // Sent while the purge has work left.
    let id = world.insert(&queue, "{}");
    let purged_by_then = wait_until("the event to be published", DEADLINE, || {
        let sql = "select (select count(*) from event_outbox where event_type = 'old')
            from event_outbox where id = $1 and status = 'PUBLISHED'";
        world.client.query_opt(sql, &[&id]).unwrap().map(|row| row.get::<_, i64>(0))
    });
    relay.wait_for_line("msg=\"retention: purged\" events=30000", DEADLINE);
    assert!(purged_by_then > 0, "the purge was over before the event was sent");
    relay.signal("TERM");
    assert_eq!(relay.wait(DEADLINE).code, Some(0));
    assert_eq!(world.count("PUBLISHED"), 1);
}

#[test]
fn without_the_setting_nothing_is_purged() {
    let mut world = World::new();
    let queue = world.queue();
    let old = write(&mut world, PUBLISHED);
    let mut relay = world.start(&["--interval", "20ms"]);
    for _ in 0..3 {
        let id = world.insert(&queue, "{}");
        wait_until("the event to be published", DEADLINE, || {
            (world.row(id).status == "PUBLISHED").then_some(())
        });
    }
    relay.signal("TERM");
    assert_eq!(relay.wait(DEADLINE).code, Some(0));
    assert_eq!(world.row(old).status, "PUBLISHED");
}
