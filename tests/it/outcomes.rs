//! What the broker says about an event, and what its row says afterwards.

use std::collections::BTreeSet;

use crate::harness::{AmqpValue, Broker, ExchangeType, Rabbit, RabbitOptions, Servers, unique};
use crate::world::{Row, World};

/// Arguments of a queue that nacks what it has no room for.
fn room_for(messages: i64) -> [(&'static str, AmqpValue); 2] {
    [
        ("x-max-length", AmqpValue::LongLongInt(messages)),
        ("x-overflow", AmqpValue::LongString("reject-publish".into())),
    ]
}

/// Writes a due event for this exchange, and returns its row's id.
fn insert_for(world: &mut World, exchange: &str, event_type: &str) -> i64 {
    let values = format!("'2020-01-01', '{exchange}'");
    world.insert_with(event_type, "{}", "created_at, exchange", &values)
}

/// The event ids of these rows, sorted.
fn event_ids(world: &mut World, ids: &[i64]) -> BTreeSet<String> {
    ids.iter().map(|id| world.row(*id).event_id).collect()
}

fn assert_failed(row: &Row, fail_count: i32, reasons: &[&str]) {
    let expected = ("FAILED", fail_count, true, false, true);
    let found = (row.status.as_str(), row.fail_count, row.attempted, row.published, row.backs_off);
    assert_eq!(found, expected, "status, fail_count, attempted, published, backs off: {row:?}");
    assert_says(row, reasons);
}

fn assert_says(row: &Row, reasons: &[&str]) {
    let said = row.last_error.as_deref().unwrap_or_default();
    for reason in reasons {
        assert!(said.contains(reason), "{reason:?} is not in last_error: {row:?}");
    }
}

fn assert_published(row: &Row) {
    let found = (row.status.as_str(), row.attempted, row.published, row.last_error.as_deref());
    assert_eq!(found, ("PUBLISHED", true, true, None), "{row:?}");
}

#[test]
fn an_acknowledged_event_is_published_and_says_when() {
    let mut world = World::new();
    let queue = world.queue();
    let values = "'FAILED', 2, '2020-01-01', 'an older reason'";
    let id = world.insert_with(&queue, "{}", "status, fail_count, created_at, last_error", values);
    world.once(&[], 0);
    assert_published(&world.row(id));
    assert_eq!(world.row(id).fail_count, 2, "a confirm takes no failure back");
    assert_eq!(world.arrivals(&queue).len(), 1);
}

#[test]
fn of_one_batch_only_the_events_that_a_full_queue_nacks_fail() {
    let mut world = World::new();
    let (healthy, full) = (world.queue(), unique("full"));
    world.broker.declare_queue(&full, &room_for(5));
    let (mut to_healthy, mut to_full) = (Vec::new(), Vec::new());
    for _ in 0..100 {
        to_healthy.extend([world.insert(&healthy, "{}"), world.insert(&healthy, "{}")]);
        to_full.push(world.insert(&full, "{}"));
    }
    // One channel with room for all, so that the broker answers many messages with one acknowledgement.
    world.once(&["--workers", "1", "--window", "1000"], 75);

    let arrived = world.arrivals(&healthy);
    assert_eq!(arrived.len(), 200, "each exactly once");
    for id in &to_healthy {
        assert_published(&world.row(*id));
    }
    assert_eq!(arrived.into_iter().collect::<BTreeSet<_>>(), event_ids(&mut world, &to_healthy));

    let arrived = world.arrivals(&full);
    let (taken, nacked): (Vec<i64>, Vec<i64>) =
        to_full.iter().partition(|id| world.row(**id).status == "PUBLISHED");
    assert!(!taken.is_empty() && !nacked.is_empty(), "{} taken, {} nacked", taken.len(), nacked.len());
    assert_eq!(arrived.len(), taken.len());
    assert_eq!(arrived.into_iter().collect::<BTreeSet<_>>(), event_ids(&mut world, &taken));
    for id in nacked {
        assert_failed(&world.row(id), 1, &["nacked", "queue is full"]);
    }
}

#[test]
fn a_nacked_event_is_never_dead_and_goes_once_there_is_room() {
    for limit in ["1", "3"] {
        let mut world = World::new();
        let full = unique("full");
        world.broker.declare_queue(&full, &room_for(1));
        world.insert(&full, "takes the room");
        world.once(&[], 0);
        let id = world.insert(&full, "{}");
        for round in 1..=5 {
            world.end_backoff();
            world.once(&["--max-failures", limit], 75);
            let row = world.row(id);
            assert_eq!((row.status.as_str(), row.backs_off), ("FAILED", true), "round {round}: {row:?}");
            assert!(row.fail_count < limit.parse().unwrap(), "round {round}: {row:?}");
        }
        assert_eq!(world.arrivals(&full).len(), 1);
        world.end_backoff();
        world.once(&["--max-failures", limit], 0);
        assert_published(&world.row(id));
        assert_eq!(world.arrivals(&full), [world.row(id).event_id]);
    }
}

#[test]
fn an_event_without_a_queue_fails_says_what_to_declare_and_dies_at_the_limit() {
    let mut world = World::new();
    let (healthy, nowhere) = (world.queue(), unique("nowhere"));
    let id = world.insert(&nowhere, "{}");
    let neighbour = world.insert(&healthy, "{}");
    for fail_count in 1..=2 {
        world.once(&[], 75);
        assert_failed(&world.row(id), fail_count, &["NO_ROUTE", &nowhere, "declare it"]);
        world.end_backoff();
    }
    world.once(&[], 75);
    let row = world.row(id);
    assert_eq!((row.status.as_str(), row.fail_count, row.published), ("DEAD", 3, false), "{row:?}");
    assert_says(&row, &["NO_ROUTE", "declare it"]);
    assert_published(&world.row(neighbour));
    assert_eq!(world.arrivals(&healthy).len(), 1);
    world.once(&[], 0);
    assert_eq!(world.row(id), row, "a dead event is left alone");
}

#[test]
fn an_event_that_no_binding_matches_says_what_to_bind_and_goes_once_it_is_bound() {
    let mut world = World::new();
    let (queue, exchange) = (world.queue(), unique("exchange"));
    world.broker.declare_exchange(&exchange, ExchangeType::Direct);
    let id = insert_for(&mut world, &exchange, &queue);
    world.once(&[], 75);
    assert_failed(&world.row(id), 1, &["NO_ROUTE", &exchange, &queue, "bind"]);

    world.broker.bind(&queue, &exchange, &queue);
    world.end_backoff();
    world.once(&[], 0);
    assert_published(&world.row(id));
    assert_eq!(world.arrivals(&queue).len(), 1);
}

#[test]
fn an_event_that_its_route_lets_go_nowhere_is_published() {
    let mut world = World::new();
    let (news, exchange) = (unique("news"), unique("exchange"));
    world.broker.declare_exchange(&exchange, ExchangeType::Fanout);
    world.configure(&format!(
        "[[route]]\nevent_type = \"{news}\"\nexchange = \"{exchange}\"\nunroutable = \"accept\"\n"
    ));
    let accepted = world.insert(&news, "{}");
    let other = insert_for(&mut world, &exchange, "another type");
    world.once(&[], 75);
    assert_published(&world.row(accepted));
    // The same exchange without the route's word for it.
    assert_failed(&world.row(other), 1, &["NO_ROUTE"]);
}

#[test]
fn a_missing_exchange_fails_only_its_own_events_until_it_is_declared() {
    let mut world = World::new();
    let (queue, missing, there) = (world.queue(), unique("missing"), unique("exchange"));
    world.broker.declare_exchange(&there, ExchangeType::Direct);
    world.broker.bind(&queue, &there, &queue);
    let (mut lost, mut fine) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        fine.push(world.insert(&queue, "{}"));
        lost.push(insert_for(&mut world, &missing, &queue));
        fine.push(insert_for(&mut world, &there, &queue));
    }
    world.once(&[], 75);
    for id in &lost {
        assert_failed(&world.row(*id), 1, &["404", &missing]);
    }
    for id in &fine {
        assert_published(&world.row(*id));
    }
    assert_eq!(world.arrivals(&queue).len(), 40, "each neighbour exactly once");

    world.broker.declare_exchange(&missing, ExchangeType::Direct);
    world.broker.bind(&queue, &missing, &queue);
    world.end_backoff();
    world.once(&[], 0);
    for id in &lost {
        assert_published(&world.row(*id));
    }
    assert_eq!(world.arrivals(&queue).len(), 20);
}

#[test]
fn a_running_relay_finds_an_exchange_that_is_declared_later() {
    let mut world = World::new();
    let (queue, missing) = (world.queue(), unique("missing"));
    let id = insert_for(&mut world, &missing, &queue);
    let limits = ["--interval", "50ms", "--backoff-base", "50ms", "--backoff-max", "50ms"];
    let mut relay = world.start(&[&limits[..], &["--max-failures", "1000"]].concat());
    relay.wait_for_line("404", crate::world::DEADLINE);
    // Between the two the event may be returned as unroutable; that is one failure more, and no end.
    world.broker.declare_exchange(&missing, ExchangeType::Direct);
    world.broker.bind(&queue, &missing, &queue);
    let arrived = world.broker.drain(&queue, 1, crate::world::DEADLINE);
    assert_eq!(arrived[0].id(), world.row(id).event_id);
}

#[test]
fn an_exchange_deleted_under_a_live_connection_costs_its_neighbours_nothing() {
    let mut world = World::new();
    let (queue, exchange) = (world.queue(), unique("exchange"));
    world.broker.declare_exchange(&exchange, ExchangeType::Direct);
    world.broker.bind(&queue, &exchange, &queue);
    let mut relay = world.start(&["--interval", "50ms", "--workers", "1"]);
    insert_for(&mut world, &exchange, &queue);
    world.broker.drain(&queue, 1, crate::world::DEADLINE);

    // The relay has seen the exchange and does not ask again, so the publish itself meets the 404.
    world.broker.delete_exchange(&exchange);
    let lost = insert_for(&mut world, &exchange, &queue);
    let fine: Vec<i64> = (0..10).map(|_| world.insert(&queue, "{}")).collect();
    relay.wait_for_line("404", crate::world::DEADLINE);
    world.broker.drain(&queue, 10, crate::world::DEADLINE);
    crate::harness::wait_until("the neighbours are settled", crate::world::DEADLINE, || {
        (world.count("PUBLISHED") == 11).then_some(())
    });
    assert_failed(&world.row(lost), 1, &["404", &exchange]);
    for id in fine {
        assert_published(&world.row(id));
    }
}

/// A user who may not write to one of the exchanges: its events are refused, the others arrive.
fn check_forbidden_exchange(arguments: &[&str]) {
    let own;
    let servers = Servers::shared();
    let rabbit = match servers.rabbit() {
        Some(rabbit) => rabbit,
        None => {
            own = Rabbit::start(&RabbitOptions::default());
            &own
        }
    };
    let (user, closed, open) = (unique("user"), unique("closed"), unique("open"));
    rabbit.ctl(&["add_user", &user, "secret"]);
    rabbit.ctl(&["set_permissions", &user, "^$", "^(?!closed)", "^$"]);
    let mut world = World::new();
    world.broker = Broker::open(&rabbit.url());
    world.amqp_url = format!("amqp://{user}:secret@127.0.0.1:{}/%2F", rabbit.port());
    let queue = world.queue();
    for exchange in [&closed, &open] {
        world.broker.declare_exchange(exchange, ExchangeType::Direct);
        world.broker.bind(&queue, exchange, &queue);
    }
    let (mut refused, mut fine) = (Vec::new(), Vec::new());
    for n in 0..40 {
        fine.push(insert_for(&mut world, &open, &queue));
        if n % 10 == 5 {
            refused.push(insert_for(&mut world, &closed, &queue));
        }
        fine.push(world.insert(&queue, "{}"));
    }
    let output = world.once(arguments, 75);
    for id in &refused {
        assert_failed(&world.row(*id), 1, &["403", &closed]);
    }
    for id in &fine {
        let row = world.row(*id);
        assert_eq!(row.fail_count, 0, "{row:?}");
        assert_published(&row);
    }
    // Those in flight beside a refused one are sent again, so an event may arrive twice, but none is missing.
    let arrived: BTreeSet<String> = world.arrivals(&queue).into_iter().collect();
    assert_eq!(arrived, event_ids(&mut world, &fine));
    assert!(!output.stderr.contains("secret"), "{output:?}");
}

#[test]
fn an_exchange_that_the_user_may_not_write_to_fails_only_its_own_events() {
    check_forbidden_exchange(&[]);
}

#[test]
fn one_at_a_time_a_forbidden_exchange_fails_only_its_own_events_too() {
    check_forbidden_exchange(&["--workers", "1", "--window", "1"]);
}

#[test]
fn an_internal_exchange_refuses_only_its_own_events() {
    let mut world = World::new();
    let (queue, internal) = (world.queue(), unique("internal"));
    let mut connection = amiquip::Connection::insecure_open(&world.amqp_url).unwrap();
    let options =
        amiquip::ExchangeDeclareOptions { internal: true, ..amiquip::ExchangeDeclareOptions::default() };
    let channel = connection.open_channel(None).unwrap();
    channel.exchange_declare(ExchangeType::Fanout, &internal, options).unwrap();
    let refused = insert_for(&mut world, &internal, &queue);
    let fine: Vec<i64> = (0..20).map(|_| world.insert(&queue, "{}")).collect();
    world.once(&[], 75);
    assert_failed(&world.row(refused), 1, &["403", "internal", &internal]);
    for id in fine {
        assert_published(&world.row(id));
    }
    connection.close().unwrap();
}

#[test]
fn the_back_off_doubles_up_to_its_end() {
    let mut world = World::new();
    let id = world.insert(&unique("nowhere"), "{}");
    for (failures, most) in [(1, 100.0), (2, 200.0), (3, 300.0), (4, 300.0)] {
        world.once(&["--max-failures", "9", "--backoff-base", "100s", "--backoff-max", "300s"], 75);
        let sql = "select extract(epoch from available_at - last_retried_at)::float8 from event_outbox where id = $1";
        let backoff: f64 = world.client.query_one(sql, &[&id]).unwrap().get(0);
        // Half of it is fixed, half is by chance; the two moments are taken within one statement.
        let range = most / 2.0 - 1.0..=most + 1.0;
        assert!(range.contains(&backoff), "after failure {failures}: {backoff} s is not within {range:?}");
        assert_eq!(world.row(id).fail_count, failures);
        world.end_backoff();
    }
}
