//! Relays that walk on one table in memory, in the interleavings that some thousand seeds give. The table keeps the rule
//! of claims; what is tested is that the walks come to their end, and leave nothing behind that could be sent.

use super::*;
use crate::simulated::Chance;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Waiting,
    /// Tried, and not due again within the drains; or dead.
    Held,
    Done,
}

#[derive(Debug)]
struct Row {
    id: i64,
    key: Option<&'static str>,
    status: Status,
    /// The flight that has it locked.
    lock: Option<u64>,
}

/// A claim on its way.
#[derive(Debug)]
struct Flight {
    number: u64,
    loose: Vec<i64>,
    chains: Vec<Line>,
    withheld: bool,
    settled: Vec<(i64, Status)>,
}

#[derive(Debug)]
struct Line {
    key: &'static str,
    ids: VecDeque<i64>,
    more: bool,
    stopped: bool,
}

struct Relay {
    walk: Walk,
    flights: Vec<Flight>,
    over: bool,
    batch: usize,
    /// How many rows there were when it last looked from the start.
    seen: usize,
}

struct Simulation {
    chance: Chance,
    rows: Vec<Row>,
    relays: Vec<Relay>,
    flights: u64,
    sent: Vec<i64>,
    beat: Duration,
}

const KEYS: [Option<&str>; 5] = [None, Some("a"), Some("b"), Some("c"), None];

impl Simulation {
    fn new(seed: u64) -> Self {
        let beat = if seed % 3 == 0 { Duration::ZERO } else { BEAT };
        let mut simulation =
            Self { chance: Chance::new(seed), rows: vec![], relays: vec![], flights: 0, sent: vec![], beat };
        for _ in 0..4 + simulation.below(30) {
            simulation.insert();
        }
        for _ in 0..1 + simulation.below(3) {
            let batch = 1 + simulation.below(8);
            let relay = Relay { walk: Walk::new(), flights: vec![], over: false, batch, seen: 0 };
            simulation.relays.push(relay);
        }
        simulation
    }

    fn below(&mut self, sides: usize) -> usize {
        self.chance.below(sides as u64) as usize
    }

    fn insert(&mut self) {
        let id = self.rows.len() as i64 + 1;
        let key = KEYS[self.below(KEYS.len())];
        let status = if self.below(40) == 0 { Status::Held } else { Status::Waiting };
        self.rows.push(Row { id, key, status, lock: None });
    }

    fn row(&mut self, id: i64) -> &mut Row {
        &mut self.rows[id as usize - 1]
    }

    /// Runs all drains to their end; false if they go on for ever.
    fn run(&mut self) -> bool {
        let mut to_come = self.below(12);
        for _ in 0..20_000 {
            let open: Vec<usize> = (0..self.relays.len()).filter(|it| !self.relays[*it].over).collect();
            if open.is_empty() {
                return true;
            }
            if to_come > 0 && self.below(6) == 0 {
                to_come -= 1;
                self.insert();
            }
            let relay = open[self.below(open.len())];
            if self.below(3) == 0 {
                self.claim(relay);
            } else {
                self.hear(relay);
            }
        }
        false
    }

    fn claim(&mut self, number: usize) {
        let relay = &mut self.relays[number];
        if relay.flights.len() >= 3 {
            return;
        }
        let busy = relay.flights.iter().flat_map(|it| &it.chains).map(|it| it.key.to_owned()).collect();
        let (batch, in_flight) = (relay.batch, !relay.flights.is_empty());
        let Some(scope) = relay.walk.next(self.beat, batch, in_flight, busy) else {
            relay.over = !in_flight && relay.walk.is_over();
            return;
        };
        let (walked, mut after, mut barred, asked) = match scope.clone() {
            Scope::Walk { after, barred, .. } => (true, after, barred, vec![]),
            Scope::Keys(keys) => (false, 0, vec![], keys),
            Scope::Events(_) => panic!("a walk names no events"),
        };
        if matches!(scope, Scope::Walk { fresh: true, .. }) {
            relay.seen = self.rows.len();
        }
        let mut found = Vec::new();
        let (flight, first, more_after) = loop {
            let locked =
                if walked { self.lock_walk(batch, after, &barred) } else { self.lock_keys(batch, &asked) };
            let more_after = locked.last().copied().filter(|_| walked && locked.len() >= batch);
            let flight = self.sort_out(&locked, &mut found);
            if let Some(flight) = &flight {
                locked.iter().for_each(|id| self.row(*id).lock = Some(flight.number));
            }
            if flight.is_some() || more_after.is_none() {
                break (flight, locked.iter().min().copied(), more_after);
            }
            barred.extend(found.iter().cloned());
            if self.below(2) == 0 {
                after = more_after.unwrap_or(after);
            }
        };
        let relay = &mut self.relays[number];
        let claimed = flight.as_ref().map(|it| (first, it.chains.iter().map(|it| it.key).collect()));
        let sight = Sight { claimed, barred: &found, unasked: &[], more_after };
        let took = if self.flights % 4 == 0 { BEAT } else { Duration::ZERO };
        relay.walk.note(&scope, sight, took);
        relay.flights.extend(flight);
    }

    fn free(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|it| it.status == Status::Waiting && it.lock.is_none())
    }

    fn lock_walk(&self, batch: usize, after: i64, barred: &[String]) -> Vec<i64> {
        let is_barred = |row: &Row| row.key.is_some_and(|key| barred.iter().any(|it| it == key));
        let rows = self.free().filter(|it| it.id > after && !is_barred(it));
        rows.take(batch).map(|it| it.id).collect()
    }

    fn lock_keys(&self, batch: usize, asked: &[String]) -> Vec<i64> {
        let each = (batch / asked.len()).max(1);
        let mut locked = Vec::new();
        for key in asked {
            let rows = self.free().filter(|it| it.key == Some(key.as_str()));
            locked.extend(rows.take(each).map(|it| it.id));
        }
        locked
    }

    /// The rule: of each key the beginning of what is unfinished.
    fn sort_out(&mut self, locked: &[i64], barred: &mut Vec<String>) -> Option<Flight> {
        let is_mine = |row: &&Row| locked.contains(&row.id);
        let mut chains = Vec::new();
        for key in KEYS.into_iter().flatten() {
            if !self.rows.iter().filter(is_mine).any(|it| it.key == Some(key)) {
                continue;
            }
            let unfinished =
                || self.rows.iter().filter(|it| it.key == Some(key) && it.status != Status::Done);
            let ids: VecDeque<i64> = unfinished().take_while(is_mine).map(|it| it.id).collect();
            if ids.is_empty() {
                barred.push(key.into());
            } else {
                let more = unfinished().count() > ids.len();
                chains.push(Line { key, ids, more, stopped: false });
            }
        }
        let loose = self.rows.iter().filter(is_mine).filter(|it| it.key.is_none());
        let loose: Vec<i64> = loose.map(|it| it.id).collect();
        let ours = loose.len() + chains.iter().map(|it| it.ids.len()).sum::<usize>();
        self.flights += 1;
        let (number, withheld) = (self.flights, ours < locked.len());
        (ours > 0).then_some(Flight { number, loose, chains, withheld, settled: vec![] })
    }

    /// One event has its outcome, or a flight lands.
    fn hear(&mut self, number: usize) {
        if self.relays[number].flights.is_empty() {
            return;
        }
        let which = self.below(self.relays[number].flights.len());
        let (goes_through, hands_back) = (self.below(25) > 0, self.below(40) == 0);
        let flight = &mut self.relays[number].flights[which];
        let status = if goes_through { Status::Done } else { Status::Held };
        if hands_back {
            for line in &mut flight.chains {
                line.more |= line.ids.len() > 1;
                line.ids.truncate(1);
            }
        }
        let id = if let Some(id) = flight.loose.pop() {
            id
        } else if let Some(line) = flight.chains.iter_mut().find(|it| !it.ids.is_empty()) {
            let id = line.ids.pop_front().unwrap();
            if !goes_through {
                line.stopped = true;
                line.ids.clear();
            }
            id
        } else {
            return self.land(number, which);
        };
        flight.settled.push((id, status));
        if goes_through {
            assert!(!self.sent.contains(&id), "{id} was sent twice");
            self.sent.push(id);
        }
    }

    fn land(&mut self, number: usize, which: usize) {
        let flight = self.relays[number].flights.swap_remove(which);
        for (id, status) in flight.settled {
            self.row(id).status = status;
        }
        self.rows.iter_mut().filter(|it| it.lock == Some(flight.number)).for_each(|it| it.lock = None);
        let rest = |line: Line| match (line.stopped, line.more) {
            (true, _) => Rest::Held(line.key.into()),
            (false, true) => Rest::Next(line.key.into()),
            (false, false) => Rest::Nothing,
        };
        let rests = flight.chains.into_iter().map(rest).collect();
        self.relays[number].walk.landed(rests, flight.withheld);
    }

    /// What every relay has seen, and could be sent.
    fn left_behind(&self) -> Vec<i64> {
        let seen = self.relays.iter().map(|it| it.seen).min().unwrap_or_default();
        let mut held = HashSet::new();
        let mut left = Vec::new();
        for row in &self.rows[..seen] {
            match (row.status, row.key) {
                (Status::Waiting, key) if !key.is_some_and(|key| held.contains(key)) => left.push(row.id),
                (Status::Held, Some(key)) => {
                    held.insert(key);
                }
                _ => {}
            }
        }
        left
    }

    /// The events of each key were sent in order.
    fn is_in_order(&self) -> bool {
        KEYS.iter().flatten().all(|key| {
            let ids = self.sent.iter().filter(|id| self.rows[**id as usize - 1].key == Some(*key));
            ids.is_sorted()
        })
    }
}

#[test]
fn walks_come_to_their_end_and_leave_nothing_behind_that_could_be_sent() {
    let mut sent = 0;
    for seed in 0..4000 {
        let mut simulation = Simulation::new(seed);
        assert!(simulation.run(), "seed {seed}: for ever");
        let left = simulation.left_behind();
        assert!(left.is_empty(), "seed {seed}: {left:?} are left behind");
        assert!(simulation.is_in_order(), "seed {seed}: {:?}", simulation.sent);
        sent += simulation.sent.len();
    }
    assert!(sent > 40_000, "{sent}");
}
