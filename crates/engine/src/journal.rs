//! Journal segments and checkpoints. Layout: `docs/formats.md`.
//!
//! `checkpoint-N` holds the scheme's state before the first record of `journal-N`. A record is
//! length (4) ‖ CRC-32C (4) ‖ delta; a torn one ends the journal.

use crate::disk::{Disk, SyncJob};
use millpond_core::{Scheme, SchemeError, Snapshot};
use std::fmt;
use std::io;

const CHECKPOINT_MAGIC: &[u8; 8] = b"MPCKPT01";
const CLEAN: &str = "clean";

/// Why a state directory can't be used.
#[derive(Debug)]
pub enum JournalError {
    /// The disk failed.
    Io(io::Error),
    /// What it holds can't be used.
    Scheme(SchemeError),
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(e) => write!(f, "the state directory can't be used: {e}"),
            Self::Scheme(e) => write!(f, "the state directory does not fit: {e}"),
        }
    }
}

impl std::error::Error for JournalError {}

impl From<io::Error> for JournalError {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

impl From<SchemeError> for JournalError {
    fn from(e: SchemeError) -> Self {
        Self::Scheme(e)
    }
}

/// The journal being written.
pub struct Journal<D> {
    disk: D,
    segment: u64,
    bytes: u64,
}

fn number_of(name: &str, kind: &str) -> Option<u64> {
    name.strip_prefix(kind)?.strip_prefix('-')?.parse().ok()
}

fn name_of(kind: &str, number: u64) -> String {
    format!("{kind}-{number:016}")
}

fn seal_checkpoint(snapshot: Snapshot) -> io::Result<Vec<u8>> {
    let mut bytes = CHECKPOINT_MAGIC.to_vec();
    bytes.extend_from_slice(&[0; 4]);
    (snapshot.0)(&mut bytes)?;
    let sum = crc32c::crc32c(&bytes[12..]).to_le_bytes();
    bytes[8..12].copy_from_slice(&sum);
    Ok(bytes)
}

fn open_checkpoint(bytes: &[u8]) -> Option<&[u8]> {
    let (sum, body) = bytes.strip_prefix(CHECKPOINT_MAGIC)?.split_first_chunk::<4>()?;
    (crc32c::crc32c(body) == u32::from_le_bytes(*sum)).then_some(body)
}

/// The records of a segment, up to the first torn one, and whether there was none.
fn records(segment: &[u8]) -> (Vec<&[u8]>, bool) {
    let (mut found, mut rest) = (Vec::new(), segment);
    while !rest.is_empty() {
        let record = rest.split_first_chunk::<4>().and_then(|(len, tail)| {
            let (sum, tail) = tail.split_first_chunk::<4>()?;
            let (delta, tail) = tail.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            (crc32c::crc32c(delta) == u32::from_le_bytes(*sum)).then_some((delta, tail))
        });
        let Some((delta, tail)) = record else { return (found, false) };
        found.push(delta);
        rest = tail;
    }
    (found, true)
}

impl<D: Disk> Journal<D> {
    /// Brings a new scheme to the state on disk, writes that as a fresh checkpoint, and opens a segment behind it.
    /// Returns whether the last stop was clean.
    pub fn recover(mut disk: D, scheme: &mut dyn Scheme) -> Result<(Self, bool), JournalError> {
        let names = disk.list()?;
        let clean = names.iter().any(|n| n == CLEAN);
        let mut checkpoints: Vec<u64> = names.iter().filter_map(|n| number_of(n, "checkpoint")).collect();
        let mut segments: Vec<u64> = names.iter().filter_map(|n| number_of(n, "journal")).collect();
        checkpoints.sort_unstable();
        segments.sort_unstable();
        let from = checkpoints.last().copied();
        if let Some(number) = from {
            let bytes = disk.read(&name_of("checkpoint", number))?;
            let damaged =
                || SchemeError(format!("checkpoint-{number:016} is damaged; restore a backup of the directory"));
            scheme.restore(open_checkpoint(&bytes).ok_or_else(damaged)?)?;
        }
        for number in segments.iter().filter(|&&n| from.is_some_and(|f| n >= f)) {
            let bytes = disk.read(&name_of("journal", *number))?;
            let (records, whole) = records(&bytes);
            for delta in records {
                scheme.replay(delta)?;
            }
            if !whole {
                break;
            }
        }
        let next = segments.last().max(checkpoints.last()).map_or(1, |n| n + 1);
        disk.create(&name_of("journal", next))?;
        let checkpoint = seal_checkpoint(scheme.snapshot())?;
        disk.writer(&name_of("checkpoint", next))(&checkpoint)?;
        let mut journal = Self { disk, segment: next, bytes: 0 };
        if clean {
            journal.disk.remove(CLEAN)?;
        }
        journal.retire()?;
        Ok((journal, clean))
    }

    /// Appends a record: it survives the end of the process when this returns.
    pub fn append(&mut self, delta: &[u8]) -> io::Result<()> {
        let mut record = Vec::with_capacity(8 + delta.len());
        record.extend_from_slice(&(delta.len() as u32).to_le_bytes());
        record.extend_from_slice(&crc32c::crc32c(delta).to_le_bytes());
        record.extend_from_slice(delta);
        self.bytes += record.len() as u64;
        self.disk.append(&record)
    }

    /// A job that makes everything appended so far durable.
    pub fn syncer(&mut self) -> SyncJob {
        self.disk.syncer()
    }

    /// Bytes since the last checkpoint.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Begins a checkpoint: what is appended from now on goes to a new segment. Returns the job that writes the
    /// snapshot; when it is done, [`Journal::retire`] drops what it replaces.
    pub fn checkpoint(&mut self, snapshot: Snapshot) -> io::Result<SyncJob> {
        self.disk.create(&name_of("journal", self.segment + 1))?;
        self.segment += 1;
        self.bytes = 0;
        let writer = self.disk.writer(&name_of("checkpoint", self.segment));
        Ok(Box::new(move || writer(&seal_checkpoint(snapshot)?)))
    }

    /// Removes what the checkpoint of the current segment made superfluous.
    pub fn retire(&mut self) -> io::Result<()> {
        for name in self.disk.list()? {
            let number = number_of(&name, "checkpoint").or_else(|| number_of(&name, "journal"));
            if number.is_some_and(|n| n < self.segment) {
                self.disk.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Notes that the proxy stopped in order. Nothing may be appended afterwards.
    pub fn mark_clean(&mut self) -> io::Result<()> {
        self.disk.writer(CLEAN)(b"")
    }
}
