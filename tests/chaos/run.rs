//! A run: everything is started, worked under faults, healed, drained, ended, and judged.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use postgres::Client;

use crate::check::report::{Report, kinds_least};
use crate::check::{Change, Facts, Violations};
use crate::consumers::consume;
use crate::dice::Dice;
use crate::faults::{Injector, Kind, clean_up};
use crate::fleet::Fleet;
use crate::ledger::{Ledger, Millis, now};
use crate::setting::{BROKER_PASSWORD, DATABASE_PASSWORD, MARK, PAYLOAD_MAX, QUEUES, RELAYS};
use crate::world::{self, World, lock};
use crate::writers::{WRITERS, Writer};

/// Work without faults at the start: what the relays take then is what they are compared with.
const CALM: Duration = Duration::from_secs(6);

/// Work without faults at the end, before the writers stop.
const RECOVERY: Duration = Duration::from_secs(3);

/// How long after the faults the relays are looked at, at least.
const REST: Duration = Duration::from_secs(22);

/// What a run is to be like.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// How long faults go on.
    pub faults: Duration,
    pub kinds: Vec<Kind>,
    /// How many faults there are at a time.
    pub hands: u64,
    pub pause_ms: (u64, u64),
    pub long_percent: u64,
    pub writer_pause_ms: u64,
    pub poison_percent: u64,
    /// How long all that can go through may take to do so after the faults. What has not by then is stuck.
    pub drain: Duration,
    pub mutant: Option<&'static str>,
}

impl Plan {
    /// A run with everything in it.
    pub fn all(seed: u64, faults: Duration) -> Plan {
        Plan {
            seed,
            faults,
            kinds: Kind::all(),
            hands: 2,
            pause_ms: (200, 1500),
            long_percent: 20,
            writer_pause_ms: 120,
            poison_percent: 6,
            drain: Duration::from_secs(180),
            mutant: None,
        }
    }
}

/// What a run came to.
pub struct Verdict {
    pub violations: Violations,
    pub report: Report,
    /// The ledger and the relays' logs.
    pub folder: PathBuf,
}

/// Carries a plan out.
pub fn run(plan: &Plan) -> Verdict {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
        "chaos-{}-{}",
        plan.mutant.unwrap_or("run"),
        std::process::id()
    ));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder for the ledger");
    let ledger = Ledger::create(&folder.join("ledger"));
    let world = World::start(folder.clone());
    let healed = work(plan, &world, &ledger);
    let history = history(&mut world.connect().expect("a session for the history"));
    let facts = Facts::new(ledger.read(), history, leaks(&folder), healed);
    let violations = facts.judge();
    let report = Report::of(&facts, &violations);
    Verdict { violations, report, folder }
}

/// Everything that happens at a time; when all faults were over.
fn work(plan: &Plan, world: &World, ledger: &Ledger) -> Millis {
    let fleet = Fleet::launch(world, ledger, plan.mutant);
    let (transactions, healed) = (AtomicU64::new(1), AtomicBool::new(false));
    let [end_writing, end_consuming, end_watching] = [(); 3].map(|()| AtomicBool::new(false));
    let ends = [&end_writing, &end_consuming, &end_watching];
    thread::scope(|scope| {
        // Also when something fails here: the threads would otherwise go on, and be waited for.
        let _ends = Ends(ends);
        for number in 0..WRITERS {
            let (dice, transactions, end) = (Dice::of(plan.seed, number), &transactions, &end_writing);
            let (pause_ms, poison_percent) = (plan.writer_pause_ms, plan.poison_percent);
            let writer = Writer { world, ledger, dice, transactions, end, pause_ms, poison_percent };
            scope.spawn(move || writer.run());
        }
        for queue in QUEUES {
            scope.spawn(|| consume(&world.broker_url, queue, ledger, &end_consuming));
        }
        scope.spawn(|| fleet.watch(&healed, &end_watching));

        thread::sleep(CALM);
        let until = Instant::now() + plan.faults;
        let met = Mutex::default();
        thread::scope(|hands| {
            for number in 0..plan.hands {
                let dice = Dice::of(plan.seed, 100 + number);
                let (kinds, fleet) = (plan.kinds.clone(), &fleet);
                let (pause_ms, long_percent) = (plan.pause_ms, plan.long_percent);
                let (least, met) = (kinds_least(kinds.len()), &met);
                let injector =
                    Injector { world, fleet, ledger, dice, kinds, pause_ms, long_percent, met, least };
                hands.spawn(move || injector.run(until, plan.faults));
            }
        });
        healed.store(true, Ordering::Relaxed);
        let (healed_at, healed) = (now(), Instant::now());

        thread::sleep(RECOVERY);
        end_writing.store(true, Ordering::Relaxed);
        drain(plan, world, &fleet);
        thread::sleep((healed + REST).saturating_duration_since(Instant::now()));
        end_watching.store(true, Ordering::Relaxed);
        // At any moment, and all at once.
        thread::scope(|ends| {
            for relay in 0..RELAYS {
                let fleet = &fleet;
                ends.spawn(move || fleet.ask(&mut lock(fleet.ship(relay))));
            }
        });
        let deadline = Instant::now() + plan.drain;
        while !is_consumed(&world.broker_url, ledger) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(500));
        }
        healed_at
    })
}

/// Waits until all that can go through has, or there is no more time.
fn drain(plan: &Plan, world: &World, fleet: &Fleet<'_>) {
    let open = "select count(*) from event_outbox where (
            status in ('WAITING', 'FAILED') and event_type not in ('unroutable.x', 'full')
                and exchange is distinct from 'missing' and octet_length(payload) <= $1::bigint)
            or (status = 'WAITING')
            or (status = 'DEAD' and (event_type like 'brittle.%' or event_type like 'volatile.%'))";
    let deadline = Instant::now() + plan.drain;
    let mut client = world.connect().expect("a session");
    while Instant::now() < deadline {
        clean_up(fleet);
        let open: i64 = client.query_one(open, &[&(PAYLOAD_MAX as i64)]).expect("a count").get(0);
        if open == 0 {
            return;
        }
        thread::sleep(Duration::from_millis(500));
    }
}

/// Whether the queues are empty, and nothing came for a while.
fn is_consumed(url: &str, ledger: &Ledger) -> bool {
    let size = || fs::metadata(ledger.path()).map_or(0, |data| data.len());
    let empty = || {
        let lengths = world::with_channel(url, |channel| {
            let length = |queue: &&str| {
                Ok(channel.queue_declare_passive(*queue)?.declared_message_count().unwrap_or(1))
            };
            QUEUES.iter().map(length).sum::<amiquip::Result<u32>>()
        });
        matches!(lengths, Ok(0))
    };
    let before = size();
    empty() && {
        thread::sleep(Duration::from_secs(2));
        empty() && size() == before
    }
}

fn history(client: &mut Client) -> Vec<Change> {
    let sql = "select event_id, id, floor(1000 * extract(epoch from at))::bigint, operation, old_status, new_status, \
            coalesce(old_count, 0)::bigint, coalesce(new_count, old_count, 0)::bigint, last_error, who \
        from history order by number";
    let rows = client.query(sql, &[]).expect("the history");
    let change = |row: &postgres::Row| Change {
        event_id: row.get(0),
        id: row.get(1),
        at: row.get::<_, i64>(2) as Millis,
        operation: row.get(3),
        old_status: row.get(4),
        new_status: row.get(5),
        old_count: row.get(6),
        new_count: row.get(7),
        last_error: row.get(8),
        who: row.get(9),
    };
    rows.iter().map(change).collect()
}

/// Where a log holds a password or a payload.
fn leaks(folder: &Path) -> Vec<String> {
    let mut leaks = Vec::new();
    for entry in fs::read_dir(folder).expect("the run's folder").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let log = fs::read(entry.path()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        if name.starts_with("log-") {
            let secrets = [DATABASE_PASSWORD, BROKER_PASSWORD, MARK].into_iter();
            let found = secrets.filter(|secret| log.contains(secret));
            leaks.extend(found.map(|secret| format!("{secret} in {}", entry.path().display())));
        }
    }
    leaks
}

/// Tells the threads of a run to end.
struct Ends<'a>([&'a AtomicBool; 3]);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|end| end.store(true, Ordering::Relaxed));
    }
}
