//! The judge of order: what was committed and what became of it, against what arrived in one queue.
//!
//! It knows no relay and no server; it only compares lists.

use std::collections::{BTreeMap, HashMap, HashSet};

use postgres::Client;

/// An event as the table tells of it in the end.
#[derive(Debug, Clone)]
pub struct Committed {
    pub id: i64,
    pub event_id: String,
    pub key: Option<String>,
    pub status: String,
}

/// What was committed, in id order.
#[derive(Debug, Default)]
pub struct Oracle {
    committed: Vec<Committed>,
    /// Events that the promise of order does not cover: they were re-driven, or committed late.
    exempt: HashSet<i64>,
}

/// What a check counted, so that a test can say that it was not an empty one.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Events that arrived.
    pub received: usize,
    /// Copies beyond the first.
    pub twice: usize,
    /// Pairs of neighbours of one key whose first receipts were compared.
    pub compared: usize,
}

impl Oracle {
    /// Takes the table's word for what was committed.
    pub fn read(client: &mut Client) -> Oracle {
        let sql = "select id::bigint, event_id::text, ordering_key::text, status::text \
             from event_outbox order by id";
        let committed = client.query(sql, &[]).unwrap().into_iter().map(|row| Committed {
            id: row.get(0),
            event_id: row.get(1),
            key: row.get(2),
            status: row.get(3),
        });
        Oracle { committed: committed.collect(), exempt: HashSet::new() }
    }

    /// Leaves these events out of the order: they were re-driven, or committed late. They must arrive all the same.
    pub fn except(mut self, ids: impl IntoIterator<Item = i64>) -> Oracle {
        self.exempt.extend(ids);
        self
    }

    /// Compares it with the event ids that arrived in a single queue, in the order of their arrival.
    ///
    /// # Errors
    /// Every broken promise in words, the first few of each kind.
    pub fn check(&self, arrived: &[impl AsRef<str>]) -> Result<Verdict, String> {
        let mut first: HashMap<&str, usize> = HashMap::new();
        for (place, event_id) in arrived.iter().enumerate() {
            first.entry(event_id.as_ref()).or_insert(place);
        }
        let known: HashSet<&str> = self.committed.iter().map(|it| it.event_id.as_str()).collect();
        let mut broken = Broken::default();
        for event_id in first.keys().filter(|it| !known.contains(**it)) {
            broken.add("invented", format!("{event_id} was never committed"));
        }
        let mut verdict =
            Verdict { received: first.len(), twice: arrived.len() - first.len(), ..Verdict::default() };
        // Of each key: the event before, and the last first receipt so far, with its event.
        let mut keys: HashMap<&str, Behind> = HashMap::new();
        for event in &self.committed {
            let place = first.get(event.event_id.as_str()).copied();
            if event.status == "PUBLISHED" && place.is_none() {
                broken.add("lost", format!("{event:?} is PUBLISHED and did not arrive"));
            }
            let Some(key) = event.key.as_deref().filter(|_| !self.exempt.contains(&event.id)) else {
                continue;
            };
            let behind = keys.entry(key).or_default();
            if let Some(place) = place {
                if let Some((last, before)) = behind.last {
                    verdict.compared += 1;
                    if last > place {
                        broken
                            .add("overtaken", format!("{event:?} at {place}, {before} before it at {last}"));
                    }
                }
                if let Some(open) = behind.open {
                    broken.add("unresolved", format!("{event:?} arrived, {open} before it is not resolved"));
                }
                if behind.last.is_none_or(|(last, _)| last < place) {
                    behind.last = Some((place, event.id));
                }
            }
            // What ended unsent is resolved; what waits, or is dead, is in the way of those after it.
            if !["PUBLISHED", "EXPIRED", "SKIPPED"].contains(&event.status.as_str()) {
                behind.open.get_or_insert(event.id);
            }
        }
        broken.into_result(verdict)
    }
}

#[derive(Default)]
struct Behind {
    last: Option<(usize, i64)>,
    open: Option<i64>,
}

#[derive(Default)]
struct Broken(BTreeMap<&'static str, (usize, Vec<String>)>);

impl Broken {
    fn add(&mut self, promise: &'static str, story: String) {
        let (count, stories) = self.0.entry(promise).or_default();
        *count += 1;
        if *count <= 5 {
            stories.push(story);
        }
    }

    fn into_result(self, verdict: Verdict) -> Result<Verdict, String> {
        if self.0.is_empty() {
            return Ok(verdict);
        }
        let lines = self.0.iter().map(|(promise, (count, stories))| {
            format!("{promise} {count} times, such as\n  {}\n", stories.join("\n  "))
        });
        Err(lines.collect())
    }
}

/// Each with its key, which may be none, and its status.
type Rows<'a> = &'a [(&'a str, &'a str)];

/// Events `a`, `b` and so on in id order.
fn table(rows: Rows<'_>) -> Oracle {
    let committed = (1..).zip('a'..).zip(rows).map(|((id, event_id), (key, status))| Committed {
        id,
        event_id: event_id.into(),
        key: (!key.is_empty()).then(|| (*key).into()),
        status: (*status).into(),
    });
    Oracle { committed: committed.collect(), exempt: HashSet::new() }
}

fn arrived(text: &str) -> Vec<String> {
    text.chars().map(String::from).collect()
}

#[test]
fn the_oracle_takes_what_keeps_the_promises() {
    let done = ("k", "PUBLISHED");
    let cases: &[(Rows<'_>, &str)] = &[
        (&[], ""),
        (&[done, done, done], "abc"),
        // A copy may come at any time after the first.
        (&[done, done, done], "abacb"),
        // Other keys, and none, have no order among each other.
        (&[done, ("", "PUBLISHED"), ("l", "PUBLISHED"), ("", "PUBLISHED")], "dcba"),
        (&[("k", "EXPIRED"), done, ("k", "SKIPPED"), done], "bd"),
        // It may have arrived although nobody learnt of it, and nothing came after it.
        (&[done, ("k", "WAITING")], "ab"),
        (&[done, ("k", "FAILED"), ("k", "WAITING")], "a"),
    ];
    for (rows, order) in cases {
        let checked = table(rows).check(&arrived(order));
        assert!(checked.is_ok(), "{rows:?} {order}: {checked:?}");
    }
    let verdict = table(&[done, done, done]).check(&arrived("abacb"));
    assert_eq!(verdict, Ok(Verdict { received: 3, twice: 2, compared: 2 }));
}

#[test]
fn the_oracle_finds_each_broken_promise() {
    let done = ("k", "PUBLISHED");
    let cases: &[(Rows<'_>, &str, &str)] = &[
        (&[done], "", "lost"),
        (&[("", "PUBLISHED")], "", "lost"),
        (&[done], "ab", "invented"),
        (&[done, done], "ba", "overtaken"),
        (&[done, done], "bab", "overtaken"),
        (&[done, done, done], "acb", "overtaken"),
        (&[done, done, done], "bca", "overtaken"),
        (&[("k", "FAILED"), done], "b", "unresolved"),
        (&[("k", "DEAD"), done], "b", "unresolved"),
        (&[("k", "WAITING"), done], "ab", "unresolved"),
        (&[("k", "FAILED"), ("k", "EXPIRED"), done], "c", "unresolved"),
    ];
    for (rows, order, promise) in cases {
        let checked = table(rows).check(&arrived(order)).unwrap_err();
        assert!(checked.contains(promise), "{rows:?} {order}: {checked}");
    }
    // Who is exempt is out of the order, and must arrive all the same.
    assert!(table(&[done, done]).except([1]).check(&arrived("ba")).is_ok());
    assert!(table(&[done, done]).except([1]).check(&arrived("b")).is_err());
}
