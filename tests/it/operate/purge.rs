//! `outboxd purge`: what goes, what stays, and that many may do it at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::{
    DEAD, EXPIRED, FAILED, PUBLISHED, SCHEDULED, SKIPPED, WAITING, contents, holds, json, says, sending,
    write,
};
use crate::harness::{Proc, wait_until};
use crate::world::{DEADLINE, OUTBOXD, World};

fn statuses(world: &mut World) -> Vec<String> {
    let rows = world.client.query("select status from event_outbox order by id", &[]).unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[test]
fn finished_events_go_and_no_others() {
    let mut world = World::new();
    for kind in [WAITING, FAILED, SCHEDULED, DEAD, PUBLISHED, EXPIRED, SKIPPED] {
        write(&mut world, kind);
    }
    let before = contents(&mut world);
    let text = says(&world, &["purge", "--older-than", "30m", "--dry-run"]);
    assert!(text.starts_with("would have purged 3 events\n"), "{text}");
    assert_eq!(json(&world, &["purge", "--older-than", "30m", "--dry-run"])["matched"], 3);
    assert_eq!(says(&world, &["purge", "--older-than", "3h"]), "purged 0 events\n");
    assert_eq!(contents(&mut world), before);

    let document = json(&world, &["purge", "--older-than", "30m"]);
    assert_eq!((&document["changed"], &document["matched"]), (&json!(3), &json!(3)));
    assert_eq!(statuses(&mut world), ["WAITING", "FAILED", "WAITING", "DEAD"]);
    assert_eq!(says(&world, &["purge", "--older-than", "55m", "--status", "dead"]), "purged 0 events\n");
    assert_eq!(says(&world, &["purge", "--older-than", "45m", "--status", "dead"]), "purged 1 event\n");
    assert_eq!(statuses(&mut world), ["WAITING", "FAILED", "WAITING"]);
}

#[test]
fn age_counts_from_the_end_and_not_from_the_beginning() {
    let mut world = World::new();
    let cases = [
        ("'PUBLISHED', null, null, null, now() - interval '2 days'", true),
        ("'PUBLISHED', now() - interval '3 days', now() - interval '3 days', null, now()", false),
        // As an older program left it.
        ("'PUBLISHED', null, null, now() - interval '2 days', null", true),
        ("'PUBLISHED', null, null, now(), null", false),
        ("'EXPIRED', null, now() - interval '2 days', null, null", true),
        ("'EXPIRED', now(), now() - interval '2 days', null, null", false),
        ("'SKIPPED', now() - interval '2 days', null, null, null", true),
        ("'SKIPPED', now(), null, null, null", false),
        ("'SKIPPED', now() - interval '2 days', null, now(), null", false),
        // A deadline to come says nothing of the end.
        ("'SKIPPED', now() - interval '2 days', now() + interval '2 days', null, null", true),
        ("'SKIPPED', now() - interval '2 days', 'infinity', null, null", true),
        ("'DEAD', null, null, now() - interval '2 days', null", true),
        ("'DEAD', null, null, now(), null", false),
    ];
    let columns = "created_at, status, available_at, expired_at, last_retried_at, published_at";
    let rows: Vec<(i64, String, bool)> = cases
        .iter()
        .map(|(values, goes)| {
            let values = format!("now() - interval '30 days', {values}");
            (world.insert_with("x", "{}", columns, &values), values, *goes)
        })
        .collect();
    let all = ["published", "expired", "skipped", "dead"].map(|status| ["--status", status]).concat();
    says(&world, &[&["purge", "--older-than", "1d"], &all[..]].concat());
    for (id, name, goes) in rows {
        let left = world.client.query("select 1 from event_outbox where id = $1", &[&id]).unwrap();
        assert_eq!(left.is_empty(), goes, "{name}");
    }
}

#[test]
fn what_is_given_up_or_expires_late_is_kept_for_its_time() {
    let mut world = World::new();
    let skipped = world.insert_with("x", "{}", "created_at", "now() - interval '60 days'");
    let columns = "created_at, expired_at";
    let expired =
        world.insert_with("x", "{}", columns, "now() - interval '60 days', now() - interval '59 days'");
    says(&world, &["skip", "--id", &skipped.to_string()]);
    world.once(&[], 0);
    assert_eq!(world.row(expired).status, "EXPIRED");
    assert_eq!(says(&world, &["purge", "--older-than", "30d"]), "purged 0 events\n");
    assert_eq!(statuses(&mut world), ["SKIPPED", "EXPIRED"]);
}

#[test]
fn a_purge_takes_filters_a_limit_and_the_setting() {
    let mut world = World::new();
    world.insert_many("a.b", 3_500);
    world.insert_many("c", 10);
    let sql = "update event_outbox set status = 'PUBLISHED', published_at = now() - interval '2 days'";
    world.client.execute(sql, &[]).unwrap();
    let left = |world: &mut World| world.count("PUBLISHED");
    assert_eq!(says(&world, &["purge", "--older-than", "1d", "--limit", "1200"]), "purged 1200 events\n");
    assert_eq!(left(&mut world), 2_310);
    assert_eq!(says(&world, &["purge", "--retention", "1d", "--type", "a.*"]), "purged 2300 events\n");
    assert_eq!(left(&mut world), 10);
    world.configure("retention = \"3d\"");
    let config = world.config_path().to_owned();
    assert_eq!(says(&world, &["purge", "--config", &config]), "purged 0 events\n");
    world.configure("retention = \"1d\"");
    assert_eq!(says(&world, &["purge", "--config", &config]), "purged 10 events\n");
}

#[test]
fn a_walk_passes_young_rows_and_ends_behind_a_page_of_them() {
    let mut world = World::new();
    let old = |world: &mut World, count| {
        world.insert_many("old", count);
    };
    old(&mut world, 1_500);
    world.insert_many("young", 2_000);
    old(&mut world, 1_500);
    world.insert_many("young", 5_000);
    world.insert_many("young", 5_000);
    let sql = "update event_outbox set status = 'PUBLISHED',
        published_at = case event_type when 'old' then now() - interval '2 days' else now() end,
        created_at = case event_type when 'old' then now() - interval '2 days' else now() end";
    world.client.execute(sql, &[]).unwrap();
    assert_eq!(says(&world, &["purge", "--older-than", "1d"]), "purged 3000 events\n");
    assert_eq!(world.count("PUBLISHED"), 12_000);
}

#[test]
fn a_row_that_someone_holds_is_left() {
    let mut world = World::new();
    let (held, free) = (write(&mut world, SKIPPED), write(&mut world, SKIPPED));
    let relay = sending(&world, held);
    let text = says(&world, &["purge", "--older-than", "1h"]);
    assert!(text.starts_with("purged 1 event\nleft 1 event"), "{text}");
    assert!(holds(&mut world, held, "status = 'SKIPPED'"), "{free}");
    drop(relay);
}

#[test]
fn three_purges_beside_a_writer_and_a_relay_disturb_nobody() {
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many("old", 20_000);
    let sql = "update event_outbox set status = 'PUBLISHED', published_at = now() - interval '2 days'";
    world.client.execute(sql, &[]).unwrap();
    let mut relay = world.start(&["--interval", "50ms", "--min-age", "0s", "--retention", "1d"]);

    let stop = AtomicBool::new(false);
    let database = &world.database;
    let purge = || {
        // The events of the writer, too, as soon as they are published.
        let line = ["purge", "--older-than", "100ms", "--json"];
        let output = Proc::run(OUTBOXD, &line, &[("DATABASE_URL", &database.url)], DEADLINE);
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
        serde_json::from_str::<Value>(&output.stdout).unwrap()["changed"].as_u64().unwrap()
    };
    let (written, purged) = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut client = database.connect();
            let mut written = 0_i64;
            while !stop.load(Ordering::Relaxed) {
                let id = ulid::Ulid::generate().to_string();
                let sql = "insert into event_outbox (event_id, event_type, payload) values ($1, $2, '{}')";
                client.execute(sql, &[&id, &queue]).unwrap();
                written += 1;
            }
            written
        });
        let purges: Vec<_> = (0..3).map(|_| scope.spawn(|| (0..6).map(|_| purge()).sum::<u64>())).collect();
        let purged: u64 = purges.into_iter().map(|it| it.join().unwrap()).sum();
        stop.store(true, Ordering::Relaxed);
        (writer.join().unwrap(), purged)
    });
    assert!(purged > 0);
    wait_until("all written events to be published", DEADLINE, || {
        let sql = "select count(*) from event_outbox where status <> 'PUBLISHED'";
        (world.client.query_one(sql, &[]).unwrap().get::<_, i64>(0) == 0).then_some(())
    });
    relay.signal("TERM");
    let output = relay.wait(DEADLINE);
    assert_eq!(output.code, Some(0), "{output:?}");
    for word in ["deadlock", "WARN", "ERROR"] {
        assert!(!output.stderr.contains(word), "{output:?}");
    }
    assert_eq!(i64::try_from(world.arrivals(&queue).len()).unwrap(), written);
    json(&world, &["purge", "--older-than", "0s"]);
    assert_eq!(world.count("PUBLISHED"), 0);
}
