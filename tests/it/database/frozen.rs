//! A relay that is frozen in the middle of a batch loses it to another one, and what it does when it wakes up changes
//! nothing that was decided since.

use super::{Batch, EVENTS, RUN, goes_on, locked};
use crate::harness::{Proc, Servers, wait_until};
use crate::world::{DEADLINE, OUTBOXD, World};

/// What can be seen of every row.
fn rows(world: &mut World) -> Vec<String> {
    let sql = "select row(outbox.*)::text from event_outbox as outbox order by id";
    world.client.query(sql, &[]).unwrap().iter().map(|row| row.get(0)).collect()
}

#[test]
fn a_frozen_relay_loses_its_rows_and_its_late_writes_change_nothing() {
    let mut batch = Batch::unconfirmed(World::new(), &["--claim-max-idle", "5s"]);
    batch.relay.signal("STOP");
    let world = &mut batch.world;
    wait_until("the server frees the rows", DEADLINE, || (locked(&mut world.client) == 0).then_some(()));
    let first = "update event_outbox set status = 'SKIPPED' where id = \
        (select min(id) from event_outbox where status = 'WAITING')";
    assert_eq!(world.client.execute(first, &[]).unwrap(), 1);
    let environment =
        [("DATABASE_URL", world.database.url.as_str()), ("AMQP_URL", Servers::shared().amqp_url())];
    let other = Proc::run(OUTBOXD, &["once", "--min-age", "0s"], &environment, DEADLINE);
    assert!(other.stdout.contains(&format!("claimed {0}: published {0}", EVENTS - 1)), "{other:?}");
    let before = rows(world);
    // One that is new, and must not be lost in what the woken one believes.
    batch.relay.signal("CONT");
    batch.broker.heal();
    goes_on(world, &batch.queue, &batch.relay);
    goes_on(world, &batch.queue, &batch.relay);
    let after = rows(world);
    assert_eq!(after[..before.len()], before[..], "{}", batch.relay);
    assert_eq!((world.count("SKIPPED"), world.count("PUBLISHED")), (1, EVENTS + 2));
    // Sent by both relays, but for the one that was skipped, and the new ones.
    assert_eq!(world.arrivals(&batch.queue).len() as i64, EVENTS + (EVENTS - 1) + 2);
}

/// The same before anything was sent: what the woken relay still has in hand must not leave any more.
#[test]
fn a_relay_frozen_before_it_sends_does_not_send_what_others_have_sent_meanwhile() {
    const MANY: i64 = 5_000;
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many(&queue, MANY);
    let options = ["--claim-max-idle", "5s", "--window", "1", "--workers", "1", "--batch-rows", "2000"];
    let mut relay = world.start(&[&RUN[..], &options].concat());
    // The first claim is on its way: many of its events are not sent.
    wait_until("it sends", DEADLINE, || (world.broker.queue_len(&queue) > 10).then_some(()));
    relay.signal("STOP");
    wait_until("the server frees the rows", DEADLINE, || (locked(&mut world.client) == 0).then_some(()));
    world.once(&["--min-age", "0s"], 0);
    assert_eq!(world.count("PUBLISHED"), MANY);
    let sent = i64::from(world.broker.queue_len(&queue));
    relay.signal("CONT");
    goes_on(&mut world, &queue, &relay);
    let late = i64::from(world.broker.queue_len(&queue)) - sent - 1;
    // It notices with its next sign of life on the claim, of which there is one each second.
    assert!(late < 300, "{late} were sent late:\n{relay}");
    assert_eq!(world.count("PUBLISHED"), MANY + 1);
}
