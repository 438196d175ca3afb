//! Frames: requests in, replies out, and the same from a client's side.
//!
//! Every decoder is incremental and bounded: no byte of an unfinished frame is looked at twice, no length is trusted
//! before the bytes it announces have arrived, and no frame grows beyond its [`Limits`].

mod encode;
mod inline;
mod reply;
mod request;

pub use encode::{encode, encode_request};
pub use reply::ReplyDecoder;
pub use request::RequestDecoder;

use std::fmt;

/// The longest line (inline command, length or simple string), in bytes. Redis's `PROTO_INLINE_MAX_SIZE`.
pub const LINE_LIMIT: usize = 64 * 1024;

/// The version of the protocol a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// RESP2, which every connection starts with.
    #[default]
    Resp2,
    /// RESP3, after `HELLO 3`.
    Resp3,
}

/// How much one frame may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest bulk string, in bytes.
    pub bulk_bytes: usize,
    /// Most arguments of a request, or elements of one array of a reply.
    pub elements: usize,
    /// Most memory a whole frame may hold: its bulk strings' bytes and a small fixed charge for each element.
    pub frame_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bulk_bytes: 64 << 20, elements: 1024 * 1024, frame_bytes: 128 << 20 }
    }
}

/// The peer broke the protocol. Nothing that follows on the connection can be understood, so it is to be closed after
/// [`ProtocolError::line`] has been sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolError {
    /// `*` was followed by something else than an acceptable count.
    MultibulkLength,
    /// `$` was followed by something else than an acceptable length.
    BulkLength,
    /// An argument began with this byte instead of `$`.
    ExpectedBulk(u8),
    /// An inline command's quotes do not match.
    UnbalancedQuotes,
    /// An inline command is longer than [`LINE_LIMIT`].
    InlineTooBig,
    /// The line with the count is longer than [`LINE_LIMIT`].
    MultibulkCountTooBig,
    /// The line with a length is longer than [`LINE_LIMIT`].
    BulkCountTooBig,
    /// More than 10 arguments before authentication.
    UnauthenticatedMultibulk,
    /// An argument of more than 16 KiB before authentication.
    UnauthenticatedBulk,
    /// The frame is larger than [`Limits::frame_bytes`].
    FrameTooBig,
    /// A reply began with this byte, which no kind of reply does.
    UnknownKind(u8),
    /// A reply's number, length, boolean or line end is not what it should be.
    MalformedReply,
    /// A reply is nested too deeply.
    TooDeep,
}

impl ProtocolError {
    /// The error as a reply's line: `ERR Protocol error: …`.
    pub fn line(self) -> String {
        format!("ERR {self}")
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match self {
            Self::MultibulkLength => f.write_str("invalid multibulk length"),
            Self::BulkLength => f.write_str("invalid bulk length"),
            Self::ExpectedBulk(got) => write!(f, "expected '$', got '{}'", char::from(*got)),
            Self::UnbalancedQuotes => f.write_str("unbalanced quotes in request"),
            Self::InlineTooBig => f.write_str("too big inline request"),
            Self::MultibulkCountTooBig => f.write_str("too big mbulk count string"),
            Self::BulkCountTooBig => f.write_str("too big bulk count string"),
            Self::UnauthenticatedMultibulk => f.write_str("unauthenticated multibulk length"),
            Self::UnauthenticatedBulk => f.write_str("unauthenticated bulk length"),
            Self::FrameTooBig => f.write_str("too big request"),
            Self::UnknownKind(got) => write!(f, "unknown kind of reply, '{}'", char::from(*got)),
            Self::MalformedReply => f.write_str("malformed reply"),
            Self::TooDeep => f.write_str("reply nested too deeply"),
        }
    }
}

impl std::error::Error for ProtocolError {}

/// Looks for the end of a line, and remembers how far it got when the line is not complete.
#[derive(Debug, Default)]
struct LineScan {
    /// Bytes at the front of the buffer known not to hold the terminator.
    seen: usize,
}

impl LineScan {
    /// Where `end` first stands in `buf`, provided that `after` more bytes have arrived behind it.
    ///
    /// # Errors
    /// `too_long` if it is not among the first [`LINE_LIMIT`] bytes (and the one after).
    fn find(
        &mut self,
        buf: &[u8],
        end: u8,
        after: usize,
        too_long: ProtocolError,
    ) -> Result<Option<usize>, ProtocolError> {
        let rest = buf.get(self.seen..).unwrap_or_default();
        let found = rest.iter().take(LINE_LIMIT + 1 - self.seen.min(LINE_LIMIT)).position(|&byte| byte == end);
        let Some(offset) = found else {
            self.seen = buf.len().min(LINE_LIMIT + 1);
            return if buf.len() > LINE_LIMIT { Err(too_long) } else { Ok(None) };
        };
        let at = self.seen + offset;
        if buf.len() <= at + after {
            self.seen = at;
            return Ok(None);
        }
        self.seen = 0;
        Ok(Some(at))
    }
}
