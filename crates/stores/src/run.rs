//! Names for runs of the stores that live in this process.

use millpond_core::Incarnation;
use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

/// A name that no other run has: not in this process, and not in one before. No secret, so it needs no CSPRNG; the
/// hasher's keys are the system's randomness.
pub fn new_run() -> Incarnation {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let (high, low) = (RandomState::new().hash_one(started), RandomState::new().hash_one(std::process::id()));
    Incarnation(format!("{high:016x}{low:016x}"))
}
