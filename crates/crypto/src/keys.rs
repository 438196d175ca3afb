//! The key hierarchy: master key → (with an epoch's secret as salt) label key and block key.

use crate::xaes::{NONCE_LEN, TAG_LEN, Xaes};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::rand;
use std::fmt;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// First word of a key file.
const FILE_TAG: &str = "millpond-master-key-1";

/// What is wrong with a key or its source, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyError(pub String);

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for KeyError {}

/// Fills a buffer from the system's CSPRNG.
#[expect(clippy::expect_used, reason = "without randomness nothing may go on")]
pub(crate) fn random(buffer: &mut [u8]) {
    rand::fill(buffer).expect("the system's random generator failed");
}

/// The 32 bytes everything is derived from.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct MasterKey([u8; 32]);

impl MasterKey {
    /// A key somebody else made.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A new key.
    pub fn generate() -> Self {
        let mut key = Self([0; 32]);
        random(&mut key.0);
        key
    }

    /// Reads the format of a key file: lines starting with `#`, and one `millpond-master-key-1 <64 hex digits>`.
    ///
    /// # Errors
    /// If there is no such line, or more than one.
    pub fn parse(text: &[u8]) -> Result<Self, KeyError> {
        let bad = || {
            KeyError(format!(
                "not a key: one line `{FILE_TAG} <64 hex digits>` is expected; `millpond keygen` makes one"
            ))
        };
        let text = std::str::from_utf8(text).map_err(|_| bad())?;
        let mut lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
        let (tag, digits) = lines.next().and_then(|l| l.split_once(char::is_whitespace)).ok_or_else(bad)?;
        let digits = digits.trim_start().as_bytes();
        if tag != FILE_TAG || digits.len() != 64 || lines.next().is_some() {
            return Err(bad());
        }
        let nibble = |digit: u8| char::from(digit).to_digit(16).ok_or_else(bad);
        let mut key = Self([0; 32]);
        for (byte, pair) in key.0.iter_mut().zip(digits.as_chunks::<2>().0) {
            *byte = (nibble(pair[0])? << 4 | nibble(pair[1])?) as u8;
        }
        Ok(key)
    }

    /// The text of a key file.
    pub(crate) fn to_file(&self) -> Zeroizing<String> {
        use std::fmt::Write as _;
        let mut text = Zeroizing::new(String::with_capacity(256));
        text.push_str(
            "# Millpond master key. Whoever has this file can read the store. Without it the data is lost.\n",
        );
        text.push_str(FILE_TAG);
        text.push(' ');
        for byte in self.0 {
            // Writing to a string cannot fail.
            write!(text, "{byte:02x}").ok();
        }
        text.push('\n');
        text
    }

    /// Derives a key for one purpose: HKDF-SHA256.
    pub(crate) fn derive(&self, salt: &[u8], purpose: &[&[u8]]) -> Result<Zeroizing<[u8; 32]>, KeyError> {
        let mut key = Zeroizing::new([0; 32]);
        let prk = Salt::new(HKDF_SHA256, salt).extract(&self.0);
        let filled = prk.expand(purpose, HKDF_SHA256).and_then(|okm| okm.fill(&mut key[..]));
        // Never a key of zeros.
        filled.map_err(|_| KeyError("HKDF is not available".into()))?;
        Ok(key)
    }
}

/// A store's number: random, made once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreId(pub [u8; 16]);

impl StoreId {
    /// A new one.
    pub fn generate() -> Self {
        let mut id = Self([0; 16]);
        random(&mut id.0);
        id
    }
}

/// An epoch's secret: without it the master key does not bring the epoch's keys back.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct EpochSecret(pub(crate) [u8; 32]);

impl EpochSecret {
    /// A new one.
    pub fn generate() -> Self {
        let mut secret = Self([0; 32]);
        random(&mut secret.0);
        secret
    }

    fn aad(store: &StoreId, epoch: u32) -> Vec<u8> {
        [&store.0[..], &epoch.to_le_bytes(), b"millpond epoch secret"].concat()
    }

    fn sealer(master: &MasterKey) -> Result<Xaes, KeyError> {
        Xaes::new(&*master.derive(&[], &[b"millpond epoch secrets"])?)
            .map_err(|_| KeyError("AES is not available".into()))
    }

    /// Seals it for the state directory: nonce (24) ‖ ciphertext (32) ‖ tag (16).
    #[expect(clippy::expect_used, reason = "AES-256 takes every 32-byte key, and GCM seals every 32-byte text")]
    pub fn seal(&self, master: &MasterKey, store: &StoreId, epoch: u32) -> Vec<u8> {
        let mut nonce = [0; NONCE_LEN];
        random(&mut nonce);
        let mut text = Zeroizing::new(self.0);
        let sealer = Self::sealer(master).expect("AES-256 takes every 32-byte key");
        let tag = sealer.seal(&nonce, &Self::aad(store, epoch), &mut text[..]).expect("GCM seals 32 bytes");
        [&nonce[..], &text[..], &tag].concat()
    }

    /// Opens what [`EpochSecret::seal`] made.
    ///
    /// # Errors
    /// If the master key is not the one it was sealed under, or the bytes are damaged.
    pub fn open(sealed: &[u8], master: &MasterKey, store: &StoreId, epoch: u32) -> Result<Self, KeyError> {
        let wrong =
            || KeyError("the master key is not the one this store was made with (or its state is damaged)".into());
        let (nonce, rest) = sealed.split_first_chunk::<NONCE_LEN>().ok_or_else(wrong)?;
        let mut text: Zeroizing<[u8; 32 + TAG_LEN]> = Zeroizing::new(rest.try_into().map_err(|_| wrong())?);
        Self::sealer(master)?.open(nonce, &Self::aad(store, epoch), &mut text[..]).map_err(|_| wrong())?;
        let mut secret = Self([0; 32]);
        secret.0.copy_from_slice(&text[..32]);
        Ok(secret)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_key_file_is_read_back_and_anything_else_refused() {
        let key = MasterKey::generate();
        assert!(MasterKey::parse(key.to_file().as_bytes()).is_ok_and(|k| k.0 == key.0));
        let digits = "0123456789abcdefABCDEF0123456789".repeat(2);
        assert!(MasterKey::parse(format!("\n{FILE_TAG}\t {digits} \r\n# a comment").as_bytes()).is_ok());
        let wrong = [
            String::new(),
            digits.clone(),
            format!("{FILE_TAG}{digits}"),
            format!("millpond-master-key-2 {digits}"),
            format!("{FILE_TAG} {}", &digits[1..]),
            format!("{FILE_TAG} {digits}0"),
            format!("{FILE_TAG} +{}", &digits[1..]),
            format!("{FILE_TAG} é{}", &digits[2..]),
            format!("{FILE_TAG} {digits}\n{FILE_TAG} {digits}"),
        ];
        for text in wrong {
            let error = MasterKey::parse(text.as_bytes()).err().unwrap();
            assert!(error.0.contains("millpond keygen"), "{error}");
            assert!(!error.0.contains("0123"), "{error}");
        }
        assert!(MasterKey::parse(&[0xff; 85]).is_err());
    }

    #[test]
    fn an_epoch_secret_opens_only_where_it_was_sealed() {
        let (master, store) = (MasterKey::from_bytes([1; 32]), StoreId([2; 16]));
        let sealed = EpochSecret([9; 32]).seal(&master, &store, 3);
        assert_eq!(sealed.len(), NONCE_LEN + 32 + TAG_LEN);
        assert!(EpochSecret::open(&sealed, &master, &store, 3).is_ok_and(|s| s.0 == [9; 32]));
        assert!(EpochSecret::open(&sealed, &MasterKey::from_bytes([0; 32]), &store, 3).is_err());
        assert!(EpochSecret::open(&sealed, &master, &StoreId([3; 16]), 3).is_err());
        assert!(EpochSecret::open(&sealed, &master, &store, 4).is_err());
        assert!(EpochSecret::open(&sealed[1..], &master, &store, 3).is_err());
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(EpochSecret::open(&changed, &master, &store, 3).is_err(), "byte {at}");
        }
        // Sealed twice, it looks different.
        assert_ne!(sealed, EpochSecret([9; 32]).seal(&master, &store, 3));
    }
}
