//! What a claim takes of keys whose events are locked, changed or committed by others meanwhile; through the library,
//! so that nothing is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use outboxd::config::{Config, OnDead};
use outboxd::outbox::{Look, Outbox, Scope};
use postgres::Client;

use super::{insert_chain, insert_keys, set};
use crate::harness::{unique, wait_until};
use crate::world::{DEADLINE, World};

const FROM_THE_START: Scope = Scope::Walk { after: 0, fresh: true, barred: Vec::new() };

/// What `url` gives claims on.
fn outbox(url: &str, change: impl FnOnce(&mut Config)) -> Outbox {
    let mut config = Config::new(url, "amqp://localhost").unwrap();
    change(&mut config);
    Outbox::new(config.database, config.claim)
}

fn ids(look: &Look) -> Vec<i64> {
    look.claimed.iter().flat_map(|it| &it.events).map(|(event, _)| event.id).collect()
}

/// Locks rows as another relay's claim does, until the transaction ends.
fn lock(client: &mut Client, ids: &[i64]) {
    client.batch_execute("begin").unwrap();
    let sql = "select from event_outbox where id = any($1) order by id for no key update";
    assert_eq!(client.query(sql, &[&ids]).unwrap().len(), ids.len());
}

/// A claim that is stopped after it has locked the follower of a locked event, and before it looks at the order.
///
/// A policy on the table calls a function for each row that the claim's statements read; for the last row of the table
/// it waits while the gate is closed.
struct Gate {
    world: World,
    url: String,
    /// The event that the test's other session has locked, and its follower.
    ids: [i64; 2],
    other: Client,
}

impl Gate {
    fn new() -> Gate {
        let mut world = World::new();
        let mut other = world.database.connect();
        let [first, second] = insert_chain(&mut world.client, "t", Some("k"), 2)[..] else { unreachable!() };
        let last = world.insert("t", "{}");
        let role = unique("relay").replace('-', "_");
        let sql = format!(
            "create table gate (closed boolean);
            insert into gate values (true);
            create function passes(row_id bigint) returns boolean language plpgsql volatile security definer as $$
            begin
                while row_id = {last} and (select closed from gate) loop
                    perform pg_sleep(0.005);
                end loop;
                return true;
            end $$;
            create role {role} login password 'x';
            grant all on event_outbox to {role};
            alter table event_outbox enable row level security;
            create policy gate on event_outbox to {role} using (passes(id));"
        );
        world.client.batch_execute(&sql).unwrap();
        let mut url = url::Url::parse(&world.database.url).unwrap();
        url.set_username(&role).unwrap();
        url.set_password(Some("x")).unwrap();
        lock(&mut other, &[first]);
        Gate { world, url: url.into(), ids: [first, second], other }
    }

    /// What a claim takes, when this is done while it stands at the gate.
    fn claim(&mut self, meanwhile: impl FnOnce(&mut Client, [i64; 2])) -> Look {
        let mut outbox = outbox(&self.url, |_| {});
        thread::scope(|scope| {
            let claim = scope.spawn(|| outbox.claim(&FROM_THE_START, Duration::ZERO).unwrap());
            let stands = "select count(*) from pg_stat_activity where datname = current_database() \
                 and wait_event = 'PgSleep'";
            let client = &mut self.world.client;
            wait_until("the claim stands at the gate", DEADLINE, || {
                (client.query_one(stands, &[]).unwrap().get::<_, i64>(0) == 1).then_some(())
            });
            // It has the follower already.
            let free = "select from event_outbox where id = $1 for no key update skip locked";
            assert!(client.query(free, &[&self.ids[1]]).unwrap().is_empty());
            meanwhile(&mut self.other, self.ids);
            client.batch_execute("update gate set closed = false").unwrap();
            claim.join().unwrap()
        })
    }
}

#[test]
fn a_predecessor_that_is_published_after_the_lock_frees_its_follower() {
    let mut gate = Gate::new();
    let look = gate.claim(|other, [first, _]| {
        set(other, &[first], "status = 'PUBLISHED'");
        other.batch_execute("commit").unwrap();
    });
    let [_, second] = gate.ids;
    assert_eq!(ids(&look)[0], second, "{look:?}");
}

#[test]
fn a_predecessor_that_fails_after_the_lock_holds_its_follower_back() {
    for change in [
        "status = 'FAILED', available_at = clock_timestamp() + interval '1 hour'",
        "status = 'FAILED', available_at = null, last_retried_at = clock_timestamp()",
        "status = 'DEAD'",
        "last_error = 'sent, no confirm'",
    ] {
        let mut gate = Gate::new();
        let look = gate.claim(|other, [first, _]| {
            set(other, &[first], change);
            other.batch_execute("commit").unwrap();
        });
        let [_, second] = gate.ids;
        assert!(!ids(&look).contains(&second), "{change}: {look:?}");
        assert_eq!(look.barred, ["k"], "{change}");
    }
}

#[test]
fn a_predecessor_whose_holder_vanishes_after_the_lock_goes_first() {
    let mut gate = Gate::new();
    let look = gate.claim(|other, _| other.batch_execute("rollback").unwrap());
    let [first, second] = gate.ids;
    assert!(!ids(&look).contains(&second), "{look:?}");
    drop(look);
    // The server frees the rows of a claim that is dropped when it has noticed.
    let mut outbox = outbox(&gate.world.database.url, |_| {});
    let both = wait_until("the rows are free", DEADLINE, || {
        let look = outbox.claim(&FROM_THE_START, Duration::ZERO).unwrap();
        (ids(&look).len() == 3).then(|| ids(&look))
    });
    assert_eq!(both[..2], [first, second]);
}

/// In the snapshot of the statement that took the lock, there is nothing before the follower.
#[test]
fn a_predecessor_that_comes_up_after_the_lock_goes_first() {
    let mut gate = Gate::new();
    let [first, second] = gate.ids;
    gate.other.batch_execute("rollback").unwrap();
    for (before, comes_up) in [
        ("status = 'SKIPPED'", "status = 'WAITING'"),
        ("status = 'PUBLISHED'", "status = 'FAILED', available_at = clock_timestamp() + interval '1 hour'"),
        ("ordering_key = 'other', status = 'EXPIRED'", "ordering_key = 'k', status = 'WAITING'"),
    ] {
        gate.world.client.batch_execute("update gate set closed = true").unwrap();
        set(&mut gate.other, &[first], before);
        let look = gate.claim(|other, [first, _]| set(other, &[first], comes_up));
        assert!(!ids(&look).contains(&second), "{comes_up}: {look:?}");
        drop(look);
        let free = "select from event_outbox where status = 'WAITING' for no key update nowait";
        wait_until("its rows are free", DEADLINE, || gate.world.client.query(free, &[]).ok());
    }
}

/// A generator of numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> usize {
        // Numerical Recipes' constants; the low bits are the worst.
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % sides) as usize
    }
}

/// What a row may be like: its columns, whether it may be taken, and whether it holds back those behind it.
const STATES: [(&str, bool, bool); 13] = [
    ("status = 'WAITING'", true, true),
    ("status = 'FAILED', fail_count = 1", true, true),
    ("status = 'FAILED', fail_count = 1, available_at = clock_timestamp() - interval '1 s'", true, true),
    ("status = 'WAITING', available_at = clock_timestamp() + interval '1 hour'", false, true),
    ("status = 'FAILED', available_at = clock_timestamp() + interval '1 hour'", false, true),
    ("created_at = clock_timestamp()", false, true),
    // To be ended unsent, whatever they wait for.
    ("expired_at = clock_timestamp()", true, true),
    ("expired_at = clock_timestamp(), available_at = 'infinity', created_at = clock_timestamp()", true, true),
    ("status = 'FAILED', fail_count = 3, available_at = 'infinity'", true, true),
    ("status = 'DEAD', fail_count = 3", false, true),
    ("status = 'PUBLISHED'", false, false),
    ("status = 'SKIPPED'", false, false),
    ("status = 'EXPIRED'", false, false),
];

const DEAD: usize = 9;

/// The rule, against its statement in plain words, over many tables: of each key the beginning of its unfinished
/// events, as far as each of them is free and due; of those without a key, each that is.
#[test]
fn a_claim_takes_of_each_key_the_beginning_that_is_free_and_due() {
    let mut dice = Dice(4);
    let mut world = World::new();
    let mut other = world.database.connect();
    let mut taken = 0;
    for round in 0..60 {
        let on_dead = if dice.below(3) == 0 { OnDead::Skip } else { OnDead::Block };
        // Mostly those that can be taken, or hardly a key had more than one event to give.
        let states: Vec<usize> =
            (0..24).map(|_| if dice.below(4) > 0 { dice.below(3) } else { dice.below(13) }).collect();
        let keys: Vec<Option<&str>> =
            states.iter().map(|_| [None, Some("a"), Some("b"), Some("")][dice.below(4)]).collect();
        world.client.batch_execute("delete from event_outbox").unwrap();
        let rows = insert_keys(&mut world.client, "t", &keys);
        let locked: Vec<i64> = rows.iter().copied().filter(|_| dice.below(12) == 0).collect();
        for (id, state) in rows.iter().zip(&states) {
            set(&mut world.client, &[*id], STATES[*state].0);
        }
        lock(&mut other, &locked);

        let mut expected = Vec::new();
        let mut over: BTreeMap<&str, bool> = BTreeMap::new();
        for ((id, state), key) in rows.iter().zip(&states).zip(&keys) {
            let (_, due, holds) = STATES[*state];
            let holds = holds && !(*state == DEAD && on_dead == OnDead::Skip);
            let free = due && !locked.contains(id);
            let over = key.is_some_and(|key| {
                let over = over.entry(key).or_default();
                *over |= holds && !free;
                *over
            });
            if free && !over {
                expected.push(*id);
            }
        }
        let mut outbox = outbox(&world.database.url, |config| config.claim.on_dead = on_dead);
        let look = outbox.claim(&FROM_THE_START, Duration::ZERO).unwrap();
        let story = || format!("round {round}: {rows:?} {states:?} {keys:?} locked {locked:?} {on_dead:?}");
        assert_eq!(ids(&look), expected, "{}", story());
        let chains = look.claimed.iter().flat_map(|it| &it.chains);
        for chain in chains {
            let mine = rows.iter().zip(&keys).filter(|(id, _)| expected.contains(id));
            let mine: Vec<i64> =
                mine.filter(|(_, key)| **key == Some(&chain.key)).map(|(id, _)| *id).collect();
            assert_eq!(chain.ids, mine, "{}", story());
            let last = mine.last().copied().unwrap_or(i64::MAX);
            let mut behind = rows.iter().zip(&states).zip(&keys).filter(|((id, _), _)| **id > last);
            let more = behind.any(|((_, state), key)| {
                let passed = *state == DEAD && on_dead == OnDead::Skip;
                *key == Some(chain.key.as_str()) && STATES[*state].2 && !passed
            });
            assert_eq!(chain.more, more, "{}: whether {:?} goes on", story(), chain.key);
        }
        taken += expected.len();
        drop(look);
        other.batch_execute("rollback").unwrap();
    }
    assert!(taken > 250, "{taken}");
}

/// However small its bounds are, a relay that keeps all its claims open never gets an event of a key without all those
/// before it, by the walk or by key.
#[test]
fn claims_that_are_open_together_never_jump_over_each_other() {
    let mut dice = Dice(7);
    let mut world = World::new();
    let keys: Vec<String> = (0..200).map(|_| format!("k{}", dice.below(7))).collect();
    let keys: Vec<Option<&str>> = keys.iter().map(|it| Some(it.as_str())).collect();
    let rows = insert_keys(&mut world.client, "t", &keys);
    let mut outboxes: Vec<Outbox> = (3..6)
        .map(|rows_max| outbox(&world.database.url, |config| config.claim.batch_rows = rows_max))
        .collect();
    let key_of: BTreeMap<i64, &str> = rows.iter().copied().zip(keys.iter().flatten().copied()).collect();
    let mut next: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for (id, key) in key_of.iter().rev() {
        next.entry(key).or_default().push(*id);
    }
    let (mut open, mut held) = (BTreeSet::new(), Vec::new());
    let mut after = 0;
    for turn in 0..300 {
        let scope = match dice.below(3) {
            0 => Scope::Keys(vec![format!("k{}", dice.below(7)), format!("k{}", dice.below(7))]),
            1 => Scope::Walk { after, fresh: after == 0, barred: vec![] },
            _ => FROM_THE_START,
        };
        let look = outboxes[dice.below(3)].claim(&scope, Duration::ZERO).unwrap();
        after = look.more_after.unwrap_or(0);
        let mut ahead: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        for id in ids(&look) {
            ahead.entry(key_of[&id]).or_default().push(id);
        }
        // Nothing was settled, so whoever holds the first event of a key is the only one that may hold any.
        for (key, ids) in ahead {
            let mine: Vec<i64> = next[key].iter().rev().take(ids.len()).copied().collect();
            assert_eq!(ids, mine, "turn {turn}, {scope:?}: {key}");
            assert!(open.insert(key), "turn {turn}, {scope:?}: {key} is in two claims");
        }
        held.push(look);
        if open.len() == 7 {
            return;
        }
    }
    panic!("after 300 turns only {} of 7 keys were taken", open.len());
}

#[test]
fn a_walk_knows_from_its_start_which_keys_are_held_back() {
    let mut world = World::new();
    // Too young to be locked, so nothing is found out from the followers.
    let min_age = Duration::from_secs(7200);
    let mut outbox = outbox(&world.database.url, |config| config.claim.min_age = min_age);
    let cases: &[(&str, &str, &[&str])] = &[
        ("free", "status = 'WAITING'", &[]),
        ("later", "status = 'FAILED', fail_count = 1, available_at = now() + interval '1 hour'", &["later"]),
        ("dead", "status = 'DEAD'", &["dead", "later"]),
    ];
    for (key, change, expected) in cases {
        let rows = insert_chain(&mut world.client, "t", Some(key), 2);
        set(&mut world.client, &rows[..1], change);
        let look = outbox.claim(&FROM_THE_START, Duration::ZERO).unwrap();
        assert!(ids(&look).is_empty(), "{key}: {look:?}");
        assert_eq!(look.barred, *expected, "{key}");
    }
}
