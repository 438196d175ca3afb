//! What the store sees: every slot equally often, every pair of accesses independent, every command at the same cost.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::alias::Alias;
use super::tables::Tables;
use super::{Pancake, Params};
use crate::Coins;
use bytes::Bytes;
use millpond_core::{
    Answer, Body, Budget, Change, Effect, Event, Key, Label, Now, Op, Record, Reply, Request, RequestId, Scheme, View,
};
use millpond_crypto::{BlockCipher, EpochSecret, MasterKey, SchemeTag, StoreId};
use std::collections::HashMap;
use std::sync::Arc;

const KEYS: u32 = 1 << 12;
const SLOTS: usize = 2 * KEYS as usize;
const VALUE_LIMIT: usize = 16;

/// A scheme over a map, one round at a time, everything at once.
struct Bench {
    scheme: Pancake,
    blocks: HashMap<Label, Bytes>,
    slots: HashMap<Label, u32>,
    next: u64,
    replies: Vec<(RequestId, Reply)>,
    reads: Vec<u32>,
    writes: Vec<u32>,
}

fn zipf(theta: f64) -> Vec<u64> {
    (1..=KEYS).map(|rank| (1e12 / f64::from(rank).powf(theta)) as u64).collect()
}

fn name(n: u32) -> Key {
    Key::new(format!("user{n}"))
}

impl Bench {
    fn new(seed: u64, weights: &[u64]) -> Self {
        let secret = EpochSecret::generate();
        let (master, store, payload) =
            (MasterKey::from_bytes([1; 32]), StoreId([2; 16]), Pancake::payload_limit(VALUE_LIMIT));
        let cipher = BlockCipher::new(&master, &secret, store, 0, SchemeTag::PANCAKE, payload).unwrap();
        let distribution = weights.iter().zip(0..).map(|(&w, n)| (name(n), w)).collect();
        let params = Params { store: "test".into(), capacity: KEYS, batch: 3, value_limit: VALUE_LIMIT };
        let mut scheme = Pancake::new(params, cipher, &distribution, Coins::seeded(seed)).unwrap();
        let slots = scheme.labels.iter().zip(0..).map(|(&label, slot)| (label, slot)).collect();
        scheme.recover(seed, false);
        let mut blocks = HashMap::new();
        while let Some(batch) = scheme.init(1000) {
            if let Op::Write(written) = batch.op {
                blocks.extend(written);
            }
        }
        let (replies, reads, writes) = (Vec::new(), Vec::new(), Vec::new());
        Self { scheme, blocks, slots, next: 0, replies, reads, writes }
    }

    /// One round for these requests; returns how many slots it read and wrote.
    fn round(&mut self, bodies: Vec<Body>) -> (usize, usize) {
        let now = Now { mono_us: self.next, unix_ms: 1 };
        let batches = bodies.iter().map(Body::cost).sum();
        for body in bodies {
            self.scheme.submit(now, Request { id: RequestId(self.next), body });
            self.next += 1;
        }
        let before = (self.reads.len(), self.writes.len());
        self.scheme.tick(now, Budget { batches });
        let mut effects = Vec::new();
        let mut journaled = 0;
        loop {
            self.scheme.poll(&mut effects);
            if effects.is_empty() {
                return (self.reads.len() - before.0, self.writes.len() - before.1);
            }
            for effect in effects.drain(..) {
                match effect {
                    Effect::Io { id, batch } => {
                        let answer = self.execute(&batch.op);
                        self.scheme.complete(now, Event::Io(id, answer));
                    }
                    Effect::Compute { id, job, .. } => self.scheme.complete(now, Event::Computed(id, job.run())),
                    Effect::Journal { force, .. } => {
                        journaled += 1;
                        if force {
                            self.scheme.complete(now, Event::Durable(u64::MAX));
                        }
                    }
                    Effect::Reply { to, reply, .. } => self.replies.push((to, reply)),
                }
            }
            assert!(journaled > 0 || self.scheme.rounds.len() > 0, "a round was not journaled");
        }
    }

    fn execute(&mut self, op: &Op) -> Answer {
        match op {
            Op::Read(labels) => {
                self.reads.extend(labels.iter().map(|l| self.slots[l]));
                Answer::Blocks(labels.iter().map(|l| self.blocks.get(l).cloned()).collect())
            }
            Op::Write(blocks) => {
                for (label, block) in blocks {
                    self.writes.push(self.slots[label]);
                    self.blocks.insert(*label, block.clone());
                }
                Answer::Done
            }
            Op::Delete(_) => unreachable!("pancake deletes nothing"),
        }
    }
}

fn get(n: u32) -> Body {
    Body::single(name(n), false, |view: View<'_>| {
        (view.record.map_or(Reply::Null, |r| Reply::Bulk(r.data.clone())), Change::Keep)
    })
}

fn set(n: u32, value: &'static [u8]) -> Body {
    let record = Record { kind: 1, expires_at_ms: None, data: Bytes::from_static(value) };
    Body::single(name(n), true, |_| (Reply::OK, Change::Put(record)))
}

fn delete(n: u32) -> Body {
    Body::single(name(n), false, |view: View<'_>| (Reply::Integer(i64::from(view.record.is_some())), Change::Delete))
}

/// Upper tail of the chi-square distribution, by Wilson and Hilferty's approximation: exact enough from 100 degrees on.
fn chi_square_p(statistic: f64, degrees: f64) -> f64 {
    let spread = 2.0 / (9.0 * degrees);
    let z = ((statistic / degrees).cbrt() - (1.0 - spread)) / spread.sqrt();
    0.5 * erfc(z / std::f64::consts::SQRT_2)
}

/// Complementary error function (Numerical Recipes' erfcc; relative error below 1.2e-7).
fn erfc(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.5 * x.abs());
    let series = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let poly = series.iter().rev().fold(0.0, |sum, c| sum * t + c);
    let tail = t * (poly - x * x).exp();
    if x >= 0.0 { tail } else { 2.0 - tail }
}

fn slots_p(accesses: &[u32]) -> f64 {
    let mut counts = vec![0u32; SLOTS];
    accesses.iter().for_each(|&s| counts[s as usize] += 1);
    uniform_p(&counts, accesses.len())
}

fn uniform_p(counts: &[u32], total: usize) -> f64 {
    let expected = total as f64 / counts.len() as f64;
    let statistic = counts.iter().map(|&c| (f64::from(c) - expected).powi(2) / expected).sum();
    chi_square_p(statistic, counts.len() as f64 - 1.0)
}

/// Pairs of accesses that are `lag` apart, in 64 by 64 bins of slots.
fn pairs_p(accesses: &[u32], lag: usize) -> f64 {
    let bin = |slot: u32| (slot as usize * 64) / SLOTS;
    let mut counts = vec![0u32; 64 * 64];
    for (a, b) in accesses.iter().zip(&accesses[lag..]) {
        counts[bin(*a) * 64 + bin(*b)] += 1;
    }
    uniform_p(&counts, accesses.len() - lag)
}

/// p-value of the Kolmogorov–Smirnov test that values are uniform in 0..1.
fn ks_uniform_p(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    let distance =
        values.iter().enumerate().map(|(i, v)| (v - i as f64 / n).max((i as f64 + 1.0) / n - v)).fold(0.0, f64::max);
    let x = (n.sqrt() + 0.12 + 0.11 / n.sqrt()) * distance;
    (1..101)
        .map(|k| 2.0 * f64::from(if k % 2 == 1 { 1 } else { -1 }) * (-2.0 * f64::from(k * k) * x * x).exp())
        .sum::<f64>()
        .min(1.0)
}

/// `accesses` accesses of a workload, with deletes and misses mixed in.
fn transcript(bench: &mut Bench, seed: u64, truth: &[u64], writes: bool, accesses: usize) -> Vec<u32> {
    let mut coins = Coins::seeded(seed ^ 0xABCD);
    let ranks = Alias::new(&truth.iter().map(|&w| w as f64).collect::<Vec<_>>());
    while bench.reads.len() < accesses {
        let requests = 1 + coins.below(50);
        let bodies = (0..requests).map(|_| {
            let n = ranks.draw(&mut coins);
            match coins.below(200) {
                0..2 => delete(n),
                2..6 => get(KEYS + coins.below(1000)),
                dice if writes && dice % 2 == 0 => set(n, b"0123456789abcdef"),
                _ => get(n),
            }
        });
        let bodies = bodies.collect();
        let (read, written) = bench.round(bodies);
        assert_eq!((read, written), (3 * requests as usize, 3 * requests as usize));
    }
    assert_eq!(bench.reads, bench.writes, "a round writes just the slots it read");
    std::mem::take(&mut bench.reads)
}

/// ≥ 10^6 accesses for each of 20 seeds (or `MILLPOND_UNIFORM_SEEDS`), YCSB-A and C by turns.
#[test]
fn accesses_are_uniform_and_independent() {
    let seeds = std::env::var("MILLPOND_UNIFORM_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(20);
    let truth = zipf(0.99);
    let run = |seed: u64| {
        let accesses = transcript(&mut Bench::new(seed, &truth), seed, &truth, seed.is_multiple_of(2), 1_000_000);
        (slots_p(&accesses), (1..=12).map(|lag| pairs_p(&accesses, lag)).collect::<Vec<_>>())
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let run = &run;
        let halves: Vec<_> = (0..2)
            .map(|half| scope.spawn(move || (0..seeds).filter(|s| s % 2 == half).map(run).collect::<Vec<_>>()))
            .collect();
        halves.into_iter().flat_map(|half| half.join().unwrap()).collect()
    });
    let slots: Vec<f64> = results.iter().map(|(p, _)| *p).collect();
    let pairs: Vec<f64> = results.iter().flat_map(|(_, p)| p.clone()).collect();
    let (slots_ks, pairs_ks) = (ks_uniform_p(slots.clone()), ks_uniform_p(pairs));
    println!("slots: p-values {slots:.3?}, KS {slots_ks:.3}; pairs at lags 1 to 12: KS {pairs_ks:.3}");
    assert!(slots_ks >= 1e-4 && pairs_ks >= 1e-4, "KS {slots_ks} {pairs_ks}");
}

/// Canary: an estimate that does not fit shows.
#[test]
fn wrong_weights_lose() {
    let (guess, truth) = (vec![1; KEYS as usize], zipf(0.99));
    let p = slots_p(&transcript(&mut Bench::new(1, &guess), 1, &truth, true, 1_000_000));
    assert!(p < 1e-6, "{p}");
}

/// Canary: a coin that is real 5 % too often shows.
#[test]
fn a_biased_coin_loses() {
    let truth = zipf(0.99);
    let mut bench = Bench::new(2, &truth);
    bench.scheme.tables = Tables::biased(&Arc::clone(&bench.scheme.tables), 1.05);
    let p = slots_p(&transcript(&mut bench, 2, &truth, false, 1_000_000));
    assert!(p < 1e-6, "{p}");
}

/// Canary: without fake accesses popularity shows at once, as it does where contents alone are sealed.
#[test]
fn no_fakes_lose() {
    let truth = zipf(0.99);
    let mut bench = Bench::new(3, &truth);
    bench.scheme.tables = Tables::biased(&Arc::clone(&bench.scheme.tables), 2.0);
    let p = slots_p(&transcript(&mut bench, 3, &truth, false, 100_000));
    assert!(p < 1e-6, "{p}");
}

#[test]
fn every_command_costs_one_batch_for_each_key() {
    let mut bench = Bench::new(4, &zipf(0.99));
    let refused = Body::single(name(1), false, |_| {
        let data = Bytes::from_static(&[0; VALUE_LIMIT + 1]);
        (Reply::OK, Change::Put(Record { kind: 1, expires_at_ms: None, data }))
    });
    let wrong_type = Body::single(name(2), false, |_| (Reply::error("WRONGTYPE"), Change::Keep));
    let bodies = vec![
        get(1),
        get(KEYS + 5),
        set(3, b"x"),
        set(KEYS + 6, b"x"),
        delete(3),
        delete(KEYS + 9),
        refused,
        wrong_type,
        Body::Flush,
    ];
    for body in bodies {
        let (opens, seals) = (bench.scheme.status().opens, bench.scheme.status().seals);
        assert_eq!(bench.round(vec![body]), (3, 3));
        assert_eq!((bench.scheme.status().opens - opens, bench.scheme.status().seals - seals), (3, 3));
    }
}

/// Four keys whose records are all in the store and nowhere else.
fn settled() -> Bench {
    let mut bench = Bench::new(5, &[1, 1, 1, 1]);
    for n in 0..4 {
        bench.round(vec![set(n, b"value")]);
    }
    while bench.scheme.state.cache.len() > 0 {
        bench.round((0..400).map(|_| get(0)).collect());
        bench.scheme.complete(Now::default(), Event::SyncStarted);
        bench.scheme.complete(Now::default(), Event::Synced);
    }
    bench
}

/// Asks for every key until each was answered; all must fail, and the proxy must go on.
fn must_fail(bench: &mut Bench) {
    bench.replies.clear();
    bench.round((0..4).map(get).collect());
    for _ in 0..20 {
        bench.round(vec![get(KEYS + 1)]);
    }
    let failed = bench.replies.iter().filter(|(_, r)| matches!(r, Reply::Error(e) if e.starts_with("INTEGRITY")));
    assert_eq!(failed.count(), 4, "{:?}", bench.replies);
    assert!(bench.scheme.status().integrity_failures > 0);
}

/// (Every single byte of a block: see the crypto crate.)
#[test]
fn changed_blocks_are_found() {
    let mut bench = settled();
    let mut coins = Coins::seeded(9);
    for block in bench.blocks.values_mut() {
        let mut bytes = block.to_vec();
        bytes[coins.below(block.len() as u32) as usize] ^= 1 << coins.below(8);
        *block = bytes.into();
    }
    must_fail(&mut bench);
    // A plain SET needs nothing from the store, and so repairs its key.
    bench.replies.clear();
    bench.round(vec![set(2, b"repaired"), get(2)]);
    for _ in 0..20 {
        bench.round(vec![get(KEYS + 1)]);
    }
    assert!(bench.replies.iter().any(|(_, r)| *r == Reply::Bulk(Bytes::from_static(b"repaired"))));
}

#[test]
fn swapped_blocks_are_found() {
    let mut bench = settled();
    let labels: Vec<Label> = bench.scheme.labels.to_vec();
    let honest = bench.blocks.clone();
    for (at, label) in labels.iter().enumerate() {
        bench.blocks.insert(*label, honest[&labels[(at + 1) % SLOTS]].clone());
    }
    must_fail(&mut bench);
}

#[test]
fn replayed_blocks_are_found() {
    let mut bench = settled();
    let old = bench.blocks.clone();
    // Until every slot has been written again.
    while bench.blocks.iter().any(|(label, block)| old[label] == *block) {
        bench.round((0..400).map(|_| get(0)).collect());
    }
    bench.blocks = old;
    must_fail(&mut bench);
}
