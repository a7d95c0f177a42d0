//! What the models of the simulation share: time that only they move, and chance that repeats with its seed.

use std::cell::Cell;
use std::time::{Duration, Instant};

thread_local! {
    static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// What the thread's clock shows, if that is not the machine's.
pub(crate) fn now() -> Option<Instant> {
    NOW.get()
}

/// From now on it is `now` on this thread; with none, what the machine says.
pub(crate) fn set_clock(now: Option<Instant>) {
    NOW.set(now);
}

/// What one who waits is waiting for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wish {
    /// So much time of the world's.
    Time(Duration),
    /// News of the broker, until then by its own clock.
    News(Instant),
}

/// How those who run in the simulation wait. It may never return: then they died there.
pub(crate) type Pause<'y> = dyn Fn(Wish) + 'y;

/// Numbers that look like chance and repeat with their seed (xorshift).
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        // Neighbours must not begin alike.
        let mut chance = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        (0..4).for_each(|_| {
            chance.below(2);
        });
        chance
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The lower bits are the weaker ones.
        (self.0 >> 11) % limit
    }

    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// Never, where `n` is 0.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.below(n) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, among: &[T]) -> Option<T> {
        let place = self.below(u64::try_from(among.len()).unwrap_or(1).max(1));
        usize::try_from(place).ok().and_then(|place| among.get(place)).copied()
    }
}
