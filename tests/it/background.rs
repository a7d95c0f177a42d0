//! The relay inside an application: on a thread of its own, watched, nudged, stopped in every state.

mod hosts;
mod stops;

use std::io::Write;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use outboxd::config::Config;
use outboxd::relay::{Answer, Happening, Reason, Relay, RelayHandle, Stage1, Stop, Stopped};

use crate::harness::{Proc, Rabbit, RabbitOptions, wait_until};
use crate::world::{DEADLINE, World};

/// A beat that no test waits for.
const NEVER: Duration = Duration::from_secs(3600);

fn config(world: &World) -> Config {
    let mut config = Config::new(&world.database.url, &world.amqp_url).unwrap();
    config.interval = NEVER;
    config
}

fn has_ticked(handle: &RelayHandle) {
    wait_until("the relay has ticked", DEADLINE, || handle.status().last_tick.map(|_| ()));
}

/// How many events nobody has claimed.
fn free(world: &mut World) -> i64 {
    let sql = "select count(*) from (select from event_outbox for update skip locked) as free";
    world.client.query_one(sql, &[]).unwrap().get(0)
}

#[test]
fn a_nudge_is_enough_to_have_an_event_sent() {
    let mut world = World::new();
    let queue = world.queue();
    let handle = Relay::start(config(&world)).unwrap();
    has_ticked(&handle);
    world.insert(&queue, "{}");
    handle.nudge();
    wait_until("the event is PUBLISHED", DEADLINE, || (world.count("PUBLISHED") == 1).then_some(()));
    let Stopped::Ended(total) = handle.stop(DEADLINE) else { panic!() };
    assert_eq!((total.claimed, total.published), (1, 1));
}

#[test]
fn several_relays_in_one_process_do_not_know_of_each_other() {
    let mut worlds = [World::new(), World::new()];
    let queues: Vec<String> = worlds.iter().map(World::queue).collect();
    for (world, queue) in worlds.iter_mut().zip(&queues) {
        world.insert(queue, "{}");
    }
    let handles: Vec<RelayHandle> = worlds.iter().map(|world| Relay::start(config(world)).unwrap()).collect();
    for world in &mut worlds {
        wait_until("the event is PUBLISHED", DEADLINE, || (world.count("PUBLISHED") == 1).then_some(()));
    }
    for handle in handles {
        assert!(matches!(handle.stop(DEADLINE), Stopped::Ended(total) if total.published == 1));
    }
}

#[test]
fn trouble_is_told_and_its_end_too() {
    let mut rabbit = Rabbit::start(&RabbitOptions::default());
    let world = World::with_broker(&rabbit.url());
    rabbit.stop();
    let (tell, told) = mpsc::channel();
    let relay = Relay::new(config(&world)).observed_by(move |happening| {
        let word = match happening {
            Happening::TroubleBegan(_) => "began",
            Happening::TroubleEnded => "ended",
            _ => return,
        };
        let _ = tell.send(word);
    });
    let handle = relay.spawn().unwrap();
    let trouble = wait_until("the trouble shows", DEADLINE, || handle.status().trouble);
    assert!(trouble.error.to_string().contains("broker"), "{trouble:?}");
    rabbit.restart();
    wait_until("the trouble is over", DEADLINE, || handle.status().trouble.is_none().then_some(()));
    assert!(matches!(handle.stop(DEADLINE), Stopped::Ended(_)));
    let told: Vec<&str> = told.into_iter().collect();
    assert_eq!((told.first(), told.last()), (Some(&"began"), Some(&"ended")), "{told:?}");
}

#[test]
fn an_observer_sees_each_event_and_each_tick() {
    let mut world = World::new();
    let queue = world.queue();
    let id = world.insert(&queue, "{}");
    let (tell, told) = mpsc::channel();
    let mut relay = Relay::new(config(&world)).observed_by(move |happening| {
        let _ = tell.send(match happening {
            Happening::Decided { event, settlement } => format!("{} {settlement:?}", event.id),
            Happening::Ticked { tally, .. } => tally.to_string(),
            _ => return,
        });
    });
    relay.tick(&Stop::new());
    relay.close();
    let told: Vec<String> = told.into_iter().collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with(&format!("{id} Published")), "{told:?}");
    assert_eq!(told[1], "claimed 1: published 1");
}

/// What its own metrics and watchdog hang on.
#[test]
fn an_observer_sees_how_each_part_of_a_tick_went() {
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many(&queue, 3);
    world.insert("nobody.asks", "{}");
    let (tell, told) = mpsc::channel();
    let counts = tell.clone();
    let relay = Relay::new(config(&world)).observed_by(move |happening| {
        let what = match happening {
            Happening::Contact { server, contact } => format!("{server} {contact:?}"),
            Happening::Claimed { events, took } if !took.is_zero() => format!("claimed {events}"),
            Happening::Answered { took } if !took.is_zero() => "answered".into(),
            Happening::Completed { events, took } if !took.is_zero() => format!("completed {events}"),
            Happening::Settled { tally, took } if !took.is_zero() => format!("settled {tally}"),
            Happening::Decided { settlement, .. } => match Reason::of(settlement) {
                Some(reason) => format!("failed: {}", reason.as_str()),
                None => return,
            },
            Happening::Ticked { trouble, .. } => format!("ticked, trouble {trouble:?}"),
            _ => return,
        };
        let _ = tell.send(what);
    });
    // Two may watch.
    let mut relay = relay.observed_by(move |happening| {
        if matches!(happening, Happening::Alive) {
            let _ = counts.send("alive".into());
        }
    });
    relay.tick(&Stop::new());
    relay.close();
    let told: Vec<String> = told.into_iter().collect();
    let (alive, told): (Vec<String>, Vec<String>) = told.into_iter().partition(|it| it == "alive");
    assert!(!alive.is_empty());
    let (answers, mut told): (Vec<String>, Vec<String>) = told.into_iter().partition(|it| it == "answered");
    assert_eq!(answers.len(), 4);
    // It is decided when its answer is heard, which may be before or after the others'.
    let refused = told.iter().position(|it| it == "failed: unroutable").map(|at| told.remove(at));
    assert!(refused.is_some(), "{told:?}");
    let expected = [
        "broker Connected",
        "claimed 4",
        "completed 4",
        "settled claimed 4: published 3, failed 1",
        "database Connected",
        "ticked, trouble None",
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_panic_of_the_observer_ends_the_relay_and_not_the_host() {
    let mut world = World::new();
    let queue = world.queue();
    world.insert(&queue, "{}");
    let relay = Relay::new(config(&world)).observed_by(|_| panic!("no host likes this"));
    let handle = relay.spawn().unwrap();
    let reason = wait_until("the panic is told", DEADLINE, || handle.status().panicked);
    assert_eq!(reason, "no host likes this");
    assert_eq!(handle.stop(DEADLINE), Stopped::Panicked(reason));
    wait_until("the claim is given up", DEADLINE, || (free(&mut world) == 1).then_some(()));
}

#[test]
fn a_relay_whose_broker_is_frozen_stops_in_time_or_is_left_behind() {
    let rabbit = Rabbit::start(&RabbitOptions::default());
    let mut world = World::with_broker(&rabbit.url());
    let queue = world.queue();
    let handle = Relay::start(config(&world)).unwrap();
    has_ticked(&handle);
    rabbit.freeze();
    world.insert(&queue, "{}");
    handle.nudge();
    wait_until("the event is claimed", DEADLINE, || (free(&mut world) == 0).then_some(()));
    let started = Instant::now();
    // Either is right, a hang is not.
    let stopped = handle.stop(Duration::from_secs(2));
    assert!(matches!(stopped, Stopped::LeftBehind | Stopped::Ended(_)), "{stopped:?}");
    assert!(started.elapsed() < DEADLINE);
    rabbit.thaw();
    assert_eq!(world.row(1).fail_count, 0);
}

#[test]
fn nothing_panics_within_an_async_runtime() {
    let mut world = World::new();
    let queue = world.queue();
    world.insert(&queue, "{}");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut relay = Relay::new(config(&world));
    let tick = runtime.block_on(async { relay.tick(&Stop::new()) });
    assert_eq!(tick.tally.published, 1, "{tick:?}");
    let handle = runtime.block_on(async { Relay::start(config(&world)) }).unwrap();
    has_ticked(&handle);
    runtime.block_on(async move { drop((handle, relay)) });
}

#[test]
fn a_drain_goes_on_over_trouble_that_passes() {
    let mut rabbit = Rabbit::start(&RabbitOptions::default());
    let mut world = World::with_broker(&rabbit.url());
    let queue = world.queue();
    world.insert(&queue, "{}");
    rabbit.stop();
    let mut relay = Relay::new(config(&world));
    let tick = relay.drain(&Stop::new(), Duration::from_millis(300));
    assert!(tick.trouble.is_some() && tick.tally.published == 0, "{tick:?}");
    let drained = thread::scope(|scope| {
        let draining = scope.spawn(|| relay.drain(&Stop::new(), DEADLINE));
        rabbit.restart();
        draining.join().unwrap()
    });
    assert!(drained.trouble.is_none() && drained.tally.published == 1, "{drained:?}");
}

const CYCLES: usize = 200;
const STAGE1_CYCLES: usize = 30;
const LISTENING_CYCLES: usize = 40;
const CHILD: &str = "OUTBOXD_TEST_CYCLES";

/// Threads and descriptors are counted in a process of its own, where no other test opens any.
#[test]
fn two_hundred_starts_and_stops_leak_no_thread_and_no_descriptor() {
    let world = World::new();
    let urls = format!("{} {}", world.database.url, world.amqp_url);
    let program = env::current_exe().unwrap();
    let test = ["--exact", "background::two_hundred_cycles_in_a_child", "--nocapture"];
    let output = Proc::run(program, &test, &[(CHILD, &urls)], DEADLINE * 3);
    assert_eq!(output.code, Some(0), "{output:?}");
    let line = output.stdout.lines().find(|line| line.starts_with("more than after the first"));
    assert_eq!(line, Some("more than after the first: 0 threads, 0 descriptors"), "{output:?}");
}

#[test]
fn two_hundred_cycles_in_a_child() {
    // Only the test above has it do anything.
    let Ok(urls) = env::var(CHILD) else { return };
    let (database_url, amqp_url) = urls.split_once(' ').unwrap();
    let cycle = |listen: bool| {
        let mut config = Config::new(database_url, amqp_url).unwrap();
        (config.interval, config.listen) = (NEVER, listen);
        let handle = Relay::start(config).unwrap();
        has_ticked(&handle);
        assert!(matches!(handle.stop(DEADLINE), Stopped::Ended(_)));
    };
    let stage1_cycle = || {
        let stage1 = Stage1::start(Config::new(database_url, amqp_url).unwrap()).unwrap();
        assert_eq!(stage1.publish_now(&["nowhere"], DEADLINE), [Answer::NotFound]);
    };
    let count = |folder: &str| fs::read_dir(format!("/proc/{}/{folder}", process::id())).unwrap().count();
    let counts = || (count("task"), count("fd"));
    // What has ended may take a moment to be gone.
    let at_rest = || {
        let mut before = counts();
        loop {
            thread::sleep(Duration::from_millis(500));
            let now = counts();
            if now == before {
                return now;
            }
            before = now;
        }
    };
    cycle(false);
    cycle(true);
    stage1_cycle();
    let first = at_rest();
    (0..CYCLES).for_each(|_| cycle(false));
    (0..LISTENING_CYCLES).for_each(|_| cycle(true));
    (0..STAGE1_CYCLES).for_each(|_| stage1_cycle());
    let last = at_rest();
    let (threads, descriptors) = (last.0.saturating_sub(first.0), last.1.saturating_sub(first.1));
    // Not by the macro, whose output tests may capture; on a line of its own.
    let text = format!("\nmore than after the first: {threads} threads, {descriptors} descriptors\n");
    std::io::stdout().write_all(text.as_bytes()).unwrap();
}
