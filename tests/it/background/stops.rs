//! Stopping in every state: within the given time, and with word of a thread that had to be left behind.

use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use outboxd::config::Config;
use outboxd::relay::{Happening, Relay, RelayHandle, Stop, Stopped};

use super::{config, free, has_ticked};
use crate::harness::{Postgres, PostgresOptions, Rabbit, RabbitOptions, Servers, wait_until};
use crate::world::{DEADLINE, World, init};

/// How much longer than asked for it may take on a machine that others use too.
const SLACK: Duration = Duration::from_secs(2);

/// The longest that a drop waits.
const DROP_MAX: Duration = Duration::from_secs(2);

const ONE: Duration = Duration::from_secs(1);

/// Stops it, and holds it to the limit; whether it ended.
fn ends(handle: RelayHandle, limit: Duration) -> bool {
    let started = Instant::now();
    let stopped = handle.stop(limit);
    assert!(started.elapsed() < limit.saturating_add(SLACK), "{:?} for {limit:?}", started.elapsed());
    assert!(!matches!(stopped, Stopped::Panicked(_)), "{stopped:?}");
    matches!(stopped, Stopped::Ended(_))
}

fn drops(handle: RelayHandle) {
    let started = Instant::now();
    drop(handle);
    assert!(started.elapsed() < DROP_MAX + SLACK, "{:?}", started.elapsed());
}

fn is_in_trouble(handle: &RelayHandle) {
    wait_until("trouble", DEADLINE, || handle.status().trouble.map(|_| ()));
}

/// A server that accepts connections and says nothing.
fn silent() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[test]
fn while_it_waits_for_the_beat_or_for_the_next_try() {
    let world = World::new();
    for amqp_url in [world.amqp_url.as_str(), "amqp://127.0.0.1:1"] {
        for dropped in [false, true] {
            let mut config = config(&world);
            config.broker.url = Config::new("postgres://h/d", amqp_url).unwrap().broker.url;
            let handle = Relay::start(config).unwrap();
            has_ticked(&handle);
            if dropped {
                drops(handle);
            } else {
                // However long somebody would wait.
                assert!(ends(handle, Duration::MAX));
            }
        }
    }
}

#[test]
fn while_a_server_that_says_nothing_is_opened() {
    let world = World::new();
    let (listener, port) = silent();
    let (database, broker) = (format!("postgres://u@127.0.0.1:{port}/d"), format!("amqp://127.0.0.1:{port}"));
    for (database_url, amqp_url) in [(&database, &world.amqp_url), (&world.database.url, &broker)] {
        for dropped in [false, true] {
            let mut config = Config::new(database_url, amqp_url).unwrap();
            (config.database.open_timeout, config.broker.open_timeout) = (DEADLINE, DEADLINE);
            let handle = Relay::start(config).unwrap();
            let _connection = listener.accept().unwrap();
            if dropped {
                drops(handle);
            } else {
                assert!(!ends(handle, Duration::from_millis(300)), "nobody can have heard it");
            }
        }
    }
}

#[test]
fn while_it_drains_a_large_backlog() {
    const MANY: i64 = 20_000;
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many(&queue, MANY);
    for dropped in [false, true] {
        let handle = Relay::start(config(&world)).unwrap();
        let before = world.count("PUBLISHED");
        wait_until("it is under way", DEADLINE, || (world.count("PUBLISHED") > before).then_some(()));
        if dropped {
            drops(handle);
        } else {
            assert!(ends(handle, Duration::from_secs(5)));
        }
        let left = MANY - world.count("PUBLISHED");
        assert!(left > 0, "it was done already");
        wait_until("the rest is free", DEADLINE, || (free(&mut world) == MANY).then_some(()));
    }
    assert_eq!(i64::from(world.broker.queue_len(&queue)), world.count("PUBLISHED"));
}

#[test]
fn while_it_purges() {
    const MANY: i64 = 100_000;
    let mut world = World::new();
    let sql = "insert into event_outbox (event_id, event_type, payload, status, created_at, published_at) \
        select n::text, 't', '{}', 'PUBLISHED', '2020-01-01', '2020-01-01' from generate_series(1, $1::bigint) as n";
    world.client.execute(sql, &[&MANY]).unwrap();
    for dropped in [false, true] {
        let mut config = config(&world);
        config.retention = Some(ONE);
        let handle = Relay::start(config).unwrap();
        let before = world.count("PUBLISHED");
        wait_until("it is under way", DEADLINE, || (world.count("PUBLISHED") < before).then_some(()));
        if dropped {
            drops(handle);
        } else {
            assert!(ends(handle, ONE));
        }
    }
    assert!(world.count("PUBLISHED") > 0, "it was done already");
}

#[test]
fn while_a_broker_is_blocked_or_frozen() {
    let rabbit = Rabbit::start(&RabbitOptions::default());
    let mut world = World::with_broker(&rabbit.url());
    let queue = world.queue();
    for (number, dropped) in [(1, false), (2, true)] {
        for fault in ["alarm", "freeze"] {
            let handle = Relay::start(config(&world)).unwrap();
            has_ticked(&handle);
            if fault == "alarm" {
                rabbit.memory_alarm(true);
            } else {
                rabbit.freeze();
            }
            world.insert(&queue, "{}");
            handle.nudge();
            wait_until("it is claimed", DEADLINE, || {
                let total: i64 =
                    world.client.query_one("select count(*) from event_outbox", &[]).unwrap().get(0);
                (free(&mut world) < total).then_some(())
            });
            if dropped {
                drops(handle);
            } else {
                ends(handle, ONE);
            }
            if fault == "alarm" {
                rabbit.memory_alarm(false);
            } else {
                rabbit.thaw();
            }
            // Whoever was left behind may still settle it.
            wait_until("all are PUBLISHED", DEADLINE, || {
                world.outboxd(&["once", "--min-age", "0s"]);
                (world.count("WAITING") == 0).then_some(())
            });
        }
        assert_eq!(world.count("PUBLISHED"), 2 * number);
    }
    let sql = "select sum(fail_count) from event_outbox";
    assert_eq!(world.client.query_one(sql, &[]).unwrap().get::<_, i64>(0), 0);
}

#[test]
fn while_the_database_is_down_or_frozen() {
    let mut postgres = Postgres::start(&PostgresOptions::default());
    let world = World::on(postgres.database_from("outbox", init), Servers::shared().amqp_url());
    for dropped in [false, true] {
        let handle = Relay::start(config(&world)).unwrap();
        has_ticked(&handle);
        postgres.freeze();
        handle.nudge();
        thread::sleep(Duration::from_millis(100)); // it need not have noticed
        if dropped {
            drops(handle);
        } else {
            ends(handle, ONE);
        }
        postgres.thaw();
        postgres.stop();
        let handle = Relay::start(config(&world)).unwrap();
        is_in_trouble(&handle);
        if dropped {
            drops(handle);
        } else {
            assert!(ends(handle, ONE));
        }
        postgres.restart();
    }
}

#[test]
fn while_the_observer_takes_its_time() {
    let mut world = World::new();
    let queue = world.queue();
    world.insert(&queue, "{}");
    let (tell, told) = mpsc::channel();
    let (go_on, waits) = mpsc::channel::<()>();
    let relay = Relay::new(config(&world)).observed_by(move |happening| {
        if matches!(happening, Happening::Decided { .. }) {
            tell.send(()).unwrap();
            let _ = waits.recv();
        }
    });
    let handle = relay.spawn().unwrap();
    told.recv().unwrap();
    // Neither of these waits for it.
    handle.nudge();
    assert!(handle.status().last_tick.is_none());
    assert!(!ends(handle, Duration::from_millis(300)));
    drop(go_on);
    // What was left behind ends in order.
    wait_until("the event is settled", DEADLINE, || (world.count("PUBLISHED") == 1).then_some(()));
    assert_eq!(world.arrivals(&queue).len(), 1);
}

#[test]
fn a_drain_has_any_limit_and_hears_the_request() {
    let mut world = World::new();
    let queue = world.queue();
    world.insert(&queue, "{}");
    let mut relay = Relay::new(config(&world));
    let tick = relay.drain(&Stop::new(), Duration::MAX);
    assert_eq!(tick.tally.published, 1, "{tick:?}");
    relay.close();
    // Nothing can be reached, and it would wait for ever.
    let mut relay = Relay::new(Config::new("postgres://u@127.0.0.1:1/d", "amqp://127.0.0.1:1").unwrap());
    let stop = Stop::new();
    thread::scope(|scope| {
        let drains = scope.spawn(|| relay.drain(&stop, Duration::MAX));
        stop.request();
        wait_until("it ends", DEADLINE, || drains.is_finished().then_some(()));
    });
}

#[test]
fn a_drain_claims_nothing_after_its_limit() {
    const MANY: i64 = 20_000;
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many(&queue, MANY);
    let mut relay = Relay::new(config(&world));
    let stop = Stop::new();
    let tick = relay.drain(&stop, Duration::from_millis(100));
    assert!(tick.more && tick.trouble.is_none(), "{tick:?}");
    let left = world.count("WAITING");
    assert!(left > 0 && world.count("PUBLISHED") == MANY - left);
    // The limit was that call's.
    assert!(!relay.tick(&stop).more);
    assert_eq!(world.count("PUBLISHED"), MANY);
}

/// Whoever changes a setting answers for its limits, but is not to have a thread that cannot be stopped.
#[test]
fn a_beat_beyond_its_limits_is_brought_within_them() {
    let mut world = World::new();
    let queue = world.queue();
    for interval in [Duration::ZERO, Duration::MAX] {
        world.insert(&queue, "{}");
        let mut config = config(&world);
        config.interval = interval;
        let handle = Relay::start(config).unwrap();
        has_ticked(&handle);
        wait_until("the event is PUBLISHED", DEADLINE, || (world.count("WAITING") == 0).then_some(()));
        assert!(ends(handle, Duration::from_secs(5)));
    }
}
