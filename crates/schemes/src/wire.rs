//! Little-endian encoding of journal records and snapshots. Byte layouts: `docs/formats.md`.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use millpond_core::SchemeError;

/// Appends a length (4 bytes) and the bytes.
pub fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u32_le(bytes.len() as u32);
    out.put_slice(bytes);
}

/// Appends a count (4 bytes) and the numbers.
pub fn put_u32s(out: &mut BytesMut, numbers: &[u32]) {
    out.put_u32_le(numbers.len() as u32);
    numbers.iter().for_each(|&n| out.put_u32_le(n));
}

/// Reads what the functions above and `BufMut` wrote; every read is checked.
pub struct Reader(pub Bytes);

fn short() -> SchemeError {
    SchemeError("a journal record or checkpoint is cut short".into())
}

impl Reader {
    pub fn u8(&mut self) -> Result<u8, SchemeError> {
        self.0.try_get_u8().map_err(|_| short())
    }

    pub fn u32(&mut self) -> Result<u32, SchemeError> {
        self.0.try_get_u32_le().map_err(|_| short())
    }

    pub fn u64(&mut self) -> Result<u64, SchemeError> {
        self.0.try_get_u64_le().map_err(|_| short())
    }

    pub fn bytes(&mut self) -> Result<Bytes, SchemeError> {
        let len = self.u32()? as usize;
        if len > self.0.len() { Err(short()) } else { Ok(self.0.split_to(len)) }
    }

    pub fn u32s(&mut self) -> Result<Vec<u32>, SchemeError> {
        let count = self.u32()?;
        if count as usize > self.0.len() / 4 {
            return Err(short());
        }
        (0..count).map(|_| self.u32()).collect()
    }

    /// Fails unless everything has been read.
    pub fn end(&self) -> Result<(), SchemeError> {
        if self.0.is_empty() { Ok(()) } else { Err(SchemeError("a journal record or checkpoint is too long".into())) }
    }
}
