//! Chains that are cut in the middle: whatever was sent without learning of its end goes again before its followers.

use std::time::Duration;

use super::oracle::{Oracle, Verdict};
use super::{behind_proxy, insert_keys};
use crate::harness::{Direction, Proc, Proxy, wait_until};
use crate::world::{DEADLINE, World};

/// Each of three keys, and none, has so many events.
const EACH: i64 = 250;
const EVENTS: i64 = 4 * EACH;

/// A relay in the middle of its chains, whose confirms take a while.
struct Scene {
    world: World,
    proxy: Proxy,
    queue: String,
    relay: Proc,
}

impl Scene {
    fn new() -> Scene {
        let (mut world, proxy, queue) = behind_proxy();
        proxy.delay(Direction::ToClient, Duration::from_millis(4));
        let keys = [Some("a"), Some("b"), None, Some("c")];
        let keys: Vec<Option<&str>> = (0..EVENTS).map(|n| keys[n as usize % 4]).collect();
        insert_keys(&mut world.client, &queue, &keys);
        let relay = world.start(&[
            "--interval",
            "200ms",
            "--batch-rows",
            "60",
            "--publish-timeout",
            "1s",
            "--backoff-base",
            "100ms",
            "--backoff-max",
            "200ms",
            "--claim-max-idle",
            "5s",
        ]);
        let mut scene = Scene { world, proxy, queue, relay };
        scene.goes_on(20);
        scene
    }

    /// Waits until so many more are published; whether some are still to come.
    fn goes_on(&mut self, more: i64) -> bool {
        let from = self.world.count("PUBLISHED");
        wait_until(&format!("it goes on:\n{}", self.relay), DEADLINE, || {
            (self.world.count("PUBLISHED") >= EVENTS.min(from + more)).then_some(())
        });
        self.world.count("PUBLISHED") < EVENTS
    }

    /// Waits until it sends over another connection. Rows tell less: what is written now may have been sent before.
    fn sends_again(&mut self) {
        let before = self.world.broker.queue_len(&self.queue);
        wait_until(&format!("it sends again:\n{}", self.relay), DEADLINE, || {
            (self.world.broker.queue_len(&self.queue) > before + 30).then_some(())
        });
    }

    /// Waits until the relay has given up on confirms that were to come from now on, and has written that down.
    fn misses_confirms(&mut self) {
        let now = "select extract(epoch from clock_timestamp())::float8";
        let now: f64 = self.world.client.query_one(now, &[]).unwrap().get(0);
        let missed = "select from event_outbox \
             where last_error like 'unconfirmed%' and last_retried_at > to_timestamp($1)";
        wait_until(&format!("it misses confirms:\n{}", self.relay), DEADLINE, || {
            (!self.world.client.query(missed, &[&now]).unwrap().is_empty()).then_some(())
        });
    }

    /// Mends the road, and checks everything in the end.
    fn ends_well(&mut self) {
        self.proxy.heal();
        wait_until(&format!("all are published:\n{}", self.relay), DEADLINE, || {
            (self.world.count("PUBLISHED") == EVENTS).then_some(())
        });
        let failed = "select count(*) from event_outbox where fail_count > 0";
        assert_eq!(self.world.client.query_one(failed, &[]).unwrap().get::<_, i64>(0), 0);
        let verdict = Oracle::read(&mut self.world.client).check(&self.world.arrivals(&self.queue));
        let Verdict { received, compared, .. } =
            verdict.unwrap_or_else(|story| panic!("{story}\n{}", self.relay));
        assert_eq!((received as i64, compared as i64), (EVENTS, 3 * (EACH - 1)), "{}", self.relay);
    }
}

#[test]
fn a_connection_that_is_reset_again_and_again_changes_no_order() {
    let mut scene = Scene::new();
    let mut cuts = 0;
    while scene.goes_on(60) {
        scene.proxy.reset();
        cuts += 1;
    }
    assert!(cuts >= 3, "{cuts}");
    scene.ends_well();
}

#[test]
fn confirms_that_are_lost_change_no_order() {
    let mut scene = Scene::new();
    for _ in 0..2 {
        scene.proxy.swallow(Direction::ToClient, true);
        scene.misses_confirms();
        assert!(scene.world.count("PUBLISHED") < EVENTS);
        scene.proxy.swallow(Direction::ToClient, false);
        // What was cut out of the stream makes no sense any more.
        scene.proxy.reset();
        scene.sends_again();
    }
    scene.ends_well();
}

#[test]
fn messages_that_are_lost_are_sent_before_their_followers() {
    let mut scene = Scene::new();
    for _ in 0..2 {
        scene.proxy.swallow(Direction::ToServer, true);
        scene.misses_confirms();
        assert!(scene.world.count("PUBLISHED") < EVENTS);
        scene.proxy.swallow(Direction::ToServer, false);
        scene.proxy.reset();
        scene.sends_again();
    }
    scene.ends_well();
}

#[test]
fn claims_that_are_lost_change_no_order() {
    let mut scene = Scene::new();
    let terminate = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
        where datname = current_database() and application_name = 'outboxd'";
    let mut ended = 0;
    while scene.goes_on(60) {
        ended += scene.world.client.query_one(terminate, &[]).unwrap().get::<_, i64>(0);
    }
    assert!(ended >= 3, "{ended}");
    scene.ends_well();
}

/// Another relay takes its rows over, and sends them all. When it wakes up it must not go on where it stood.
#[test]
fn a_relay_that_wakes_up_does_not_go_on_with_a_chain_that_it_lost() {
    let mut scene = Scene::new();
    scene.relay.signal("STOP");
    let free = "select from event_outbox for no key update nowait";
    wait_until("the server has ended its claims", DEADLINE, || scene.world.client.query(free, &[]).ok());
    // Dead events show who sends: had the frozen one gone on behind them, they were overtaken.
    let block = "with head as (select min(id) as id from event_outbox \
             where status = 'WAITING' and ordering_key is not null and last_retried_at is null \
             group by ordering_key) \
         update event_outbox set status = 'DEAD', available_at = null from head where event_outbox.id = head.id";
    let blocked = scene.world.client.execute(block, &[]).unwrap();
    assert_eq!(blocked, 3);
    let before = scene.world.count("PUBLISHED");
    scene.relay.signal("CONT");
    // It sends what has no key, and goes on living.
    wait_until(&format!("those without a key:\n{}", scene.relay), DEADLINE, || {
        let open = "select count(*) from event_outbox where status = 'WAITING' and ordering_key is null";
        (scene.world.client.query_one(open, &[]).unwrap().get::<_, i64>(0) == 0).then_some(())
    });
    let keyed = scene.world.count("PUBLISHED");
    assert!(keyed >= before);
    let mended = "update event_outbox set status = 'WAITING' where status = 'DEAD'";
    // Those whose confirm was in hand when it was frozen are PUBLISHED meanwhile, which is right.
    scene.world.client.execute(mended, &[]).unwrap();
    scene.ends_well();
}
