//! Applications: transactions that commit, roll back, or end with nobody knowing how.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use postgres::{Client, Transaction};
use sha2::{Digest, Sha256};

use crate::dice::Dice;
use crate::harness::{Direction, Proxy};
use crate::ledger::{Attempt, Entry, Fate, Ledger, Outcome, now};
use crate::setting::{
    BRITTLE, DIRECT, FULL, KEPT, KEYS, MARK, MISSING, PAYLOAD_MAX, TROUBLED_KEYS, VOLATILE,
};
use crate::world::{World, connect};

/// How many write at a time.
pub const WRITERS: u64 = 3;

/// What a writer needs.
pub struct Writer<'a> {
    pub world: &'a World,
    pub ledger: &'a Ledger,
    pub dice: Dice,
    pub transactions: &'a AtomicU64,
    pub end: &'a AtomicBool,
    /// The longest pause between two transactions, in milliseconds.
    pub pause_ms: u64,
    /// How many events in a hundred are made to be refused.
    pub poison_percent: u64,
}

/// An event that is to be written.
struct Draft {
    fate: Fate,
    event_type: String,
    key: Option<String>,
    exchange: Option<&'static str>,
    routing_key: Option<String>,
    /// Where the message is to appear: exchange, routing key, queue.
    address: (&'static str, String, &'static str),
    headers_odd: bool,
    size: u64,
    expires_s: Option<f64>,
    available_s: Option<f64>,
}

impl Writer<'_> {
    /// Writes until the end. Whatever is down meanwhile, it tries again.
    pub fn run(mut self) {
        let port = url::Url::parse(&self.world.database.url).ok().and_then(|url| url.port()).expect("a port");
        let road = Proxy::to(port);
        let url = format!(
            "postgres://postgres@127.0.0.1:{}/{}?application_name=writer",
            road.port(),
            self.world.database.name
        );
        let mut client = None;
        while !self.end.load(Ordering::Relaxed) {
            match &mut client {
                Some(open) => {
                    if self.transaction(open, &road).is_err() {
                        client = None;
                    }
                    thread::sleep(Duration::from_millis(self.dice.below(self.pause_ms)));
                }
                None => {
                    road.heal();
                    client = connect(&url).ok();
                    if client.is_none() {
                        thread::sleep(Duration::from_millis(100));
                    }
                }
            }
        }
    }

    fn transaction(&mut self, client: &mut Client, road: &Proxy) -> Result<(), postgres::Error> {
        let drafts: Vec<Draft> = (0..self.dice.between(1, 6)).map(|_| self.draft()).collect();
        let tx = self.transactions.fetch_add(1, Ordering::Relaxed);
        let mut transaction = client.transaction()?;
        let mut entries = Vec::new();
        // In the order of the keys, so that two writers cannot wait for each other.
        let mut numbers = BTreeMap::new();
        for key in drafts.iter().filter_map(|draft| draft.key.clone()) {
            numbers.insert(key, 0);
        }
        for (key, number) in &mut numbers {
            let sql = "update chaos_key set n = n + 1 where key = $1 returning n * 100";
            *number = transaction.query_one(sql, &[key])?.get::<_, i64>(0) as u64;
        }
        for draft in &drafts {
            let n = match &draft.key {
                Some(key) => numbers.get_mut(key).map_or(0, |number| {
                    *number += 1;
                    *number
                }),
                None => self.dice.below(1_000_000),
            };
            entries.push(Entry::Attempt(self.insert(&mut transaction, draft, n, tx)?));
        }
        self.ledger.append(&entries);
        let outcome = match self.dice.below(100) {
            0..10 => transaction.rollback().map(|()| Outcome::RolledBack),
            chance => {
                // It dies: before the commit has left, or before its answer is here.
                match chance {
                    10..12 => road.cut_after(Direction::ToServer, self.dice.below(4)),
                    12..14 => road.cut_after(Direction::ToClient, 0),
                    _ => {}
                }
                transaction.commit().map(|()| Outcome::Committed)
            }
        };
        let known = *outcome.as_ref().unwrap_or(&Outcome::Unknown);
        self.ledger.append(&[Entry::Ended { tx, outcome: known, at: now() }]);
        outcome.map(drop)
    }

    fn insert(
        &mut self,
        transaction: &mut Transaction<'_>,
        draft: &Draft,
        n: u64,
        tx: u64,
    ) -> Result<Attempt, postgres::Error> {
        let event_id = ulid::Ulid::generate().to_string();
        let filler = "x".repeat(draft.size as usize);
        let payload =
            format!("{{\"n\": {n}, \"mark\": \"{MARK}\", \"id\": \"{event_id}\", \"x\": \"{filler}\"}}");
        let headers = match draft.headers_odd {
            true => "[1, 2]".to_owned(),
            false => serde_json::json!({ "n": n, "key": draft.key, "mark": MARK }).to_string(),
        };
        let sql = "insert into event_outbox (event_id, event_type, payload, ordering_key, headers, exchange, \
                routing_key, expired_at, available_at) \
            values ($1, $2, $3, $4, $5::text::jsonb, $6, $7, clock_timestamp() + make_interval(secs => $8), \
                clock_timestamp() + make_interval(secs => $9))";
        transaction.execute(
            sql,
            &[
                &event_id,
                &draft.event_type,
                &payload,
                &draft.key,
                &headers,
                &draft.exchange,
                &draft.routing_key,
                &draft.expires_s,
                &draft.available_s,
            ],
        )?;
        let (exchange, routing_key, queue) = &draft.address;
        Ok(Attempt {
            tx,
            event_id,
            fate: draft.fate,
            key: draft.key.clone(),
            n,
            event_type: draft.event_type.clone(),
            exchange: (*exchange).into(),
            routing_key: routing_key.clone(),
            queue: (*queue).into(),
            sha256: hex(&Sha256::digest(payload.as_bytes())),
            at: now(),
        })
    }

    fn draft(&mut self) -> Draft {
        let size = match self.dice.below(100) {
            0..90 => self.dice.between(0, 1500),
            90..99 => self.dice.between(1500, 20_000),
            _ => self.dice.between(20_000, PAYLOAD_MAX - 1000),
        };
        if self.dice.percent(self.poison_percent) {
            return self.poison(size);
        }
        let chance = self.dice.below(100);
        let (number, key) = (self.dice.below(3), self.dice.below(KEYS));
        match chance {
            0..40 => Draft::to(KEPT, Fate::Kept, number, size).of_key(format!("key-{key}")),
            40..55 => Draft::to(KEPT, Fate::Kept, number, size),
            55..70 => Draft {
                event_type: DIRECT.into(),
                address: ("", DIRECT.into(), DIRECT),
                ..Draft::to(KEPT, Fate::Kept, number, size)
            },
            70..78 => Draft::to(BRITTLE, Fate::Brittle, number, size).of_key(format!("brittle-{key}")),
            78..84 => Draft::to(BRITTLE, Fate::Brittle, number, size),
            84..90 => Draft::to(VOLATILE, Fate::Volatile, number, size),
            90..92 => Draft {
                available_s: Some(self.dice.between(1, 3000) as f64 / 1000.0),
                ..Draft::to(KEPT, Fate::Kept, number, size)
            },
            92..94 => Draft {
                event_type: format!("nobody.{number}"),
                ..Draft::to(KEPT, Fate::Nobody, number, size)
            },
            94..96 => Draft {
                available_s: Some(3600.0),
                ..Draft::to(KEPT, Fate::GivenUp, number, size).of_type("kept.given_up")
            },
            // Keys with trouble: now and then one that holds back the others until an operator skips it.
            96 => Draft {
                routing_key: Some("k".repeat(256)),
                ..Draft::to(KEPT, Fate::Unsendable, 0, size).of_key(self.troubled())
            },
            97 => Draft::to(KEPT, Fate::Kept, 0, size).of_key(self.troubled()),
            98 => Draft { expires_s: Some(-1.0), ..Draft::to(KEPT, Fate::Over, number, size) },
            _ => Draft {
                expires_s: Some(self.dice.between(100, 3000) as f64 / 1000.0),
                ..Draft::to(KEPT, Fate::Brief, number, size)
            },
        }
    }

    fn troubled(&mut self) -> String {
        format!("troubled-{}", self.dice.below(TROUBLED_KEYS))
    }

    /// What cannot go through.
    fn poison(&mut self, size: u64) -> Draft {
        let refused = Draft::to(KEPT, Fate::Refused, 0, size);
        let unsendable = Draft::to(KEPT, Fate::Unsendable, 0, size);
        match self.dice.below(6) {
            0 => refused.of_type("unroutable.x"),
            1 => Draft { exchange: Some(MISSING), ..refused },
            2 => refused.of_type(FULL),
            3 => Draft { routing_key: Some("k".repeat(256)), ..unsendable },
            4 => Draft { size: PAYLOAD_MAX + 10, ..refused },
            _ => Draft { headers_odd: true, ..unsendable },
        }
    }
}

impl Draft {
    fn to(exchange: &'static str, fate: Fate, number: u64, size: u64) -> Draft {
        let event_type = format!("{exchange}.{number}");
        Draft {
            fate,
            key: None,
            exchange: None,
            routing_key: None,
            address: (exchange, event_type.clone(), exchange),
            event_type,
            headers_odd: false,
            size,
            expires_s: None,
            available_s: None,
        }
    }

    fn of_key(self, key: String) -> Draft {
        Draft { key: Some(key), ..self }
    }

    fn of_type(self, event_type: &str) -> Draft {
        Draft { event_type: event_type.into(), ..self }
    }
}

/// In hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
