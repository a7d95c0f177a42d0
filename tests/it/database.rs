//! How the database is reached, and what its faults do. In all of it nothing is lost, nothing is PUBLISHED that has not
//! arrived, no attempt is counted, and the relay goes on by itself.

mod environment;
mod frozen;
mod hosts;
mod phases;
mod pooler;
mod refusing;
mod restarts;
mod settling;
mod silence;
mod tls;
mod zones;

use std::collections::BTreeSet;
use std::process::Command;

use postgres::Client;

use crate::harness::{Direction, Proc, Proxy, Servers, wait_until};
use crate::world::{DEADLINE, World};

/// How many events are in the middle of it; fewer than one window, so that all of them are in flight at once.
const EVENTS: i64 = 60;

/// Options of every relay here.
const RUN: [&str; 6] = ["--interval", "200ms", "--min-age", "0s", "--open-timeout", "3s"];

/// Ends the relay's sessions that are in a claim.
const TERMINATE_CLAIMS: &str = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
    where datname = current_database() and application_name = 'outboxd' and state <> 'idle'";

/// A relay with a batch on its way, and a proxy between it and the broker that holds the confirms, or the messages.
struct Batch {
    world: World,
    queue: String,
    relay: Proc,
    broker: Proxy,
}

impl Batch {
    /// Everything is sent, and no confirm has come back.
    fn unconfirmed(world: World, options: &[&str]) -> Batch {
        let batch = Batch::held(world, options, Direction::ToClient);
        wait_until(&format!("all are sent:\n{}", batch.relay), DEADLINE, || {
            (i64::from(batch.world.broker.queue_len(&batch.queue)) == EVENTS).then_some(())
        });
        batch
    }

    /// Everything is claimed, and nothing has reached the broker.
    fn unsent(world: World, options: &[&str]) -> Batch {
        Batch::held(world, options, Direction::ToServer)
    }

    fn held(mut world: World, options: &[&str], held: Direction) -> Batch {
        let broker = Proxy::to(port(&world.amqp_url));
        world.amqp_url = with_port(&world.amqp_url, broker.port());
        let queue = world.queue();
        world.insert(&queue, "{}");
        let relay = world.start(&[&RUN[..], options].concat());
        wait_until(&format!("the relay works:\n{relay}"), DEADLINE, || {
            (world.count("PUBLISHED") == 1).then_some(())
        });
        assert_eq!(world.broker.drain_ready(&queue).len(), 1);
        broker.stall(held);
        world.insert_many(&queue, EVENTS);
        wait_until(&format!("all are claimed:\n{relay}"), DEADLINE, || {
            (locked(&mut world.client) == EVENTS).then_some(())
        });
        Batch { world, queue, relay, broker }
    }

    /// Waits until every event is PUBLISHED, and checks that each arrived, and that at most `twice` came again.
    fn recovers(&mut self, twice: usize) {
        wait_until(&format!("all are published:\n{}", self.relay), DEADLINE * 2, || {
            (self.world.count("PUBLISHED") == EVENTS + 1).then_some(())
        });
        let counted = "select count(*) from event_outbox where fail_count > 0";
        assert_eq!(self.world.client.query_one(counted, &[]).unwrap().get::<_, i64>(0), 0, "{}", self.relay);
        let arrived = self.world.arrivals(&self.queue);
        let distinct: BTreeSet<&String> = arrived.iter().collect();
        assert_eq!(distinct.len() as i64, EVENTS, "{}", self.relay);
        let surplus = arrived.len() - distinct.len();
        assert!(surplus <= twice, "{surplus} came twice, {twice} may:\n{}", self.relay);
        assert!(!self.relay.output().1.contains("panic"), "{}", self.relay);
        goes_on(&mut self.world, &self.queue, &self.relay);
    }
}

/// A further event is published.
fn goes_on(world: &mut World, queue: &str, relay: &Proc) {
    let id = world.insert(queue, "{}");
    wait_until(&format!("it goes on:\n{relay}"), DEADLINE * 2, || {
        (world.row(id).status == "PUBLISHED").then_some(())
    });
}

/// How many rows someone has locked.
fn locked(client: &mut Client) -> i64 {
    let sql = "select (select count(*) from event_outbox) - count(*) from \
        (select 1 from event_outbox for key share skip locked) as free";
    // The weakest lock does not conflict with a claim's, so the second weakest is asked for.
    let sql = sql.replace("key share", "share");
    client.query_one(&sql, &[]).unwrap().get(0)
}

/// The relay's sessions in this state, as process ids.
fn backends(client: &mut Client, state: &str) -> Vec<i32> {
    let sql = "select pid from pg_stat_activity \
        where datname = current_database() and application_name = 'outboxd' and state = $1";
    client.query(sql, &[&state]).unwrap().iter().map(|row| row.get(0)).collect()
}

/// Sends a signal to one process of a server that the test started itself.
pub fn signal(pid: i32, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap();
    assert!(sent.success(), "kill -s {name} {pid}");
}

fn port(url: &str) -> u16 {
    url::Url::parse(url).unwrap().port().unwrap()
}

/// The URL of the same server through another port.
fn with_port(url: &str, port: u16) -> String {
    let mut url = url::Url::parse(url).unwrap();
    url.set_port(Some(port)).unwrap();
    url.into()
}

/// A world whose relays speak to the shared database through a proxy; the test's own session does not.
fn behind_a_proxy() -> (World, Proxy) {
    let mut world = World::new();
    let proxy = Proxy::to(port(&world.database.url));
    world.database.url = with_port(&world.database.url, proxy.port());
    (world, proxy)
}

/// The lines of a relay's log that hold this text.
fn lines(relay: &Proc, text: &str) -> usize {
    relay.output().1.lines().filter(|line| line.contains(text)).count()
}

/// The shared broker's URL.
fn amqp_url() -> &'static str {
    Servers::shared().amqp_url()
}
