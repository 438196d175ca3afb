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
        let digits = lines.next().and_then(|l| l.strip_prefix(FILE_TAG)).map(str::trim).ok_or_else(bad)?;
        if lines.next().is_some() || digits.len() != 64 || !digits.is_ascii() {
            return Err(bad());
        }
        let mut key = Self([0; 32]);
        for (byte, pair) in key.0.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| bad())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| bad())?;
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

    /// Derives a key for one purpose.
    pub(crate) fn derive(&self, salt: &[u8], purpose: &[&[u8]]) -> Zeroizing<[u8; 32]> {
        let mut key = Zeroizing::new([0; 32]);
        let prk = Salt::new(HKDF_SHA256, salt).extract(&self.0);
        let filled = prk.expand(purpose, HKDF_SHA256).and_then(|okm| okm.fill(&mut key[..]));
        debug_assert!(filled.is_ok(), "32 bytes are within HKDF's reach");
        key
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
        Xaes::new(&master.derive(&[], &[b"millpond epoch secrets"]))
            .map_err(|_| KeyError("AES is not available".into()))
    }

    /// Seals it for the state directory: nonce (24) ‖ ciphertext (32) ‖ tag (16).
    ///
    /// # Errors
    /// If the cryptographic library fails.
    pub fn seal(&self, master: &MasterKey, store: &StoreId, epoch: u32) -> Result<Vec<u8>, KeyError> {
        let mut nonce = [0; NONCE_LEN];
        random(&mut nonce);
        let mut text = Zeroizing::new(self.0);
        let tag = Self::sealer(master)?.seal(&nonce, &Self::aad(store, epoch), &mut text[..]);
        let tag = tag.map_err(|_| KeyError("sealing an epoch secret failed".into()))?;
        Ok([&nonce[..], &text[..], &tag].concat())
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
