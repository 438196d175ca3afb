//! The update cache: the newest record of each key that some of its slots do not hold yet (paper §4.2, *Supporting writes*).
//!
//! Invariant: a slot whose stored block may not be its owner's newest record, now or after the store falls back to its
//! last barrier, is pending here, or its strike is still in `undo`, which keeps the entry. An entry of a key without
//! slots (a staged one) stays until it gets some.

use super::tables::{KeyId, Layout, NOBODY, Slot};
use bytes::Bytes;
use std::collections::{HashMap, HashSet, VecDeque};

/// The newest record of a key, and which of its slots lack it.
#[derive(Clone)]
pub struct Entry {
    /// The encoded record; empty: the key does not exist.
    pub payload: Bytes,
    /// The record's sequence number.
    pub seq: u64,
    /// One bit for each of the key's slots, in the layout's order: 1 if it lacks the record.
    pending: Vec<u64>,
    /// Number of ones in `pending`.
    left: u32,
    /// Slots struck off since the last completed barrier.
    unsynced: u32,
}

/// A slot that now holds a record.
#[derive(Clone, Copy, Debug)]
pub struct Strike {
    pub key: KeyId,
    pub seq: u64,
    pub slot: Slot,
}

/// All entries.
#[derive(Default)]
pub struct UpdateCache {
    entries: HashMap<KeyId, Entry>,
    /// Strikes acknowledged since the last completed barrier, by their round's counter.
    undo: VecDeque<(u64, Vec<Strike>)>,
    /// Entries without a pending slot that no strike in `undo` will end: looked at when the next barrier completes.
    settled: Vec<KeyId>,
    bytes: u64,
    peak: usize,
}

fn all_ones(count: usize) -> Vec<u64> {
    let mut bits = vec![u64::MAX; count.div_ceil(64)];
    if let Some(last) = bits.last_mut().filter(|_| !count.is_multiple_of(64)) {
        *last = (1 << (count % 64)) - 1;
    }
    bits
}

impl Entry {
    /// Whether the key's `replica`th slot lacks the record.
    fn is_pending(&self, replica: u32) -> bool {
        self.pending.get(replica as usize / 64).is_some_and(|word| word >> (replica % 64) & 1 == 1)
    }

    fn set(&mut self, replica: u32, pending: bool) {
        if self.is_pending(replica) != pending
            && let Some(word) = self.pending.get_mut(replica as usize / 64)
        {
            *word ^= 1 << (replica % 64);
            if pending { self.left += 1 } else { self.left -= 1 }
        }
    }
}

impl UpdateCache {
    /// A key's entry.
    pub fn get(&self, key: KeyId) -> Option<&Entry> {
        self.entries.get(&key)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of the records.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The largest `len` so far.
    pub fn peak(&self) -> usize {
        self.peak
    }

    /// Whether a slot lacks its owner's newest record.
    pub fn is_pending(&self, layout: &Layout, slot: Slot) -> bool {
        let (owner, replica) = layout.owner(slot);
        owner != NOBODY && self.entries.get(&owner).is_some_and(|e| e.is_pending(replica))
    }

    /// A key has a new record: none of its slots holds it.
    pub fn put(&mut self, layout: &Layout, key: KeyId, seq: u64, payload: Bytes) {
        let replicas = layout.slots(key).len();
        self.bytes += payload.len() as u64;
        let entry = Entry { payload, seq, pending: all_ones(replicas), left: replicas as u32, unsynced: 0 };
        if let Some(old) = self.entries.insert(key, entry) {
            self.bytes -= old.payload.len() as u64;
        }
        self.peak = self.peak.max(self.entries.len());
    }

    /// Drops a key's entry, whatever its state: the key leaves the layout or never was in it.
    pub fn forget(&mut self, key: KeyId) {
        if let Some(old) = self.entries.remove(&key) {
            self.bytes -= old.payload.len() as u64;
        }
    }

    /// Drops all entries but those of keys that are `kept`, which become tombstones with sequence number `seq`.
    pub fn flush(&mut self, layout: &Layout, seq: u64, kept: impl Iterator<Item = KeyId>) {
        self.entries.clear();
        self.bytes = 0;
        kept.for_each(|key| self.put(layout, key, seq, Bytes::new()));
    }

    /// A round's writes are acknowledged: its strikes count.
    pub fn acknowledge(&mut self, layout: &Layout, counter: u64, strikes: Vec<Strike>) {
        let strikes: Vec<_> = strikes.into_iter().filter(|&s| self.strike(layout, s)).collect();
        self.undo.push_back((counter, strikes));
    }

    /// Strikes a slot off, if it is still pending for just this record.
    fn strike(&mut self, layout: &Layout, strike: Strike) -> bool {
        let (owner, replica) = layout.owner(strike.slot);
        let entry = self.entries.get_mut(&strike.key).filter(|e| owner == strike.key && e.seq == strike.seq);
        let Some(entry) = entry.filter(|e| e.is_pending(replica)) else { return false };
        entry.set(replica, false);
        entry.unsynced += 1;
        true
    }

    /// A barrier covers everything up to `counter`: entries that all slots hold for good end, unless `pinned`.
    pub fn synced(&mut self, layout: &Layout, counter: u64, pinned: impl Fn(KeyId) -> bool) {
        let mut settled = std::mem::take(&mut self.settled);
        while let Some((_, strikes)) = self.undo.pop_front_if(|(c, _)| *c <= counter) {
            for strike in strikes {
                if let Some(entry) = self.entries.get_mut(&strike.key).filter(|e| e.seq == strike.seq) {
                    entry.unsynced = entry.unsynced.saturating_sub(1);
                    settled.push(strike.key);
                }
            }
        }
        for key in settled {
            let Some(entry) = self.entries.get(&key).filter(|e| e.left == 0 && e.unsynced == 0) else { continue };
            if pinned(key) || layout.slots(key).is_empty() {
                self.settled.push(key);
            } else {
                self.bytes -= entry.payload.len() as u64;
                self.entries.remove(&key);
            }
        }
    }

    /// The store may have fallen back to the last barrier: what was struck off since is pending again.
    pub fn rolled_back(&mut self, layout: &Layout) {
        for (_, strikes) in std::mem::take(&mut self.undo) {
            for strike in strikes {
                let (owner, replica) = layout.owner(strike.slot);
                if let Some(entry) = self.entries.get_mut(&strike.key).filter(|_| owner == strike.key) {
                    entry.set(replica, true);
                    entry.unsynced = 0;
                }
            }
        }
    }

    /// The layout changes: pending slots a key keeps stay pending, slots it gains are pending.
    pub fn relayout(&mut self, old: &Layout, new: &Layout) {
        for (&key, entry) in &mut self.entries {
            let (before, after) = (old.slots(key), new.slots(key));
            if before == after {
                continue;
            }
            let still = |slot: &Slot| before.binary_search(slot).map_or(true, |i| entry.is_pending(i as u32));
            let pending: Vec<bool> = after.iter().map(still).collect();
            (entry.pending, entry.left) = (vec![0; after.len().div_ceil(64)], 0);
            for (i, _) in pending.iter().enumerate().filter(|&(_, &p)| p) {
                entry.set(i as u32, true);
            }
            if entry.left == 0 {
                self.settled.push(key);
            }
        }
    }

    /// A copy of the entries as they would be after [`UpdateCache::rolled_back`]: key, entry, and its pending slots.
    pub fn freeze(&self, layout: &Layout) -> Vec<(KeyId, u64, Bytes, Vec<Slot>)> {
        let strikes = self.undo.iter().flat_map(|(_, strikes)| strikes);
        let undone: HashSet<(KeyId, Slot)> = strikes.map(|s| (s.key, s.slot)).collect();
        let pending = |key: KeyId, entry: &Entry| {
            let slots = layout.slots(key).iter().enumerate();
            slots.filter(|&(i, &s)| entry.is_pending(i as u32) || undone.contains(&(key, s))).map(|(_, &s)| s).collect()
        };
        self.entries.iter().map(|(&k, e)| (k, e.seq, e.payload.clone(), pending(k, e))).collect()
    }

    /// Puts back an entry that [`UpdateCache::freeze`] copied.
    pub fn thaw(&mut self, layout: &Layout, key: KeyId, seq: u64, payload: Bytes, pending: &[Slot]) {
        self.put(layout, key, seq, payload);
        if let Some(entry) = self.entries.get_mut(&key) {
            (entry.pending, entry.left) = (vec![0; layout.slots(key).len().div_ceil(64)], 0);
            for &slot in pending {
                let (owner, replica) = layout.owner(slot);
                if owner == key {
                    entry.set(replica, true);
                }
            }
            if entry.left == 0 {
                self.settled.push(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tables::Edit;
    use super::*;

    fn layout(slots: &[Slot]) -> Layout {
        let gained = vec![(0, 1, slots.to_vec())];
        Layout::empty(50).edited(&Edit { gained, ..Edit::default() })
    }

    #[test]
    fn an_entry_ends_when_a_barrier_covers_its_last_strike() {
        let layout = layout(&[3, 70, 71]);
        let mut cache = UpdateCache::default();
        cache.put(&layout, 0, 1, Bytes::from_static(b"x"));
        let strike = |slot| Strike { key: 0, seq: 1, slot };
        cache.acknowledge(&layout, 10, vec![strike(3), strike(70)]);
        cache.acknowledge(&layout, 11, vec![strike(71), strike(71)]);
        cache.synced(&layout, 10, |_| false);
        assert_eq!(cache.len(), 1, "one strike is not durable yet");
        cache.rolled_back(&layout);
        assert!(!cache.is_pending(&layout, 3) && cache.is_pending(&layout, 71));
        cache.acknowledge(&layout, 12, vec![strike(71)]);
        cache.synced(&layout, 12, |_| false);
        assert_eq!((cache.len(), cache.bytes()), (0, 0));
    }

    #[test]
    fn a_strike_of_an_older_record_does_not_count() {
        let layout = layout(&[3]);
        let mut cache = UpdateCache::default();
        cache.put(&layout, 0, 1, Bytes::new());
        cache.put(&layout, 0, 2, Bytes::new());
        cache.acknowledge(&layout, 10, vec![Strike { key: 0, seq: 1, slot: 3 }]);
        cache.synced(&layout, 10, |_| false);
        assert!(cache.is_pending(&layout, 3));
    }

    #[test]
    fn a_refresh_keeps_what_is_pending_and_adds_what_is_gained() {
        let (old, new) = (layout(&[3, 4, 5]), layout(&[2, 4, 5]));
        let mut cache = UpdateCache::default();
        cache.put(&old, 0, 1, Bytes::new());
        cache.acknowledge(&old, 10, vec![Strike { key: 0, seq: 1, slot: 5 }]);
        cache.relayout(&old, &new);
        assert_eq!([2, 4, 5].map(|s| cache.is_pending(&new, s)), [true, true, false]);
    }
}
