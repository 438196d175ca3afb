//! Synthetic traffic: who is asked for how often, and YCSB's mixes of reads and writes.
//!
//! Everything is drawn from a `ChaCha` generator with a given seed, so a run can be repeated.
//!
//! * [`Distribution`] says how popular the ranks 0, 1, 2 … are; [`Ranks`] draws from it.
//! * [`Scramble`] spreads the popular ranks over the records; [`key`] names a record as YCSB does.
//! * [`Values`] are what is written. [`Ycsb`] is a core workload (A, B, C, D or F) as an iterator of (operation, record).
//!
//! Sources: Cooper et al., "Benchmarking Cloud Serving Systems with YCSB" (`SoCC` 2010), §4; Gray et al., "Quickly
//! Generating Billion-Record Synthetic Databases" (SIGMOD 1994), §5; Vose, "A Linear Algorithm for Generating Random
//! Numbers with a Given Distribution" (1991).

mod keys;
mod ranks;
mod values;
mod ycsb;

pub use keys::{KEY_LEN, Scramble, key};
pub use ranks::{Distribution, Ranks};
pub use values::Values;
pub use ycsb::{Op, Workload, Ycsb, probabilities};
