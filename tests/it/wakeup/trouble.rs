//! Wake-up under floods, frozen servers and wrong addresses.

use crate::world::DEADLINE;

use super::{HEARD, WOKEN, is_published, write};

/// Anybody may send messages on the channel, and large ones.
#[test]
fn a_flood_of_large_messages_costs_no_memory() {
    const MEMORY_MAX_KIB: u64 = 64 * 1024;
    let mut world = super::world();
    let queue = world.queue();
    let mut relay = world.start(&WOKEN);
    relay.wait_for_line(HEARD, DEADLINE);
    let sql = "select count(pg_notify('outboxd_' || 'event_outbox'::regclass::oid, repeat('x', 7990) || n))
        from generate_series(1, 20000) as n";
    for _ in 0..3 {
        world.client.query_one(sql, &[]).unwrap();
    }
    // What is told last is heard last.
    let id = write(&mut world, &queue);
    is_published(&mut world, id, &relay);
    let status = std::fs::read_to_string(format!("/proc/{}/status", relay.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < MEMORY_MAX_KIB, "{peak} KiB");
}
