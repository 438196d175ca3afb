//! What keeps sealed blocks. Back ends know nothing of schemes.

mod embedded;
mod memory;
mod open;

pub use embedded::Embedded;
pub use memory::Memory;
pub use open::open;
