//! `once --dry-run`: what a run would do, and that it does nothing of it.

use crate::harness::unique;
use crate::world::World;

#[test]
fn what_is_due_is_shown_with_where_it_would_go_and_stays_as_it_was() {
    let mut world = World::new();
    let queue = world.queue();
    world.configure("payload_max = \"1KiB\"\n[[route]]\nevent_type = \"keyed\"\nexchange = \"\"\nrouting_key = \"{ordering_key}\"");
    let ids = [
        world.insert(&queue, "{}"),
        world.insert_with(&queue, "{}", "created_at, ordering_key", "now() - interval '1 hour', 'order-7'"),
        world.insert("keyed", "{}"),
        world.insert(&queue, &"x".repeat(2_000)),
        world.insert_with(
            &queue,
            "{}",
            "expired_at, created_at",
            "now() - interval '1 hour', now() - interval '2 hours'",
        ),
        world.insert_with(&queue, "{}", "headers, created_at", "'[]', now() - interval '1 hour'"),
        world.insert_with(&queue, "{}", "status, fail_count, last_error", "'FAILED', 3, 'no route'"),
    ];
    world.insert_with(&queue, "{}", "created_at", "now()");
    let rows: Vec<_> = ids.iter().map(|id| world.row(*id)).collect();
    let output = world.once(&["--dry-run"], 0);
    let of = |n: usize, what: &str, key: &str, how: &str| {
        let event_type = if n == 2 { "keyed" } else { queue.as_str() };
        format!("{what:<8} {} {} {event_type}{key}{how}", ids[n], rows[n].event_id)
    };
    let to = format!(" to exchange \"\", routing key {queue:?}");
    let expected = [
        of(0, "publish", "", &to),
        of(1, "publish", " key \"order-7\"", &to),
        of(2, "refuse", "", ": its route's routing key needs {ordering_key} and the event has none"),
        of(3, "refuse", "", ": payload has 2000 bytes, payload_max is 1024"),
        of(4, "expire", "", ": expired_at passed before it was sent"),
        of(5, "dead", "", ": headers are not a JSON object"),
        of(6, "dead", "", ": no route"),
        format!("7 due: keyed 1, {queue} 6; nothing was sent or changed"),
    ];
    assert_eq!(output.stdout.lines().collect::<Vec<_>>(), expected);
    let after: Vec<_> = ids.iter().map(|id| world.row(*id)).collect();
    assert_eq!(after, rows);
    assert_eq!(world.broker.queue_len(&queue), 0);
}

#[test]
fn the_first_hundred_are_shown_and_the_rest_is_counted() {
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many(&queue, 250);
    let output = world.once(&["--dry-run"], 0);
    let lines: Vec<_> = output.stdout.lines().collect();
    assert_eq!(lines.len(), 101);
    assert_eq!(lines[100], format!("the first 100 of 250 due: {queue} 100; nothing was sent or changed"));
    assert_eq!(world.count("WAITING"), 250);
}

#[test]
fn events_that_are_held_back_are_passed_over_and_need_no_broker() {
    let mut world = World::new();
    let queue = world.queue();
    let hour = "now() - interval '1 hour'";
    world.insert_with(&queue, "{}", "status, ordering_key", "'DEAD', 'held'");
    for _ in 0..150 {
        world.insert_with(&queue, "{}", "created_at, ordering_key", &format!("{hour}, 'held'"));
    }
    let id = world.insert(&queue, "{}");
    world.amqp_url = format!("amqp://127.0.0.1:1/{}", unique("nowhere"));
    let output = world.once(&["--dry-run"], 0);
    let lines: Vec<_> = output.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{output:?}");
    assert!(lines[0].starts_with(&format!("publish  {id} ")), "{output:?}");
    world.client.batch_execute("delete from event_outbox").unwrap();
    assert_eq!(world.once(&["--dry-run"], 0).stdout, "0 due; nothing was sent or changed\n");
}

#[test]
fn its_locks_are_gone_when_it_ends_and_those_of_others_are_respected() {
    let mut world = World::new();
    let queue = world.queue();
    let (first, second) = (world.insert(&queue, "{}"), world.insert(&queue, "{}"));
    let mut other = world.database.connect();
    let mut held = other.transaction().unwrap();
    held.execute("select from event_outbox where id = $1 for update", &[&first]).unwrap();
    let output = world.once(&["--dry-run"], 0);
    assert!(output.stdout.starts_with(&format!("publish  {second} ")), "{output:?}");
    held.rollback().unwrap();
    world.client.execute("select from event_outbox for update nowait", &[]).unwrap();
    world.once(&[], 0);
    assert_eq!(world.count("PUBLISHED"), 2);
}
