//! The desk against modelled lanes and a modelled broker, over many seeds.

mod world;

use super::*;
use crate::message::Message;
use crate::publisher::tests::broker::Nature;
use world::World;

/// How many histories are played. Each is a few hundred steps, so that all take a second or two.
const SEEDS: u64 = 20_000;

/// Plays one history: claims are handed over while the broker blocks, unblocks, and the caller recalls and forsakes;
/// then either everything is left to come to rest, or the connection is lost.
fn play(seed: u64) -> World {
    let mut world = World::new(seed);
    let disturbed = world.chance.one_in(2);
    for claim in 1..=4 {
        world.hand_over(claim);
        for _ in 0..world.chance.below(40) {
            world.step();
            if disturbed {
                match world.chance.below(60) {
                    0 => world.set_blocked(true),
                    1 => world.set_blocked(false),
                    2 => world.recall(),
                    3 => world.forsake(),
                    _ => {}
                }
            }
        }
    }
    if world.chance.one_in(3) {
        world.lose();
    } else {
        world.set_blocked(false);
    }
    world.come_to_rest();
    world
}

#[test]
fn every_job_has_exactly_one_true_outcome_whatever_happens() {
    let mut late = 0;
    for seed in 1..=SEEDS {
        let world = std::panic::catch_unwind(|| play(seed)).unwrap_or_else(|_| panic!("seed {seed}"));
        let without: Vec<_> = world.natures.keys().filter(|key| !world.outcomes.contains_key(key)).collect();
        assert!(without.is_empty(), "seed {seed}: no outcome for {without:?}");
        late += world.late;
    }
    assert!(late > 0, "no confirm came late in any history");
}

#[test]
fn undisturbed_only_the_guilty_pay() {
    for seed in 1..=SEEDS / 4 {
        let mut world = World::new(seed);
        for claim in 1..=3 {
            world.hand_over(claim);
            for _ in 0..world.chance.below(30) {
                world.step();
            }
        }
        world.come_to_rest();
        for (key, nature) in &world.natures {
            let outcome = world.outcomes.get(key);
            let expected = match nature {
                Nature::Fine => matches!(outcome, Some(Outcome::Confirmed(_))),
                Nature::Full => matches!(outcome, Some(Outcome::Busy(_))),
                Nature::Unroutable | Nature::NoExchange | Nature::Malformed | Nature::Killer => {
                    matches!(outcome, Some(Outcome::Refused(_)))
                }
            };
            assert!(expected, "seed {seed}: {key:?}, {nature:?}, is {outcome:?}");
        }
    }
}

#[test]
fn the_first_job_of_a_connection_goes_alone() {
    let mut desk = Desk::new();
    let job = |id| Job::new(Key { claim: 1, id }, Message::probe());
    desk.take((1..=3).map(job).collect());
    assert_eq!(desk.next(|_| None).map(|job| job.key.id), Some(1));
    assert!(desk.next(|_| None).is_none());
    desk.note(vec![(Key { claim: 1, id: 1 }, Outcome::Busy("nacked".into()))]);
    assert_eq!(desk.next(|_| None).map(|job| job.key.id), Some(2));
    assert_eq!(desk.next(|_| None).map(|job| job.key.id), Some(3));
}

#[test]
fn an_exchange_is_blamed_when_the_broker_names_it() {
    let cases = [
        (404, "NOT_FOUND - no exchange 'a' in vhost '/'", true),
        (404, "NOT_FOUND - no exchange 'ab' in vhost '/'", false),
        (403, "ACCESS_REFUSED - access to exchange 'a' in vhost '/' refused for user 'u'", true),
        (403, "ACCESS_REFUSED - cannot publish to internal exchange 'a' in vhost '/'", true),
        (
            403,
            "ACCESS_REFUSED - access to topic 'k' in exchange 'a' in vhost '/' refused for user 'u'",
            false,
        ),
        (406, "PRECONDITION_FAILED - message size 9 is larger than configured max size 8", false),
    ];
    for (code, text, expected) in cases {
        assert_eq!(names_exchange(code, text, "a"), expected, "{text}");
    }
}
