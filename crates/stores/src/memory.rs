//! `memory:`: a map. Gone when the process ends.

use crate::run::new_run;
use bytes::Bytes;
use millpond_core::{
    Answer, BarrierKind, Batch, BoxFuture, Capabilities, Incarnation, Label, Op, Store, StoreError, StoreErrorKind,
};
use std::collections::HashMap;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is under a name: a block's, or (`None`) the claim's.
type Name = Option<Label>;

struct Content {
    entries: HashMap<Name, Bytes>,
    /// What was under each name that changed since the last barrier. Stays empty if there is no durable image.
    undo: HashMap<Name, Option<Bytes>>,
    run: Incarnation,
    connected: bool,
}

/// Blocks in memory.
pub struct Memory {
    content: Mutex<Content>,
    durable: bool,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(false)
    }
}

impl Memory {
    fn new(durable: bool) -> Self {
        let content = Content { entries: HashMap::new(), undo: HashMap::new(), run: new_run(), connected: false };
        Self { content: Mutex::new(content), durable }
    }

    /// One that, for tests, has something to fall back to: what it held at the last barrier.
    pub fn durable() -> Self {
        Self::new(true)
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Restarts the store, for tests: the connection is lost, and so is what came after the last barrier.
    pub fn fall_back(&self) {
        let content = &mut *self.lock();
        if self.durable {
            for (name, before) in content.undo.drain() {
                put(&mut content.entries, name, before);
            }
        } else {
            content.entries.clear();
        }
        content.run = new_run();
        content.connected = false;
    }

    /// The block under a label, as the store's operator sees it.
    pub fn peek(&self, label: Label) -> Option<Bytes> {
        self.lock().entries.get(&Some(label)).cloned()
    }

    /// Replaces the block under a label, or removes it, behind the proxy's back. Survives a restart.
    pub fn poke(&self, label: Label, block: Option<Bytes>) {
        let mut content = self.lock();
        content.undo.remove(&Some(label));
        put(&mut content.entries, Some(label), block);
    }

    /// The labels that have a block, in order.
    pub fn labels(&self) -> Vec<Label> {
        let mut labels: Vec<_> = self.lock().entries.keys().copied().flatten().collect();
        labels.sort_unstable();
        labels
    }

    fn change(&self, content: &mut Content, name: Name, value: Option<Bytes>) {
        let before = put(&mut content.entries, name, value);
        if self.durable {
            content.undo.entry(name).or_insert(before);
        }
    }

    fn apply(&self, op: &Op) -> Result<Answer, StoreError> {
        let mut content = self.connected()?;
        match op {
            Op::Read(labels) => {
                return Ok(Answer::Blocks(labels.iter().map(|l| content.entries.get(&Some(*l)).cloned()).collect()));
            }
            Op::Write(blocks) => {
                blocks.iter().for_each(|(l, block)| self.change(&mut content, Some(*l), Some(block.clone())));
            }
            Op::Delete(labels) => labels.iter().for_each(|l| self.change(&mut content, Some(*l), None)),
        }
        Ok(Answer::Done)
    }

    fn connected(&self) -> Result<MutexGuard<'_, Content>, StoreError> {
        let content = self.lock();
        if content.connected {
            Ok(content)
        } else {
            Err(StoreError::new(StoreErrorKind::Unavailable, "the memory store is not connected"))
        }
    }
}

fn put(entries: &mut HashMap<Name, Bytes>, name: Name, value: Option<Bytes>) -> Option<Bytes> {
    match value {
        Some(value) => entries.insert(name, value),
        None => entries.remove(&name),
    }
}

impl Store for Memory {
    fn capabilities(&self) -> Capabilities {
        let barrier = if self.durable { BarrierKind::Cheap } else { BarrierKind::Volatile };
        Capabilities { barrier, block_limit: usize::MAX }
    }

    fn connect(&self) -> BoxFuture<Result<Incarnation, StoreError>> {
        let mut content = self.lock();
        content.connected = true;
        Box::pin(ready(Ok(content.run.clone())))
    }

    fn execute(&self, batch: Arc<Batch>) -> BoxFuture<Result<Answer, StoreError>> {
        Box::pin(ready(self.apply(&batch.op)))
    }

    fn sync(&self) -> BoxFuture<Result<(), StoreError>> {
        Box::pin(ready(self.connected().map(|mut content| content.undo.clear())))
    }

    fn read_claim(&self) -> BoxFuture<Result<Option<Bytes>, StoreError>> {
        Box::pin(ready(self.connected().map(|content| content.entries.get(&None).cloned())))
    }

    fn write_claim(&self, claim: Bytes) -> BoxFuture<Result<(), StoreError>> {
        Box::pin(ready(self.connected().map(|mut content| self.change(&mut content, None, Some(claim)))))
    }
}
