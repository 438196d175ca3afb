//! Popularity by rank: uniform and Zipf, and samplers that need constant time for each draw.

use rand::{Rng, RngExt};

/// How often each rank is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Distribution {
    /// All alike.
    Uniform,
    /// Rank *i* (from 0) in proportion to `1/(i+1)^theta`, `0 < theta < 1`. YCSB's is 0.99.
    Zipf {
        /// The skew.
        theta: f64,
    },
}

impl Distribution {
    /// The exact probability of every rank of `0..n`.
    pub fn probabilities(self, n: u64) -> Vec<f64> {
        match self {
            Self::Uniform => vec![1.0 / n as f64; n as usize],
            Self::Zipf { theta } => {
                let zeta = zeta(n, theta);
                (1..=n).map(|i| (i as f64).powf(-theta) / zeta).collect()
            }
        }
    }
}

/// Draws ranks of `0..n`.
#[derive(Debug, Clone)]
pub struct Ranks(Sampler);

#[derive(Debug, Clone)]
enum Sampler {
    Uniform(u64),
    Table(Alias),
    Gray(Gray),
}

impl Ranks {
    /// Up to this many ranks a Zipf distribution is sampled exactly, through a table of 12 bytes for each; beyond it
    /// through the approximation of Gray et al. that YCSB uses.
    pub const TABLE_LIMIT: u64 = 1 << 20;

    /// A sampler of `0..n`; an `n` of 0 is taken for 1.
    pub fn new(distribution: Distribution, n: u64) -> Self {
        let n = n.max(1);
        Self(match distribution {
            Distribution::Uniform => Sampler::Uniform(n),
            Distribution::Zipf { .. } if n <= Self::TABLE_LIMIT => {
                Sampler::Table(Alias::new(&distribution.probabilities(n)))
            }
            Distribution::Zipf { theta } => Sampler::Gray(Gray::new(n, theta)),
        })
    }

    /// Draws a rank.
    pub fn sample(&self, rng: &mut impl Rng) -> u64 {
        match &self.0 {
            Sampler::Uniform(n) => rng.random_range(0..*n),
            Sampler::Table(table) => table.sample(rng),
            Sampler::Gray(gray) => gray.sample(rng),
        }
    }
}

/// Vose's alias table: column *i* is *i* itself with probability `keep[i]`, else `other[i]`.
#[derive(Debug, Clone)]
struct Alias {
    keep: Vec<f64>,
    other: Vec<u32>,
}

impl Alias {
    /// `probabilities` add up to 1, and there are fewer than 2^32.
    fn new(probabilities: &[f64]) -> Self {
        let n = probabilities.len() as f64;
        let mut keep: Vec<f64> = probabilities.iter().map(|p| p * n).collect();
        let mut other: Vec<u32> = (0..keep.len() as u32).collect();
        let (mut small, mut large): (Vec<u32>, Vec<u32>) = other.iter().partition(|i| keep[**i as usize] < 1.0);
        while let (Some(s), Some(l)) = (small.pop(), large.last().copied()) {
            other[s as usize] = l;
            keep[l as usize] -= 1.0 - keep[s as usize];
            if keep[l as usize] < 1.0 {
                large.pop();
                small.push(l);
            }
        }
        // What is left differs from 1 by rounding only, and stands for itself: `other` is still the identity there.
        Self { keep, other }
    }

    fn sample(&self, rng: &mut impl Rng) -> u64 {
        let column = rng.random_range(0..self.keep.len());
        if rng.random::<f64>() < self.keep[column] { column as u64 } else { u64::from(self.other[column]) }
    }
}

/// Gray et al.: the first two ranks exactly, the others through an inverted integral.
#[derive(Debug, Clone)]
struct Gray {
    n: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
    second: f64,
}

impl Gray {
    fn new(n: u64, theta: f64) -> Self {
        let sum = zeta(n, theta);
        let n = n as f64;
        let eta = (1.0 - (2.0 / n).powf(1.0 - theta)) / (1.0 - zeta(2, theta) / sum);
        Self { n, zeta: sum, alpha: 1.0 / (1.0 - theta), eta, second: 1.0 + 0.5_f64.powf(theta) }
    }

    fn sample(&self, rng: &mut impl Rng) -> u64 {
        let u: f64 = rng.random();
        match u * self.zeta {
            x if x < 1.0 => 0,
            x if x < self.second => 1,
            _ => ((self.n * (self.eta * u - self.eta + 1.0).powf(self.alpha)) as u64).min(self.n as u64 - 1),
        }
    }
}

/// `Σ 1/i^theta` for i from 1 to n: term by term at first, then by Euler and Maclaurin's formula.
fn zeta(n: u64, theta: f64) -> f64 {
    const EXACT: u64 = 1 << 20;
    let head: f64 = (1..=n.min(EXACT)).rev().map(|i| (i as f64).powf(-theta)).sum();
    if n <= EXACT {
        return head;
    }
    let (from, to) = (EXACT as f64, n as f64);
    let integral = (to.powf(1.0 - theta) - from.powf(1.0 - theta)) / (1.0 - theta);
    let ends = (to.powf(-theta) - from.powf(-theta)) / 2.0;
    head + integral + ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    const ZIPF: Distribution = Distribution::Zipf { theta: 0.99 };

    /// Pearson's statistic in standard deviations from its mean; ranks expected fewer than ten times share a bin.
    fn chi_square(expected: &[f64], draw: impl FnMut() -> u64, draws: u64) -> f64 {
        let mut counts = vec![0_u64; expected.len()];
        for rank in std::iter::repeat_with(draw).take(draws as usize) {
            counts[rank as usize] += 1;
        }
        let (mut statistic, mut bins, mut e, mut o) = (0.0, 0.0, 0.0, 0.0);
        for (p, count) in expected.iter().zip(&counts) {
            e += p * draws as f64;
            o += *count as f64;
            if e >= 10.0 {
                statistic += (o - e) * (o - e) / e;
                bins += 1.0;
                (e, o) = (0.0, 0.0);
            }
        }
        let freedom: f64 = bins - 1.0;
        (statistic - freedom) / (2.0 * freedom).sqrt()
    }

    #[test]
    fn table_follows_zipf_and_a_wrong_skew_is_found() {
        for seed in 0..8 {
            let ranks = Ranks::new(ZIPF, 4096);
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let z = chi_square(&ZIPF.probabilities(4096), || ranks.sample(&mut rng), 500_000);
            assert!(z.abs() < 5.0, "seed {seed}: {z}");
            let wrong = Distribution::Zipf { theta: 0.97 };
            let z = chi_square(&wrong.probabilities(4096), || ranks.sample(&mut rng), 500_000);
            assert!(z > 5.0, "seed {seed}: the canary survived, {z}");
        }
    }

    #[test]
    fn uniform_is_uniform() {
        let ranks = Ranks::new(Distribution::Uniform, 1000);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let z = chi_square(&Distribution::Uniform.probabilities(1000), || ranks.sample(&mut rng), 500_000);
        assert!(z.abs() < 5.0, "{z}");
    }

    #[test]
    fn gray_is_near_zipf() {
        let n = 1 << 22;
        let ranks = Ranks::new(ZIPF, n);
        assert!(matches!(ranks.0, Sampler::Gray(_)));
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let draws: Vec<u64> = (0..1_000_000).map(|_| ranks.sample(&mut rng)).collect();
        assert!(draws.iter().all(|rank| *rank < n));
        let exact = ZIPF.probabilities(n);
        for (from, to) in [(0, 1), (1, 2), (2, 100), (100, 10_000), (10_000, 1_000_000), (1_000_000, n)] {
            let share = draws.iter().filter(|r| (from..to).contains(*r)).count() as f64 / draws.len() as f64;
            let due: f64 = exact[from as usize..to as usize].iter().sum();
            assert!((share / due - 1.0).abs() < 0.1, "ranks {from}..{to}: {share} instead of {due}");
        }
    }

    #[test]
    fn zeta_continues_where_the_sum_ends() {
        let n = (1 << 20) + 1000;
        let exact: f64 = (1..=n).rev().map(|i| (i as f64).powf(-0.99)).sum();
        assert!((zeta(n, 0.99) - exact).abs() < 1e-9);
        assert!((ZIPF.probabilities(n).iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }
}
