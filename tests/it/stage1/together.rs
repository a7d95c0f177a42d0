//! Callers that come together share claims, and a drain of the relay does not delay them.

use std::sync::Barrier;
use std::thread;

use outboxd::relay::{Answer, Stage1};
use outboxd::{NewEvent, append};

use super::{now, stage1, write};
use crate::world::World;

#[test]
fn callers_that_come_together_share_claims() {
    const CALLERS: usize = 40;
    let mut world = World::new();
    let (queue, stage1) = (world.queue(), stage1(&world));
    // Each claim is settled in one statement.
    let count = "
        create sequence settles;
        create function count_settles() returns trigger language plpgsql as
            $$ begin perform nextval('settles'), pg_sleep(0.02); return null; end $$;
        create trigger settles after update on event_outbox for each statement execute function count_settles()";
    world.client.batch_execute(count).unwrap();
    let ids: Vec<String> = (0..CALLERS).map(|_| write(&mut world, &queue)).collect();
    let together = Barrier::new(CALLERS);
    thread::scope(|scope| {
        for id in &ids {
            let (stage1, together) = (&stage1, &together);
            scope.spawn(move || {
                together.wait();
                assert_eq!(now(stage1, id), Answer::Published);
            });
        }
    });
    // The handle's end is the last settle's.
    drop(stage1);
    let settles: i64 = world.client.query_one("select last_value from settles", &[]).unwrap().get(0);
    assert!(settles <= CALLERS as i64 / 4, "{settles} claims for {CALLERS} callers");
    assert_eq!(world.arrivals(&queue).len(), CALLERS);
}

#[test]
fn the_relays_drain_does_not_delay_anyone() {
    const BACKLOG: i64 = 30_000;
    let mut world = World::new();
    let (backlog, queue) = (world.queue(), world.queue());
    let stage1: Stage1 = stage1(&world);
    let first = write(&mut world, &queue);
    assert_eq!(now(&stage1, &first), Answer::Published);
    world.insert_many(&backlog, BACKLOG);
    let mut relay = world.start(&["--interval", "60s"]);
    let mut published = 0;
    while world.broker.queue_len(&backlog) < BACKLOG as u32 {
        let mut tx = world.client.transaction().unwrap();
        let id = append(&mut tx, &NewEvent::new(&queue)).unwrap();
        tx.commit().unwrap();
        assert_eq!(now(&stage1, &id), Answer::Published);
        published += 1;
        assert!(relay.is_running());
    }
    assert!(published >= 10, "only {published} while the backlog drained");
}
