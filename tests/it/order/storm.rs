//! Everything at once: three relays on one table, writers that commit and roll back, and faults by chance.
//!
//! The seed is printed; `OUTBOXD_TEST_SEED` sets it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use postgres::Client;

use super::oracle::{Oracle, Verdict};
use super::{Road, set};
use crate::harness::{Proc, Proxy, Servers, wait_until};
use crate::world::{DEADLINE, OUTBOXD, World};

/// How long faults go on.
const STORM: Duration = Duration::from_secs(18);

const RELAYS: usize = 3;
const KEYS: usize = 50;

/// A generator of numbers by chance.
#[derive(Clone)]
struct Dice(u64);

impl Dice {
    fn thrown() -> Dice {
        let seed = std::env::var("OUTBOXD_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        let seed = seed.unwrap_or(now);
        eprintln!("OUTBOXD_TEST_SEED={seed}");
        Dice(seed)
    }

    fn below(&mut self, sides: usize) -> usize {
        // xorshift64*; a seed of 0 would stay 0.
        let mut x = self.0 | 1 << 63;
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0 = x;
        ((x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize) % sides
    }
}

/// A relay with a road of its own to the broker.
struct Ship {
    proxy: Proxy,
    amqp_url: String,
    process: Proc,
    batch: &'static str,
}

impl Ship {
    fn new(world: &World, number: usize) -> Ship {
        let mut url = url::Url::parse(Servers::shared().amqp_url()).unwrap();
        let proxy = Proxy::to(url.port().unwrap_or(5672));
        url.set_port(Some(proxy.port())).unwrap();
        let (amqp_url, batch) = (String::from(url), ["20", "35", "50"][number % 3]);
        let process = Ship::launch(world, &amqp_url, batch);
        Ship { proxy, amqp_url, process, batch }
    }

    fn launch(world: &World, amqp_url: &str, batch: &str) -> Proc {
        let options = [
            ["--interval", "150ms"],
            ["--min-age", "0s"],
            ["--batch-rows", batch],
            ["--backoff-base", "100ms"],
            ["--backoff-max", "400ms"],
            ["--max-failures", "1000"],
            ["--publish-timeout", "2s"],
            ["--open-timeout", "3s"],
            ["--claim-max-idle", "5s"],
        ];
        let arguments = [&["run", "--config", world.config_path()], options.as_flattened()].concat();
        Proc::spawn(OUTBOXD, &arguments, &[("DATABASE_URL", &world.database.url), ("AMQP_URL", amqp_url)])
    }

    fn restart(&mut self, world: &World) {
        self.process = Ship::launch(world, &self.amqp_url, self.batch);
    }
}

/// Writes transactions of a few events each until told to end, as the promise asks it of writers: whoever writes
/// events of a key has locked the key. Every fifth is rolled back.
fn write(mut client: Client, event_type: &str, mut dice: Dice, end: &AtomicBool) {
    let sql = "insert into event_outbox (event_id, event_type, payload, ordering_key, available_at, expired_at) \
         values ($1, $2, '{}', $3, \
             case when $4 = 1 then clock_timestamp() + interval '700 ms' end, \
             case when $4 = 2 then clock_timestamp() end)";
    while !end.load(Ordering::Relaxed) {
        let keys: BTreeSet<usize> = (0..1 + dice.below(4)).map(|_| dice.below(KEYS)).collect();
        let mut transaction = client.transaction().unwrap();
        for key in &keys {
            transaction.execute("select pg_advisory_xact_lock($1)", &[&(*key as i64)]).unwrap();
        }
        for key in keys.iter().chain(&keys) {
            let event_id = ulid::Ulid::generate().to_string();
            let key = (dice.below(4) > 0).then(|| format!("key {key}"));
            let kind = dice.below(40) as i32;
            transaction.execute(sql, &[&event_id, &event_type, &key, &kind]).unwrap();
        }
        if dice.below(5) == 0 {
            transaction.rollback().unwrap();
        } else {
            transaction.commit().unwrap();
        }
        thread::sleep(Duration::from_millis(dice.below(12) as u64));
    }
}

/// Tells the writers to end, also when the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The faults, one after the other until the time is over, each as often as the others.
struct Weather<'a> {
    world: &'a World,
    client: Client,
    ships: &'a mut [Ship],
    road: &'a Road,
    dice: Dice,
    /// Rows that were given up and taken back: the promise does not cover them.
    re_driven: Vec<i64>,
    faults: usize,
}

impl Weather<'_> {
    fn rage(&mut self, refusals: bool) {
        let end = Instant::now() + STORM;
        let mut deck: Vec<usize> = Vec::new();
        while Instant::now() < end {
            if deck.is_empty() {
                deck.extend(0..if refusals { 7 } else { 6 });
            }
            let fault = deck.swap_remove(self.dice.below(deck.len()));
            self.strike(fault);
            self.faults += 1;
            self.pause(150, 400);
        }
    }

    fn pause(&mut self, least_ms: u64, more_ms: usize) {
        thread::sleep(Duration::from_millis(least_ms + self.dice.below(more_ms) as u64));
    }

    fn strike(&mut self, fault: usize) {
        let number = self.dice.below(RELAYS);
        match fault {
            0 => {
                self.ships[number].process.signal("KILL");
                self.pause(1, 300);
                self.ships[number].restart(self.world);
            }
            1 => {
                self.ships[number].process.signal("STOP");
                self.pause(600, 800);
                self.ships[number].process.signal("CONT");
            }
            2 => self.ships[number].proxy.reset(),
            3 => {
                let one = "select pg_terminate_backend(pid) from pg_stat_activity \
                     where datname = current_database() and application_name = 'outboxd' \
                     order by random() limit 1";
                self.client.execute(one, &[]).unwrap();
            }
            4 => {
                self.give_up_and_take_back("DEAD");
            }
            5 => {
                let re_driven = self.give_up_and_take_back("SKIPPED");
                self.re_driven.extend(re_driven);
            }
            _ => {
                self.road.close(&self.world.broker);
                self.pause(300, 600);
                self.road.open(&self.world.broker);
            }
        }
    }

    /// An operator at work on rows that nobody has in hand. A DEAD one still holds its key.
    fn give_up_and_take_back(&mut self, status: &str) -> Vec<i64> {
        let sql = format!(
            "update event_outbox set status = '{status}' where id in (
                select id from event_outbox where status in ('WAITING', 'FAILED')
                order by random() limit 4 for update skip locked) returning id::bigint"
        );
        let ids: Vec<i64> = self.client.query(&sql, &[]).unwrap().iter().map(|row| row.get(0)).collect();
        self.pause(200, 400);
        set(&mut self.client, &ids, "status = 'WAITING', fail_count = 0, available_at = null");
        ids
    }
}

fn storm(refusals: bool) {
    let mut dice = Dice::thrown();
    let mut world = World::new();
    let road = Road::new(&world);
    let mut ships: Vec<Ship> = (0..RELAYS).map(|number| Ship::new(&world, number)).collect();
    let end = AtomicBool::new(false);
    let (re_driven, faults) = thread::scope(|scope| {
        let _end = End(&end);
        for _ in 0..2 {
            dice.below(2);
            let (client, dice, end) = (world.database.connect(), dice.clone(), &end);
            let event_type = &road.event_type;
            scope.spawn(move || write(client, event_type, dice, end));
        }
        let mut weather = Weather {
            world: &world,
            client: world.database.connect(),
            ships: &mut ships,
            road: &road,
            dice,
            re_driven: vec![],
            faults: 0,
        };
        weather.rage(refusals);
        (weather.re_driven, weather.faults)
    });
    let log = |ships: &[Ship]| {
        ships.iter().map(|ship| ship.process.to_string()).collect::<Vec<_>>().join("\n======\n")
    };
    let open = "select count(*) from event_outbox where status not in ('PUBLISHED', 'EXPIRED')";
    wait_until(&format!("all is finished:\n{}", log(&ships)), DEADLINE, || {
        (world.client.query_one(open, &[]).unwrap().get::<_, i64>(0) == 0).then_some(())
    });
    let exempt = re_driven.len();
    let oracle = Oracle::read(&mut world.client).except(re_driven);
    let verdict = oracle.check(&world.arrivals(&road.queue));
    let Verdict { received, twice, compared } =
        verdict.unwrap_or_else(|story| panic!("{story}\n{}", log(&ships)));
    eprintln!("{faults} faults: received {received}, twice {twice}, compared {compared}, re-driven {exempt}");
    assert!(faults > 15 && compared > 500, "{faults} faults, {compared} compared");
    if !refusals {
        let failed = "select count(*) from event_outbox where fail_count > 0";
        assert_eq!(world.client.query_one(failed, &[]).unwrap().get::<_, i64>(0), 0, "{}", log(&ships));
    }
    let panicked = log(&ships).contains("panic");
    assert!(!panicked, "{}", log(&ships));
}

#[test]
fn three_relays_keep_the_order_through_faults_of_relays_and_servers() {
    storm(false);
}

#[test]
fn three_relays_keep_the_order_through_refusals_too() {
    storm(true);
}
