//! A round, from the coins to the acknowledged write (paper §4.2, *Query execution*).
//!
//! Rounds are planned, applied, written and acknowledged in order; opening and sealing may overlap.

use super::Pancake;
use super::cache::Strike;
use super::commands::{Found, Turn};
use super::state::{self, Write};
use super::tables::{KeyId, NOBODY, Slot};
use crate::freshness::Age;
use bytes::Bytes;
use millpond_core::{Answer, Batch, Computed, Effect, IoId, JobId, Label, Now, Op, Reply, RequestId, Seq};
use millpond_crypto::{BlockCipher, Header, random_nonces};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// One access of a round.
struct Access {
    slot: Slot,
    /// The slot's owner when the access was planned.
    owner: KeyId,
    /// The request's turn it serves, and whether the slot was drawn from the request's key.
    turn: Option<(Turn, bool)>,
}

/// What a slot holds.
#[derive(Clone)]
enum Content {
    Block {
        key: u64,
        seq: u64,
        payload: Bytes,
    },
    /// Not authentic: goes back byte for byte.
    Damaged(Bytes),
}

/// A block as it came from the store.
enum Opened {
    Block {
        header: Header,
        payload: Bytes,
        raw: Bytes,
    },
    /// It fails to open; empty if the store had none.
    Damaged(Bytes),
}

struct Round {
    number: u64,
    /// Counter of the versions it writes; set when it is applied.
    counter: u64,
    accesses: Vec<Access>,
    opened: Option<Vec<Opened>>,
    sealed: Option<Vec<(Label, Bytes)>>,
    written: bool,
    acknowledged: bool,
    strikes: Vec<Strike>,
    replies: Vec<(RequestId, Reply)>,
    /// The journal record it rests on.
    after: Seq,
}

/// Rounds in flight.
#[derive(Default)]
pub struct Rounds {
    queue: VecDeque<Round>,
    /// How many of them have been applied.
    applied: usize,
    next: u64,
    overlay: Overlay,
}

/// Contents of slots whose newest write the store may not have shown to every read in flight yet.
#[derive(Default)]
struct Overlay {
    /// By slot: the last round that writes it, and what.
    contents: HashMap<Slot, (u64, Content)>,
    /// Acknowledged rounds, and the last round that was planned before: until that has been applied they stay.
    retired: VecDeque<(u64, u64, Vec<Slot>)>,
}

impl Overlay {
    fn applied(&mut self, round: u64) {
        while let Some((writer, _, slots)) = self.retired.pop_front_if(|(_, last, _)| *last <= round) {
            for slot in slots {
                if self.contents.get(&slot).is_some_and(|&(w, _)| w == writer) {
                    self.contents.remove(&slot);
                }
            }
        }
    }
}

impl Rounds {
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Rounds planned so far.
    pub fn planned(&self) -> u64 {
        self.next
    }

    /// The number of the first round that has not been applied.
    pub fn first_unapplied(&self) -> u64 {
        self.next - (self.queue.len() - self.applied) as u64
    }

    /// Applied rounds: their counters and slots.
    pub fn in_flight(&self) -> Vec<(u64, Vec<Slot>)> {
        let applied = self.queue.iter().take(self.applied);
        applied.map(|r| (r.counter, r.accesses.iter().map(|a| a.slot).collect())).collect()
    }

    fn get(&mut self, number: u64) -> Option<&mut Round> {
        let first = self.queue.front()?.number;
        self.queue.get_mut(usize::try_from(number.checked_sub(first)?).ok()?)
    }
}

/// Seals a payload that is known to fit.
#[expect(clippy::expect_used, reason = "every payload was checked against the store's limit when it was written")]
pub fn seal(cipher: &BlockCipher, nonce: [u8; 24], label: &Label, header: &Header, payload: &[u8]) -> Bytes {
    cipher.seal(nonce, label, header, payload).expect("payload fits a block")
}

fn open_all(cipher: &BlockCipher, labels: &[Label], blocks: Vec<Option<Bytes>>) -> Vec<Opened> {
    let open = |(label, block): (&Label, Option<Bytes>)| {
        let block = block.unwrap_or_default();
        match cipher.open(label, &block) {
            Ok((header, payload)) => Opened::Block { header, payload, raw: block },
            Err(_) => Opened::Damaged(block),
        }
    };
    labels.iter().zip(blocks).map(open).collect()
}

impl Pancake {
    /// Draws the accesses of `batches` batches and sends the read.
    pub(super) fn plan(&mut self, batches: u32) {
        let number = self.rounds.next;
        self.rounds.next += 1;
        let count = batches * self.params.batch;
        let accesses: Vec<_> = (0..count).map(|_| self.draw()).collect();
        let labels = accesses.iter().map(|a| self.labels[a.slot as usize]).collect();
        self.effects.push(Effect::Io {
            id: Self::io_id(number, false),
            batch: Arc::new(Batch { round: number, op: Op::Read(labels) }),
        });
        self.status.accesses += u64::from(count);
        self.status.rounds += 1;
        self.rounds.queue.push_back(Round {
            number,
            counter: 0,
            accesses,
            opened: None,
            sealed: None,
            written: false,
            acknowledged: false,
            strikes: Vec::new(),
            replies: Vec::new(),
            after: 0,
        });
    }

    /// One access: a coin, then the next request's turn, or a slot drawn from `real` or `fake`.
    fn draw(&mut self) -> Access {
        let tables = Arc::clone(&self.tables);
        let (slot, turn) = if !tables.flip(&mut self.coins) {
            (tables.draw_fake(&mut self.coins), None)
        } else if let Some((turn, key)) = self.requests.next() {
            let id = key.and_then(|key| self.state.directory.find(key.as_bytes()));
            match id.and_then(|id| tables.draw_replica(id, &mut self.coins)) {
                Some(slot) => (slot, Some((turn, true))),
                None => (tables.draw_real(&mut self.coins), Some((turn, false))),
            }
        } else {
            (tables.draw_real(&mut self.coins), None)
        };
        Access { slot, owner: tables.layout.owner(slot).0, turn }
    }

    /// The store answered a read or a write.
    pub(super) fn answered(&mut self, id: IoId, answer: Answer) {
        let number = id.0 >> 1;
        let Some(round) = self.rounds.get(number) else { return };
        match answer {
            Answer::Blocks(blocks) => {
                let labels: Vec<_> = round.accesses.iter().map(|a| self.labels[a.slot as usize]).collect();
                self.status.opens += labels.len() as u64;
                let cipher = self.cipher.clone();
                self.compute(JobId(number << 1), move || open_all(&cipher, &labels, blocks));
            }
            Answer::Done => {
                round.acknowledged = true;
                self.acknowledge_rounds();
            }
        }
    }

    /// Blocks are opened or sealed.
    pub(super) fn rounds_computed(&mut self, now: Now, id: JobId, result: Computed) {
        let Some(round) = self.rounds.get(id.0 >> 1) else { return };
        let result = match result.0.downcast::<Vec<Opened>>() {
            Ok(opened) => {
                round.opened = Some(*opened);
                return self.apply_rounds(now);
            }
            Err(other) => other,
        };
        if let Ok(sealed) = result.downcast::<Vec<(Label, Bytes)>>() {
            round.sealed = Some(*sealed);
            self.write_rounds();
        }
    }

    fn apply_rounds(&mut self, now: Now) {
        while let Some(opened) = self.rounds.queue.get_mut(self.rounds.applied).and_then(|r| r.opened.take()) {
            let index = self.rounds.applied;
            self.rounds.applied += 1;
            self.apply_round(now, index, opened);
        }
    }

    /// A round's blocks are open and all earlier rounds are applied: carries out its turns, decides what every slot will
    /// hold, journals it and has it sealed.
    fn apply_round(&mut self, now: Now, index: usize, opened: Vec<Opened>) {
        let number = self.rounds.queue[index].number;
        let accesses = std::mem::take(&mut self.rounds.queue[index].accesses);
        let counter = self.state.freshness.next();
        let mut writes = Vec::new();
        for (access, opened) in accesses.iter().zip(opened) {
            self.arrive(number, access, opened, &mut writes);
        }
        let mut replies = Vec::new();
        for access in &accesses {
            if let Some((turn, own)) = access.turn {
                let stored = if own { self.stored(access) } else { Found::Record(Bytes::new()) };
                replies.extend(self.take_turn(now, turn, (access.owner, stored), &mut writes));
            }
        }
        let (strikes, orphans) = self.refill(number, &accesses);
        let slots: Vec<Slot> = accesses.iter().map(|a| a.slot).collect();
        self.journal(state::round_delta(counter, &slots, &orphans, &writes), false);
        self.rounds.overlay.applied(number);
        let contents: Vec<_> = slots.iter().map(|&slot| self.content(slot)).collect();
        self.seal_round(number, counter, slots, contents);
        let after = self.journaled;
        let round = &mut self.rounds.queue[index];
        (round.counter, round.accesses, round.strikes, round.replies, round.after) =
            (counter, accesses, strikes, replies, after);
    }

    /// Puts what the store returned for an access into the overlay, unless an earlier round's write is still there.
    fn arrive(&mut self, number: u64, access: &Access, opened: Opened, writes: &mut Vec<Write>) {
        if let Some((writer, _)) = self.rounds.overlay.contents.get_mut(&access.slot) {
            *writer = number;
            return;
        }
        let content = match opened {
            Opened::Block { header, payload, raw } => {
                let content = Content::Block { key: header.key, seq: header.seq, payload };
                match self.state.freshness.judge(access.slot, header.incarnation, header.counter) {
                    Age::Known if self.may_hold(access, header.key, header.seq) => content,
                    Age::Newer => self.adopt(access, header, content, writes),
                    Age::Known | Age::Rejected => self.damaged(raw),
                }
            }
            Opened::Damaged(raw) => self.damaged(raw),
        };
        self.rounds.overlay.contents.insert(access.slot, (number, content));
    }

    /// Whether a block may stand in a slot: it is the owner's, or nobody will read it before it is overwritten.
    fn may_hold(&self, access: &Access, key: u64, seq: u64) -> bool {
        let owner = access.owner;
        owner == NOBODY
            || u64::from(owner) == key
            || seq <= self.state.flushed
            || self.state.layout.owner(access.slot).0 != owner
            || self.state.cache.is_pending(&self.state.layout, access.slot)
    }

    fn damaged(&mut self, raw: Bytes) -> Content {
        self.status.integrity_failures += 1;
        Content::Damaged(raw)
    }

    /// A block is newer than the journal knows, after a power loss took the journal's tail: its record is the newest.
    fn adopt(&mut self, access: &Access, header: Header, content: Content, writes: &mut Vec<Write>) -> Content {
        let known = self.state.cache.get(access.owner).map_or(0, |entry| entry.seq);
        if u64::from(access.owner) == header.key
            && header.seq > known.max(self.state.flushed)
            && let Content::Block { payload, .. } = &content
        {
            let write = Write::Put { id: access.owner, seq: header.seq, payload: payload.clone() };
            self.state.write(&write);
            writes.push(write);
        }
        content
    }

    /// What a request's turn finds in its key's slot.
    fn stored(&self, access: &Access) -> Found {
        match self.rounds.overlay.contents.get(&access.slot) {
            Some((_, Content::Block { seq, .. })) if *seq <= self.state.flushed => Found::Record(Bytes::new()),
            Some((_, Content::Block { key, payload, .. })) if *key == u64::from(access.owner) => {
                Found::Record(payload.clone())
            }
            _ => Found::Damaged(access.slot),
        }
    }

    /// Writes the newest record of the owner wherever one is known. Returns the strikes this earns, and the accesses
    /// whose slot changed its owner since they were planned, which complete for the old one.
    fn refill(&mut self, number: u64, accesses: &[Access]) -> (Vec<Strike>, Vec<u32>) {
        let (mut strikes, mut orphans) = (Vec::new(), Vec::new());
        for (i, access) in accesses.iter().enumerate() {
            if self.state.layout.owner(access.slot).0 != access.owner {
                orphans.push(i as u32);
                continue;
            }
            let content = if access.owner == NOBODY {
                match self.rounds.overlay.contents.get(&access.slot) {
                    Some((_, Content::Block { .. })) => {
                        Content::Block { key: u64::from(NOBODY), seq: 0, payload: Bytes::new() }
                    }
                    _ => continue,
                }
            } else if let Some(entry) = self.state.cache.get(access.owner) {
                strikes.extend(self.state.strike(access.slot));
                Content::Block { key: u64::from(access.owner), seq: entry.seq, payload: entry.payload.clone() }
            } else {
                continue;
            };
            self.rounds.overlay.contents.insert(access.slot, (number, content));
        }
        (strikes, orphans)
    }

    fn content(&self, slot: Slot) -> Content {
        match self.rounds.overlay.contents.get(&slot) {
            Some((_, content)) => content.clone(),
            None => Content::Damaged(Bytes::new()),
        }
    }

    fn seal_round(&mut self, number: u64, counter: u64, slots: Vec<Slot>, contents: Vec<Content>) {
        self.status.seals += slots.len() as u64;
        let (cipher, labels) = (self.cipher.clone(), Arc::clone(&self.labels));
        let incarnation = self.state.freshness.incarnation();
        self.compute(JobId(number << 1 | 1), move || {
            let nonces = random_nonces(slots.len());
            let blocks = slots.iter().zip(contents).zip(nonces).map(|((&slot, content), nonce)| {
                let label = labels[slot as usize];
                let block = match content {
                    Content::Block { key, seq, payload } => {
                        seal(&cipher, nonce, &label, &Header { incarnation, counter, key, seq }, &payload)
                    }
                    Content::Damaged(block) if block.is_empty() => Bytes::from(vec![0; cipher.block_len()]),
                    Content::Damaged(block) => block,
                };
                (label, block)
            });
            blocks.collect::<Vec<_>>()
        });
    }

    /// Sends the writes of rounds that are sealed, in order.
    fn write_rounds(&mut self) {
        for round in self.rounds.queue.iter_mut().skip_while(|r| r.written) {
            let Some(blocks) = round.sealed.take() else { break };
            round.written = true;
            self.effects.push(Effect::Io {
                id: Self::io_id(round.number, true),
                batch: Arc::new(Batch { round: round.number, op: Op::Write(blocks) }),
            });
        }
    }

    /// Ends rounds whose writes are acknowledged, in order: strikes count, replies leave.
    fn acknowledge_rounds(&mut self) {
        while let Some(round) = self.rounds.queue.pop_front_if(|r| r.acknowledged) {
            self.rounds.applied -= 1;
            let slots: Vec<Slot> = round.accesses.iter().map(|a| a.slot).collect();
            self.state.acknowledge(round.counter, &slots, round.strikes);
            let last_planned = self.rounds.next - 1;
            self.rounds.overlay.retired.push_back((round.number, last_planned, slots));
            for (to, reply) in round.replies {
                self.effects.push(Effect::Reply { to, reply, after: round.after });
            }
        }
        if self.rounds.applied == self.rounds.queue.len() {
            self.rounds.overlay.applied(self.rounds.next);
        }
    }
}
