//! Workloads, simulated time, disk and store, and the model every scheme is checked against.

pub mod disk;
pub mod model;
pub mod store;
pub mod workload;
pub mod world;
