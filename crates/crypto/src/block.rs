//! Sealed blocks of one size, and the labels they stand under. Layout: `docs/formats.md`.
//!
//! Block: nonce (24) ‖ AEAD(header (32) ‖ payload length (4) ‖ payload ‖ zeros) ‖ tag (16), with the associated data
//! store id (16) ‖ epoch (4) ‖ label (16) ‖ scheme (1). The work does not depend on the payload's length.

use crate::keys::random;
use crate::xaes::{NONCE_LEN, TAG_LEN, Xaes};
use crate::{EpochSecret, KeyError, MasterKey, StoreId};
use aws_lc_rs::hmac;
use bytes::Bytes;
use millpond_core::Label;
use std::fmt;
use std::sync::Arc;

/// Which scheme a block belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemeTag(pub u8);

impl SchemeTag {
    /// The `plain` baseline.
    pub const PLAIN: Self = Self(0);
    /// The `sealed` baseline.
    pub const SEALED: Self = Self(1);
    /// PANCAKE.
    pub const PANCAKE: Self = Self(2);
    /// Path ORAM.
    pub const PATH_ORAM: Self = Self(3);
}

/// What every block says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// The version: which run of the proxy wrote it …
    pub incarnation: u64,
    /// … and a counter that never falls.
    pub counter: u64,
    /// The key's number.
    pub key: u64,
    /// The record's sequence number.
    pub seq: u64,
}

const HEADER_LEN: usize = 32;
const OVERHEAD: usize = NONCE_LEN + HEADER_LEN + 4 + TAG_LEN;

/// A payload could not be sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealError {
    /// It is larger than the store's blocks hold.
    TooLong,
    /// The cryptographic library failed.
    Cipher,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the payload is larger than a block holds",
            Self::Cipher => "the cryptographic library failed to seal a block",
        })
    }
}

impl std::error::Error for SealError {}

/// A block is not authentic: changed, cut, or another slot's, epoch's, store's or scheme's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenError;

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the block is not authentic")
    }
}

impl std::error::Error for OpenError {}

struct Keys {
    label: hmac::Key,
    block: Option<Xaes>,
    context: [u8; 21],
    payload_limit: usize,
}

/// Labels and seals the blocks of one store in one epoch. Cheap to clone.
#[derive(Clone)]
pub struct BlockCipher(Arc<Keys>);

/// `count` nonces in one call of the CSPRNG.
pub fn random_nonces(count: usize) -> Vec<[u8; NONCE_LEN]> {
    let mut nonces = vec![[0; NONCE_LEN]; count];
    random(nonces.as_flattened_mut());
    nonces
}

impl BlockCipher {
    /// Derives the label key and the block key of a store's epoch. `payload_limit`: bytes of payload in every block.
    ///
    /// # Errors
    /// If the cryptographic library fails.
    pub fn new(
        master: &MasterKey,
        secret: &EpochSecret,
        store: StoreId,
        epoch: u32,
        scheme: SchemeTag,
        payload_limit: usize,
    ) -> Result<Self, KeyError> {
        let derive = |purpose: &[u8]| master.derive(&secret.0, &[purpose, &store.0, &epoch.to_le_bytes()]);
        let block = Xaes::new(&*derive(b"millpond block key")?).map_err(|_| KeyError("AES is not available".into()))?;
        let label = hmac::Key::new(hmac::HMAC_SHA256, &derive(b"millpond label key")?[..]);
        Ok(Self::from_keys(label, Some(block), store, epoch, scheme, payload_limit))
    }

    /// The `plain` baseline: blocks of the same layout and size that are *not encrypted and not authenticated*.
    pub fn plaintext(store: StoreId, payload_limit: usize) -> Self {
        let label = hmac::Key::new(hmac::HMAC_SHA256, &store.0);
        Self::from_keys(label, None, store, 0, SchemeTag::PLAIN, payload_limit)
    }

    fn from_keys(
        label: hmac::Key,
        block: Option<Xaes>,
        store: StoreId,
        epoch: u32,
        scheme: SchemeTag,
        payload_limit: usize,
    ) -> Self {
        let mut context = [0; 21];
        context[..16].copy_from_slice(&store.0);
        context[16..20].copy_from_slice(&epoch.to_le_bytes());
        context[20] = scheme.0;
        Self(Arc::new(Keys { label, block, context, payload_limit }))
    }

    /// A slot's label: HMAC-SHA256 of epoch (4) ‖ slot (8), cut to 16 bytes.
    pub fn label(&self, slot: u64) -> Label {
        let mut input = [0; 12];
        input[..4].copy_from_slice(&self.0.context[16..20]);
        input[4..].copy_from_slice(&slot.to_le_bytes());
        let tag = hmac::sign(&self.0.label, &input);
        let mut label = [0; 16];
        label.copy_from_slice(&tag.as_ref()[..16]);
        Label(label)
    }

    /// Bytes of every block.
    pub fn block_len(&self) -> usize {
        OVERHEAD + self.0.payload_limit
    }

    /// Most bytes of payload in a block.
    pub fn payload_limit(&self) -> usize {
        self.0.payload_limit
    }

    fn aad(&self, label: &Label) -> [u8; 37] {
        let mut aad = [0; 37];
        aad[..20].copy_from_slice(&self.0.context[..20]);
        aad[20..36].copy_from_slice(&label.0);
        aad[36] = self.0.context[20];
        aad
    }

    /// Seals a payload under a nonce that must be random and new.
    ///
    /// # Errors
    /// If the payload is longer than [`BlockCipher::payload_limit`].
    pub fn seal(
        &self,
        nonce: [u8; NONCE_LEN],
        label: &Label,
        header: &Header,
        payload: &[u8],
    ) -> Result<Bytes, SealError> {
        if payload.len() > self.0.payload_limit {
            return Err(SealError::TooLong);
        }
        let mut block = Vec::with_capacity(self.block_len());
        block.extend_from_slice(&nonce);
        for number in [header.incarnation, header.counter, header.key, header.seq] {
            block.extend_from_slice(&number.to_le_bytes());
        }
        block.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        block.extend_from_slice(payload);
        block.resize(self.block_len() - TAG_LEN, 0);
        let tag = match &self.0.block {
            Some(key) => key.seal(&nonce, &self.aad(label), &mut block[NONCE_LEN..]).map_err(|_| SealError::Cipher)?,
            None => [0; TAG_LEN],
        };
        block.extend_from_slice(&tag);
        Ok(block.into())
    }

    /// Opens a block.
    ///
    /// # Errors
    /// If it is not what this cipher sealed under this label.
    pub fn open(&self, label: &Label, block: &[u8]) -> Result<(Header, Bytes), OpenError> {
        if block.len() != self.block_len() {
            return Err(OpenError);
        }
        let (nonce, sealed) = block.split_first_chunk::<NONCE_LEN>().ok_or(OpenError)?;
        let mut text = sealed.to_vec();
        match &self.0.block {
            Some(key) => {
                let len = key.open(nonce, &self.aad(label), &mut text).map_err(|_| OpenError)?;
                text.truncate(len);
            }
            None => text.truncate(sealed.len() - TAG_LEN),
        }
        let number = |at: usize| -> Result<u64, OpenError> {
            let bytes = text.get(at..at + 8).ok_or(OpenError)?;
            Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| OpenError)?))
        };
        let header = Header { incarnation: number(0)?, counter: number(8)?, key: number(16)?, seq: number(24)? };
        let len = text.get(HEADER_LEN..HEADER_LEN + 4).ok_or(OpenError)?;
        let len = u32::from_le_bytes(len.try_into().map_err(|_| OpenError)?) as usize;
        if len > self.0.payload_limit {
            return Err(OpenError);
        }
        Ok((header, Bytes::from(text).slice(HEADER_LEN + 4..HEADER_LEN + 4 + len)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn cipher(master: u8, store: u8, epoch: u32, scheme: SchemeTag) -> BlockCipher {
        let (master, secret) = (MasterKey::from_bytes([master; 32]), EpochSecret([7; 32]));
        BlockCipher::new(&master, &secret, StoreId([store; 16]), epoch, scheme, 100).unwrap()
    }

    const HEADER: Header = Header { incarnation: 1, counter: 2, key: 3, seq: 4 };

    #[test]
    fn every_length_comes_back_and_all_blocks_have_one_size() {
        let cipher = cipher(1, 2, 0, SchemeTag::PANCAKE);
        for len in 0..=100 {
            let payload = vec![len as u8; len];
            let block = cipher.seal(random_nonces(1)[0], &cipher.label(5), &HEADER, &payload).unwrap();
            assert_eq!(block.len(), cipher.block_len());
            let (header, opened) = cipher.open(&cipher.label(5), &block).unwrap();
            assert_eq!((header, &opened[..]), (HEADER, &payload[..]));
        }
        assert_eq!(cipher.seal([0; 24], &cipher.label(5), &HEADER, &[0; 101]), Err(SealError::TooLong));
    }

    #[test]
    fn any_changed_byte_is_found() {
        let cipher = cipher(1, 2, 0, SchemeTag::PANCAKE);
        let label = cipher.label(9);
        let block = cipher.seal(random_nonces(1)[0], &label, &HEADER, b"value").unwrap();
        for at in 0..block.len() {
            for bit in 0..8 {
                let mut changed = block.to_vec();
                changed[at] ^= 1 << bit;
                assert!(cipher.open(&label, &changed).is_err(), "byte {at}");
            }
        }
        assert!(cipher.open(&label, &block[1..]).is_err());
        assert!(cipher.open(&label, &[&block[..], &[0]].concat()).is_err());
        assert!(cipher.open(&label, &[]).is_err());
    }

    #[test]
    fn a_block_counts_only_where_it_was_sealed() {
        let home = cipher(1, 2, 0, SchemeTag::PANCAKE);
        let label = home.label(9);
        let block = home.seal(random_nonces(1)[0], &label, &HEADER, b"value").unwrap();
        assert!(home.open(&home.label(8), &block).is_err());
        let others = [
            (2, 2, 0, SchemeTag::PANCAKE),
            (1, 3, 0, SchemeTag::PANCAKE),
            (1, 2, 1, SchemeTag::PANCAKE),
            (1, 2, 0, SchemeTag::SEALED),
        ];
        for (master, store, epoch, scheme) in others {
            let other = cipher(master, store, epoch, scheme);
            assert!(other.open(&label, &block).is_err());
        }
    }

    /// The associated data alone tells blocks apart, even where the keys are the same.
    #[test]
    fn the_associated_data_is_checked() {
        let with = |store, epoch, scheme| {
            let label = hmac::Key::new(hmac::HMAC_SHA256, &[1; 32]);
            BlockCipher::from_keys(label, Xaes::new(&[2; 32]).ok(), StoreId([store; 16]), epoch, scheme, 100)
        };
        let (home, label) = (with(1, 0, SchemeTag::SEALED), Label([9; 16]));
        let block = home.seal([5; 24], &label, &HEADER, b"value").unwrap();
        assert!(home.open(&label, &block).is_ok());
        assert!(home.open(&Label([8; 16]), &block).is_err());
        for other in [with(2, 0, SchemeTag::SEALED), with(1, 1, SchemeTag::SEALED), with(1, 0, SchemeTag::PANCAKE)] {
            assert!(other.open(&label, &block).is_err());
        }
    }

    /// An authentic block whose length field is wrong is refused all the same.
    #[test]
    fn a_length_beyond_the_limit_is_an_error() {
        let (key, label) = (Xaes::new(&[2; 32]).unwrap(), Label([9; 16]));
        let prf = hmac::Key::new(hmac::HMAC_SHA256, &[1; 32]);
        let cipher = BlockCipher::from_keys(prf, Some(key), StoreId([1; 16]), 0, SchemeTag::SEALED, 100);
        for (len, fits) in [(100u32, true), (101, false), (u32::MAX, false)] {
            let mut block = vec![3; cipher.block_len() - TAG_LEN];
            block[NONCE_LEN + HEADER_LEN..][..4].copy_from_slice(&len.to_le_bytes());
            let aes = cipher.0.block.as_ref().unwrap();
            let tag = aes.seal(&[3; NONCE_LEN], &cipher.aad(&label), &mut block[NONCE_LEN..]).unwrap();
            block.extend_from_slice(&tag);
            assert_eq!(cipher.open(&label, &block).is_ok(), fits, "{len}");
        }
    }

    #[test]
    fn plain_blocks_have_the_same_layout_and_are_not_sealed() {
        let plain = BlockCipher::plaintext(StoreId([1; 16]), 100);
        let block = plain.seal([5; 24], &plain.label(0), &HEADER, b"value").unwrap();
        assert_eq!(block.len(), cipher(1, 2, 0, SchemeTag::SEALED).block_len());
        assert_eq!(&block[NONCE_LEN + HEADER_LEN + 4..][..5], b"value");
        assert_eq!(plain.open(&plain.label(0), &block).unwrap(), (HEADER, Bytes::from_static(b"value")));
    }

    /// Computed independently (Python's hmac and cryptography): stores that exist must stay readable.
    #[test]
    fn labels_and_blocks_are_stable() {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let secret = EpochSecret([7; 32]);
        let master = MasterKey::from_bytes([1; 32]);
        let cipher = BlockCipher::new(&master, &secret, StoreId([2; 16]), 3, SchemeTag::PANCAKE, 20).unwrap();
        assert_eq!(hex(&cipher.label(5).0), "28070a7523bd466f861524ac5f923bd9");
        let nonce = *b"ABCDEFGHIJKLMNOPQRSTUVWX";
        let block = cipher.seal(nonce, &cipher.label(5), &HEADER, b"Kingfisher").unwrap();
        assert_eq!(
            hex(&block),
            "4142434445464748494a4b4c4d4e4f50515253545556575831756f1dfc1fe0a2200f874e1cbc2162512e4bde6fb921d14b914bd1d6d4afad93b08c870bae8181151a4bea46ce72d40c859a6fbff8e8d34e12102f7daf20ea7ae7e1ed5613498b"
        );
        let labels: std::collections::HashSet<_> = (0..1000).map(|slot| cipher.label(slot)).collect();
        assert_eq!(labels.len(), 1000);
    }
}
