//! What survives a restart, and the transitions on it. The running scheme and the replay of the journal share them, so
//! that recovery is the same program run again: replay acknowledges every journaled round, and then lets the store fall
//! back to its last barrier, which makes pending whatever may not have arrived.

use super::cache::{Strike, UpdateCache};
use super::directory::Directory;
use super::tables::{Edit, KeyId, Layout, NOBODY, Slot};
use crate::freshness::Freshness;
use crate::wire::{Reader, put_bytes, put_u32s};
use bytes::{BufMut, Bytes, BytesMut};
use millpond_core::{Record, SchemeError, Snapshot};
use std::sync::Arc;

/// A change to the key directory and the update cache.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// A key's newest record; an empty payload says that the key does not exist.
    Put { id: KeyId, seq: u64, payload: Bytes },
    /// A key nobody knew, which is staged.
    New { id: KeyId, seq: u64, payload: Bytes, name: Bytes },
    /// A staged key is gone without a trace.
    Forget { id: KeyId },
    /// All keys are gone: records up to `seq` count no more. Staged keys are forgotten, but for those in `kept`.
    Flush { seq: u64, kept: Vec<KeyId> },
}

/// A key that was written again while a refresh took its slots: it is staged, with its record.
pub struct Restaged {
    pub id: KeyId,
    pub seq: u64,
    pub payload: Bytes,
}

impl Restaged {
    fn put(&self, out: &mut BytesMut) {
        out.put_u32_le(self.id);
        out.put_u64_le(self.seq);
        put_bytes(out, &self.payload);
    }

    fn read(from: &mut Reader) -> Result<Self, SchemeError> {
        Ok(Self { id: from.u32()?, seq: from.u64()?, payload: Bytes::copy_from_slice(&from.bytes()?) })
    }
}

/// The durable state.
pub struct State {
    pub layout: Arc<Layout>,
    pub directory: Directory,
    pub cache: UpdateCache,
    pub freshness: Freshness,
    /// Records with this or a lower sequence number no longer exist.
    pub flushed: u64,
    pub next_seq: u64,
    /// Whether all slots were written once.
    pub initialised: bool,
}

const ROUND: u8 = 1;
const SWITCH: u8 = 2;
const BARRIER: u8 = 3;
const INCARNATION: u8 = 4;
const INITIALISED: u8 = 5;
const FORGET: u8 = 6;
const ROLLED_BACK: u8 = 7;

impl State {
    pub fn new(capacity: u32, default_weight: u64) -> Self {
        Self {
            layout: Arc::new(Layout::empty(capacity)),
            directory: Directory::new(capacity, default_weight),
            cache: UpdateCache::default(),
            freshness: Freshness::new(2 * capacity),
            flushed: 0,
            next_seq: 1,
            initialised: false,
        }
    }

    /// The next record's sequence number.
    pub fn take_seq(&mut self) -> u64 {
        self.next_seq += 1;
        self.next_seq - 1
    }

    /// Carries out a write.
    pub fn write(&mut self, write: &Write) {
        match write {
            Write::New { id, seq, payload, name } => {
                self.directory.add_staged(*id, name);
                self.put(*id, *seq, payload.clone());
            }
            Write::Put { id, seq, payload } => self.put(*id, *seq, payload.clone()),
            Write::Forget { id } => self.forget(*id),
            Write::Flush { seq, kept } => {
                self.flushed = *seq;
                self.next_seq = self.next_seq.max(seq + 1);
                let staged: Vec<_> = self.directory.staged().iter().copied().filter(|id| !kept.contains(id)).collect();
                staged.into_iter().for_each(|id| self.forget(id));
                self.directory.flush();
                self.cache.flush(&self.layout, *seq, kept.iter().copied());
            }
        }
    }

    fn put(&mut self, id: KeyId, seq: u64, payload: Bytes) {
        let expires_at_ms = Record::decode(&payload).ok().and_then(|r| r.expires_at_ms).unwrap_or(0);
        self.directory.set_live(id, !payload.is_empty(), expires_at_ms);
        self.cache.put(&self.layout, id, seq, payload);
        self.next_seq = self.next_seq.max(seq + 1);
    }

    /// Drops a key that has no slots.
    pub fn forget(&mut self, id: KeyId) {
        self.cache.forget(id);
        self.directory.remove(id);
    }

    /// The strike that writing `slot` now will earn, if its owner's newest record is pending there.
    pub fn strike(&self, slot: Slot) -> Option<Strike> {
        let (key, _) = self.layout.owner(slot);
        if key == NOBODY || !self.cache.is_pending(&self.layout, slot) {
            return None;
        }
        self.cache.get(key).map(|entry| Strike { key, seq: entry.seq, slot })
    }

    /// A round's writes are acknowledged.
    pub fn acknowledge(&mut self, counter: u64, slots: &[Slot], strikes: Vec<Strike>) {
        self.freshness.acknowledge(counter, slots.iter().copied());
        self.cache.acknowledge(&self.layout, counter, strikes);
    }

    /// A barrier covers all rounds up to `counter`.
    pub fn synced(&mut self, counter: u64, pinned: impl Fn(KeyId) -> bool) {
        self.freshness.synced(counter);
        self.cache.synced(&self.layout, counter, pinned);
    }

    /// The store may have fallen back to its last barrier.
    pub fn rolled_back(&mut self) {
        self.freshness.rolled_back();
        self.cache.rolled_back(&self.layout);
    }

    /// A refresh takes effect. `layout` is `self.layout` edited. Retired keys that are live again are in `restaged`,
    /// with their records; the others are forgotten.
    pub fn switch(&mut self, layout: Arc<Layout>, edit: &Edit, restaged: &[Restaged]) {
        self.cache.relayout(&self.layout, &layout);
        self.layout = layout;
        for &id in &edit.retired {
            if !restaged.iter().any(|r| r.id == id) {
                self.forget(id);
            }
        }
        for Restaged { id, seq, payload } in restaged {
            self.directory.restage(*id);
            self.cache.put(&self.layout, *id, *seq, payload.clone());
        }
        edit.gained.iter().for_each(|(id, _, _)| self.directory.settle(*id));
    }

    /// Applies one journal record.
    pub fn replay(&mut self, delta: &[u8]) -> Result<(), SchemeError> {
        let mut from = Reader(Bytes::copy_from_slice(delta));
        match from.u8()? {
            ROUND => self.replay_round(&mut from)?,
            SWITCH => {
                let edit = read_edit(&mut from)?;
                let restaged = (0..from.u32()?).map(|_| Restaged::read(&mut from)).collect::<Result<Vec<_>, _>>()?;
                self.check_edit(&edit)?;
                let layout = Arc::new(self.layout.edited(&edit));
                self.switch(layout, &edit, &restaged);
            }
            BARRIER => {
                let counter = from.u64()?;
                // Keeping what is pinned would need the pins: an entry that ended live may live on here, harmlessly.
                self.synced(counter, |_| false);
            }
            INCARNATION => {
                let (id, first) = (from.u64()?, from.u64()?);
                self.next_seq = from.u64()?;
                if from.u64()? == 0 {
                    self.rolled_back();
                }
                self.freshness.begin_at(id, first);
            }
            INITIALISED => {
                self.freshness.initialised(from.u64()?);
                self.initialised = true;
            }
            ROLLED_BACK => self.rolled_back(),
            FORGET => from.u32s()?.into_iter().for_each(|id| self.forget(id)),
            kind => return Err(unexpected(&format!("kind {kind}"))),
        }
        from.end()
    }

    fn replay_round(&mut self, from: &mut Reader) -> Result<(), SchemeError> {
        let counter = from.u64()?;
        self.freshness.reached(counter);
        let slots = from.u32s()?;
        if slots.iter().any(|&s| s >= self.layout.slot_count()) {
            return Err(unexpected("a slot beyond the capacity"));
        }
        let orphans = from.u32s()?;
        for _ in 0..from.u32()? {
            let write = read_write(from)?;
            self.check_write(&write)?;
            self.write(&write);
        }
        let strikes = slots.iter().enumerate().filter(|&(i, _)| !orphans.contains(&(i as u32)));
        let strikes = strikes.filter_map(|(_, &slot)| self.strike(slot)).collect();
        self.acknowledge(counter, &slots, strikes);
        Ok(())
    }

    fn check_write(&self, write: &Write) -> Result<(), SchemeError> {
        let known = |id: KeyId| self.directory.knows(id);
        let sound = match write {
            Write::New { id, name, .. } => {
                !known(*id) && self.directory.find(name).is_none() && *id <= self.layout.slot_count()
            }
            Write::Put { id, .. } | Write::Forget { id } => known(*id),
            Write::Flush { kept, .. } => kept.iter().all(|&id| known(id)),
        };
        if sound { Ok(()) } else { Err(unexpected("a write to a key that is not there")) }
    }

    fn check_edit(&self, edit: &Edit) -> Result<(), SchemeError> {
        let slots = edit.lost.iter().chain(edit.gained.iter().flat_map(|(_, _, slots)| slots));
        let keys = edit.retired.iter().chain(edit.gained.iter().map(|(id, _, _)| id));
        let sound =
            slots.copied().all(|s| s < self.layout.slot_count()) && keys.copied().all(|id| self.directory.knows(id));
        if sound { Ok(()) } else { Err(unexpected("a refresh of keys that are not there")) }
    }

    /// A frozen copy, as if the store had fallen back to its last barrier. `in_flight`: applied rounds whose writes are
    /// not acknowledged, by counter, with their slots.
    pub fn freeze(&self, in_flight: &[(u64, Vec<Slot>)]) -> Snapshot {
        let (layout, cache) = (Arc::clone(&self.layout), self.cache.freeze(&self.layout));
        let (directory, freshness) = (self.directory.freeze(), self.freshness.freeze(in_flight));
        let (flushed, next_seq, initialised) = (self.flushed, self.next_seq, self.initialised);
        Snapshot(Box::new(move |sink| {
            let mut out = BytesMut::new();
            out.put_u64_le(flushed);
            out.put_u64_le(next_seq);
            out.put_u8(u8::from(initialised));
            put_edit(&mut out, &layout.as_edit());
            directory(&mut out);
            freshness(&mut out);
            out.put_u32_le(cache.len() as u32);
            for (key, seq, payload, pending) in cache {
                out.put_u32_le(key);
                out.put_u64_le(seq);
                put_u32s(&mut out, &pending);
                put_bytes(&mut out, &payload);
                if out.len() > 1 << 20 {
                    sink.write_all(&out)?;
                    out.clear();
                }
            }
            sink.write_all(&out)
        }))
    }

    /// Takes over what [`State::freeze`] wrote.
    pub fn thaw(&mut self, snapshot: &[u8]) -> Result<(), SchemeError> {
        let mut from = Reader(Bytes::copy_from_slice(snapshot));
        (self.flushed, self.next_seq) = (from.u64()?, from.u64()?);
        self.initialised = from.u8()? != 0;
        let layout = read_edit(&mut from)?;
        self.directory.read(&mut from)?;
        self.check_edit(&layout)?;
        self.layout = Arc::new(Layout::empty(self.layout.slot_count() / 2).edited(&layout));
        self.freshness.read(&mut from)?;
        for _ in 0..from.u32()? {
            let (key, seq, pending, payload) = (from.u32()?, from.u64()?, from.u32s()?, from.bytes()?);
            if pending.iter().any(|&s| s >= self.layout.slot_count()) || !self.directory.knows(key) {
                return Err(unexpected("an entry of a key that is not there"));
            }
            self.cache.thaw(&self.layout, key, seq, Bytes::copy_from_slice(&payload), &pending);
        }
        from.end()
    }
}

fn unexpected(what: &str) -> SchemeError {
    SchemeError(format!("the journal or checkpoint is not this store's: {what}"))
}

/// A round: its slots as they were on the wire, which of them no longer belong to whom they were drawn for, and the writes.
pub fn round_delta(counter: u64, slots: &[Slot], orphans: &[u32], writes: &[Write]) -> Bytes {
    let mut out = BytesMut::with_capacity(32 + 4 * slots.len() + writes.iter().map(Write::size).sum::<usize>());
    out.put_u8(ROUND);
    out.put_u64_le(counter);
    put_u32s(&mut out, slots);
    put_u32s(&mut out, orphans);
    out.put_u32_le(writes.len() as u32);
    writes.iter().for_each(|w| put_write(&mut out, w));
    out.freeze()
}

pub fn switch_delta(edit: &Edit, restaged: &[Restaged]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(SWITCH);
    put_edit(&mut out, edit);
    out.put_u32_le(restaged.len() as u32);
    restaged.iter().for_each(|r| r.put(&mut out));
    out.freeze()
}

pub fn forget_delta(keys: &[KeyId]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(FORGET);
    put_u32s(&mut out, keys);
    out.freeze()
}

pub fn barrier_delta(counter: u64) -> Bytes {
    number_delta(BARRIER, &[counter])
}

/// The store restarted: barriers that come later do not cover what was acknowledged before.
pub fn rolled_back_delta() -> Bytes {
    number_delta(ROLLED_BACK, &[])
}

pub fn initialised_delta(counter: u64) -> Bytes {
    number_delta(INITIALISED, &[counter])
}

pub fn incarnation_delta(id: u64, first: u64, next_seq: u64, clean: bool) -> Bytes {
    number_delta(INCARNATION, &[id, first, next_seq, u64::from(clean)])
}

fn number_delta(kind: u8, numbers: &[u64]) -> Bytes {
    let mut out = BytesMut::with_capacity(33);
    out.put_u8(kind);
    numbers.iter().for_each(|&n| out.put_u64_le(n));
    out.freeze()
}

impl Write {
    fn size(&self) -> usize {
        match self {
            Self::Put { payload, .. } => 32 + payload.len(),
            Self::New { payload, name, .. } => 32 + payload.len() + name.len(),
            Self::Forget { .. } => 8,
            Self::Flush { kept, .. } => 16 + 4 * kept.len(),
        }
    }
}

fn put_write(out: &mut BytesMut, write: &Write) {
    match write {
        Write::Put { id, seq, payload } => {
            out.put_u8(1);
            out.put_u32_le(*id);
            out.put_u64_le(*seq);
            put_bytes(out, payload);
        }
        Write::New { id, seq, payload, name } => {
            out.put_u8(2);
            out.put_u32_le(*id);
            out.put_u64_le(*seq);
            put_bytes(out, payload);
            put_bytes(out, name);
        }
        Write::Forget { id } => {
            out.put_u8(3);
            out.put_u32_le(*id);
        }
        Write::Flush { seq, kept } => {
            out.put_u8(4);
            out.put_u64_le(*seq);
            put_u32s(out, kept);
        }
    }
}

fn read_write(from: &mut Reader) -> Result<Write, SchemeError> {
    let copy = |bytes: Bytes| Bytes::copy_from_slice(&bytes);
    Ok(match from.u8()? {
        1 => Write::Put { id: from.u32()?, seq: from.u64()?, payload: copy(from.bytes()?) },
        2 => Write::New { id: from.u32()?, seq: from.u64()?, payload: copy(from.bytes()?), name: from.bytes()? },
        3 => Write::Forget { id: from.u32()? },
        4 => Write::Flush { seq: from.u64()?, kept: from.u32s()? },
        kind => return Err(unexpected(&format!("a write of kind {kind}"))),
    })
}

fn put_edit(out: &mut BytesMut, edit: &Edit) {
    put_u32s(out, &edit.retired);
    put_u32s(out, &edit.lost);
    out.put_u32_le(edit.gained.len() as u32);
    for (id, weight, slots) in &edit.gained {
        out.put_u32_le(*id);
        out.put_u64_le(*weight);
        put_u32s(out, slots);
    }
}

fn read_edit(from: &mut Reader) -> Result<Edit, SchemeError> {
    let (retired, lost) = (from.u32s()?, from.u32s()?);
    let gained = (0..from.u32()?).map(|_| Ok((from.u32()?, from.u64()?, from.u32s()?)));
    Ok(Edit { retired, lost, gained: gained.collect::<Result<_, SchemeError>>()? })
}
