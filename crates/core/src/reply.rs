//! What a client is told.

use bytes::Bytes;
use std::borrow::Cow;

/// A reply in the Redis protocol's own terms. How RESP2 shows the RESP3-only kinds is the codec's business.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// `+OK`
    Simple(Cow<'static, str>),
    /// `-ERR …`: the whole line, with its code, without the dash.
    Error(Cow<'static, str>),
    /// `:1`
    Integer(i64),
    /// `,1.5` (RESP2: a bulk string)
    Double(f64),
    /// `#t` (RESP2: 1 or 0)
    Boolean(bool),
    /// `$3 …`
    Bulk(Bytes),
    /// `=…`: text with a three-letter format, "txt" (RESP2: a bulk string)
    Verbatim(Bytes),
    /// `_` (RESP2: `$-1`)
    Null,
    /// `_` (RESP2: `*-1`)
    NullArray,
    /// `*n`
    Array(Vec<Reply>),
    /// `~n` (RESP2: an array)
    Set(Vec<Reply>),
    /// `%n` (RESP2: a flat array)
    Map(Vec<(Reply, Reply)>),
}

impl Reply {
    /// `+OK`
    pub const OK: Self = Self::Simple(Cow::Borrowed("OK"));

    /// An error reply; `line` starts with its code, as in `ERR syntax error`.
    pub fn error(line: impl Into<Cow<'static, str>>) -> Self {
        Self::Error(line.into())
    }

    /// A bulk string.
    pub fn bulk(bytes: impl Into<Bytes>) -> Self {
        Self::Bulk(bytes.into())
    }

    /// Whether this is an error reply.
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }
}
