//! YCSB's core workloads, but for E (scans).

use super::{Distribution, Ranks, Scramble};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;

/// A core workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// 50 % reads, 50 % updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads only.
    C,
    /// 95 % reads of what is newest, 5 % inserts.
    D,
    /// 50 % reads, 50 % read-modify-writes.
    F,
}

/// What to do with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Read it.
    Read,
    /// Replace it.
    Update,
    /// Create it.
    Insert,
    /// Read it, then replace it.
    ReadModifyWrite,
}

impl Workload {
    /// The share of reads, and what the other operations are.
    fn mix(self) -> (f64, Op) {
        match self {
            Self::A => (0.5, Op::Update),
            Self::B => (0.95, Op::Update),
            Self::C => (1.0, Op::Read),
            Self::D => (0.95, Op::Insert),
            Self::F => (0.5, Op::ReadModifyWrite),
        }
    }
}

/// The probability that an operation of A, B, C or F concerns record 0, 1, … : the distribution, scrambled.
pub fn probabilities(distribution: Distribution, records: u64) -> Vec<f64> {
    let order = Scramble::new(records);
    let mut by_record = vec![0.0; records as usize];
    for (rank, p) in distribution.probabilities(records).into_iter().enumerate() {
        by_record[order.record(rank as u64) as usize] = p;
    }
    by_record
}

/// A workload's operations, without end.
///
/// In workload D the distribution is over the age of a record: rank 0 is the newest one. A record counts as there once
/// its insert has been reported by [`Ycsb::settle`], so that no read asks for one whose insert is still under way.
#[derive(Debug, Clone)]
pub struct Ycsb {
    workload: Workload,
    ranks: Ranks,
    order: Scramble,
    /// Records `0..present` are there.
    present: u64,
    /// For the records from `present` on that have been handed out: whether their insert is done. Never starts with
    /// a done one.
    inserting: VecDeque<bool>,
    rng: ChaCha8Rng,
}

impl Ycsb {
    /// Operations on a store that holds `records` records; 0 is taken for 1.
    pub fn new(workload: Workload, distribution: Distribution, records: u64, seed: u64) -> Self {
        let records = records.max(1);
        Self {
            workload,
            ranks: Ranks::new(distribution, records),
            order: Scramble::new(records),
            present: records,
            inserting: VecDeque::new(),
            rng: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// How many records there are: the given ones and those whose insert has been settled.
    pub fn records(&self) -> u64 {
        self.present
    }

    /// The insert of this record is done. What was not handed out by this iterator is ignored.
    pub fn settle(&mut self, record: u64) {
        let Some(done) = record.checked_sub(self.present).and_then(|i| self.inserting.get_mut(i as usize)) else {
            return;
        };
        *done = true;
        while self.inserting.front() == Some(&true) {
            self.inserting.pop_front();
            self.present += 1;
        }
    }

    fn read(&mut self) -> u64 {
        let rank = self.ranks.sample(&mut self.rng);
        if self.workload == Workload::D { self.present - 1 - rank } else { self.order.record(rank) }
    }

    fn insert(&mut self) -> u64 {
        self.inserting.push_back(false);
        self.present + self.inserting.len() as u64 - 1
    }
}

impl Iterator for Ycsb {
    type Item = (Op, u64);

    fn next(&mut self) -> Option<(Op, u64)> {
        let (reads, other) = self.workload.mix();
        let op = if self.rng.random::<f64>() < reads { Op::Read } else { other };
        let record = if op == Op::Insert { self.insert() } else { self.read() };
        Some((op, record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZIPF: Distribution = Distribution::Zipf { theta: 0.99 };

    fn share(workload: Workload, op: Op) -> f64 {
        let draws = 200_000;
        let hits = Ycsb::new(workload, ZIPF, 1000, 7).take(draws).filter(|(o, _)| *o == op).count();
        hits as f64 / draws as f64
    }

    #[test]
    fn mixes_are_ycsbs() {
        for (workload, op, due) in [
            (Workload::A, Op::Update, 0.5),
            (Workload::B, Op::Update, 0.05),
            (Workload::C, Op::Read, 1.0),
            (Workload::D, Op::Insert, 0.05),
            (Workload::F, Op::ReadModifyWrite, 0.5),
        ] {
            assert!((share(workload, op) - due).abs() < 0.005, "{workload:?}");
        }
    }

    #[test]
    fn a_seed_repeats_and_records_follow_the_probabilities() {
        let run = |seed| Ycsb::new(Workload::A, ZIPF, 100, seed).take(200_000).collect::<Vec<_>>();
        let ops = run(3);
        assert!(ops == run(3) && ops != run(4));
        let expected = probabilities(ZIPF, 100);
        assert!((expected.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        for (record, p) in expected.iter().enumerate() {
            let share = ops.iter().filter(|(_, r)| *r == record as u64).count() as f64 / ops.len() as f64;
            let deviation = (p * (1.0 - p) / ops.len() as f64).sqrt();
            assert!((share - p).abs() < 5.0 * deviation, "record {record}: {share} instead of {p}");
        }
    }

    #[test]
    fn inserts_are_read_once_settled_and_newest_first() {
        let mut ycsb = Ycsb::new(Workload::D, ZIPF, 100, 5);
        let mut waiting = Vec::new();
        let mut newest = 0;
        for _ in 0..50_000 {
            let Some((op, record)) = ycsb.next() else { unreachable!() };
            if op == Op::Insert {
                assert_eq!(record, ycsb.records() + waiting.len() as u64);
                waiting.push(record);
                if waiting.len() == 3 {
                    for done in waiting.drain(..).rev() {
                        ycsb.settle(done);
                    }
                }
            } else {
                assert!(record < ycsb.records());
                newest += u64::from(record + 1 == ycsb.records());
            }
        }
        assert!(ycsb.records() > 2000);
        // Rank 0 of Zipf 0.99 over 100 records has 19 %.
        assert!((8_000..10_500).contains(&newest), "{newest}");
        ycsb.settle(u64::MAX);
        ycsb.settle(0);
    }
}
