//! Cover batches: what is sent when nobody asks, so that no deferred request waits for ever (security.md, rule 4).
//!
//! The schedule depends on arrival times and public parameters only. After the last arrival come [`Cover::dense`]
//! batches, the first after `FIRST_US`, each gap 8 % longer than the one before, up to the floor of one a second, which
//! never ends.
//!
//! Why `dense` suffices: a batch serves Bin(B, δ) turns and an arrival adds one, so the queue is a random walk whose
//! maximum is at least q with probability at most z^-q, where z > 1 solves z·(1−δ+δ/z)^B = 1 (Lundberg's inequality).
//! After c cover batches a request still waits with probability at most z^-c. With B·δ ≥ 1.1 (the bound α'_max of the
//! tables) and c = ⌈40·ln 2 / ln z⌉ that is below 2^-40: 94 batches for B = 3.

use crate::driver::Pace;

/// The first gap.
const FIRST_US: f64 = 300.0;
const GROWTH: f64 = 1.08;
const DENSE_MOST_US: f64 = 50_000.0;
const FLOOR_US: u64 = 1_000_000;
/// Lower bound of B·δ.
const DRIFT: f64 = 1.1;

/// When the next cover batch is due.
#[derive(Debug, Clone)]
pub struct Cover {
    pace: Pace,
    dense: u32,
    sent: u32,
    due_us: u64,
    gap_us: f64,
}

impl Cover {
    /// For B accesses a batch.
    pub fn new(pace: Pace, batch: u32, now_us: u64) -> Self {
        Self { pace, dense: Self::dense(batch), sent: 0, due_us: now_us, gap_us: FIRST_US }
    }

    /// How many dense batches follow the last arrival.
    pub fn dense(batch: u32) -> u32 {
        let b = f64::from(batch.max(2));
        let delta = (DRIFT / b).min(0.5);
        let excess = |z: f64| z.ln() + b * (1.0 - delta + delta / z).ln();
        // excess is negative just above 1 and grows without bound: halve until the root is pinned.
        let (mut low, mut high) = (1.0 + 1e-6, 1e6);
        for _ in 0..200 {
            let middle = f64::midpoint(low, high);
            if excess(middle) < 0.0 { low = middle } else { high = middle }
        }
        (40.0 * std::f64::consts::LN_2 / low.ln()).ceil() as u32
    }

    /// Requests arrived.
    pub fn arrived(&mut self, now_us: u64) {
        if self.pace == Pace::Idle {
            (self.sent, self.gap_us) = (0, FIRST_US);
            self.due_us = now_us + FIRST_US as u64;
        }
    }

    /// When the next batch is due; `None`: never.
    pub fn due_us(&self) -> Option<u64> {
        (self.pace != Pace::Off).then_some(self.due_us)
    }

    /// Takes the batches that are due.
    pub fn take(&mut self, now_us: u64) -> u32 {
        match self.pace {
            _ if now_us < self.due_us => 0,
            Pace::Off => 0,
            Pace::Constant(rate) => {
                let gap = 1e6 / rate.max(1e-3);
                let due = ((now_us - self.due_us) as f64 / gap) as u32 + 1;
                self.due_us += (f64::from(due) * gap) as u64;
                due.min(1024)
            }
            Pace::Idle => {
                self.sent = self.sent.saturating_add(1);
                self.gap_us = (self.gap_us * GROWTH).min(DENSE_MOST_US);
                self.due_us = now_us + if self.sent < self.dense { self.gap_us as u64 } else { FLOOR_US };
                1
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_dense_batches_is_the_one_the_docs_name() {
        assert_eq!(Cover::dense(3), 94);
    }

    #[test]
    fn the_schedule_is_dense_then_backs_off_and_never_ends() {
        let mut cover = Cover::new(Pace::Idle, 3, 0);
        cover.arrived(0);
        let mut times = Vec::new();
        for _ in 0..200 {
            let due = cover.due_us().unwrap_or(u64::MAX);
            assert_eq!(cover.take(due - 1), 0);
            assert_eq!(cover.take(due), 1);
            times.push(due);
        }
        assert!(times[0] == 300 && times[19] < 14_000 && times[93] < 2_000_000, "{times:?}");
        assert_eq!(times[199] - times[198], FLOOR_US);
    }
}
