//! Event ids: ULIDs that rise within the process, whichever thread asks and whatever its clock does.

use std::sync::{Mutex, PoisonError};

use ulid::Generator;

/// The last id given out. It is the only state that is shared by all of a process.
static LAST: Mutex<Generator> = Mutex::new(Generator::new());

/// An id that is higher than all that were given out before.
pub(super) fn next() -> String {
    // Nothing in here can be left half done by a panic.
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let id = match last.generate() {
        Ok(id) => id,
        // Its random part is used up within one millisecond: on with the next one.
        Err(overflow) => overflow.commit_overflow_increment(),
    };
    id.to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use super::*;

    #[test]
    fn ids_rise_in_each_thread_and_none_comes_twice() {
        let threads: Vec<_> =
            (0..4).map(|_| thread::spawn(|| (0..5_000).map(|_| next()).collect::<Vec<_>>())).collect();
        let mut all = HashSet::new();
        for thread in threads {
            let ids = thread.join().unwrap();
            assert!(ids.is_sorted_by(|a, b| a < b));
            all.extend(ids);
        }
        assert_eq!(all.len(), 20_000);
        assert!(all.iter().all(|id| ulid::Ulid::from_string(id).is_ok_and(|it| it.to_string() == *id)));
    }
}
