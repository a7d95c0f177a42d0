//! Commands beside a relay that has events on their way.

use serde_json::json;
use url::Url;

use super::{json, says, write_keyed};
use crate::harness::Direction::ToClient;
use crate::harness::{Proxy, wait_until};
use crate::world::{DEADLINE, World};

#[test]
fn what_a_relay_is_sending_is_neither_waited_for_nor_changed() {
    let mut world = World::new();
    let mut url = Url::parse(&world.amqp_url).unwrap();
    let proxy = Proxy::to(url.port().unwrap());
    url.set_port(Some(proxy.port())).unwrap();
    world.amqp_url = url.into();
    let queue = world.queue();
    let mut relay = world.start(&["--interval", "100ms", "--publish-timeout", "60s"]);
    let first = world.insert(&queue, "{}");
    wait_until("the relay to be at work", DEADLINE, || {
        (world.row(first).status == "PUBLISHED").then_some(())
    });

    // Sent, and its confirm does not arrive.
    proxy.stall(ToClient);
    let columns = "status, fail_count, created_at, ordering_key";
    let id = world.insert_with(&queue, "{}", columns, "'FAILED', 1, now() - interval '1 hour', 'k'");
    let text = id.to_string();
    wait_until("the event to be on its way", DEADLINE, || {
        (json(&world, &["show", &text])["due"]["state"] == "sending").then_some(())
    });
    let follower = write_keyed(&mut world, "k", ("created_at", "now() - interval '1 hour'")).to_string();
    let held = json(&world, &["show", &follower]);
    assert_eq!(held["due"]["state"], "held_back", "{held}");

    let before = world.row(id);
    let retried = json(&world, &["retry", "--id", &text, "--status", "failed"]);
    assert_eq!((&retried["changed"], &retried["being_sent"]), (&json!(0), &json!(1)), "{retried}");
    let skipped = says(&world, &["skip", "--key", "k", "--head"]);
    assert!(skipped.contains(", is being sent right now"), "{skipped}");
    assert_eq!(world.row(id), before);

    proxy.heal();
    wait_until("its confirm to be written", DEADLINE, || (world.row(id).status == "PUBLISHED").then_some(()));
    assert_eq!(json(&world, &["skip", "--id", &text])["matched"], 0);
    relay.signal("TERM");
    assert_eq!(relay.wait(DEADLINE).code, Some(0));
}
