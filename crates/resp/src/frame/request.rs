//! Requests: arrays of bulk strings, and inline commands.

use super::{Limits, LineScan, ProtocolError, inline};
use crate::number::parse_i64;
use bytes::{Buf, Bytes, BytesMut};

/// Most arguments before authentication, as in Redis.
const UNAUTHENTICATED_ARGS: i64 = 10;
/// Longest argument before authentication, as in Redis.
const UNAUTHENTICATED_BULK: i64 = 16_384;
/// The shortest argument on the wire, `$0\r\n\r\n`.
const SMALLEST_ARG: usize = 6;

/// Decodes requests, without copying their arguments and without looking at a byte twice.
///
/// The arguments are slices of the network buffer: whoever keeps one copies it.
#[derive(Debug)]
pub struct RequestDecoder {
    limits: Limits,
    /// Whether Redis's tight limits for strangers are off.
    authenticated: bool,
    line: LineScan,
    /// Arguments of the request in progress that are still to come; 0: none in progress.
    missing: usize,
    /// The announced length of the argument in progress.
    bulk: Option<usize>,
    args: Vec<Bytes>,
    /// What the request in progress holds, in terms of [`Limits::frame_bytes`].
    held: usize,
}

impl RequestDecoder {
    /// A decoder for a new connection, which is taken to be authenticated (or to need no password).
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            authenticated: true,
            line: LineScan::default(),
            missing: 0,
            bulk: None,
            args: Vec::new(),
            held: 0,
        }
    }

    /// While `false`, requests may have but 10 arguments of 16 KiB, as Redis allows strangers.
    pub fn set_authenticated(&mut self, authenticated: bool) {
        self.authenticated = authenticated;
    }

    /// Takes the next request off the front of `buf`: the command's name and its arguments, never empty.
    /// `Ok(None)`: more bytes are needed; what was taken in so far is remembered.
    ///
    /// # Errors
    /// If the bytes are not a request, or one beyond the limits. The connection is to be closed, and the decoder
    /// is not to be used again.
    pub fn decode(&mut self, buf: &mut BytesMut) -> Result<Option<Vec<Bytes>>, ProtocolError> {
        loop {
            if self.missing > 0 {
                if !self.take_argument(buf)? {
                    return Ok(None);
                }
                if self.missing == 0 {
                    self.held = 0;
                    return Ok(Some(std::mem::take(&mut self.args)));
                }
                continue;
            }
            match buf.first() {
                None => return Ok(None),
                Some(b'*') => {
                    if !self.take_count(buf)? {
                        return Ok(None);
                    }
                }
                Some(_) => match self.take_inline(buf)? {
                    None => return Ok(None),
                    Some(args) if args.is_empty() => {}
                    Some(args) => return Ok(Some(args)),
                },
            }
        }
    }

    /// Takes `*n\r\n`. A count of zero or less is no request at all. `false`: incomplete.
    fn take_count(&mut self, buf: &mut BytesMut) -> Result<bool, ProtocolError> {
        let Some(end) = self.line.find(buf, b'\r', 1, ProtocolError::MultibulkCountTooBig)? else {
            return Ok(false);
        };
        let count = buf.get(1..end).and_then(parse_i64).ok_or(ProtocolError::MultibulkLength)?;
        if count > 0 && usize::try_from(count).is_ok_and(|count| count > self.limits.elements) {
            return Err(ProtocolError::MultibulkLength);
        }
        if count > UNAUTHENTICATED_ARGS && !self.authenticated {
            return Err(ProtocolError::UnauthenticatedMultibulk);
        }
        buf.advance(end + 2);
        self.missing = usize::try_from(count).unwrap_or(0);
        // No more room than for what has arrived: the count is only a claim.
        self.args = Vec::with_capacity(self.missing.min(buf.len() / SMALLEST_ARG + 1));
        Ok(true)
    }

    /// Takes one argument, `$n\r\n…\r\n`. `false`: incomplete.
    fn take_argument(&mut self, buf: &mut BytesMut) -> Result<bool, ProtocolError> {
        let length = match self.bulk {
            Some(length) => length,
            None => match self.take_length(buf)? {
                Some(length) => length,
                None => return Ok(false),
            },
        };
        if buf.len() < length + 2 {
            return Ok(false);
        }
        self.args.push(buf.split_to(length).freeze());
        // Like Redis, takes the two bytes for a line end whatever they are.
        buf.advance(2);
        self.bulk = None;
        self.missing -= 1;
        Ok(true)
    }

    /// Takes `$n\r\n` and remembers the length.
    fn take_length(&mut self, buf: &mut BytesMut) -> Result<Option<usize>, ProtocolError> {
        let Some(end) = self.line.find(buf, b'\r', 1, ProtocolError::BulkCountTooBig)? else {
            return Ok(None);
        };
        match buf.first() {
            Some(b'$') => {}
            Some(&other) => return Err(ProtocolError::ExpectedBulk(other)),
            None => return Ok(None),
        }
        let length = buf.get(1..end).and_then(parse_i64).ok_or(ProtocolError::BulkLength)?;
        let bytes = usize::try_from(length).map_err(|_| ProtocolError::BulkLength)?;
        if bytes > self.limits.bulk_bytes {
            return Err(ProtocolError::BulkLength);
        }
        if length > UNAUTHENTICATED_BULK && !self.authenticated {
            return Err(ProtocolError::UnauthenticatedBulk);
        }
        self.held = self.held.saturating_add(bytes).saturating_add(size_of::<Bytes>());
        if self.held > self.limits.frame_bytes {
            return Err(ProtocolError::FrameTooBig);
        }
        buf.advance(end + 2);
        self.bulk = Some(bytes);
        Ok(Some(bytes))
    }

    /// Takes a line and splits it by Redis's quoting rules; empty for a blank line.
    fn take_inline(&mut self, buf: &mut BytesMut) -> Result<Option<Vec<Bytes>>, ProtocolError> {
        let Some(end) = self.line.find(buf, b'\n', 0, ProtocolError::InlineTooBig)? else {
            return Ok(None);
        };
        let line = buf.split_to(end);
        buf.advance(1);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        inline::split(line).map(Some).ok_or(ProtocolError::UnbalancedQuotes)
    }
}
