//! Two relays and one key: an event that comes up before those that another relay has in flight.

use std::thread;

use outboxd::config::Config;
use outboxd::relay::{Relay, Stop};
use postgres::Client;

use super::{arrived, behind_proxy, insert_chain, set, statuses};
use crate::harness::{Direction, Proc, Proxy, Servers, wait_until};
use crate::world::{DEADLINE, OUTBOXD, World};

/// A relay whose confirms are held back, and which so holds the first events of a key.
struct Standing {
    world: World,
    proxy: Proxy,
    queue: String,
    relay: Proc,
}

impl Standing {
    /// The relay has shown that it works; what is written now it claims, two rows at a time.
    fn new() -> Standing {
        let (mut world, proxy, queue) = behind_proxy();
        let relay = world.start(&["--interval", "50ms", "--batch-rows", "2", "--publish-timeout", "5m"]);
        world.insert(&queue, "{}");
        wait_until("the relay works", DEADLINE, || (world.count("PUBLISHED") == 1).then_some(()));
        world.arrivals(&queue);
        proxy.stall(Direction::ToClient);
        Standing { world, proxy, queue, relay }
    }

    /// Waits until it has sent the first of these, and has locked both.
    fn has_in_flight(&mut self, ids: &[i64]) {
        let free = "select from event_outbox where id = any($1) for no key update skip locked";
        let (client, broker) = (&mut self.world.client, &self.world.broker);
        wait_until(&format!("they are in flight:\n{}", self.relay), DEADLINE, || {
            (broker.queue_len(&self.queue) == 1 && client.query(free, &[&ids]).unwrap().is_empty())
                .then_some(())
        });
    }

    /// What another relay sends meanwhile, in one run.
    fn another_run(&mut self) -> String {
        let environment =
            [("DATABASE_URL", self.world.database.url.as_str()), ("AMQP_URL", Servers::shared().amqp_url())];
        let output = Proc::run(OUTBOXD, &["once", "--min-age", "0s"], &environment, DEADLINE);
        assert_eq!(output.code, Some(0), "{output:?}");
        output.stdout
    }

    /// Lets the confirms through, and waits until all is published; all that arrived since the start.
    fn goes_on(&mut self) -> Vec<i64> {
        self.proxy.heal();
        let open = "select count(*) from event_outbox where status in ('WAITING', 'FAILED')";
        wait_until(&format!("all is published:\n{}", self.relay), DEADLINE, || {
            (self.world.client.query_one(open, &[]).unwrap().get::<_, i64>(0) == 0).then_some(())
        });
        arrived(&mut self.world, &self.queue)
    }
}

#[test]
fn a_relay_does_not_jump_over_what_another_has_in_flight() {
    let mut standing = Standing::new();
    let chain = insert_chain(&mut standing.world.client, &standing.queue, Some("k"), 6);
    standing.has_in_flight(&chain[..2]);
    assert!(standing.another_run().starts_with("0 due"));
    assert_eq!(statuses(&mut standing.world, &chain), ["WAITING"; 6]);
    assert_eq!(standing.goes_on(), chain);
}

#[test]
fn a_re_driven_event_goes_alone_while_another_relay_has_its_followers_in_flight() {
    for first in ["SKIPPED", "PUBLISHED"] {
        let mut standing = Standing::new();
        let client = &mut standing.world.client;
        // In one transaction, or the relay might take the first one, too.
        let mut writer = client.transaction().unwrap();
        let sql = "insert into event_outbox (event_id, event_type, payload, created_at, ordering_key, status) \
             values ('first', $1, '{}', '2020-01-01', 'k', $2) returning id";
        let head: i64 = writer.query_one(sql, &[&standing.queue, &first]).unwrap().get(0);
        writer.commit().unwrap();
        let rest = insert_chain(client, &standing.queue, Some("k"), 5);
        standing.has_in_flight(&rest[..2]);
        set(&mut standing.world.client, &[head], "status = 'WAITING'");
        // The last three are free and due, and behind what is in other hands.
        assert_eq!(standing.another_run(), "claimed 1: published 1\n", "{first}");
        assert_eq!(statuses(&mut standing.world, &rest), ["WAITING"; 5]);
        assert!(standing.another_run().starts_with("0 due"));
        assert_eq!(standing.goes_on(), [&[rest[0], head], &rest[1..]].concat(), "{first}");
    }
}

fn insert_uncommitted(client: &mut Client, event_type: &str) -> i64 {
    client.batch_execute("begin").unwrap();
    insert_chain(client, event_type, Some("k"), 1)[0]
}

#[test]
fn an_event_that_commits_late_goes_alone_while_another_relay_has_later_ones_in_flight() {
    let mut standing = Standing::new();
    let mut writer = standing.world.database.connect();
    let late = insert_uncommitted(&mut writer, &standing.queue);
    let rest = insert_chain(&mut standing.world.client, &standing.queue, Some("k"), 5);
    assert!(late < rest[0]);
    standing.has_in_flight(&rest[..2]);
    writer.batch_execute("commit").unwrap();
    assert_eq!(standing.another_run(), "claimed 1: published 1\n");
    assert_eq!(statuses(&mut standing.world, &rest), ["WAITING"; 5]);
    assert_eq!(standing.goes_on(), [&[rest[0], late], &rest[1..]].concat());
}

/// The late one does not go through: whoever comes later waits for it, and who is in flight already does not.
#[test]
fn a_late_event_that_fails_holds_back_those_that_are_not_in_flight() {
    let mut standing = Standing::new();
    let mut writer = standing.world.database.connect();
    let late = insert_uncommitted(&mut writer, &standing.queue);
    let rest = insert_chain(&mut standing.world.client, &standing.queue, Some("k"), 5);
    standing.has_in_flight(&rest[..2]);
    set(&mut writer, &[late], "status = 'FAILED', available_at = clock_timestamp() + interval '1 hour'");
    writer.batch_execute("commit").unwrap();
    assert!(standing.another_run().starts_with("0 due"));
    standing.proxy.heal();
    let world = &mut standing.world;
    wait_until("its claim is settled", DEADLINE, || (world.count("PUBLISHED") == 3).then_some(()));
    // Two beats later it has still not gone on.
    world.insert(&standing.queue, "{}");
    wait_until("a later drain", DEADLINE, || (world.count("PUBLISHED") == 4).then_some(()));
    assert_eq!(
        statuses(world, &rest),
        ["PUBLISHED", "PUBLISHED", "WAITING", "WAITING", "WAITING"],
        "{}",
        standing.relay
    );
    world.arrivals(&standing.queue);
    world.end_backoff();
    assert_eq!(standing.goes_on(), [&[late], &rest[2..]].concat());
}

/// A relay has locked an event that it may not send, beside one that it sends: another relay has the one before it. That
/// one goes on along the key, finds the event locked, and comes to its end. Now it falls to the first.
#[test]
fn what_a_relay_kept_from_another_is_sent_in_the_same_tick() {
    let (mut world, proxy, queue) = behind_proxy();
    let mut config = Config::new(&world.database.url, &world.amqp_url).unwrap();
    config.broker.publish_timeout = DEADLINE;
    let mut relay = Relay::new(config);
    world.insert(&queue, "{}");
    assert_eq!(relay.tick(&Stop::new()).tally.published, 1);
    world.arrivals(&queue);

    let chain = insert_chain(&mut world.client, &queue, Some("k"), 3);
    let mut other = world.database.connect();
    other.batch_execute("begin").unwrap();
    set(&mut other, &chain[..1], "status = 'PUBLISHED'");
    let loose = insert_chain(&mut world.client, &queue, None, 1);
    proxy.stall(Direction::ToClient);
    let tick = thread::spawn(move || relay.tick(&Stop::new()));
    wait_until("the loose one is in flight", DEADLINE, || {
        (world.broker.queue_len(&queue) == 1).then_some(())
    });
    let free = "select from event_outbox where id = any($1) for no key update skip locked";
    assert!(world.client.query(free, &[&&chain[1..]]).unwrap().is_empty());
    other.batch_execute("commit").unwrap();
    proxy.heal();
    assert_eq!(tick.join().unwrap().tally.published, 3);
    assert_eq!(arrived(&mut world, &queue), [&loose, &chain[1..]].concat());
}
