//! Who owns which slot, and the distributions accesses are drawn from (paper §4.1–4.2, Figure 2).
//!
//! Tables never change: a refresh builds new ones. The invariant of every table ever built is the paper's equation 1:
//! `δ·real(s) + (1−δ)·fake(s) = 1/2n` for every slot s; [`Tables::uniformity_error`] measures it.

use super::alias::Alias;
use crate::Coins;
use std::sync::Arc;

/// A slot: a place in the store. Its label is a PRF of it.
pub type Slot = u32;

/// A key's number in the proxy's directory.
pub type KeyId = u32;

/// No key: the owner of a dummy slot.
pub const NOBODY: KeyId = KeyId::MAX;

/// How far above `1/n` the threshold α' may rise, as `B / 2(1+ε)` with ε = 0.1: then B·δ ≥ 1.1 and the queue is stable.
pub const EPSILON: f64 = 0.1;

/// Which keys hold which slots. 4 bytes for a slot's owner, 4 for its place among the owner's, 4 for the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// The capacity n; there are 2n slots.
    capacity: u32,
    /// Owner of each slot, and which of the owner's replicas it is.
    owners: Vec<(KeyId, u32)>,
    /// Slots by key: those of key k are `slots[starts[k] .. starts[k+1]]`.
    slots: Vec<Slot>,
    starts: Vec<u32>,
    /// Estimated popularity of each key, in any unit; 0 for a key without slots.
    weights: Vec<u64>,
    /// Sum of `weights`.
    total: u128,
}

/// What a refresh changes in a layout. Journaled as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edit {
    /// Keys that give up all their slots.
    pub retired: Vec<KeyId>,
    /// Slots that keys give up while they keep others.
    pub lost: Vec<Slot>,
    /// Keys that receive slots, with their weight.
    pub gained: Vec<(KeyId, u64, Vec<Slot>)>,
}

/// R(k) = max(1, ⌈π̂(k)·n⌉), in integers.
pub fn replicas(weight: u64, total: u128, capacity: u32) -> u32 {
    let share = (u128::from(weight) * u128::from(capacity)).div_ceil(total.max(1));
    share.clamp(1, u128::from(capacity)) as u32
}

impl Layout {
    /// A store where every slot is a dummy.
    pub fn empty(capacity: u32) -> Self {
        Self {
            capacity,
            owners: vec![(NOBODY, 0); 2 * capacity as usize],
            slots: Vec::new(),
            starts: vec![0],
            weights: Vec::new(),
            total: 0,
        }
    }

    /// A key's slots; empty for one that is not in the layout.
    pub fn slots(&self, key: KeyId) -> &[Slot] {
        let at = |i: usize| self.starts.get(i).map_or(self.slots.len(), |&s| s as usize);
        &self.slots[at(key as usize)..at(key as usize + 1)]
    }

    /// A slot's owner and its place among the owner's slots.
    pub fn owner(&self, slot: Slot) -> (KeyId, u32) {
        self.owners[slot as usize]
    }

    /// Number of slots, 2n.
    pub fn slot_count(&self) -> u32 {
        2 * self.capacity
    }

    /// A key's weight.
    pub fn weight(&self, key: KeyId) -> u64 {
        self.weights.get(key as usize).copied().unwrap_or(0)
    }

    /// Keys that hold slots.
    pub fn keys(&self) -> impl Iterator<Item = KeyId> + '_ {
        (0..self.weights.len() as u32).filter(|&k| self.weights[k as usize] > 0)
    }

    /// The edit that makes this layout of an empty one.
    pub fn as_edit(&self) -> Edit {
        let gained = self.keys().map(|k| (k, self.weight(k), self.slots(k).to_vec())).collect();
        Edit { gained, ..Edit::default() }
    }

    /// The layout after an edit.
    #[must_use]
    pub fn edited(&self, edit: &Edit) -> Self {
        let mut owner: Vec<KeyId> = self.owners.iter().map(|&(k, _)| k).collect();
        let mut weights = self.weights.clone();
        let mut gone = vec![false; weights.len()];
        for &key in &edit.retired {
            gone[key as usize] = true;
            weights[key as usize] = 0;
        }
        for o in &mut owner {
            if *o != NOBODY && gone[*o as usize] {
                *o = NOBODY;
            }
        }
        for &slot in &edit.lost {
            owner[slot as usize] = NOBODY;
        }
        for (key, weight, slots) in &edit.gained {
            if weights.len() <= *key as usize {
                weights.resize(*key as usize + 1, 0);
            }
            weights[*key as usize] = *weight;
            for &slot in slots {
                owner[slot as usize] = *key;
            }
        }
        Self::index(self.capacity, &owner, weights)
    }

    /// Derives everything else from the owners and the weights (counting sort by owner).
    fn index(capacity: u32, owner: &[KeyId], weights: Vec<u64>) -> Self {
        let mut starts = vec![0u32; weights.len() + 1];
        for &k in owner.iter().filter(|&&k| k != NOBODY) {
            starts[k as usize + 1] += 1;
        }
        for k in 0..weights.len() {
            starts[k + 1] += starts[k];
        }
        let mut slots = vec![0; starts[weights.len()] as usize];
        let mut filled = vec![0u32; weights.len()];
        let mut owners = vec![(NOBODY, 0); owner.len()];
        for (slot, &k) in owner.iter().enumerate().filter(|&(_, &k)| k != NOBODY) {
            let replica = filled[k as usize];
            filled[k as usize] += 1;
            slots[(starts[k as usize] + replica) as usize] = slot as Slot;
            owners[slot] = (k, replica);
        }
        let total = weights.iter().map(|&w| u128::from(w)).sum();
        Self { capacity, owners, slots, starts, weights, total }
    }

    /// `max_s real(s)`, at least 1/n: the threshold α'.
    pub fn threshold(&self) -> f64 {
        let base = 1.0 / f64::from(self.capacity);
        self.keys().map(|k| self.real(k)).fold(base, f64::max)
    }

    /// real(s) for the slots of a key.
    fn real(&self, key: KeyId) -> f64 {
        self.weights[key as usize] as f64 / (self.total as f64 * self.slots(key).len() as f64)
    }

    /// Plans a refresh: `staged` keys receive slots, as many of the `dead` ones as possible lose theirs, and the others
    /// lose what they have too much. `alpha_max` bounds the threshold afterwards. (pancake.md, *Keys come and go*)
    ///
    /// Old keys only lose slots, since the records of those that would gain need not be known; the slack up to
    /// `alpha_max` takes what that leaves. Dead keys that don't fit into the slack keep their slots for now.
    pub fn plan(&self, staged: &[(KeyId, u64)], dead: &[KeyId], alpha_max: f64, coins: &mut Coins) -> Edit {
        let staged_weight: u128 = staged.iter().map(|&(_, w)| u128::from(w)).sum();
        let held = self.keys().count();
        let least = (held + staged.len()).saturating_sub(self.capacity as usize);
        let (mut fits, mut most) = (least.min(dead.len()), dead.len());
        while fits < most {
            let middle = fits + (most - fits).div_ceil(2);
            if self.threshold_without(&dead[..middle], staged_weight) <= alpha_max {
                fits = middle;
            } else {
                most = middle - 1;
            }
        }
        let retired = &dead[..fits];
        let mut gone = vec![false; self.weights.len()];
        retired.iter().for_each(|&k| gone[k as usize] = true);
        let total = self.total_without(retired, staged_weight);
        let (mut lost, mut free) = (Vec::new(), Vec::new());
        for (slot, &(owner, _)) in self.owners.iter().enumerate() {
            if owner == NOBODY || gone[owner as usize] {
                free.push(slot as Slot);
            }
        }
        for key in self.keys().filter(|&k| !gone[k as usize]) {
            let slots = self.slots(key);
            let keep = replicas(self.weight(key), total, self.capacity) as usize;
            if keep < slots.len() {
                let mut shuffled = slots.to_vec();
                coins.shuffle(&mut shuffled);
                lost.extend(shuffled.drain(keep..));
            }
        }
        free.extend(&lost);
        coins.shuffle(&mut free);
        let mut gained = Vec::with_capacity(staged.len());
        for &(key, weight) in staged {
            let wanted = replicas(weight, total, self.capacity) as usize;
            gained.push((key, weight, free.split_off(free.len().saturating_sub(wanted))));
        }
        Edit { retired: retired.to_vec(), lost, gained }
    }

    fn total_without(&self, retired: &[KeyId], staged_weight: u128) -> u128 {
        self.total - retired.iter().map(|&k| u128::from(self.weight(k))).sum::<u128>() + staged_weight
    }

    fn threshold_without(&self, retired: &[KeyId], staged_weight: u128) -> f64 {
        let total = self.total_without(retired, staged_weight);
        let mut gone = vec![false; self.weights.len()];
        retired.iter().for_each(|&k| gone[k as usize] = true);
        let real = |k: KeyId| {
            let held = (self.slots(k).len() as u32).min(replicas(self.weight(k), total, self.capacity));
            self.weight(k) as f64 / (total as f64 * f64::from(held))
        };
        self.keys().filter(|&k| !gone[k as usize]).map(real).fold(0.0, f64::max)
    }
}

/// A layout with the samplers that go with it.
pub struct Tables {
    /// Who owns what.
    pub layout: Arc<Layout>,
    /// Probability that an access is real.
    pub delta: f64,
    /// δ as a bound on 64 random bits.
    delta_bits: u64,
    real: Alias,
    fake: Alias,
    #[cfg(test)]
    distributions: (Vec<f64>, Vec<f64>),
}

impl Tables {
    /// Computes δ, real and fake for a layout, in O(n).
    pub fn new(layout: Arc<Layout>) -> Arc<Self> {
        Arc::new(Self::build(layout))
    }

    fn build(layout: Arc<Layout>) -> Self {
        let slots = f64::from(layout.slot_count());
        let alpha = layout.threshold();
        let delta = 1.0 / (slots * alpha);
        let empty = layout.total == 0;
        let real_of = |&(owner, _): &(KeyId, u32)| match owner {
            _ if empty => 1.0 / slots,
            NOBODY => 0.0,
            owner => layout.real(owner),
        };
        let real: Vec<f64> = layout.owners.iter().map(real_of).collect();
        let fake: Vec<f64> = real.iter().map(|r| ((alpha - r) / (slots * alpha - 1.0)).max(0.0)).collect();
        debug_assert!(identity_error(delta, &real, &fake) < 1e-12, "a table breaks the uniformity identity");
        Self {
            delta,
            delta_bits: (delta * 18_446_744_073_709_551_616.0) as u64,
            real: Alias::new(&real),
            fake: Alias::new(&fake),
            layout,
            #[cfg(test)]
            distributions: (real, fake),
        }
    }

    /// The same tables with a coin that is real `factor` times as often: for the tests that must notice.
    #[cfg(test)]
    pub fn biased(tables: &Arc<Self>, factor: f64) -> Arc<Self> {
        let mut biased = Self::build(Arc::clone(&tables.layout));
        biased.delta_bits = (biased.delta * factor * 18_446_744_073_709_551_616.0) as u64;
        Arc::new(biased)
    }

    /// Whether an access is real.
    pub fn flip(&self, coins: &mut Coins) -> bool {
        coins.bits() < self.delta_bits
    }

    /// A slot as a real access would draw it.
    pub fn draw_real(&self, coins: &mut Coins) -> Slot {
        self.real.draw(coins)
    }

    /// A slot for a fake access.
    pub fn draw_fake(&self, coins: &mut Coins) -> Slot {
        self.fake.draw(coins)
    }

    /// One of a key's slots; `None` if it has none.
    pub fn draw_replica(&self, key: KeyId, coins: &mut Coins) -> Option<Slot> {
        let slots = self.layout.slots(key);
        (!slots.is_empty()).then(|| slots[coins.below(slots.len() as u32) as usize])
    }
}

/// Largest `|δ·real(s) + (1−δ)·fake(s) − 1/2n|` relative to 1/2n, and how far `real` is from summing to one.
fn identity_error(delta: f64, real: &[f64], fake: &[f64]) -> f64 {
    let uniform = 1.0 / real.len() as f64;
    let worst =
        real.iter().zip(fake).map(|(r, f)| ((delta * r + (1.0 - delta) * f) / uniform - 1.0).abs()).fold(0.0, f64::max);
    // The sum is only as exact as adding 2n floats can be.
    let slack = real.len() as f64 * f64::EPSILON;
    worst.max(((real.iter().sum::<f64>() - 1.0).abs() - slack).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(weights: &[u64], capacity: u32, seed: u64) -> Layout {
        let layout = Layout::empty(capacity);
        let staged: Vec<_> = weights.iter().enumerate().map(|(k, &w)| (k as KeyId, w)).collect();
        layout.edited(&layout.plan(&staged, &[], 1.0, &mut Coins::seeded(seed)))
    }

    fn check(layout: &Layout, alpha_max: f64) {
        let tables = Tables::new(Arc::new(layout.clone()));
        let (real, fake) = &tables.distributions;
        assert!(identity_error(tables.delta, real, fake) < 1e-12);
        assert!((fake.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(layout.threshold() <= alpha_max * (1.0 + 1e-12));
        for key in layout.keys() {
            assert!(!layout.slots(key).is_empty());
            for (i, &slot) in layout.slots(key).iter().enumerate() {
                assert_eq!(layout.owner(slot), (key, i as u32));
            }
        }
    }

    /// The paper's Figure 1: (1/2, 1/3, 1/6) over a, b, c.
    #[test]
    fn figure_1() {
        let tables = Tables::new(Arc::new(named(&[3, 2, 1], 3, 7)));
        let (_, fake) = &tables.distributions;
        let layout = &tables.layout;
        assert_eq!([0, 1, 2].map(|k| layout.slots(k).len()), [2, 1, 1]);
        assert_eq!((0..6).filter(|&s| layout.owner(s).0 == NOBODY).count(), 2);
        assert!((tables.delta - 0.5).abs() < 1e-15);
        let of = |k: KeyId| layout.slots(k).iter().map(|&s| fake[s as usize]).collect::<Vec<_>>();
        let dummies = (0..6).filter(|&s| layout.owner(s).0 == NOBODY).map(|s| fake[s as usize]).collect();
        let close = |got: Vec<f64>, want: &[f64]| {
            assert!(got.len() == want.len() && got.iter().zip(want).all(|(g, w)| (g - w).abs() < 1e-15), "{got:?}");
        };
        close(of(0), &[1.0 / 12.0, 1.0 / 12.0]);
        close(of(1), &[0.0]);
        close(of(2), &[1.0 / 6.0]);
        close(dummies, &[1.0 / 3.0, 1.0 / 3.0]);
    }

    #[test]
    fn the_identity_holds_for_every_table_of_a_store_that_fills_and_empties() {
        for seed in 0..40 {
            let mut coins = Coins::seeded(seed);
            let n = 1 + coins.below(60);
            let alpha_max = 3.0 / (2.0 * f64::from(n) * (1.0 + EPSILON));
            let mut layout = Layout::empty(n);
            check(&layout, alpha_max);
            let (mut live, mut dead, mut next) = (Vec::new(), Vec::new(), 0);
            for _ in 0..60 {
                let room = n - live.len() as u32;
                let staged: Vec<(KeyId, u64)> = (0..coins.below(room + 1)).map(|i| (next + i, 1000)).collect();
                next += staged.len() as u32;
                for _ in 0..coins.below(live.len() as u32 + 1) / 2 {
                    let victim = coins.below(live.len() as u32) as usize;
                    dead.push(live.swap_remove(victim));
                }
                let edit = layout.plan(&staged, &dead, alpha_max, &mut coins);
                dead.retain(|k| !edit.retired.contains(k));
                layout = layout.edited(&edit);
                live.extend(staged.iter().map(|&(k, _)| k));
                check(&layout, alpha_max);
                assert!(layout.keys().count() <= n as usize);
                assert!(live.iter().chain(&dead).all(|&k| !layout.slots(k).is_empty()));
            }
        }
    }

    #[test]
    fn slots_are_assigned_at_random() {
        let first: Vec<_> = (0..200).map(|seed| named(&[1; 8], 8, seed).slots(3)[0]).collect();
        let mut seen = [0; 16];
        first.iter().for_each(|&s| seen[s as usize] += 1);
        assert!(seen.iter().all(|&c| c > 0 && c < 40), "{seen:?}");
    }

    #[test]
    fn replica_counts_are_exact() {
        assert_eq!(replicas(1, 3, 3), 1);
        assert_eq!(replicas(2, 3, 3), 2);
        assert_eq!(replicas(1, u128::from(u64::MAX), 5), 1);
        assert_eq!(replicas(u64::MAX, u128::from(u64::MAX), 1 << 20), 1 << 20);
    }
}
