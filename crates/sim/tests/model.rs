//! Every scheme against a plain map: random operations and groups, lost connections, a store that falls back to its
//! last barrier, a killed proxy, power losses; whatever was answered must stay true.
#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use millpond_core::{Key, Now, Scheme};
use millpond_crypto::{BlockCipher, EpochSecret, MasterKey, SchemeTag, StoreId};
use millpond_engine::{Config, Durability, Pace};
use millpond_schemes::{Coins, Pancake, Params};
use millpond_sim::disk::SimDisk;
use millpond_sim::model::{Candidates, Limits, Op, key};
use millpond_sim::store::SimStore;
use millpond_sim::world::World;

const VALUE_LIMIT: usize = 64;

struct Run {
    coins: Coins,
    seed: u64,
    limits: Limits,
    config: Config,
    cipher: BlockCipher,
    written: u64,
}

impl Run {
    fn new(seed: u64, cipher: &BlockCipher) -> Self {
        let mut coins = Coins::seeded(seed);
        let durability = [Durability::Always, Durability::EverySecond][coins.below(2) as usize];
        let config = Config {
            durability,
            pace: Pace::Idle,
            batch: 3,
            hold: 0,
            rounds: 1 + coins.below(4) as usize,
            round_batches: 1 + coins.below(8),
            deadline_us: u64::MAX / 2,
            barrier_us: 20_000,
            checkpoint_bytes: 500 + u64::from(coins.below(5000)),
        };
        let capacity = 2 + coins.below(20);
        let named = coins.below(capacity.min(6) + 1) as u8;
        Self { coins, seed, limits: Limits { named, capacity }, config, cipher: cipher.clone(), written: 0 }
    }

    fn scheme(&mut self) -> Box<dyn Scheme> {
        let params = Params { store: "sim".into(), capacity: self.limits.capacity, batch: 3, value_limit: VALUE_LIMIT };
        let weights: Vec<(Key, u64)> = (0..self.limits.named).map(|n| (key(n), 1000 / (u64::from(n) + 1))).collect();
        Box::new(Pancake::new(params, self.cipher.clone(), &weights, Coins::seeded(self.coins.bits())).unwrap())
    }

    fn start(&mut self, disk: SimDisk, store: SimStore, now: Now) -> World {
        let scheme = self.scheme();
        let incarnation = self.coins.bits();
        World::start(self.config.clone(), disk, store, scheme, incarnation, now)
    }

    fn value(&mut self) -> Bytes {
        self.written += 1;
        format!("{}.", self.written).into()
    }

    fn single(&mut self) -> Op {
        let n = self.coins.below(self.limits.capacity + 3) as u8;
        match self.coins.below(10) {
            0..4 => Op::Get(n),
            4..8 => Op::Set(n, self.value()),
            8 => Op::Delete(n),
            _ if self.coins.below(3) == 0 => Op::Append(n, self.value().slice(..1)),
            _ => Op::Get(n),
        }
    }

    fn op(&mut self) -> Op {
        match self.coins.below(40) {
            0 => Op::Flush,
            1..6 => Op::Many((0..=self.coins.below(3)).map(|_| self.single()).collect()),
            _ => self.single(),
        }
    }

    fn check(&self, world: &mut World, candidates: &mut Candidates) {
        while let Some((id, reply)) = world.replies.pop_front() {
            let at = world.asked.iter().position(|(other, _)| *other == id).unwrap();
            assert_eq!(at, 0, "seed {}: replies out of order", self.seed);
            let (_, op) = world.asked.remove(at).unwrap();
            let answered = candidates.answered(&op, &reply);
            assert!(answered.is_ok(), "seed {}: {}", self.seed, answered.unwrap_err());
        }
    }

    fn settle(&mut self, world: &mut World, candidates: &mut Candidates) {
        for _ in 0..100_000 {
            if world.is_idle() && world.asked.is_empty() {
                return;
            }
            if !world.step(self.coins.below(1000) as usize) {
                world.pass(5_000);
            }
            self.check(world, candidates);
        }
        panic!("seed {}: requests wait for ever", self.seed);
    }

    fn go(&mut self) {
        let mut candidates = Candidates::new(self.limits);
        let mut world = self.start(SimDisk::default(), SimStore::default(), Now::default());
        for _ in 0..150 {
            match self.coins.below(100) {
                0..30 => {
                    let ops = (0..=self.coins.below(4)).map(|_| self.op()).collect();
                    world.ask(ops);
                }
                30..92 => {
                    if !world.step(self.coins.below(1000) as usize) {
                        world.pass(3_000);
                    }
                }
                92..95 => world.pass(u64::from(self.coins.below(30_000))),
                95 => world.disconnect(self.coins.below(4) as usize, None),
                96 => world.disconnect(self.coins.below(4) as usize, Some(f64::from(self.coins.below(101)) / 100.0)),
                97 => {
                    self.settle(&mut world, &mut candidates);
                    let now = world.now();
                    let (disk, store) = world.close();
                    world = self.start(disk, store, now);
                }
                _ => {
                    self.check(&mut world, &mut candidates);
                    let now = world.now();
                    let (disk, mut store, under_way) = world.kill(self.coins.below(4) as usize);
                    if self.coins.below(3) == 0 {
                        let kept = store.position() * self.coins.below(101) as usize / 100;
                        store.restart(kept);
                    }
                    candidates.crashed(&under_way);
                    world = self.start(disk, store, now);
                }
            }
            self.check(&mut world, &mut candidates);
        }
        self.settle(&mut world, &mut candidates);
        world.ask((0..self.limits.capacity as u8 + 3).map(Op::Get).collect());
        self.settle(&mut world, &mut candidates);
        assert_eq!(world.status().integrity_failures, 0, "seed {}: a false alarm", self.seed);
    }
}

fn cipher() -> BlockCipher {
    let master = MasterKey::from_bytes([7; 32]);
    let payload = Pancake::payload_limit(VALUE_LIMIT);
    BlockCipher::new(&master, &EpochSecret::generate(), StoreId([1; 16]), 0, SchemeTag::PANCAKE, payload).unwrap()
}

/// Seeds from `MILLPOND_SEEDS` (a count, default 10,000), on two threads.
#[test]
fn nothing_acknowledged_is_lost() {
    let seeds: u64 = std::env::var("MILLPOND_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(10_000);
    let cipher = cipher();
    std::thread::scope(|scope| {
        for half in 0..2 {
            let cipher = &cipher;
            scope.spawn(move || (0..seeds).filter(|s| s % 2 == half).for_each(|seed| Run::new(seed, cipher).go()));
        }
    });
}
