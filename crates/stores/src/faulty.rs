//! A store with the failures and the malice of a bad one, for tests. After a failure it keeps the contract.

use crate::gate::{Gate, Pass};
use bytes::Bytes;
use millpond_core::{
    Answer, Batch, BoxFuture, Capabilities, Incarnation, Label, Op, Store, StoreError, StoreErrorKind,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What happens to a batch. Positions count modulo what there is; tampering needs blocks in the answer, so it does
/// nothing to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails and has no effect.
    FailBefore,
    /// It takes effect, and fails.
    FailAfter,
    /// A byte of a block in the answer is changed.
    FlipByte {
        /// Which of the blocks.
        block: usize,
        /// Which of its bytes.
        byte: usize,
    },
    /// A block in the answer changes places with the next one.
    Swap(usize),
    /// A block in the answer is the one that its label had before the last write, if there was one.
    Replay(usize),
    /// A block in the answer is missing.
    Drop(usize),
}

/// Decides what happens to each batch, by its number (from 0).
pub type Plan = Box<dyn FnMut(u64, &Batch) -> Option<Fault> + Send>;

/// A plan that names the batches.
pub fn faults_at(faults: impl IntoIterator<Item = (u64, Fault)>) -> Plan {
    let faults: HashMap<_, _> = faults.into_iter().collect();
    Box::new(move |number, _| faults.get(&number).copied())
}

/// A plan that fails one batch in `one_in` (before or after), and tampers with one answer in `one_in`; 0: none.
pub fn faults_from_seed(seed: u64, fail_one_in: u64, tamper_one_in: u64) -> Plan {
    let mut state = seed;
    // SplitMix64.
    let mut draw = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    Box::new(move |_, batch| {
        let (fails, tampers, kind, block, byte) = (draw(), draw(), draw(), draw() as usize, draw() as usize);
        if fail_one_in > 0 && fails % fail_one_in == 0 {
            return Some(if kind % 2 == 0 { Fault::FailBefore } else { Fault::FailAfter });
        }
        let tampers = tamper_one_in > 0 && tampers % tamper_one_in == 0 && matches!(batch.op, Op::Read(_));
        tampers.then(|| match kind % 4 {
            0 => Fault::FlipByte { block, byte },
            1 => Fault::Swap(block),
            2 => Fault::Replay(block),
            _ => Fault::Drop(block),
        })
    })
}

/// The block that a label has and the one it had before.
#[derive(Default)]
struct Past {
    now: Option<Bytes>,
    before: Option<Bytes>,
}

struct Script {
    plan: Plan,
    batches: u64,
    past: HashMap<Label, Past>,
}

/// A store that fails and tampers as planned.
pub struct Faulty {
    inner: Arc<dyn Store>,
    script: Mutex<Script>,
    gate: Arc<Gate>,
}

impl Faulty {
    /// Wraps a store.
    pub fn new(inner: Arc<dyn Store>, plan: Plan) -> Self {
        let script = Script { plan, batches: 0, past: HashMap::new() };
        Self { inner, script: Mutex::new(script), gate: Arc::new(Gate::new()) }
    }

    /// Asks the plan, and prepares what the fault needs. Called in the batches' order.
    fn decide(&self, batch: &Batch) -> (Option<Fault>, Vec<Option<Bytes>>) {
        let script = &mut *self.script.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = (script.plan)(script.batches, batch);
        script.batches += 1;
        if let Op::Write(blocks) = &batch.op
            && fault != Some(Fault::FailBefore)
        {
            for (label, block) in blocks {
                let past = script.past.entry(*label).or_default();
                past.before = past.now.replace(block.clone());
            }
        }
        let older = match (&batch.op, fault) {
            (Op::Read(labels), Some(Fault::Replay(_))) => {
                labels.iter().map(|l| script.past.get(l).and_then(|past| past.before.clone())).collect()
            }
            _ => Vec::new(),
        };
        (fault, older)
    }

    fn start(&self, pass: Pass, batch: Arc<Batch>) -> BoxFuture<Result<Answer, StoreError>> {
        let failed = || StoreError::new(StoreErrorKind::Unavailable, "the planned failure");
        let (fault, older) = self.decide(&batch);
        if fault == Some(Fault::FailBefore) {
            return Box::pin(async move { Err(failed()) });
        }
        let (answer, gate) = (self.inner.execute(batch), Arc::clone(&self.gate));
        Box::pin(async move {
            let mut result = answer.await;
            if fault == Some(Fault::FailAfter) {
                result = result.and(Err(failed()));
            }
            if let (Ok(Answer::Blocks(blocks)), Some(fault)) = (&mut result, fault) {
                tamper(fault, blocks, &older);
            }
            let mut settled = Err(failed());
            gate.settle(pass, result, |answer| settled = answer);
            settled
        })
    }
}

fn tamper(fault: Fault, blocks: &mut [Option<Bytes>], older: &[Option<Bytes>]) {
    let count = blocks.len().max(1);
    match fault {
        Fault::FailBefore | Fault::FailAfter => {}
        Fault::FlipByte { block, byte } => {
            if let Some(Some(block)) = blocks.get_mut(block % count) {
                let mut changed = block.to_vec();
                let len = changed.len().max(1);
                changed.get_mut(byte % len).into_iter().for_each(|byte| *byte ^= 1);
                *block = changed.into();
            }
        }
        Fault::Swap(block) if count > 1 => blocks.swap(block % count, (block % count + 1) % count),
        Fault::Swap(_) => {}
        Fault::Replay(block) => {
            if let (Some(now), Some(Some(older))) = (blocks.get_mut(block % count), older.get(block % count)) {
                *now = Some(older.clone());
            }
        }
        Fault::Drop(block) => blocks.get_mut(block % count).into_iter().for_each(|block| *block = None),
    }
}

impl Store for Faulty {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn connect(&self) -> BoxFuture<Result<Incarnation, StoreError>> {
        let (pass, gate, connected) = (self.gate.renew(), Arc::clone(&self.gate), self.inner.connect());
        Box::pin(async move {
            let run = connected.await?;
            gate.open(pass)?;
            Ok(run)
        })
    }

    fn execute(&self, batch: Arc<Batch>) -> BoxFuture<Result<Answer, StoreError>> {
        let started = self.gate.enter(|pass| self.start(pass, batch));
        started.unwrap_or_else(|error| Box::pin(std::future::ready(Err(error))))
    }

    fn sync(&self) -> BoxFuture<Result<(), StoreError>> {
        self.inner.sync()
    }

    fn read_claim(&self) -> BoxFuture<Result<Option<Bytes>, StoreError>> {
        self.inner.read_claim()
    }

    fn write_claim(&self, claim: Bytes) -> BoxFuture<Result<(), StoreError>> {
        self.inner.write_claim(claim)
    }
}
