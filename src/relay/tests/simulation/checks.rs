//! What must be true of every history, whatever happens in it.

use std::collections::HashMap;

use crate::outbox::tests::rows::{Row, Status};
use crate::publisher::tests::broker;

use super::world::{SECOND, World};

/// A relay sees within a second, and then some, that a claim is lost.
const NOTICED_WITHIN: u64 = 2 * SECOND;

/// An event is PUBLISHED only when a queue has taken it, and back-pressure alone never ends one.
pub(super) fn after_each_step(world: &mut World) {
    let is_pressed = |it: &Row| it.event_type == broker::FULL && it.status == Status::Dead;
    let pressed = world.servers.rows.borrow().rows.iter().find(|it| is_pressed(it)).map(|it| it.id);
    assert_eq!(pressed, None, "it is DEAD, and was only nacked");
    let sent = std::mem::take(&mut world.servers.hub.borrow_mut().broker.sent);
    for (relay, event_id) in sent {
        let lost_at = world.servers.rows.borrow().lost_at.get(&(relay, event_id.parse().unwrap())).copied();
        // A process that was stopped may send what its lanes had, before it comes to itself.
        let lost_at = lost_at.filter(|at| world.relays[relay].frozen_until < *at);
        let late = lost_at.map_or(0, |at| world.now - at);
        assert!(late < NOTICED_WITHIN, "{event_id} is sent {late} us after its claim was lost");
    }
    let published = std::mem::take(&mut world.servers.rows.borrow_mut().published);
    if published.is_empty() {
        return;
    }
    let (rows, hub) = (world.servers.rows.borrow(), world.servers.hub.borrow());
    for id in published {
        let event_id = rows.get(id).unwrap().event_id();
        assert!(hub.broker.received.contains(&event_id), "{id} is PUBLISHED, and no queue has it");
    }
}

pub(super) fn at_the_end(world: &World) -> u64 {
    let (rows, hub) = (world.servers.rows.borrow(), world.servers.hub.borrow());
    let received: HashMap<&str, usize> =
        hub.broker.received.iter().enumerate().rev().map(|(place, id)| (id.as_str(), place)).collect();
    let kind = world.faults.kind;

    // Nothing is invented.
    for id in received.keys() {
        let id: i64 = id.parse().unwrap();
        assert!(world.writers.committed.contains(&id), "{id} was received and not committed");
    }
    for row in rows.rows.iter() {
        let is_here = received.contains_key(row.event_id().as_str());
        // Nothing is lost: what has not been received has ended for a reason of its own.
        match row.status {
            Status::Published => assert!(is_here, "{row:?} is lost"),
            Status::Expired | Status::Skipped => {}
            _ => panic!("{row:?} is stuck"),
        }
        if !row.outside {
            assert!(row.status == Status::Published, "{row:?} ended by itself");
        }
        // Only the guilty pay, and only for what the broker said of them.
        let refused = hub.broker.refused.get(&row.event_id()).copied().unwrap_or_default();
        let said_once_for_all = row.exchange.is_some();
        assert!(said_once_for_all || row.fail_count <= refused, "{row:?} was refused {refused} times");
        if !kind.has_guilty() {
            assert_eq!(row.fail_count, 0, "{row:?}");
        }
    }
    assert_eq!(rows.rows.len(), world.writers.committed.len());

    // First receipts are in order, for each key.
    let mut last: HashMap<&str, (usize, i64)> = HashMap::new();
    for row in rows.rows.iter().filter(|it| !it.outside) {
        let (Some(key), Some(place)) = (row.key, received.get(row.event_id().as_str())) else { continue };
        if let Some((before, id)) = last.insert(key, (*place, row.id)) {
            assert!(before < *place, "{} of key {key} was received before {id}", row.id);
        }
    }

    let copies = u64::try_from(hub.broker.received.len() - received.len()).unwrap();
    let most = if kind.makes_no_copies() { 0 } else { world.copies_max };
    assert!(copies <= most, "{copies} copies, {most} at most");
    copies
}
