//! The keys the proxy knows: their numbers, weights, and which of them exist.
//!
//! A key is *named* (by the distribution: it has slots for ever), or not; *live* (has a record) or dead; it has slots
//! (by the layout) or is *staged* (its record waits in the update cache for the next table refresh).

use super::tables::KeyId;
use crate::wire::{Reader, put_bytes};
use bytes::{BufMut, BytesMut};
use hashbrown::HashTable;
use millpond_core::{Key, SchemeError};
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};

#[derive(Clone)]
struct Entry {
    name: Box<[u8]>,
    /// 0: the number is free.
    weight: u64,
    named: bool,
    live: bool,
    staged: bool,
    /// 0: never.
    expires_at_ms: u64,
}

/// All keys.
pub struct Directory {
    entries: Vec<Entry>,
    numbers: HashTable<KeyId>,
    hasher: RandomState,
    free: Vec<KeyId>,
    capacity: u32,
    /// Keys that count against the capacity: the named ones, and the live ones.
    held: u32,
    live: u32,
    /// Dead keys with slots that are not named.
    dead: BTreeSet<KeyId>,
    staged: BTreeSet<KeyId>,
    expiring: BTreeSet<(u64, KeyId)>,
    /// Weight of a key the distribution does not name.
    default_weight: u64,
}

impl Directory {
    /// Without a key. `default_weight` is that of keys the distribution does not name.
    pub fn new(capacity: u32, default_weight: u64) -> Self {
        Self {
            entries: Vec::new(),
            numbers: HashTable::new(),
            hasher: RandomState::new(),
            free: Vec::new(),
            capacity,
            held: 0,
            live: 0,
            dead: BTreeSet::new(),
            staged: BTreeSet::new(),
            expiring: BTreeSet::new(),
            default_weight: default_weight.max(1),
        }
    }

    /// A key's number.
    pub fn find(&self, key: &[u8]) -> Option<KeyId> {
        let hash = self.hasher.hash_one(key);
        self.numbers.find(hash, |&id| &*self.entries[id as usize].name == key).copied()
    }

    /// Adds a key that the distribution names.
    pub fn add_named(&mut self, key: &Key, weight: u64) -> KeyId {
        let id = self.next_id();
        self.insert(id, Entry { named: true, ..Entry::new(key.as_bytes(), weight) });
        self.held += 1;
        id
    }

    /// The number the next new key gets.
    pub fn next_id(&self) -> KeyId {
        self.free.last().copied().unwrap_or(self.entries.len() as KeyId)
    }

    /// Adds a staged key under `id`, which must be free.
    pub fn add_staged(&mut self, id: KeyId, key: &[u8]) {
        self.insert(id, Entry { staged: true, ..Entry::new(key, self.default_weight) });
        self.staged.insert(id);
    }

    fn insert(&mut self, id: KeyId, entry: Entry) {
        if self.free.last() == Some(&id) {
            self.free.pop();
        } else {
            self.free.retain(|&f| f != id);
        }
        while self.entries.len() <= id as usize {
            if self.entries.len() < id as usize {
                self.free.push(self.entries.len() as KeyId);
            }
            self.entries.push(Entry::new(&[], 0));
        }
        let hash = self.hasher.hash_one(&*entry.name);
        self.entries[id as usize] = entry;
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.numbers.insert_unique(hash, id, |&k| hasher.hash_one(&*entries[k as usize].name));
    }

    /// Removes a key: it has neither record nor slots.
    pub fn remove(&mut self, id: KeyId) {
        self.set_live(id, false, 0);
        let entry = &mut self.entries[id as usize];
        if let Ok(found) = self.numbers.find_entry(self.hasher.hash_one(&*entry.name), |&k| k == id) {
            found.remove();
        }
        *entry = Entry::new(&[], 0);
        self.dead.remove(&id);
        self.staged.remove(&id);
        self.free.push(id);
    }

    /// Whether there is room for another `keys` live keys that are not named.
    pub fn has_room(&self, keys: u32) -> bool {
        self.held + keys <= self.capacity
    }

    /// Whether making this key live takes room.
    pub fn needs_room(&self, key: &[u8]) -> bool {
        self.find(key).is_none_or(|id| !self.entries[id as usize].named && !self.entries[id as usize].live)
    }

    /// A key's record came, changed or went.
    pub fn set_live(&mut self, id: KeyId, live: bool, expires_at_ms: u64) {
        let entry = &mut self.entries[id as usize];
        if entry.expires_at_ms != 0 {
            self.expiring.remove(&(entry.expires_at_ms, id));
        }
        entry.expires_at_ms = if live { expires_at_ms } else { 0 };
        if entry.expires_at_ms != 0 {
            self.expiring.insert((expires_at_ms, id));
        }
        if entry.live == live {
            return;
        }
        entry.live = live;
        let (named, staged) = (entry.named, entry.staged);
        if live {
            self.live += 1;
            self.held += u32::from(!named);
            self.dead.remove(&id);
        } else {
            self.live -= 1;
            self.held -= u32::from(!named);
            if !named && !staged {
                self.dead.insert(id);
            }
        }
    }

    /// A staged key has slots now.
    pub fn settle(&mut self, id: KeyId) {
        self.entries[id as usize].staged = false;
        self.staged.remove(&id);
        if !self.is_live(id) {
            self.dead.insert(id);
        }
    }

    /// A key with slots has lost them, but it is live again: it is staged.
    pub fn restage(&mut self, id: KeyId) {
        self.entries[id as usize].staged = true;
        self.staged.insert(id);
    }

    /// Marks what has expired as dead.
    pub fn expire(&mut self, now_ms: u64) {
        while let Some(&(at, id)) = self.expiring.first().filter(|&&(at, _)| at <= now_ms) {
            self.expiring.remove(&(at, id));
            self.set_live(id, false, 0);
        }
    }

    /// Every key's record is gone.
    pub fn flush(&mut self) {
        for id in 0..self.entries.len() as KeyId {
            if self.is_live(id) {
                self.set_live(id, false, 0);
            }
        }
    }

    /// Whether there is a key of this number.
    pub fn knows(&self, id: KeyId) -> bool {
        self.entries.get(id as usize).is_some_and(|e| e.weight > 0)
    }

    /// Whether a key has a record.
    pub fn is_live(&self, id: KeyId) -> bool {
        self.entries[id as usize].live
    }

    /// Whether a key is staged.
    pub fn is_staged(&self, id: KeyId) -> bool {
        self.entries[id as usize].staged
    }

    /// A key's weight.
    pub fn weight(&self, id: KeyId) -> u64 {
        self.entries[id as usize].weight
    }

    /// Staged keys.
    pub fn staged(&self) -> &BTreeSet<KeyId> {
        &self.staged
    }

    /// Dead keys with slots that are not named.
    pub fn dead(&self) -> &BTreeSet<KeyId> {
        &self.dead
    }

    /// Number of live keys.
    pub fn live(&self) -> u32 {
        self.live
    }

    /// Number of keys with a time to live.
    pub fn expiring(&self) -> usize {
        self.expiring.len()
    }

    /// A copy that writes itself out for [`Directory::read`].
    pub fn freeze(&self) -> impl FnOnce(&mut BytesMut) + Send + use<> {
        let (entries, default_weight) = (self.entries.clone(), self.default_weight);
        move |out| {
            out.put_u64_le(default_weight);
            out.put_u32_le(entries.len() as u32);
            for e in entries {
                out.put_u64_le(e.weight);
                out.put_u8(u8::from(e.named) | u8::from(e.live) << 1 | u8::from(e.staged) << 2);
                out.put_u64_le(e.expires_at_ms);
                put_bytes(out, &e.name);
            }
        }
    }

    /// Replaces everything by what [`Directory::freeze`] wrote.
    pub fn read(&mut self, from: &mut Reader) -> Result<(), SchemeError> {
        *self = Self::new(self.capacity, from.u64()?);
        for id in 0..from.u32()? {
            let (weight, flags, expires_at_ms, name) = (from.u64()?, from.u8()?, from.u64()?, from.bytes()?);
            if weight == 0 {
                self.entries.push(Entry::new(&[], 0));
                self.free.push(id);
                continue;
            }
            let (named, live, staged) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
            self.insert(id, Entry { named, staged, ..Entry::new(&name, weight) });
            self.held += u32::from(named);
            if live {
                self.set_live(id, true, expires_at_ms);
            }
            if staged {
                self.staged.insert(id);
            } else if !named && !live {
                self.dead.insert(id);
            }
        }
        Ok(())
    }
}

impl Entry {
    fn new(name: &[u8], weight: u64) -> Self {
        Self { name: name.into(), weight, named: false, live: false, staged: false, expires_at_ms: 0 }
    }
}
