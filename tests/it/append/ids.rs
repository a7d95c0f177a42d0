//! Event ids: ULIDs, made by the process that appends or by the database.

use std::collections::HashSet;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use outboxd::{NewEvent, append_all};
use ulid::Ulid;

use crate::world::World;

#[test]
fn ids_rise_within_a_process_whichever_thread_appends() {
    let world = World::new();
    let per_thread: Vec<Vec<String>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let mut client = world.database.connect();
                scope.spawn(move || {
                    let mut ids = Vec::new();
                    for _ in 0..20 {
                        let mut tx = client.transaction().unwrap();
                        ids.extend(append_all(&mut tx, &vec![NewEvent::new("t"); 25]).unwrap());
                        tx.commit().unwrap();
                    }
                    ids
                })
            })
            .collect();
        threads.into_iter().map(|it| it.join().unwrap()).collect()
    });
    assert!(per_thread.iter().all(|ids| ids.is_sorted_by(|a, b| a < b)));
    let all: HashSet<_> = per_thread.iter().flatten().collect();
    assert_eq!(all.len(), 2_000);
    let mut world = world;
    assert_eq!(world.count("WAITING"), 2_000);
}

#[test]
fn ids_from_sql_are_ulids_of_their_moment_and_none_comes_twice() {
    let mut world = World::new();
    let millis = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let before = millis();
    let sql = "select outbox_append('t', '{}') from generate_series(1, 10000)";
    let made = world.client.query(sql, &[]).unwrap();
    let after = millis();
    let made: Vec<String> = made.iter().map(|row| row.get(0)).collect();
    let ulids: Vec<Ulid> = made.iter().map(|id| Ulid::from_string(id).unwrap()).collect();
    assert!(ulids.iter().zip(&made).all(|(ulid, id)| ulid.to_string() == *id));
    let times: Vec<u64> = ulids.iter().map(Ulid::timestamp_ms).collect();
    assert!(times.is_sorted() && times[0] >= before && times[9_999] <= after, "{before} {times:?} {after}");
    assert!(times[0] < times[9_999]);
    assert_eq!(made.iter().collect::<HashSet<_>>().len(), 10_000);
    // Each of the 80 bits is sometimes set and sometimes not.
    let random = || ulids.iter().map(Ulid::random);
    let all = (1_u128 << 80) - 1;
    assert_eq!((random().fold(0, |a, b| a | b), random().fold(all, |a, b| a & b)), (all, 0));
    // The id's time is the row's.
    let sql = "select event_id, floor(extract(epoch from created_at) * 1000)::bigint from event_outbox";
    for row in world.client.query(sql, &[]).unwrap() {
        let id = Ulid::from_string(row.get(0)).unwrap();
        assert_eq!(id.timestamp_ms() as i64, row.get::<_, i64>(1));
    }
}
