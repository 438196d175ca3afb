//! What a client asks for: one or more keys, each with a function of its current record.

use crate::{Key, Record, Reply};
use std::fmt;

/// Names a request between the engine and a scheme. Never reused within a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// What an operation sees when its turn has come.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The key's record; `None` if there is none or it has expired.
    pub record: Option<&'a Record>,
    /// The time, in milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// The largest value this store keeps, in bytes.
    pub value_limit: usize,
}

/// What an operation does to the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    Keep,
    /// Replaces it.
    Put(Record),
    /// Removes it.
    Delete,
}

/// A command on one key, as a function of the key's current record.
pub type Operation = Box<dyn FnOnce(View<'_>) -> (Reply, Change) + Send>;

/// One key of a request. It takes its own turn and costs its own batch.
pub struct Item {
    /// The key.
    pub key: Key,
    /// What to do.
    pub apply: Operation,
    /// Whether the operation ignores the current record altogether (a plain SET). Such an operation succeeds, and
    /// so repairs the key, even where the stored block fails to open.
    pub blind: bool,
}

/// Several keys that are applied together, in order, in one journal record.
pub struct Group {
    /// Never empty.
    pub items: Vec<Item>,
    /// Makes one reply of the items' replies; `None` for a single item, whose reply is the request's.
    pub combine: Option<Box<dyn FnOnce(Vec<Reply>) -> Reply + Send>>,
}

/// What a request does.
pub enum Body {
    /// Reads and writes keys.
    Group(Group),
    /// Removes every key of the store (FLUSHDB). Costs one batch.
    Flush,
}

impl Body {
    /// A request for one key.
    pub fn single(key: Key, blind: bool, apply: impl FnOnce(View<'_>) -> (Reply, Change) + Send + 'static) -> Self {
        Self::Group(Group { items: vec![Item { key, apply: Box::new(apply), blind }], combine: None })
    }

    /// How many batches the request costs: one for each key, at least one. Public.
    pub fn cost(&self) -> u32 {
        match self {
            Self::Group(group) => group.items.len().max(1) as u32,
            Self::Flush => 1,
        }
    }
}

/// A request as the engine hands it to a scheme.
pub struct Request {
    /// Its name.
    pub id: RequestId,
    /// What it does.
    pub body: Body,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({}, {} batches)", self.id.0, self.body.cost())
    }
}
