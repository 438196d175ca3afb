//! Every random choice a scheme makes, from a CSPRNG.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

/// The source of a scheme's coins: ChaCha12.
pub struct Coins(ChaCha12Rng);

impl Coins {
    /// Seeded by the operating system.
    pub fn from_os() -> Self {
        Self(rand::make_rng())
    }

    /// Seeded by the caller, so that tests and the simulator repeat. Never used by the server.
    pub fn seeded(seed: u64) -> Self {
        Self(ChaCha12Rng::seed_from_u64(seed))
    }

    /// An independent source, for work on another thread.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self(ChaCha12Rng::from_rng(&mut self.0))
    }

    /// 64 uniform bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A uniform number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        self.0.random_range(0..bound)
    }

    /// Puts a slice in a uniformly random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u32 + 1) as usize);
        }
    }
}
