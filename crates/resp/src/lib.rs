//! The Redis protocol: a bounded RESP2/RESP3 codec, the table that defines every command, and the state of a connection.
//!
//! ```text
//! bytes ─▶ RequestDecoder ─▶ Session::handle ─▶ Outcome::Data { store, body } ─▶ a scheme
//! bytes ◀─ encode         ◀─ Outcome::Reply, or the scheme's reply
//! ```
//!
//! No I/O happens here, and nothing here names a scheme or a back end. What a data command does is a function of one
//! key's record ([`millpond_core::Operation`]), so every scheme serves every command without knowing any.
//!
//! Whatever names a key becomes a [`millpond_core::Body`], with the same cost whatever the key holds: not even a value that is too
//! large or a key that is too long is answered without its batch.

pub mod command;
pub mod frame;
mod number;
mod session;

pub use command::reference_markdown;
pub use frame::{Limits, Protocol, ProtocolError, ReplyDecoder, RequestDecoder, encode, encode_request};
pub use session::{Environment, Outcome, REDIS_VERSION, Session};
