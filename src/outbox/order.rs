//! Which of the locked rows may be sent, so that the events of each key leave in id order. Pure.
//!
//! Ours is only the gap-free beginning of a key's unfinished events. A follower whose predecessor is in other hands,
//! not due, or dead is left alone, although its row was locked: whoever has the predecessor comes first.

use std::collections::{HashMap, HashSet};

/// A row that the claim has locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Locked {
    pub(super) id: i64,
    /// What it brings into memory.
    pub(super) bytes: i64,
    pub(super) key: Option<String>,
}

/// The events of one key that a claim may send, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Their ordering key.
    pub key: String,
    /// Their rows, in id order.
    pub ids: Vec<i64>,
    /// Whether the key has further unfinished events.
    pub more: bool,
}

/// What is ours of the locked rows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ours {
    /// In id order.
    pub(super) ids: Vec<i64>,
    pub(super) chains: Vec<Chain>,
    /// Keys of which nothing is to be had now.
    pub(super) barred: Vec<String>,
}

/// The keys of locked rows, and how many rows each has; in the order in which they appear.
pub(super) fn keys(rows: &[Locked]) -> (Vec<String>, Vec<i64>) {
    let mut keys: Vec<String> = Vec::new();
    let mut counts: Vec<i64> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for key in rows.iter().filter_map(|row| row.key.as_deref()) {
        let place = *places.entry(key).or_insert(keys.len());
        match counts.get_mut(place) {
            Some(count) => *count += 1,
            None => {
                keys.push(key.to_owned());
                counts.push(1);
            }
        }
    }
    (keys, counts)
}

/// Picks what is ours. `unfinished` are the first unfinished rows of each key, as pairs of the key's place in `keys` and
/// the row's id, in id order within each key, listed after the locks were taken.
pub(super) fn ours(rows: &[Locked], keys: Vec<String>, unfinished: &[(usize, i64)]) -> Ours {
    #[cfg(feature = "mutants")]
    if crate::mutants::is("hold-back-off") {
        return Ours { ids: rows.iter().map(|row| row.id).collect(), ..Ours::default() };
    }
    let locked: HashSet<i64> = rows.iter().filter(|row| row.key.is_some()).map(|row| row.id).collect();
    let mut ours = Ours {
        ids: rows.iter().filter(|row| row.key.is_none()).map(|row| row.id).collect(),
        ..Ours::default()
    };
    let mut lists = vec![Vec::new(); keys.len()];
    for (place, id) in unfinished {
        if let Some(list) = lists.get_mut(*place) {
            list.push(*id);
        }
    }
    for (key, list) in keys.into_iter().zip(lists) {
        let mut list = list.into_iter().peekable();
        let mut ids = Vec::new();
        while let Some(id) = list.next_if(|id| locked.contains(id)) {
            ids.push(id);
        }
        if ids.is_empty() {
            ours.barred.push(key);
        } else {
            ours.ids.extend(&ids);
            ours.chains.push(Chain { key, ids, more: list.next().is_some() });
        }
    }
    ours.ids.sort_unstable();
    ours
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: i64, key: &str) -> Locked {
        Locked { id, bytes: 0, key: (!key.is_empty()).then(|| key.into()) }
    }

    #[test]
    fn a_key_is_ours_up_to_its_first_gap() {
        let rows = [row(1, "a"), row(2, ""), row(3, "a"), row(5, "a"), row(6, "b"), row(7, "c")];
        let (keys, counts) = keys(&rows);
        assert_eq!((keys.join(""), &counts[..]), ("abc".into(), &[3, 1, 1][..]));
        // Row 4 of a, and the first of b, are not ours. The list of a is one longer than what is locked.
        let unfinished = [(0, 1), (0, 3), (0, 4), (0, 5), (1, 0), (1, 6), (2, 7)];
        let ours = ours(&rows, keys, &unfinished);
        assert_eq!(ours.ids, [1, 2, 3, 7]);
        assert_eq!(ours.barred, ["b"]);
        let chain = |key: &str, ids: &[i64], more| Chain { key: key.into(), ids: ids.into(), more };
        assert_eq!(ours.chains, [chain("a", &[1, 3], true), chain("c", &[7], false)]);
    }

    #[test]
    fn rows_without_a_key_are_all_ours() {
        let rows = [row(1, ""), row(2, "")];
        assert_eq!(ours(&rows, Vec::new(), &[]), Ours { ids: vec![1, 2], ..Ours::default() });
    }
}
