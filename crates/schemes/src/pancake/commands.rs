//! Requests on their way: the queue of turns, and the functions they carry out on records.
//!
//! Turns are taken strictly in queue order, so a request whose last turn has come applies before every later one: per
//! key nothing overtakes. What a turn reads is kept until the request's last turn.

use super::Pancake;
use super::state::Write;
use super::tables::KeyId;
use bytes::{Bytes, BytesMut};
use millpond_core::{Body, Change, Group, Item, Key, Now, Record, Reply, Request, RequestId, View};
use std::collections::{HashMap, VecDeque};

/// What a turn found.
#[derive(Clone)]
pub enum Found {
    /// The key's record, encoded; empty: there is none.
    Record(Bytes),
    /// The slot's block is not authentic, and nothing else is known of the record.
    Damaged(u32),
}

/// A request that has not been applied.
struct Pending {
    /// `None`: a flush.
    group: Option<Group>,
    found: Vec<Option<Found>>,
    turns_left: u32,
    cancelled: bool,
}

/// A place in the queue: one item of a request.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    pub request: RequestId,
    pub item: u32,
}

/// All requests that have not been applied.
#[derive(Default)]
pub struct Requests {
    pending: HashMap<RequestId, Pending>,
    queue: VecDeque<Turn>,
}

impl Requests {
    pub fn push(&mut self, request: Request) {
        let turns = request.body.cost();
        let id = request.id;
        let group = match request.body {
            Body::Group(group) => Some(group),
            Body::Flush => None,
        };
        self.queue.extend((0..turns).map(|item| Turn { request: id, item }));
        let found = vec![None; turns as usize];
        self.pending.insert(id, Pending { group, found, turns_left: turns, cancelled: false });
    }

    /// Turns that have not come.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// The next turn, and the key it is for (`None` for a flush).
    pub fn next(&mut self) -> Option<(Turn, Option<&Key>)> {
        let turn = self.queue.pop_front()?;
        let group = self.pending.get(&turn.request).and_then(|p| p.group.as_ref());
        Some((turn, group.and_then(|g| g.items.get(turn.item as usize)).map(|item| &item.key)))
    }

    /// Gives a request up; false if it has been applied.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        self.pending.get_mut(&id).map(|p| p.cancelled = true).is_some()
    }

    fn key(&self, turn: Turn) -> Option<&Key> {
        self.pending.get(&turn.request)?.group.as_ref()?.items.get(turn.item as usize).map(|item| &item.key)
    }

    /// Keeps what a turn found; returns the request if this was its last turn.
    fn found(&mut self, turn: Turn, found: Found) -> Option<Pending> {
        let pending = self.pending.get_mut(&turn.request)?;
        if let Some(place) = pending.found.get_mut(turn.item as usize) {
            *place = Some(found);
        }
        pending.turns_left -= 1;
        if pending.turns_left == 0 { self.pending.remove(&turn.request) } else { None }
    }
}

/// A request's keys while its items are applied one after the other.
struct Work {
    key: Key,
    before: Bytes,
    after: Bytes,
}

impl Pancake {
    /// A turn has come and its slot was read. `stored`: whose slot was drawn, and what it holds.
    /// Applies the request if this was its last turn; returns its reply.
    pub(super) fn take_turn(
        &mut self,
        now: Now,
        turn: Turn,
        (owner, stored): (KeyId, Found),
        writes: &mut Vec<Write>,
    ) -> Option<(RequestId, Reply)> {
        let id = self.requests.key(turn).and_then(|key| self.state.directory.find(key.as_bytes()));
        let found = match id.and_then(|id| self.state.cache.get(id)) {
            Some(entry) => Found::Record(entry.payload.clone()),
            // A refresh has retired the key since its slot was drawn: it was dead, and its slot is somebody else's.
            None if id != Some(owner) => Found::Record(Bytes::new()),
            None => stored,
        };
        let pending = self.requests.found(turn, found)?;
        if pending.cancelled {
            return None;
        }
        let reply = match pending.group {
            Some(group) => self.apply(now, group, &pending.found, writes),
            None => self.apply_flush(writes),
        };
        Some((turn.request, reply))
    }

    /// The newest record of a key, if the update cache has it.
    fn known(&self, key: &[u8]) -> Option<Bytes> {
        let id = self.state.directory.find(key)?;
        self.state.cache.get(id).map(|entry| entry.payload.clone())
    }

    fn apply_flush(&mut self, writes: &mut Vec<Write>) -> Reply {
        if let Some(refusal) = &self.read_only {
            return refusal.clone();
        }
        let kept = self.state.directory.staged().iter().copied().filter(|&id| self.refresh.pins(id)).collect();
        let write = Write::Flush { seq: self.state.take_seq(), kept };
        self.state.write(&write);
        writes.push(write);
        Reply::OK
    }

    fn apply(&mut self, now: Now, group: Group, found: &[Option<Found>], writes: &mut Vec<Write>) -> Reply {
        let damaged = |(item, found): (&Item, &Option<Found>)| match found {
            Some(Found::Damaged(slot)) if !item.blind && self.known(item.key.as_bytes()).is_none() => Some(*slot),
            _ => None,
        };
        if let Some(slot) = group.items.iter().zip(found).find_map(damaged) {
            return Reply::error(format!(
                "INTEGRITY store '{}' returned a block for slot {slot} that is damaged, replayed or missing; nothing was \
                 served from it",
                self.params.store
            ));
        }
        let mut work: Vec<Work> = Vec::with_capacity(group.items.len());
        let mut replies = Vec::with_capacity(group.items.len());
        for (item, found) in group.items.into_iter().zip(found) {
            let at = work.iter().position(|w| w.key == item.key).unwrap_or_else(|| {
                let before = self.known(item.key.as_bytes()).unwrap_or_else(|| match found {
                    Some(Found::Record(payload)) => payload.clone(),
                    _ => Bytes::new(),
                });
                work.push(Work { key: item.key.clone(), after: before.clone(), before });
                work.len() - 1
            });
            replies.push(self.apply_item(now, item, &mut work[at].after));
        }
        if let Some(refusal) = self.commit(work, writes) {
            return refusal;
        }
        match group.combine {
            Some(combine) => combine(replies),
            None => replies.pop().unwrap_or(Reply::OK),
        }
    }

    fn apply_item(&self, now: Now, item: Item, payload: &mut Bytes) -> Reply {
        let record = Record::decode(payload).ok().filter(|r| r.is_live(now.unix_ms));
        let view = View { record: record.as_ref(), now_ms: now.unix_ms, value_limit: self.params.value_limit };
        let (reply, change) = (item.apply)(view);
        match change {
            Change::Keep => {}
            Change::Delete => *payload = Bytes::new(),
            Change::Put(record) if record.data.len() > self.params.value_limit => {
                let (size, limit) = (record.data.len(), self.params.value_limit);
                return Reply::error(format!(
                    "ERR value is too large for this store: {size} bytes, value_size is {limit}"
                ));
            }
            Change::Put(record) => {
                let mut encoded = BytesMut::with_capacity(record.encoded_len());
                record.encode(&mut encoded);
                *payload = encoded.freeze();
            }
        }
        reply
    }

    /// Makes a request's changes, all of them or, with the reply that says why, none.
    fn commit(&mut self, mut work: Vec<Work>, writes: &mut Vec<Write>) -> Option<Reply> {
        work.retain(|w| w.before != w.after);
        if work.is_empty() {
            return None;
        }
        if let Some(refusal) = &self.read_only {
            return Some(refusal.clone());
        }
        let newcomers =
            work.iter().filter(|w| !w.after.is_empty() && self.state.directory.needs_room(w.key.as_bytes()));
        if !self.state.directory.has_room(newcomers.count() as u32) {
            let text = "OOM command not allowed: the store holds as many keys as its capacity allows";
            return Some(Reply::error(text));
        }
        for Work { key, after, .. } in work {
            let write = self.change(&key, after);
            self.state.write(&write);
            writes.push(write);
        }
        None
    }

    fn change(&mut self, key: &Key, payload: Bytes) -> Write {
        let Some(id) = self.state.directory.find(key.as_bytes()) else {
            let name = Bytes::copy_from_slice(key.as_bytes());
            return Write::New { id: self.state.directory.next_id(), seq: self.state.take_seq(), payload, name };
        };
        if payload.is_empty() && self.state.directory.is_staged(id) && !self.refresh.pins(id) {
            return Write::Forget { id };
        }
        Write::Put { id, seq: self.state.take_seq(), payload }
    }
}
