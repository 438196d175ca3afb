//! A store in memory with the failures of a real one: it loses its connection with batches under way, and it restarts
//! and falls back to anything between its last barrier and now.

use bytes::Bytes;
use millpond_core::{Answer, Batch, Incarnation, Label, Op};
use std::collections::HashMap;

/// The untrusted side of a simulation.
#[derive(Default)]
pub struct SimStore {
    blocks: HashMap<Label, Bytes>,
    /// What each write since the last barrier overwrote, in order.
    undo: Vec<(Label, Option<Bytes>)>,
    run: u64,
    /// Every batch, in the order in which the store saw it, if asked for.
    pub transcript: Option<Vec<Batch>>,
}

impl SimStore {
    /// Carries out a batch.
    pub fn execute(&mut self, batch: &Batch) -> Answer {
        if let Some(transcript) = &mut self.transcript {
            transcript.push(batch.clone());
        }
        match &batch.op {
            Op::Read(labels) => Answer::Blocks(labels.iter().map(|l| self.blocks.get(l).cloned()).collect()),
            Op::Write(blocks) => {
                for (label, block) in blocks {
                    let before = self.blocks.insert(*label, block.clone());
                    self.undo.push((*label, before));
                }
                Answer::Done
            }
            Op::Delete(labels) => {
                for label in labels {
                    let before = self.blocks.remove(label);
                    self.undo.push((*label, before));
                }
                Answer::Done
            }
        }
    }

    /// How many writes there were since the last barrier: the position a barrier covers.
    pub fn position(&self) -> usize {
        self.undo.len()
    }

    /// A barrier: the first `position` writes survive.
    pub fn sync(&mut self, position: usize) {
        self.undo.drain(..position.min(self.undo.len()));
    }

    /// Restarts, with only the first `kept` writes since the last barrier.
    pub fn restart(&mut self, kept: usize) {
        self.run += 1;
        while self.undo.len() > kept {
            if let Some((label, before)) = self.undo.pop() {
                match before {
                    Some(block) => self.blocks.insert(label, block),
                    None => self.blocks.remove(&label),
                };
            }
        }
        self.undo.clear();
    }

    /// Which run this is.
    pub fn incarnation(&self) -> Incarnation {
        Incarnation(self.run.to_string())
    }

    /// All blocks, for tampering.
    pub fn blocks(&mut self) -> &mut HashMap<Label, Bytes> {
        &mut self.blocks
    }
}
