//! Oblivious schemes as pure state machines: no I/O, no clock, no thread.

mod coins;
mod freshness;
pub mod pancake;
mod wire;

pub use coins::Coins;
pub use pancake::{Distribution, Pancake, Params};
