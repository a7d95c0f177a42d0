//! Stage 1: from the return of an application's commit to the broker's confirm.

use std::thread;
use std::time::{Duration, Instant};

use outboxd::relay::{Answer, Stage1};
use postgres::Client;

use super::parts::{Parts, ms};
use super::percentile;
use crate::ground::{DEADLINE, Ground, QUEUE};
use crate::page::{Figure, Page, median};

const ROUNDS: usize = 5;
const SAMPLES: usize = 100;

/// The first ones open sessions.
const WARM_UP: usize = 10;

const TO_REACH: f64 = 1.5;

/// One round's medians, in milliseconds.
struct Round {
    confirmed: f64,
    confirmed_p90: f64,
    published: f64,
    committed: f64,
}

impl Round {
    fn ratio(&self) -> f64 {
        self.confirmed / (self.published + self.committed)
    }
}

pub fn measure(ground: &Ground, page: &mut Page) {
    ground.empty();
    let stage1 = Stage1::start(ground.config.clone()).unwrap();
    let mut bench = Bench { stage1, parts: Parts::new(ground), watcher: ground.database.connect() };
    for _ in 0..WARM_UP {
        bench.sample(None);
    }
    let (mut plain, mut keyed) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(bench.round(false));
        keyed.push(bench.round(true));
        ground.broker.drain_ready(QUEUE);
    }
    page.add(figure("stage 1, commit to confirm, p50", &plain).at_most(TO_REACH));
    page.add(figure("the same for an event with an ordering key", &keyed));
}

fn figure(name: &str, rounds: &[Round]) -> Figure {
    let middle = |figure: fn(&Round) -> f64| median(rounds.iter().map(figure));
    let ratios: Vec<f64> = rounds.iter().map(Round::ratio).collect();
    let (published, committed) = (middle(|it| it.published), middle(|it| it.committed));
    Figure::new(name, middle(|it| it.confirmed), "ms")
        .and(&format!(" (p90 {:.2} ms)", middle(|it| it.confirmed_p90)))
        .beside(format!(
            "one bare publish with its confirm {published:.2} ms + one small transaction {committed:.2} ms"
        ))
        .ratios(&ratios)
}

struct Bench {
    stage1: Stage1,
    parts: Parts,
    watcher: Client,
}

impl Bench {
    fn round(&mut self, keyed: bool) -> Round {
        let samples = (0..SAMPLES).map(|n| self.sample(keyed.then(|| format!("key-{n}"))));
        let samples: Vec<[f64; 3]> = samples.collect();
        let figures = |at: usize| samples.iter().map(|it| it[at]).collect::<Vec<_>>();
        Round {
            confirmed: percentile(&figures(0), 50),
            confirmed_p90: percentile(&figures(0), 90),
            published: percentile(&figures(1), 50),
            committed: percentile(&figures(2), 50),
        }
    }

    /// Commit to confirm, a bare publish, and the transaction; in milliseconds.
    fn sample(&mut self, ordering_key: Option<String>) -> [f64; 3] {
        let committed = self.parts.transaction(ordering_key);
        let answers = self.stage1.publish_now(&[&committed.event_id], DEADLINE);
        let confirmed = ms(committed.at);
        assert_eq!(answers, [Answer::Published]);
        // The answer comes before the row is settled, which must not be at the others' cost.
        self.wait_until_settled(&committed.event_id);
        [confirmed, self.parts.publish(), committed.ms]
    }

    fn wait_until_settled(&mut self, event_id: &str) {
        let sql = "select status = 'PUBLISHED' from event_outbox where event_id = $1";
        let until = Instant::now() + DEADLINE;
        while !self.watcher.query_one(sql, &[&event_id]).unwrap().get::<_, bool>(0) {
            assert!(Instant::now() < until, "{event_id} was confirmed and is not PUBLISHED");
            thread::sleep(Duration::from_millis(1));
        }
    }
}
