//! Keys and the records they name.

use bytes::{BufMut, Bytes, BytesMut};
use std::fmt;

/// A client's key: any bytes. It has no `Debug` that shows it, because key names never reach a log.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Bytes);

impl Key {
    /// Wraps a key's bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// The key's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// A copy that owns just its own bytes, rather than a slice of a larger network buffer.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

impl<T: Into<Bytes>> From<T> for Key {
    fn from(bytes: T) -> Self {
        Self::new(bytes)
    }
}

/// What a key names: a typed value with an optional time to live. Schemes store it without looking inside.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// The value's type; its meaning belongs to the command table.
    pub kind: u8,
    /// When the record stops existing, in milliseconds since the Unix epoch; `None`: never.
    pub expires_at_ms: Option<u64>,
    /// The value as the command table encodes it.
    pub data: Bytes,
}

impl Record {
    /// Bytes that [`Record::encode`] adds to the value: type and expiry.
    pub const OVERHEAD: usize = 1 + 8;

    /// Length of the encoding in bytes.
    pub fn encoded_len(&self) -> usize {
        Self::OVERHEAD + self.data.len()
    }

    /// Appends `kind (1) ‖ expiry in ms, little endian, 0 for never (8) ‖ value`.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u8(self.kind);
        out.put_u64_le(self.expires_at_ms.unwrap_or(0));
        out.put_slice(&self.data);
    }

    /// Reads what [`Record::encode`] wrote, without copying the value.
    ///
    /// # Errors
    /// If there are fewer than [`Record::OVERHEAD`] bytes.
    pub fn decode(bytes: &Bytes) -> Result<Self, RecordDecodeError> {
        let (head, _) = bytes.split_at_checked(Self::OVERHEAD).ok_or(RecordDecodeError)?;
        let (kind, expiry) = head.split_first_chunk::<1>().ok_or(RecordDecodeError)?;
        let expiry: [u8; 8] = expiry.try_into().map_err(|_| RecordDecodeError)?;
        let expiry = u64::from_le_bytes(expiry);
        Ok(Self { kind: kind[0], expires_at_ms: (expiry != 0).then_some(expiry), data: bytes.slice(Self::OVERHEAD..) })
    }

    /// Whether the record still exists at `now_ms`.
    pub fn is_live(&self, now_ms: u64) -> bool {
        self.expires_at_ms.is_none_or(|at| at > now_ms)
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Record(kind {}, {} bytes)", self.kind, self.data.len())
    }
}

/// A record's encoding was cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordDecodeError;

impl fmt::Display for RecordDecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record's encoding is cut short")
    }
}

impl std::error::Error for RecordDecodeError {}
