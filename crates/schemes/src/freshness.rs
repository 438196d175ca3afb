//! Which versions of a slot's block are acceptable (security.md, *Freshness*).
//!
//! A block's version is its incarnation and a counter. The counter counts rounds and never falls; each incarnation
//! starts 2^32 further on, so that blocks written in a lost tail of the journal can be told from later ones.
//! A slot's block must be at least as new as `low`: normally the version last acknowledged, and after an unclean stop of
//! the proxy or the store the version at the last barrier, until that slot's next write is acknowledged.

use crate::wire::Reader;
use bytes::{BufMut, BytesMut};
use millpond_core::SchemeError;
use std::collections::{HashMap, VecDeque};

/// Distance between the counters of two incarnations.
const STRIDE: u64 = 1 << 32;

/// How a block's version compares with what is known of its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// The one last acknowledged, or an older one from within the open window.
    Known,
    /// Newer than the journal knows: written before a power loss took the journal's tail.
    Newer,
    /// Replayed, rolled back, or of an incarnation that never was.
    Rejected,
}

/// Versions of all slots.
pub struct Freshness {
    /// Counter of the last acknowledged write of each slot.
    acknowledged: Vec<u64>,
    /// Where a window is open: the oldest acceptable counter.
    low: HashMap<u32, u64>,
    /// First counter and id of each incarnation, ascending.
    incarnations: Vec<(u64, u64)>,
    counter: u64,
    /// Writes acknowledged since the last completed barrier: the round's counter, and each slot with its `low` before.
    undo: VecDeque<(u64, Vec<(u32, u64)>)>,
}

impl Freshness {
    /// For slots that were never written.
    pub fn new(slots: u32) -> Self {
        Self {
            acknowledged: vec![0; slots as usize],
            low: HashMap::new(),
            incarnations: Vec::new(),
            counter: 0,
            undo: VecDeque::new(),
        }
    }

    /// Starts an incarnation; returns its first counter.
    pub fn begin(&mut self, id: u64) -> u64 {
        let first = (self.counter / STRIDE + 1) * STRIDE;
        self.begin_at(id, first);
        first
    }

    /// Repeats [`Freshness::begin`] from the journal.
    pub fn begin_at(&mut self, id: u64, first: u64) {
        self.incarnations.push((first, id));
        self.counter = first;
    }

    /// The current incarnation's id.
    pub fn incarnation(&self) -> u64 {
        self.incarnations.last().map_or(0, |&(_, id)| id)
    }

    /// The counter for the next round.
    pub fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    /// The counter last given out.
    pub fn counter(&self) -> u64 {
        self.counter
    }

    /// Repeats [`Freshness::next`] from the journal.
    pub fn reached(&mut self, counter: u64) {
        self.counter = self.counter.max(counter);
    }

    /// Judges a block's version.
    pub fn judge(&self, slot: u32, incarnation: u64, counter: u64) -> Age {
        let known = self.acknowledged[slot as usize];
        let era = self.incarnations.partition_point(|&(first, _)| first <= counter);
        let genuine = era > 0 && self.incarnations[era - 1].1 == incarnation;
        if !genuine || counter < self.low.get(&slot).copied().unwrap_or(known) {
            Age::Rejected
        } else if counter > known {
            Age::Newer
        } else {
            Age::Known
        }
    }

    /// A round's writes are acknowledged.
    pub fn acknowledge(&mut self, counter: u64, slots: impl Iterator<Item = u32>) {
        let mut before = Vec::with_capacity(slots.size_hint().0);
        for slot in slots {
            let known = &mut self.acknowledged[slot as usize];
            if *known < counter {
                before.push((slot, self.low.remove(&slot).unwrap_or(*known)));
                *known = counter;
            }
        }
        self.undo.push_back((counter, before));
    }

    /// All slots were written afresh, and are durable.
    pub fn initialised(&mut self, counter: u64) {
        self.acknowledged.fill(counter);
        self.low.clear();
        self.undo.clear();
    }

    /// Counter of the last acknowledged round that no barrier covers yet.
    pub fn last_acknowledged(&self) -> Option<u64> {
        self.undo.back().map(|&(counter, _)| counter)
    }

    /// A barrier covers everything up to `counter`.
    pub fn synced(&mut self, counter: u64) {
        while self.undo.front().is_some_and(|&(c, _)| c <= counter) {
            self.undo.pop_front();
        }
    }

    /// The store may have fallen back to the last barrier: opens the windows.
    pub fn rolled_back(&mut self) {
        while let Some((_, slots)) = self.undo.pop_back() {
            for (slot, before) in slots {
                self.low.insert(slot, before);
            }
        }
    }

    /// Writes the state, as if the rounds in flight were acknowledged and then everything rolled back, for
    /// [`Freshness::read`].
    pub fn freeze(&self, in_flight: &[(u64, Vec<u32>)]) -> impl FnOnce(&mut BytesMut) + Send + use<> {
        let (mut low, mut acknowledged) = (self.low.clone(), self.acknowledged.clone());
        for (counter, slots) in in_flight {
            for &slot in slots {
                low.entry(slot).or_insert(acknowledged[slot as usize]);
                acknowledged[slot as usize] = *counter;
            }
        }
        for (_, slots) in self.undo.iter().rev() {
            low.extend(slots.iter().copied());
        }
        let (incarnations, counter) = (self.incarnations.clone(), self.counter);
        move |out| {
            out.put_u64_le(counter);
            out.put_u32_le(incarnations.len() as u32);
            for (first, id) in incarnations {
                out.put_u64_le(first);
                out.put_u64_le(id);
            }
            out.put_u32_le(acknowledged.len() as u32);
            acknowledged.iter().for_each(|&c| out.put_u64_le(c));
            out.put_u32_le(low.len() as u32);
            for (slot, counter) in low {
                out.put_u32_le(slot);
                out.put_u64_le(counter);
            }
        }
    }

    /// Reads what [`Freshness::freeze`] wrote.
    pub fn read(&mut self, from: &mut Reader) -> Result<(), SchemeError> {
        self.counter = from.u64()?;
        self.incarnations =
            (0..from.u32()?).map(|_| Ok((from.u64()?, from.u64()?))).collect::<Result<_, SchemeError>>()?;
        if from.u32()? as usize != self.acknowledged.len() {
            return Err(SchemeError("the checkpoint is of a store with another capacity".into()));
        }
        for slot in &mut self.acknowledged {
            *slot = from.u64()?;
        }
        self.low = (0..from.u32()?).map(|_| Ok((from.u32()?, from.u64()?))).collect::<Result<_, SchemeError>>()?;
        if self.low.keys().any(|&slot| slot as usize >= self.acknowledged.len()) {
            return Err(SchemeError("the checkpoint names a slot that does not exist".into()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_opens_to_the_barrier_and_closes_at_the_first_write() {
        let mut f = Freshness::new(2);
        let start = f.begin(7);
        f.initialised(start);
        let first = f.next();
        f.acknowledge(first, [0, 0].into_iter());
        f.synced(first);
        let second = f.next();
        f.acknowledge(second, [0].into_iter());
        assert_eq!(f.judge(0, 7, second), Age::Known);
        assert_eq!(f.judge(0, 7, first), Age::Rejected);
        assert_eq!(f.judge(1, 7, start), Age::Known);
        f.rolled_back();
        assert_eq!(f.judge(0, 7, first), Age::Known);
        assert_eq!(f.judge(0, 7, start), Age::Rejected, "older than the barrier");
        assert_eq!(f.judge(0, 8, second), Age::Rejected, "not an incarnation of ours");
        let next = f.begin(8);
        assert_eq!(f.judge(0, 7, second + 5), Age::Newer, "from the journal's lost tail");
        assert_eq!(f.judge(0, 7, next), Age::Rejected, "the old incarnation ends where the next begins");
        let third = f.next();
        f.acknowledge(third, [0].into_iter());
        assert_eq!(f.judge(0, 7, second), Age::Rejected);
        // A second fall goes back as far as the first could.
        f.rolled_back();
        assert_eq!(f.judge(0, 7, first), Age::Known);
    }
}
