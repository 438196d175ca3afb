//! XAES-256-GCM (C2SP): AES-256-GCM under a key derived for each 192-bit nonce, so that random nonces never collide.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{AES_256, EncryptingKey, UnboundCipherKey};
use aws_lc_rs::error::Unspecified;
use zeroize::Zeroize;

/// Bytes of a nonce.
pub const NONCE_LEN: usize = 24;
/// Bytes of a tag.
pub const TAG_LEN: usize = 16;

/// A sealing key, with what every nonce's key is derived from.
pub struct Xaes {
    aes: EncryptingKey,
    /// The subkey K1 of AES-CMAC.
    k1: [u8; 16],
}

impl Xaes {
    /// Prepares a key.
    pub fn new(key: &[u8; 32]) -> Result<Self, Unspecified> {
        let aes = EncryptingKey::ecb(UnboundCipherKey::new(&AES_256, key)?)?;
        let mut k1 = [0; 16];
        aes.encrypt(&mut k1)?;
        let doubled = u128::from_be_bytes(k1) << 1;
        let carry = if k1[0] & 0x80 == 0 { 0 } else { 0x87 };
        k1 = (doubled ^ carry).to_be_bytes();
        Ok(Self { aes, k1 })
    }

    /// The key for a nonce, and the nonce to use with it.
    fn derive(&self, nonce: &[u8; NONCE_LEN]) -> Result<(LessSafeKey, Nonce), Unspecified> {
        let mut key = [0u8; 32];
        for (half, counter) in key.chunks_exact_mut(16).zip(1u8..) {
            half[..4].copy_from_slice(&[0, counter, b'X', 0]);
            half[4..].copy_from_slice(&nonce[..12]);
            half.iter_mut().zip(self.k1).for_each(|(byte, k)| *byte ^= k);
        }
        self.aes.encrypt(&mut key)?;
        let derived = UnboundKey::new(&AES_256_GCM, &key).map(LessSafeKey::new);
        key.zeroize();
        Ok((derived?, Nonce::try_assume_unique_for_key(&nonce[12..])?))
    }

    /// Seals in place; returns the tag.
    pub fn seal(&self, nonce: &[u8; NONCE_LEN], aad: &[u8], text: &mut [u8]) -> Result<[u8; TAG_LEN], Unspecified> {
        let (key, nonce) = self.derive(nonce)?;
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(aad), text)?;
        tag.as_ref().try_into().map_err(|_| Unspecified)
    }

    /// Opens in place `text ‖ tag`; returns the text's length.
    pub fn open(&self, nonce: &[u8; NONCE_LEN], aad: &[u8], sealed: &mut [u8]) -> Result<usize, Unspecified> {
        let (key, nonce) = self.derive(nonce)?;
        Ok(key.open_in_place(nonce, Aad::from(aad), sealed)?.len())
    }
}

impl Drop for Xaes {
    fn drop(&mut self) {
        self.k1.zeroize();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// The vectors of the C2SP specification.
    #[test]
    fn published_vectors() {
        let cases: [(u8, &[u8], &str); 2] = [
            (1, b"", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
            (3, b"c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"),
        ];
        for (key, aad, expected) in cases {
            let xaes = Xaes::new(&[key; 32]).unwrap();
            let mut text = *b"XAES-256-GCM";
            let tag = xaes.seal(b"ABCDEFGHIJKLMNOPQRSTUVWX", aad, &mut text).unwrap();
            let hex: String = text.iter().chain(&tag).map(|b| format!("{b:02x}")).collect();
            assert_eq!(hex, expected);
        }
    }

    /// The specification's accumulated vector over 10,000 random cases.
    #[test]
    fn accumulated_vector() {
        let (mut source, mut digest) = (Shake128::default(), Shake128::default());
        source.pad();
        for _ in 0..10_000 {
            let key: [u8; 32] = source.squeeze(32).try_into().unwrap();
            let nonce: [u8; NONCE_LEN] = source.squeeze(NONCE_LEN).try_into().unwrap();
            let len = source.squeeze(1)[0];
            let mut text = source.squeeze(usize::from(len));
            let len = source.squeeze(1)[0];
            let aad = source.squeeze(usize::from(len));
            let (plain, xaes) = (text.clone(), Xaes::new(&key).unwrap());
            let tag = xaes.seal(&nonce, &aad, &mut text).unwrap();
            text.extend_from_slice(&tag);
            digest.absorb(&text);
            let len = xaes.open(&nonce, &aad, &mut text).unwrap();
            assert_eq!(text[..len], plain);
        }
        digest.pad();
        let hex: String = digest.squeeze(32).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "e6b9edf2df6cec60c8cbd864e2211b597fb69a529160cd040d56c0c210081939");
    }

    /// SHAKE128 (FIPS 202), which the vector is defined with and the library does not offer.
    #[derive(Default)]
    struct Shake128 {
        state: [u64; 25],
        at: usize,
    }

    impl Shake128 {
        const RATE: usize = 168;

        fn absorb(&mut self, bytes: &[u8]) {
            for &byte in bytes {
                self.state[self.at / 8] ^= u64::from(byte) << (8 * (self.at % 8));
                self.advance();
            }
        }

        /// Ends the input.
        fn pad(&mut self) {
            self.state[self.at / 8] ^= 0x1f << (8 * (self.at % 8));
            self.state[Self::RATE / 8 - 1] ^= 1 << 63;
            self.permute();
            self.at = 0;
        }

        fn squeeze(&mut self, len: usize) -> Vec<u8> {
            let mut next = || {
                let byte = (self.state[self.at / 8] >> (8 * (self.at % 8))) as u8;
                self.advance();
                byte
            };
            (0..len).map(|_| next()).collect()
        }

        fn advance(&mut self) {
            self.at += 1;
            if self.at == Self::RATE {
                self.permute();
                self.at = 0;
            }
        }

        /// Keccak-f[1600]; its round constants come from the standard's shift register.
        fn permute(&mut self) {
            let (s, mut lfsr) = (&mut self.state, 1u8);
            for _ in 0..24 {
                let c: [u64; 5] = std::array::from_fn(|x| s[x] ^ s[x + 5] ^ s[x + 10] ^ s[x + 15] ^ s[x + 20]);
                for (i, lane) in s.iter_mut().enumerate() {
                    *lane ^= c[(i + 4) % 5] ^ c[(i + 1) % 5].rotate_left(1);
                }
                let (mut x, mut y, mut lane) = (1, 0, s[1]);
                for t in 0u32..24 {
                    (x, y) = (y, (2 * x + 3 * y) % 5);
                    lane = std::mem::replace(&mut s[x + 5 * y], lane.rotate_left((t + 1) * (t + 2) / 2 % 64));
                }
                for row in s.chunks_exact_mut(5) {
                    let old: [u64; 5] = row.try_into().unwrap();
                    for (x, lane) in row.iter_mut().enumerate() {
                        *lane = old[x] ^ (!old[(x + 1) % 5] & old[(x + 2) % 5]);
                    }
                }
                for j in 0..7 {
                    s[0] ^= u64::from(lfsr & 1) << ((1 << j) - 1);
                    lfsr = (lfsr << 1) ^ if lfsr & 0x80 == 0 { 0 } else { 0x71 };
                }
            }
        }
    }
}
