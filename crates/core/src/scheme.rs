//! The seam to the oblivious schemes: a state machine without I/O, clock or thread.

use crate::{Answer, Batch, Reply, Request, RequestId};
use bytes::Bytes;
use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Position of a journal record: counts up by one for each.
pub type Seq = u64;

/// Names an I/O batch between a scheme and the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IoId(pub u64);

/// Names a job between a scheme and the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// The time, as an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Now {
    /// Microseconds on a clock that never goes back.
    pub mono_us: u64,
    /// Milliseconds since the Unix epoch.
    pub unix_ms: u64,
}

/// How much a scheme may do in a round. From public state only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// Batches of accesses.
    pub batches: u32,
}

/// Pure work for the engine's threads: opening, sealing, building tables.
pub struct Job(pub Box<dyn FnOnce() -> Computed + Send>);

impl Job {
    /// Wraps a function.
    pub fn new<T: Any + Send>(work: impl FnOnce() -> T + Send + 'static) -> Self {
        Self(Box::new(move || Computed(Box::new(work()))))
    }

    /// Does the work.
    pub fn run(self) -> Computed {
        (self.0)()
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Job")
    }
}

/// What a [`Job`] produced. Only the scheme that made the job knows its type.
pub struct Computed(pub Box<dyn Any + Send>);

impl fmt::Debug for Computed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Computed")
    }
}

/// What a scheme wants done. Effects are carried out in order; in particular a [`Effect::Journal`] has been handed to
/// the operating system before any effect behind it begins.
#[derive(Debug)]
pub enum Effect {
    /// Appends a record to the journal. Records are counted from the one after the last checkpoint or replay.
    Journal {
        /// The delta, for [`Scheme::replay`].
        delta: Bytes,
        /// Make it durable at once whatever the store's setting, and say so with [`Event::Durable`].
        force: bool,
    },
    /// Sends a batch to the store; answered by [`Event::Io`].
    Io {
        /// Its name.
        id: IoId,
        /// What the operator sees. Kept, and repeated unchanged if the store fails.
        batch: Arc<Batch>,
    },
    /// Runs a job; answered by [`Event::Computed`].
    Compute {
        /// Its name.
        id: JobId,
        /// The work.
        job: Job,
        /// Whether it is long, and no request waits for it.
        background: bool,
    },
    /// Answers a request, once the journal is as durable as the store's setting asks up to `after`.
    Reply {
        /// The request.
        to: RequestId,
        /// The answer.
        reply: Reply,
        /// The last journal record the answer rests on.
        after: Seq,
    },
}

/// What happened to an effect, or to the store.
#[derive(Debug)]
pub enum Event {
    /// The store answered. Failures never get here: the engine repeats the batch until it succeeds.
    Io(IoId, Answer),
    /// A job is done.
    Computed(JobId, Computed),
    /// The journal is durable up to this record (only after a forced one).
    Durable(Seq),
    /// A barrier begins: remember what is acknowledged now.
    SyncStarted,
    /// That barrier is behind us: what was acknowledged when it started survives the store's failure.
    Synced,
    /// The store came back as another run of itself, and may have fallen back to the last barrier.
    StoreRestarted,
    /// The journal cannot be written (disk full). Requests that change something are refused with this reply until
    /// [`Event::JournalRestored`]; no [`Effect::Journal`] is carried out meanwhile.
    JournalFailed(Reply),
    /// The journal works again, from a fresh checkpoint.
    JournalRestored,
}

/// Whether a request had changed anything when it was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It never will: the client may try again.
    NotApplied,
    /// It has been applied; only the store's acknowledgement is missing.
    Applied,
}

/// A frozen copy of a scheme's state that writes itself out, on another thread, for [`Scheme::restore`].
pub struct Snapshot(pub Box<dyn FnOnce(&mut dyn io::Write) -> io::Result<()> + Send>);

/// A scheme can't go on with what the state directory or the store gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemeError(pub String);

impl fmt::Display for SchemeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SchemeError {}

/// What a scheme says of itself. For the trusted side only.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Status {
    /// Keys that exist (expired ones that no request has met yet included).
    pub keys: u64,
    /// Keys with a time to live.
    pub keys_with_expiry: u64,
    /// Most keys the store can hold.
    pub capacity: u64,
    /// Accesses (a read and a write each) so far.
    pub accesses: u64,
    /// Rounds so far.
    pub rounds: u64,
    /// Requests whose turn has not come.
    pub queue_depth: u64,
    /// Entries of the update cache.
    pub update_cache_records: u64,
    /// Bytes of the records in it.
    pub update_cache_bytes: u64,
    /// The most entries it ever had in this process.
    pub update_cache_peak: u64,
    /// Keys that wait for slots.
    pub staged_keys: u64,
    /// Table refreshes so far.
    pub epoch: u64,
    /// Blocks that failed to open.
    pub integrity_failures: u64,
    /// Block seals so far.
    pub seals: u64,
    /// Block opens so far.
    pub opens: u64,
    /// Probability that an access is real.
    pub delta: f64,
}

/// An oblivious scheme.
///
/// The engine calls `submit` for what has arrived, then `tick` to start a round, `complete` when something happened,
/// and `poll` after each of these.
pub trait Scheme: Send {
    /// Takes a request in. It is planned at the next [`Scheme::tick`].
    fn submit(&mut self, now: Now, request: Request);

    /// Starts a round of `budget.batches` batches.
    fn tick(&mut self, now: Now, budget: Budget);

    /// Something happened.
    fn complete(&mut self, now: Now, event: Event);

    /// Hands out what is to be done, in order.
    fn poll(&mut self, out: &mut Vec<Effect>);

    /// Gives a request up (its deadline has passed). It still takes its turn on the wire.
    fn cancel(&mut self, id: RequestId) -> Cancelled;

    /// Rounds that have started and whose writes are not acknowledged yet. Public.
    fn rounds_in_flight(&self) -> usize;

    /// A frozen copy of the state. Called between events; covers every journal record handed out before.
    fn snapshot(&self) -> Snapshot;

    /// Takes over what a snapshot wrote. Only on a new scheme.
    ///
    /// # Errors
    /// If the bytes are not a snapshot of this scheme with these parameters.
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), SchemeError>;

    /// Applies one journal record. Only after `restore`, in order.
    ///
    /// # Errors
    /// If the record is not one of this scheme's.
    fn replay(&mut self, delta: &[u8]) -> Result<(), SchemeError>;

    /// Ends recovery and starts a new incarnation, whose number is drawn by the engine; its journal record is handed
    /// out by the next `poll`, forced. `clean`: the proxy was shut down in order, so the store holds all it acknowledged.
    fn recover(&mut self, incarnation: u64, clean: bool);

    /// The batches that fill an empty store, in slot order, of at most `most` blocks each; `None` when there are no more.
    fn init(&mut self, most: usize) -> Option<Batch>;

    /// Counters and sizes.
    fn status(&self) -> Status;
}
