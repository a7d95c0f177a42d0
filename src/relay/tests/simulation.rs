//! The relay's core without servers: the real engine, drain, walk, chains, flights, claims, policy, encoding, desk and
//! ledger, several relays on one table, against a modelled database and a modelled broker, in virtual time.
//!
//! Each relay blocks where it would in life, and any of them may act, fail or die at each such point: between any two
//! statements of a claim, between two messages, between a confirm and its settlement, before and after the commit. What
//! is modelled: SQL (each statement as its file says it), the pool of sessions, and in the broker's session what threads
//! and sockets do. Stage 1 is not in it.
//!
//! What it was proven with, each of which it finds within some hundred histories: settling before the confirm, returns
//! ignored, a multiple ack that takes all, gaps in a key ignored, chains that go on after a failure or are sent at once,
//! a walk that does not begin anew, outages counted as failures, confirms forgotten when a settle or a claim is lost or
//! when they come late.
//!
//! `SIM_SEED=17 cargo test --lib relay::tests::simulation` plays one history alone, `SIM_SEEDS=1000000` more of them.

mod checks;
mod faults;
mod relays;
mod traffic;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use world::World;

/// How many histories are played, in the debug build. All of them take 32 s of one core's time (4 ms each at most), so
/// about 17 s on two slow cores that have nothing else to do.
const SEEDS: u64 = 10_000;

/// What all histories came to.
#[derive(Default)]
struct Total {
    events: AtomicU64,
    copies: AtomicU64,
    faults: AtomicU64,
    steps: AtomicU64,
}

/// Plays one history, and checks it.
fn play(seed: u64, total: &Total) -> World {
    let mut world = World::new(seed);
    world.play();
    let copies = checks::at_the_end(&world);
    let events = u64::try_from(world.writers.committed.len()).unwrap();
    total.events.fetch_add(events, Ordering::Relaxed);
    total.copies.fetch_add(copies, Ordering::Relaxed);
    total.faults.fetch_add(world.faults.struck, Ordering::Relaxed);
    total.steps.fetch_add(world.steps, Ordering::Relaxed);
    world
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

#[test]
fn no_history_loses_invents_reorders_or_blames_anything() {
    let total = Total::default();
    if let Some(seed) = number("SIM_SEED") {
        play(seed, &total);
        return;
    }
    let (next, seeds) = (AtomicU64::new(0), number("SIM_SEEDS").unwrap_or(SEEDS));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return;
            }
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(play(seed, &total)))) {
                next.store(seeds, Ordering::Relaxed);
                eprintln!("again: SIM_SEED={seed} cargo test --lib relay::tests::simulation");
                resume_unwind(panic);
            }
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        threads.into_iter().for_each(|it| it.join().unwrap());
    });
    let [events, copies, faults, steps] =
        [&total.events, &total.copies, &total.faults, &total.steps].map(|it| it.load(Ordering::Relaxed));
    println!("{events} events, {copies} copies, {faults} faults, {steps} steps in {seeds} histories");
    // One in which nothing happens proves nothing.
    assert!(events > seeds * 10 && copies > seeds / 10 && faults > seeds, "{events} {copies} {faults}");
}

/// Or a seed that fails would be of no use.
#[test]
fn a_seed_is_one_history() {
    for seed in 0..40 {
        let played = || {
            let world = play(seed, &Total::default());
            let received = world.servers.hub.borrow().broker.received.clone();
            (world.steps, world.now, received)
        };
        assert_eq!(played(), played(), "seed {seed}");
    }
}
