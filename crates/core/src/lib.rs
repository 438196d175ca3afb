//! What every part of Millpond speaks of: keys, records, requests and replies, and the two seams.
//!
//! * [`Scheme`]: a synchronous, deterministic state machine that turns requests into store accesses.
//! * [`Store`]: what an untrusted back end can do with sealed blocks.
//!
//! No I/O, no clock and no thread lives here.

mod record;
mod reply;
mod request;
mod scheme;
mod store;

pub use record::{Key, Record, RecordDecodeError};
pub use reply::Reply;
pub use request::{Body, Change, Group, Item, Operation, Request, RequestId, View};
pub use scheme::{
    Budget, Cancelled, Computed, Effect, Event, IoId, Job, JobId, Now, Scheme, SchemeError, Seq, Snapshot, Status,
};
pub use store::{
    Answer, BarrierKind, Batch, BoxFuture, Capabilities, Incarnation, Label, Op, Store, StoreError, StoreErrorKind,
};
