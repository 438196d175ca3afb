//! The seam to whatever keeps the blocks. Everything that crosses it is exactly what the store's operator sees.

use bytes::Bytes;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

/// A boxed future that can move between threads.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The name under which the store keeps a block: the output of a PRF, so it says nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label(pub [u8; 16]);

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Label({:032x})", u128::from_be_bytes(self.0))
    }
}

/// One command to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Reads blocks. Labels may repeat, and are then read as often as they are named.
    Read(Vec<Label>),
    /// Writes blocks, in order. Labels may repeat.
    Write(Vec<(Label, Bytes)>),
    /// Removes blocks. Only the baselines and key rotation do.
    Delete(Vec<Label>),
}

/// What is sent to the store at one time, on behalf of one round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The round it belongs to, counted from the start of the process.
    pub round: u64,
    /// The command.
    pub op: Op,
}

/// What the store answers to a [`Batch`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// For [`Op::Read`]: a block for each label, `None` where there is none.
    Blocks(Vec<Option<Bytes>>),
    /// For the others: it is done, though perhaps not yet durable (that is what [`Store::sync`] is for).
    Done,
}

/// How a store makes writes durable, and so how far back it may fall when it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BarrierKind {
    /// It does not: a restart loses everything. Shown as `volatile` everywhere.
    Volatile,
    /// [`Store::sync`] is cheap enough for every second (fsync, WAITAOF).
    Cheap,
    /// [`Store::sync`] copies the whole data set (BGREWRITEAOF, BGSAVE), so it runs seldom.
    Costly,
}

/// What a store can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// How it makes writes durable.
    pub barrier: BarrierKind,
    /// The largest block it takes, in bytes.
    pub block_limit: usize,
}

/// Which run of the store this is. Two values differ if and only if the store restarted in between, after which
/// it may have fallen back to its last barrier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incarnation(pub String);

/// What went wrong, and whether trying again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// Not reachable, timed out or restarting: connect again and repeat.
    Unavailable,
    /// Reached, but it refuses for now (out of memory, disk full, read-only): repeat later.
    Refused,
    /// It will never work as configured (wrong password, wrong data type, not our protocol).
    Fatal,
}

/// A store's failure. Holds no key and no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreError {
    /// Its kind.
    pub kind: StoreErrorKind,
    /// What happened, for the operator, and what to do.
    pub message: String,
}

impl StoreError {
    /// An error of a kind.
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StoreError {}

/// An untrusted back end.
///
/// Contract, on which the engine's ordering rests:
/// * The *call* of [`Store::execute`] (not the first poll of its future) fixes the order. Writes to one label take
///   effect in call order; a read sees every write that was acknowledged before the read was called.
/// * After any batch failed, every batch called before or after it that is not yet answered fails too, and so does
///   every later one, until [`Store::connect`] succeeds. Nothing called before that `connect` takes effect after it.
pub trait Store: Send + Sync {
    /// What the store can do. Known after the first [`Store::connect`].
    fn capabilities(&self) -> Capabilities;

    /// Makes the store usable (again) and says which run of it this is.
    fn connect(&self) -> BoxFuture<Result<Incarnation, StoreError>>;

    /// Carries out a batch.
    fn execute(&self, batch: Arc<Batch>) -> BoxFuture<Result<Answer, StoreError>>;

    /// A barrier: when it succeeds, everything acknowledged before this call survives the store's failure.
    fn sync(&self) -> BoxFuture<Result<(), StoreError>>;

    /// The claim: which proxy may write here. Plain bytes under a fixed name, beside the blocks.
    fn read_claim(&self) -> BoxFuture<Result<Option<Bytes>, StoreError>>;

    /// Replaces the claim.
    fn write_claim(&self, claim: Bytes) -> BoxFuture<Result<(), StoreError>>;
}
