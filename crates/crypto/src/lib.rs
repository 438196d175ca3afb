//! Keys, labels and sealed blocks: the only crate that touches key material (security.md, *Sealing*).

mod block;
mod keys;
mod source;
mod xaes;

pub use block::{BlockCipher, Header, OpenError, SchemeTag, SealError, random_nonces};
pub use keys::{EpochSecret, KeyError, MasterKey, StoreId};
pub use source::{generate_file, load_master};
