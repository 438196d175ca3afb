//! `memory:`: a map. Gone when the process ends.

use bytes::Bytes;
use millpond_core::{Answer, BarrierKind, Batch, BoxFuture, Capabilities, Incarnation, Label, Op, Store, StoreError};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct Content {
    blocks: HashMap<Label, Bytes>,
    claim: Option<Bytes>,
}

/// Blocks in memory.
#[derive(Default)]
pub struct Memory(Arc<Mutex<Content>>);

impl Memory {
    fn lock(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Memory {
    fn capabilities(&self) -> Capabilities {
        Capabilities { barrier: BarrierKind::Volatile, block_limit: usize::MAX }
    }

    fn connect(&self) -> BoxFuture<Result<Incarnation, StoreError>> {
        Box::pin(std::future::ready(Ok(Incarnation("memory".into()))))
    }

    fn execute(&self, batch: Arc<Batch>) -> BoxFuture<Result<Answer, StoreError>> {
        let mut content = self.lock();
        let answer = match &batch.op {
            Op::Read(labels) => Answer::Blocks(labels.iter().map(|l| content.blocks.get(l).cloned()).collect()),
            Op::Write(blocks) => {
                content.blocks.extend(blocks.iter().cloned());
                Answer::Done
            }
            Op::Delete(labels) => {
                labels.iter().for_each(|l| drop(content.blocks.remove(l)));
                Answer::Done
            }
        };
        Box::pin(std::future::ready(Ok(answer)))
    }

    fn sync(&self) -> BoxFuture<Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn read_claim(&self) -> BoxFuture<Result<Option<Bytes>, StoreError>> {
        Box::pin(std::future::ready(Ok(self.lock().claim.clone())))
    }

    fn write_claim(&self, claim: Bytes) -> BoxFuture<Result<(), StoreError>> {
        self.lock().claim = Some(claim);
        Box::pin(std::future::ready(Ok(())))
    }
}
