//! Drives a scheme against a store: rounds, pacing, journal, checkpoints and recovery. Async stops here.

mod handle;

pub use handle::{Mailbox, Stats, StoreHandle};
