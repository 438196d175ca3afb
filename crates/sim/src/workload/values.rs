//! Values to write.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Incompressible values of one size, at the price of a bound check each: windows of a pool of random bytes.
#[derive(Debug, Clone)]
pub struct Values {
    pool: Vec<u8>,
    size: usize,
    rng: ChaCha8Rng,
}

impl Values {
    /// How many different values there are.
    const WINDOWS: usize = 1 << 20;

    /// Values of `size` bytes.
    pub fn new(size: usize, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut pool = vec![0; Self::WINDOWS + size];
        rng.fill_bytes(&mut pool);
        Self { pool, size, rng }
    }

    /// The next value.
    pub fn draw(&mut self) -> &[u8] {
        let start = self.rng.random_range(0..Self::WINDOWS);
        &self.pool[start..start + self.size]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_size_and_differ() {
        let mut values = Values::new(100, 1);
        let first = values.draw().to_vec();
        assert_eq!(first.len(), 100);
        assert_ne!(first, values.draw());
        assert!(Values::new(0, 1).draw().is_empty());
    }
}
