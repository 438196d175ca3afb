//! Replies, from a client's side: what a Redis store or a server under test answers.
//!
//! Finished elements leave the buffer at once and wait on a stack of open arrays, so a large reply that arrives in many
//! pieces is read once, whatever the pieces.

use super::{Limits, LineScan, ProtocolError};
use crate::number::parse_i64;
use bytes::{Buf, Bytes, BytesMut};
use millpond_core::Reply;
use std::borrow::Cow;

/// How deeply arrays may be nested.
const MAX_DEPTH: usize = 64;
/// Most elements that an array reserves room for before they arrive.
const RESERVED_ELEMENTS: usize = 1024;

/// What an open array becomes.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Array,
    Set,
    Map,
    /// Attributes and pushes: read, then dropped.
    Dropped,
}

/// An array whose elements are arriving.
#[derive(Debug)]
struct Open {
    shape: Shape,
    missing: usize,
    items: Vec<Reply>,
}

/// What a bulk string becomes.
#[derive(Debug, Clone, Copy)]
enum Text {
    Bulk,
    Error,
    Verbatim,
}

/// The front of the buffer.
enum Step {
    Incomplete,
    /// An array was opened, or dropped for being empty.
    Opened,
    Value(Reply),
}

/// Decodes replies of RESP2 and RESP3, with bulk strings as slices of the network buffer.
///
/// Attributes and pushes are skipped. Big numbers become bulk strings, bulk errors errors.
#[derive(Debug)]
pub struct ReplyDecoder {
    limits: Limits,
    line: LineScan,
    /// Outermost first.
    open: Vec<Open>,
    /// A bulk string whose length is known and whose bytes are arriving.
    bulk: Option<(Text, usize)>,
    /// What the reply in progress holds, in terms of [`Limits::frame_bytes`].
    held: usize,
}

impl ReplyDecoder {
    /// A decoder for a new connection.
    pub fn new(limits: Limits) -> Self {
        Self { limits, line: LineScan::default(), open: Vec::new(), bulk: None, held: 0 }
    }

    /// Takes the next reply off the front of `buf`. `Ok(None)`: more bytes are needed.
    ///
    /// # Errors
    /// If the bytes are not a reply, or one beyond the limits. The connection is to be closed, and the decoder is
    /// not to be used again.
    pub fn decode(&mut self, buf: &mut BytesMut) -> Result<Option<Reply>, ProtocolError> {
        loop {
            let mut value = match self.step(buf)? {
                Step::Incomplete => return Ok(None),
                Step::Opened => None,
                Step::Value(reply) => Some(reply),
            };
            // Hands the value to the innermost open array, and each array that is thereby complete to the next.
            loop {
                let Some(top) = self.open.last_mut() else {
                    if let Some(reply) = value.take() {
                        self.held = 0;
                        return Ok(Some(reply));
                    }
                    break;
                };
                if let Some(reply) = value.take() {
                    top.items.push(reply);
                    top.missing = top.missing.saturating_sub(1);
                }
                if top.missing > 0 {
                    break;
                }
                value = self.open.pop().and_then(close);
            }
        }
    }

    /// Reads one scalar, or the head of an array.
    fn step(&mut self, buf: &mut BytesMut) -> Result<Step, ProtocolError> {
        if let Some((text, length)) = self.bulk {
            return self.take_bulk(buf, text, length);
        }
        let Some(end) = self.line.find(buf, b'\r', 1, ProtocolError::MalformedReply)? else {
            return Ok(Step::Incomplete);
        };
        let (&mark, rest) = buf.get(..end).and_then(<[u8]>::split_first).ok_or(ProtocolError::MalformedReply)?;
        if buf.get(end + 1) != Some(&b'\n') {
            return Err(ProtocolError::MalformedReply);
        }
        let length = parse_i64(rest);
        let scalar = scalar(mark, rest)?;
        buf.advance(end + 2);
        self.charge(size_of::<Reply>())?;
        if let Some(reply) = scalar {
            return Ok(Step::Value(reply));
        }
        match mark {
            b'$' => self.open_bulk(buf, length, Text::Bulk),
            b'!' => self.open_bulk(buf, length, Text::Error),
            b'=' => self.open_bulk(buf, length, Text::Verbatim),
            b'*' => self.open_array(buf, length, Shape::Array, 1),
            b'~' => self.open_array(buf, length, Shape::Set, 1),
            b'%' => self.open_array(buf, length, Shape::Map, 2),
            b'>' => self.open_array(buf, length, Shape::Dropped, 1),
            b'|' => self.open_array(buf, length, Shape::Dropped, 2),
            other => Err(ProtocolError::UnknownKind(other)),
        }
    }

    fn charge(&mut self, bytes: usize) -> Result<(), ProtocolError> {
        self.held = self.held.saturating_add(bytes);
        if self.held > self.limits.frame_bytes { Err(ProtocolError::FrameTooBig) } else { Ok(()) }
    }

    /// Reads `$n`: remembers the length, or knows the null bulk string.
    fn open_bulk(&mut self, buf: &mut BytesMut, length: Option<i64>, text: Text) -> Result<Step, ProtocolError> {
        if length == Some(-1) && matches!(text, Text::Bulk) {
            return Ok(Step::Value(Reply::Null));
        }
        let length = length.and_then(|length| usize::try_from(length).ok());
        let length = length.filter(|&length| length <= self.limits.bulk_bytes).ok_or(ProtocolError::BulkLength)?;
        self.charge(length)?;
        self.bulk = Some((text, length));
        self.take_bulk(buf, text, length)
    }

    fn take_bulk(&mut self, buf: &mut BytesMut, text: Text, length: usize) -> Result<Step, ProtocolError> {
        if buf.len() < length + 2 {
            return Ok(Step::Incomplete);
        }
        self.bulk = None;
        let mut bytes = buf.split_to(length).freeze();
        if !buf.starts_with(b"\r\n") {
            return Err(ProtocolError::MalformedReply);
        }
        buf.advance(2);
        Ok(Step::Value(match text {
            Text::Bulk => Reply::Bulk(bytes),
            Text::Error => Reply::Error(owned(&bytes)),
            Text::Verbatim if bytes.get(3) == Some(&b':') => Reply::Verbatim(bytes.split_off(4)),
            Text::Verbatim => return Err(ProtocolError::MalformedReply),
        }))
    }

    /// Reads `*n` and its like; each of the `n` entries has `each` elements.
    fn open_array(
        &mut self,
        buf: &BytesMut,
        count: Option<i64>,
        shape: Shape,
        each: usize,
    ) -> Result<Step, ProtocolError> {
        if count == Some(-1) && matches!(shape, Shape::Array) {
            return Ok(Step::Value(Reply::NullArray));
        }
        let count = count.and_then(|count| usize::try_from(count).ok());
        let count = count.filter(|&count| count <= self.limits.elements).ok_or(ProtocolError::MultibulkLength)?;
        if self.open.len() == MAX_DEPTH {
            return Err(ProtocolError::TooDeep);
        }
        let missing = count * each;
        if missing == 0 {
            return Ok(close(Open { shape, missing, items: Vec::new() }).map_or(Step::Opened, Step::Value));
        }
        // The smallest element is `_\r\n`. The count is only a claim.
        let room = missing.min(buf.len() / 3 + 1).min(RESERVED_ELEMENTS);
        self.open.push(Open { shape, missing, items: Vec::with_capacity(room) });
        Ok(Step::Opened)
    }
}

/// What a complete array is; `None` if it is dropped.
fn close(open: Open) -> Option<Reply> {
    match open.shape {
        Shape::Array => Some(Reply::Array(open.items)),
        Shape::Set => Some(Reply::Set(open.items)),
        Shape::Map => {
            let mut items = open.items.into_iter();
            let mut pairs = Vec::with_capacity(items.len() / 2);
            while let (Some(key), Some(value)) = (items.next(), items.next()) {
                pairs.push((key, value));
            }
            Some(Reply::Map(pairs))
        }
        Shape::Dropped => None,
    }
}

/// The kinds that are one line; `None` for the others.
fn scalar(mark: u8, rest: &[u8]) -> Result<Option<Reply>, ProtocolError> {
    let reply = match mark {
        b'+' if rest == b"OK" => Some(Reply::OK),
        b'+' => Some(Reply::Simple(owned(rest))),
        b'-' => Some(Reply::Error(owned(rest))),
        b':' => parse_i64(rest.strip_prefix(b"+").unwrap_or(rest)).map(Reply::Integer),
        b',' => std::str::from_utf8(rest).ok().and_then(|text| text.parse().ok()).map(Reply::Double),
        b'#' => match rest {
            b"t" => Some(Reply::Boolean(true)),
            b"f" => Some(Reply::Boolean(false)),
            _ => None,
        },
        b'_' => rest.is_empty().then_some(Reply::Null),
        b'(' => Some(Reply::Bulk(Bytes::copy_from_slice(rest))),
        _ => return Ok(None),
    };
    reply.ok_or(ProtocolError::MalformedReply).map(Some)
}

fn owned(text: &[u8]) -> Cow<'static, str> {
    Cow::Owned(String::from_utf8_lossy(text).into_owned())
}
