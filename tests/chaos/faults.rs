//! The injector: draws faults, makes them, takes them back, and notes them in the ledger.
//!
//! What it draws (kinds, targets, durations) follows from the seed; what it meets does not. Several hands work at a time,
//! so that faults overlap. Two faults of one thing do not: each has a lock, held until it is whole again.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::dice::Dice;
use crate::fleet::Fleet;
use crate::harness::Direction::{ToClient, ToServer};
use crate::harness::{Direction, Proxy};
use crate::ledger::{Entry, Fault, Ledger, now};
use crate::setting::{BRITTLE, ONCE, OPERATOR, RELAYS, TROUBLED_KEYS, VOLATILE, flags, settings};
use crate::world::{self, DEADLINE, World, lock};

/// Closes every connection, as an operator does.
const CLOSE_ALL: &str =
    "[rabbit_networking:close_connection(P, \"bye\") || P <- rabbit_networking:connections()].";

/// Everything that can be done to the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    RelayKill,
    RelayFreeze,
    RelayEnd,
    BrokerKill,
    BrokerRestart,
    BrokerFreeze,
    BrokerAlarm,
    BrokerCloses,
    DatabaseKill,
    DatabaseFast,
    DatabaseImmediate,
    DatabaseFreeze,
    DatabaseCloses,
    BrokerRoad(Trouble),
    DatabaseRoad(Trouble),
    ExchangeGone,
    QueueGone,
    RowsHeld,
    IndexBuilt,
    Once,
    Operator,
}

/// What can be wrong with a road.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    Reset,
    Refuse,
    /// Both ways.
    Swallow,
    SwallowAnswers,
    SwallowRequests,
    /// Nothing passes, and nothing is lost: all of it arrives in the end.
    Stall,
    Slow,
    Narrow,
}

const TROUBLES: [Trouble; 8] = [
    Trouble::Reset,
    Trouble::Refuse,
    Trouble::Swallow,
    Trouble::SwallowAnswers,
    Trouble::SwallowRequests,
    Trouble::Stall,
    Trouble::Slow,
    Trouble::Narrow,
];

impl Kind {
    /// One of each.
    pub fn all() -> Vec<Kind> {
        use Kind::*;
        let mut all = vec![
            RelayKill,
            RelayFreeze,
            RelayEnd,
            BrokerKill,
            BrokerRestart,
            BrokerFreeze,
            BrokerAlarm,
            BrokerCloses,
            DatabaseKill,
            DatabaseFast,
            DatabaseImmediate,
            DatabaseFreeze,
            DatabaseCloses,
            ExchangeGone,
            QueueGone,
            RowsHeld,
            IndexBuilt,
            Once,
            Operator,
        ];
        all.extend(TROUBLES.map(BrokerRoad));
        all.extend(TROUBLES.map(DatabaseRoad));
        all
    }

    /// Its name in the ledger.
    pub fn name(self) -> String {
        match self {
            Kind::BrokerRoad(trouble) => format!("BrokerRoad{trouble:?}"),
            Kind::DatabaseRoad(trouble) => format!("DatabaseRoad{trouble:?}"),
            kind => format!("{kind:?}"),
        }
    }
}

/// One hand of the injector.
pub struct Injector<'a> {
    pub world: &'a World,
    pub fleet: &'a Fleet<'a>,
    pub ledger: &'a Ledger,
    pub dice: Dice,
    /// What it draws from, each as often as the others.
    pub kinds: Vec<Kind>,
    /// Between two faults, in milliseconds.
    pub pause_ms: (u64, u64),
    /// How many faults in a hundred outlast the relay's timeouts.
    pub long_percent: u64,
    /// The kinds that any hand has met, and how many of them are worth more time.
    pub met: &'a Mutex<BTreeSet<String>>,
    pub least: usize,
}

impl Injector<'_> {
    /// Makes faults until the time is over; the last one is taken back before it returns. On a machine so slow that few
    /// kinds were met by then, it goes on for up to `more`.
    pub fn run(mut self, until: Instant, more: Duration) {
        let mut deck = Vec::new();
        let (met, least) = (self.met, self.least);
        let too_few = || lock(met).len() < least;
        while Instant::now() < until || (too_few() && Instant::now() < until + more) {
            if deck.is_empty() {
                deck = self.kinds.clone();
                self.dice.shuffle(&mut deck);
            }
            if let Some(kind) = deck.pop() {
                self.strike(kind);
            }
            let pause = self.dice.between(self.pause_ms.0, self.pause_ms.1);
            thread::sleep(Duration::from_millis(pause));
        }
    }

    fn strike(&mut self, kind: Kind) {
        let relay = self.dice.below(RELAYS as u64) as usize;
        // All draws are made before anything is waited for, so that they follow from the seed alone.
        let (short, chance) = (self.dice.between(100, 2000), self.dice.fork());
        let long = match self.dice.percent(self.long_percent) {
            false => self.dice.between(1500, 6000),
            true => self.dice.between(6000, 16_000),
        };
        let (short, long) = (Duration::from_millis(short), Duration::from_millis(long));
        let world = self.world;
        let (relay, start) = match kind {
            Kind::RelayKill | Kind::RelayFreeze | Kind::RelayEnd => {
                let mut ship = lock(self.fleet.ship(relay));
                let start = now();
                match kind {
                    Kind::RelayKill => self.fleet.kill(&mut ship),
                    Kind::RelayEnd => self.fleet.ask(&mut ship),
                    _ => {
                        ship.signal("STOP");
                        // Sometimes for longer than its claims live.
                        thread::sleep(long + short);
                        ship.signal("CONT");
                    }
                }
                if kind != Kind::RelayFreeze {
                    thread::sleep(short / 2);
                    self.fleet.start(&mut ship);
                }
                (Some(relay), start)
            }
            Kind::BrokerKill
            | Kind::BrokerRestart
            | Kind::BrokerFreeze
            | Kind::BrokerAlarm
            | Kind::BrokerCloses => (None, self.broker(kind, short, long)),
            Kind::DatabaseKill
            | Kind::DatabaseFast
            | Kind::DatabaseImmediate
            | Kind::DatabaseFreeze
            | Kind::DatabaseCloses => (None, self.database(kind, relay, short, long)),
            Kind::BrokerRoad(trouble) => {
                let road = &world.broker_roads[relay];
                let _taken = lock(&road.taken);
                let start = now();
                on_the_road(&road.proxy, trouble, long);
                (Some(relay), start)
            }
            Kind::DatabaseRoad(trouble) => {
                let road = &world.database_roads[relay];
                let _taken = lock(&road.taken);
                let start = now();
                on_the_road(&road.proxy, trouble, long);
                (Some(relay), start)
            }
            Kind::ExchangeGone | Kind::QueueGone => {
                let start = now();
                self.topology(kind, short);
                (None, start)
            }
            Kind::RowsHeld | Kind::IndexBuilt => {
                let start = now();
                self.locks(kind, long);
                (None, start)
            }
            Kind::Once => {
                let start = now();
                let mut words = vec!["once".to_owned(), "--max-duration".into(), "4s".into()];
                words.extend(flags(&settings(ONCE), true));
                self.fleet.command(ONCE, &words.iter().map(String::as_str).collect::<Vec<_>>());
                (Some(ONCE), start)
            }
            Kind::Operator => {
                let start = now();
                operate(self.fleet, chance);
                (None, start)
            }
        };
        lock(self.met).insert(kind.name());
        self.ledger.append(&[Entry::Fault(Fault { kind: kind.name(), relay, start, healed: now() })]);
    }

    fn broker(&self, kind: Kind, short: Duration, long: Duration) -> u64 {
        let mut rabbit = lock(&self.world.rabbit);
        let start = now();
        match kind {
            Kind::BrokerKill => {
                rabbit.kill();
                thread::sleep(short);
                rabbit.restart();
            }
            Kind::BrokerRestart => {
                rabbit.stop();
                thread::sleep(short);
                rabbit.restart();
            }
            Kind::BrokerFreeze => {
                rabbit.freeze();
                thread::sleep(long);
                rabbit.thaw();
            }
            Kind::BrokerAlarm => {
                rabbit.memory_alarm(true);
                thread::sleep(long);
                rabbit.memory_alarm(false);
            }
            _ => drop(rabbit.eval(CLOSE_ALL)),
        }
        start
    }

    fn database(&self, kind: Kind, relay: usize, short: Duration, long: Duration) -> u64 {
        let mut postgres = lock(&self.world.postgres);
        let start = now();
        match kind {
            Kind::DatabaseKill => postgres.kill(),
            Kind::DatabaseFast => postgres.stop(),
            Kind::DatabaseImmediate => postgres.stop_by("QUIT"),
            Kind::DatabaseFreeze => {
                postgres.freeze();
                thread::sleep(long);
                postgres.thaw();
            }
            _ => {
                let sql = "select pg_terminate_backend(pid) from pg_stat_activity \
                    where application_name = $1 and datname = current_database() and backend_start < now()";
                let name = crate::setting::name(relay);
                let _ = self.world.connect().and_then(|mut client| client.execute(sql, &[&name]));
            }
        }
        if matches!(kind, Kind::DatabaseKill | Kind::DatabaseFast | Kind::DatabaseImmediate) {
            thread::sleep(short);
            postgres.restart();
        }
        start
    }

    /// Takes an exchange or a queue away, and brings it back.
    fn topology(&self, kind: Kind, pause: Duration) {
        let url = &self.world.broker_url;
        insist(|| {
            world::with_channel(url, |channel| match kind {
                Kind::ExchangeGone => channel.exchange_delete(BRITTLE, false),
                _ => world::delete_queue(channel, VOLATILE),
            })
        });
        thread::sleep(pause);
        insist(|| world::topology(url));
    }

    /// Another session that is in the way: it holds rows, or builds an index.
    fn locks(&self, kind: Kind, time: Duration) {
        let sql = match kind {
            Kind::RowsHeld => {
                "begin; select from event_outbox where status in ('WAITING', 'FAILED') order by id desc \
                 limit 30 for update skip locked"
            }
            _ => "begin; set local lock_timeout = '3s'; create index chaos on event_outbox (created_at)",
        };
        if let Ok(mut client) = self.world.connect() {
            if client.batch_execute(sql).is_ok() {
                thread::sleep(time);
            }
            let _ = client.batch_execute("rollback");
        }
    }
}

fn on_the_road(proxy: &Proxy, trouble: Trouble, time: Duration) {
    let both = |act: &dyn Fn(Direction)| [ToServer, ToClient].into_iter().for_each(act);
    match trouble {
        Trouble::Reset => return proxy.reset(),
        Trouble::Refuse => {
            proxy.refuse(true);
            proxy.reset();
        }
        Trouble::Swallow => both(&|way| proxy.swallow(way, true)),
        Trouble::SwallowAnswers => proxy.swallow(ToClient, true),
        Trouble::SwallowRequests => proxy.swallow(ToServer, true),
        Trouble::Stall => both(&|way| proxy.stall(way)),
        Trouble::Slow => both(&|way| {
            proxy.delay(way, Duration::from_millis(200));
            proxy.jitter(way, Duration::from_millis(150));
        }),
        Trouble::Narrow => both(&|way| {
            proxy.bandwidth(way, 40_000);
            proxy.slice(way, 200, Duration::from_millis(2));
        }),
    }
    thread::sleep(time);
    proxy.heal();
    if matches!(trouble, Trouble::Swallow | Trouble::SwallowAnswers | Trouble::SwallowRequests) {
        // Bytes are missing in these streams: no real network heals like that.
        proxy.reset();
    }
}

/// What an operator does while all of this goes on, and what must not disturb anything.
fn operate(fleet: &Fleet<'_>, mut chance: Dice) {
    let key = format!("troubled-{}", chance.below(TROUBLED_KEYS));
    let commands: [&[&str]; 6] = [
        &["status", "--json"],
        &["check", "--json"],
        &["retry", "--status", "dead", "--type", "brittle.*", "--type", "volatile.*"],
        &["skip", "--key", &key, "--head", "--reason", "given up by chance"],
        &["skip", "--type", "kept.given_up", "--reason", "given up as planned"],
        &["purge", "--older-than", "20s", "--status", "published,expired,skipped"],
    ];
    for _ in 0..2 {
        fleet.command(OPERATOR, commands[chance.below(commands.len() as u64) as usize]);
    }
}

/// What the drain at the end needs of an operator: what can go through is due again, what cannot is given up.
pub fn clean_up(fleet: &Fleet<'_>) {
    fleet.command(OPERATOR, &["skip", "--status", "dead", "--type", "kept.*"]);
    fleet.command(OPERATOR, &["skip", "--type", "kept.given_up"]);
    let again = ["retry", "--status", "dead", "--type", "brittle.*", "--type", "volatile.*"];
    fleet.command(OPERATOR, &again);
}

/// Tries until it is done: the broker may be down for another fault's sake.
fn insist(mut act: impl FnMut() -> amiquip::Result<()>) {
    let began = Instant::now();
    while let Err(error) = act() {
        assert!(began.elapsed() < DEADLINE, "exchanges and queues cannot be changed: {error}");
        thread::sleep(Duration::from_millis(200));
    }
}
