//! Sampling from a fixed distribution in constant time (Walker's alias method, Vose's construction).

use crate::Coins;

/// A distribution over `0..len`. 8 bytes per outcome.
pub struct Alias {
    /// Keep the column with probability `keep / 2^32`, else take its alias.
    columns: Vec<(u32, u32)>,
}

impl Alias {
    /// Builds the table for weights that are not negative and not all zero, in O(len).
    pub fn new(weights: &[f64]) -> Self {
        let len = weights.len();
        let scale = len as f64 / weights.iter().sum::<f64>();
        let mut left: Vec<f64> = weights.iter().map(|w| w * scale).collect();
        let (mut small, mut large) = (Vec::new(), Vec::new());
        for (i, &w) in left.iter().enumerate() {
            if w < 1.0 { small.push(i as u32) } else { large.push(i as u32) }
        }
        let mut columns: Vec<(u32, u32)> = (0..len as u32).map(|i| (u32::MAX, i)).collect();
        while let (Some(&s), Some(&l)) = (small.last(), large.last()) {
            small.pop();
            columns[s as usize] = ((left[s as usize] * 4_294_967_296.0) as u32, l);
            left[l as usize] -= 1.0 - left[s as usize];
            if left[l as usize] < 1.0 {
                large.pop();
                small.push(l);
            }
        }
        Self { columns }
    }

    /// Draws an outcome.
    pub fn draw(&self, coins: &mut Coins) -> u32 {
        let bits = coins.bits();
        // The upper half picks the column (multiply-shift: a bias below len / 2^32), the lower half its side.
        let column = ((bits >> 32) * self.columns.len() as u64) >> 32;
        let (keep, alias) = self.columns[column as usize];
        if (bits as u32) < keep || keep == u32::MAX { column as u32 } else { alias }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_the_weights() {
        let weights = [0.0, 1.0, 2.0, 3.0, 10.0, 0.0];
        let alias = Alias::new(&weights);
        let mut coins = Coins::seeded(1);
        let mut counts = [0u32; 6];
        let draws = 1_600_000;
        for _ in 0..draws {
            counts[alias.draw(&mut coins) as usize] += 1;
        }
        for (count, weight) in counts.iter().zip(weights) {
            let expected = weight / 16.0 * f64::from(draws);
            assert!((f64::from(*count) - expected).abs() <= 5.0 * expected.sqrt(), "{counts:?}");
        }
    }
}
