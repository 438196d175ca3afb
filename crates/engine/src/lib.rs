//! Drives a scheme against a store: rounds, pacing, journal, checkpoints and recovery. Async stops here.
//!
//! [`Driver`] is the engine as a synchronous state machine; [`start`] runs it on a real disk, clock and store.

mod cover;
mod disk;
mod driver;
mod handle;
mod journal;
mod shell;
mod state_dir;

pub use cover::Cover;
pub use disk::{Disk, FsDisk, SyncJob};
pub use driver::{Action, Config, Driver, Durability, Input, Pace};
pub use handle::{Mailbox, Stats, StoreHandle};
pub use journal::JournalError;
pub use shell::{EngineError, Start, start};
pub use state_dir::{Meta, StateDir};
