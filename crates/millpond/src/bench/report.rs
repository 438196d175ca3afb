//! What a benchmark found: a table for people, JSON for scripts.

use hdrhistogram::Histogram;
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;

/// An empty histogram of latencies in nanoseconds.
pub fn histogram() -> Histogram<u64> {
    const HOUR_NS: u64 = 3600 * 1_000_000_000;
    #[expect(clippy::expect_used, reason = "constant arguments within the documented bounds")]
    Histogram::new_with_bounds(1, HOUR_NS, 3).expect("valid bounds")
}

/// One round against one target.
pub struct Round {
    /// Latencies of the operations that succeeded, in nanoseconds.
    pub latencies: Histogram<u64>,
    /// From the first operation's start to the last one's end.
    pub elapsed: Duration,
    /// Operations that failed.
    pub errors: u64,
    /// What the first of them said.
    pub first_error: Option<String>,
}

impl Round {
    /// Operations that succeeded, for each second.
    pub fn throughput(&self) -> f64 {
        self.latencies.len() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// The least, the middle and the greatest of some rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// The median: of an even number, the mean of the middle two.
    pub median: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let at = |i: usize| values.get(i).copied().unwrap_or(0.0);
        let n = values.len();
        let median = f64::midpoint(at(n.saturating_sub(1) / 2), at(n / 2));
        Self { min: at(0), median, max: at(n.saturating_sub(1)) }
    }
}

/// Latencies in microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
#[expect(clippy::struct_field_names, reason = "units last, and these are the names in the JSON")]
pub struct Latency {
    /// The arithmetic mean.
    pub mean_us: f64,
    /// Percentiles.
    pub p50_us: f64,
    /// 95 %.
    pub p95_us: f64,
    /// 99 %.
    pub p99_us: f64,
    /// 99.9 %.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |percentile| histogram.value_at_percentile(percentile) as f64 / 1000.0;
        Self {
            mean_us: histogram.mean() / 1000.0,
            p50_us: at(50.0),
            p95_us: at(95.0),
            p99_us: at(99.0),
            p999_us: at(99.9),
            max_us: histogram.max() as f64 / 1000.0,
        }
    }
}

/// One round in the report.
#[derive(Debug, Clone, Serialize)]
struct RoundReport {
    throughput: f64,
    errors: u64,
    latency: Latency,
}

/// One target in the report.
#[derive(Debug, Clone, Serialize)]
pub struct TargetReport {
    name: String,
    address: String,
    operations: u64,
    errors: u64,
    first_error: Option<String>,
    /// Operations a second, over the rounds.
    throughput: Spread,
    /// The first target's throughput divided by this one's in the same round, over the rounds.
    times_slower: Spread,
    /// All rounds together.
    latency: Latency,
    rounds: Vec<RoundReport>,
}

impl TargetReport {
    /// Sums the rounds up; `first` are the first target's.
    pub fn new(name: &str, address: &str, rounds: &[Round], first: &[Round]) -> Self {
        let mut all = histogram();
        for round in rounds {
            // Of the same bounds, so it can't fail.
            let _ = all.add(&round.latencies);
        }
        let ratios = rounds.iter().zip(first).map(|(round, first)| first.throughput() / round.throughput().max(1e-9));
        Self {
            name: name.to_owned(),
            address: address.to_owned(),
            operations: all.len(),
            errors: rounds.iter().map(|round| round.errors).sum(),
            first_error: rounds.iter().find_map(|round| round.first_error.clone()),
            throughput: Spread::of(rounds.iter().map(Round::throughput)),
            times_slower: Spread::of(ratios),
            latency: Latency::of(&all),
            rounds: rounds
                .iter()
                .map(|round| RoundReport {
                    throughput: round.throughput(),
                    errors: round.errors,
                    latency: Latency::of(&round.latencies),
                })
                .collect(),
        }
    }
}

/// All of it.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// What was run, as in the command line.
    pub setting: serde_json::Value,
    /// Every target, in the order given.
    pub targets: Vec<TargetReport>,
}

impl Report {
    /// Whether any operation failed.
    pub fn errors(&self) -> u64 {
        self.targets.iter().map(|target| target.errors).sum()
    }

    /// As a table.
    pub fn table(&self) -> String {
        let width = self.targets.iter().map(|target| target.name.len()).max().unwrap_or(0).max(6);
        let mut table = format!(
            "{:width$}  {:>10} {:>21}  {:>8} {:>13}  {:>9} {:>9} {:>9} {:>9} {:>9}  {:>6}\n",
            "target", "op/s", "(rounds)", "x slower", "(rounds)", "mean us", "p50", "p95", "p99", "p99.9", "errors"
        );
        for t in &self.targets {
            let (speed, slower, latency) = (t.throughput, t.times_slower, t.latency);
            // Writing to a String can't fail.
            let _ = writeln!(
                table,
                "{:width$}  {:>10.0} {:>21}  {:>8.2} {:>13}  {:>9.0} {:>9.0} {:>9.0} {:>9.0} {:>9.0}  {:>6}",
                t.name,
                speed.median,
                format!("({:.0}-{:.0})", speed.min, speed.max),
                slower.median,
                format!("({:.2}-{:.2})", slower.min, slower.max),
                latency.mean_us,
                latency.p50_us,
                latency.p95_us,
                latency.p99_us,
                latency.p999_us,
                t.errors,
            );
            if let Some(error) = &t.first_error {
                let _ = writeln!(table, "{:width$}  first error: {error}", "");
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(nanoseconds: impl Iterator<Item = u64>, elapsed_ms: u64) -> Round {
        let mut latencies = histogram();
        nanoseconds.for_each(|n| latencies.record(n).unwrap());
        Round { latencies, elapsed: Duration::from_millis(elapsed_ms), errors: 0, first_error: None }
    }

    #[test]
    fn percentiles_are_those_of_the_values() {
        let report = TargetReport::new("a", "h:1", &[round((1..=10_000).map(|us| us * 1000), 1000)], &[]);
        let near = |value: f64, due: f64| assert!((value / due - 1.0).abs() < 0.002, "{value} instead of {due}");
        near(report.latency.mean_us, 5000.5);
        near(report.latency.p50_us, 5000.0);
        near(report.latency.p95_us, 9500.0);
        near(report.latency.p99_us, 9900.0);
        near(report.latency.p999_us, 9990.0);
        near(report.latency.max_us, 10_000.0);
        near(report.throughput.median, 10_000.0);
    }

    #[test]
    fn ratios_pair_the_rounds() {
        let rounds = |ms: [u64; 3]| ms.map(|ms| round(std::iter::repeat_n(1000, 100), ms));
        let (first, second) = (rounds([100, 200, 400]), rounds([300, 400, 1600]));
        let report = TargetReport::new("b", "h:1", &second, &first);
        assert_eq!(report.operations, 300);
        assert_eq!(report.rounds.len(), 3);
        let near = |value: f64, due: f64| assert!((value - due).abs() < 1e-6, "{value} instead of {due}");
        near(report.times_slower.min, 2.0);
        near(report.times_slower.median, 3.0);
        near(report.times_slower.max, 4.0);
        near(report.throughput.max, 1000.0 / 3.0);
        let report = Report { setting: serde_json::Value::Null, targets: vec![report] };
        assert!(report.table().contains("3.00   (2.00-4.00)"), "{}", report.table());
        assert_eq!(report.errors(), 0);
    }

    #[test]
    fn an_even_number_has_a_middle() {
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0].into_iter()), Spread { min: 1.0, median: 2.5, max: 4.0 });
        assert_eq!(Spread::of(std::iter::empty()), Spread { min: 0.0, median: 0.0, max: 0.0 });
    }
}
