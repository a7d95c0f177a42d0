//! Numbers by chance, the same ones for the same seed.

/// A generator of numbers (xorshift64*).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// One of several independent generators of a seed.
    pub fn of(seed: u64, number: u64) -> Dice {
        let mut dice =
            Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number.wrapping_mul(0xD1B5_4A32_D192_ED03));
        // The first ones of neighbouring seeds are alike.
        (0..8).for_each(|_| {
            dice.next();
        });
        dice
    }

    fn next(&mut self) -> u64 {
        // A state of 0 would stay 0.
        let mut x = self.0 | 1 << 63;
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0 = x;
        x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    /// Another generator, for whoever draws by himself.
    pub fn fork(&mut self) -> Dice {
        Dice(self.next())
    }

    /// From 0 to one less than `sides`.
    pub fn below(&mut self, sides: u64) -> u64 {
        self.next() % sides.max(1)
    }

    /// From `least` to `most`, both included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    /// Brings these into an order by chance.
    pub fn shuffle<T>(&mut self, these: &mut [T]) {
        for last in (1..these.len()).rev() {
            these.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}
