//! Names of records, and which of them are the popular ones.

/// Length of every [`key`] in bytes: "user" and twenty digits.
pub const KEY_LEN: usize = 24;

const FNV_OFFSET: u64 = 0xCBF2_9CE4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01B3;

/// The name of a record as YCSB makes it, `user` and the FNV-1a hash of the record's number, but of one width.
pub fn key(record: u64) -> [u8; KEY_LEN] {
    let mut hash =
        record.to_le_bytes().iter().fold(FNV_OFFSET, |h, byte| (h ^ u64::from(*byte)).wrapping_mul(FNV_PRIME));
    let mut name = *b"user00000000000000000000";
    for digit in name.iter_mut().skip(4).rev() {
        *digit = b'0' + (hash % 10) as u8;
        hash /= 10;
    }
    name
}

/// A fixed permutation of `0..n`, so that popular records do not stand side by side: `rank ↦ a·rank + b mod n` with
/// `a` coprime to `n` near the golden section.
#[derive(Debug, Clone, Copy)]
pub struct Scramble {
    n: u64,
    factor: u64,
    offset: u64,
}

impl Scramble {
    /// The permutation of `0..n`; an `n` of 0 is taken for 1.
    pub fn new(n: u64) -> Self {
        let n = n.max(1);
        let mut factor = ((u128::from(n) * 618_033_989 / 1_000_000_000) as u64).max(1);
        while gcd(factor, n) != 1 {
            factor += 1;
        }
        Self { n, factor, offset: n / 3 }
    }

    /// The record that has this rank.
    pub fn record(&self, rank: u64) -> u64 {
        ((u128::from(rank) * u128::from(self.factor) + u128::from(self.offset)) % u128::from(self.n)) as u64
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_are_distinct_and_of_one_width() {
        let keys: HashSet<_> = (0..100_000).map(key).collect();
        assert_eq!(keys.len(), 100_000);
        // FNV-1a of eight zero bytes, as YCSB's fnvhash64(0).
        assert_eq!(&key(0), b"user12161962213042174405");
    }

    #[test]
    fn scramble_is_a_permutation() {
        for n in [1, 2, 3, 4, 10, 97, 1000, 1024, 65_536, 99_991] {
            let order = Scramble::new(n);
            let seen: HashSet<_> = (0..n).map(|rank| order.record(rank)).collect();
            assert_eq!(seen.len() as u64, n);
            assert!(seen.iter().all(|record| *record < n));
        }
    }
}
