//! A broker that answers and refuses us: the reason is readable, holds no secret, and costs no event anything; and a
//! relay that runs goes on once it has been mended.

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::Duration;

use super::{PASSWORD, assert_discreet, assert_published, once};
use crate::harness::{Broker, Direction, Proxy, Rabbit, RabbitOptions, Servers, unique, wait_until};
use crate::world::{DEADLINE, World};

/// A broker whose users and virtual hosts can be changed: the shared one, unless somebody else runs that.
pub(super) fn rabbit() -> &'static Rabbit {
    static OWN: LazyLock<Rabbit> = LazyLock::new(|| Rabbit::start(&RabbitOptions::default()));
    Servers::shared().rabbit().unwrap_or_else(|| &OWN)
}

/// A user with every right on the default virtual host.
fn add_user(password: &str) -> String {
    let user = unique("app");
    rabbit().ctl(&["add_user", &user, password]);
    rabbit().ctl(&["set_permissions", &user, ".*", ".*", ".*"]);
    user
}

/// A world whose relay is this user, and whose test is an administrator.
fn world_of(user: &str, vhost: &str) -> World {
    let mut world = World::new();
    world.broker = Broker::open(&rabbit().url());
    world.amqp_url = format!("amqp://{user}:{PASSWORD}@127.0.0.1:{}/{vhost}", rabbit().port());
    world
}

#[test]
fn a_running_relay_goes_on_once_its_wrong_password_is_right() {
    let user = add_user("another");
    let mut world = world_of(&user, "%2F");
    let queue = world.queue();
    let id = world.insert(&queue, "{}");
    let before = world.row(id);
    let mut relay = world.start(&["--interval", "300ms", "-vv"]);
    let line = relay.wait_for_line("check user and password in AMQP_URL", DEADLINE);
    assert!(line.contains("login refused") && line.contains("level=error "), "{line}");
    assert_eq!(world.row(id), before);
    rabbit().ctl(&["change_password", &user, PASSWORD]);
    relay.wait_for_line("claimed=1 published=1", DEADLINE);
    assert_published(&world.row(id));
    assert_eq!(world.arrivals(&queue), [before.event_id]);
    let (_, log) = relay.output();
    assert_eq!(log.matches("level=error ").count(), 1, "told once\n{log}");
    assert!(log.contains("the broker is usable again after"), "{log}");
    assert_discreet(&log);
}

#[test]
fn a_running_relay_goes_on_once_its_virtual_host_is_there_and_open_to_it() {
    let (user, vhost) = (add_user(PASSWORD), unique("place"));
    let mut world = world_of(&user, &vhost);
    let mut relay = world.start(&["--interval", "300ms"]);
    let line = relay.wait_for_line("check the virtual host in AMQP_URL", DEADLINE);
    assert!(line.contains(&format!("NOT_ALLOWED - vhost {vhost} not found")), "{line}");
    rabbit().ctl(&["add_vhost", &vhost]);
    let output = once(&world.database.url, &world.amqp_url, &[], 77);
    let refused = format!("access to vhost '{vhost}' refused for user '{user}'");
    assert!(output.stderr.contains(&refused), "{output:?}");
    assert!(output.stderr.contains("the user's permissions on it"), "{output:?}");

    rabbit().ctl(&["set_permissions", "-p", &vhost, "guest", ".*", ".*", ".*"]);
    world.broker = Broker::open(&rabbit().url().replace("%2F", &vhost));
    let queue = world.queue();
    let id = world.insert(&queue, "{}");
    rabbit().ctl(&["set_permissions", "-p", &vhost, &user, ".*", ".*", ".*"]);
    relay.wait_for_line("claimed=1 published=1", DEADLINE);
    assert_published(&world.row(id));
    assert_eq!(world.arrivals(&queue).len(), 1);
    let (_, log) = relay.output();
    assert_eq!(log.matches("level=error ").count(), 1, "told once\n{log}");
    assert_discreet(&log);
}

#[test]
fn a_user_without_any_right_publishes_nothing_and_goes_on_once_it_may() {
    let user = unique("app");
    rabbit().ctl(&["add_user", &user, PASSWORD]);
    rabbit().ctl(&["set_permissions", &user, "^$", "^$", "^$"]);
    let mut world = world_of(&user, "%2F");
    let queue = world.queue();
    world.insert_many(&queue, 50);
    let output = once(&world.database.url, &world.amqp_url, &["--max-failures", "9"], 75);
    // The broker speaks of the exchange, so it is the events' refusal: each fails once, with the reason.
    let refused = format!("refused for user '{user}'");
    let sql = "select count(*) from event_outbox where status = 'FAILED' and fail_count = 1 \
        and position($1 in last_error) > 0 and last_error like '%403%'";
    let failed: i64 = world.client.query_one(sql, &[&refused]).unwrap().get(0);
    assert_eq!(failed, 50, "{output:?}");
    rabbit().ctl(&["set_permissions", &user, "^$", ".*", "^$"]);
    world.end_backoff();
    once(&world.database.url, &world.amqp_url, &[], 0);
    assert_eq!(world.count("PUBLISHED"), 50);
    assert_eq!(world.arrivals(&queue).len(), 50, "each exactly once");
}

#[test]
fn a_user_that_is_deleted_in_a_drain_costs_no_event_anything_and_may_come_back() {
    const EVENTS: i64 = 5_000;
    const IN_FLIGHT: usize = 4;
    let user = add_user(PASSWORD);
    let mut world = world_of(&user, "%2F");
    let proxy = Proxy::to(rabbit().port());
    world.amqp_url = format!("amqp://{user}:{PASSWORD}@127.0.0.1:{}/%2F", proxy.port());
    let queue = world.queue();
    world.insert_many(&queue, EVENTS);
    let mut relay = world.start(&["--interval", "300ms", "--window", "2", "--workers", "2"]);
    wait_until("the drain is on its way", DEADLINE, || (world.count("PUBLISHED") > 0).then_some(()));
    // A fast broker would be through before the command has begun.
    proxy.delay(Direction::ToClient, Duration::from_millis(100));
    rabbit().ctl(&["delete_user", &user]);
    relay.wait_for_line("check user and password in AMQP_URL", DEADLINE);
    let (_, log) = relay.output();
    assert!(log.contains(&format!("user '{user}' is deleted")), "{log}");
    let published = world.count("PUBLISHED");
    assert!(published < EVENTS, "all were sent before the user was deleted");
    proxy.heal();
    assert_eq!(published + world.count("WAITING"), EVENTS);
    rabbit().ctl(&["add_user", &user, PASSWORD]);
    rabbit().ctl(&["set_permissions", &user, ".*", ".*", ".*"]);
    wait_until("all are published", DEADLINE, || (world.count("PUBLISHED") == EVENTS).then_some(()));
    let counted = "select count(*) from event_outbox where fail_count > 0";
    assert_eq!(world.client.query_one(counted, &[]).unwrap().get::<_, i64>(0), 0);
    let arrived = world.arrivals(&queue);
    let distinct: BTreeSet<&String> = arrived.iter().collect();
    assert_eq!(distinct.len(), EVENTS as usize);
    let surplus = arrived.len() - distinct.len();
    assert!(surplus <= IN_FLIGHT, "{surplus} came twice, {IN_FLIGHT} at most were in flight:\n{relay}");
    assert_discreet(&relay.output().1);
}
