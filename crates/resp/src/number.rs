//! Integers as Redis reads and writes them.

use bytes::{BufMut, BytesMut};

/// Reads a decimal integer by Redis's strict rules (its `string2ll`): an optional minus sign, no leading zero, no plus
/// sign, no blanks, nothing left over, and within 64 bits.
pub(crate) fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, text),
    };
    let (first, rest) = digits.split_first()?;
    if *first == b'0' {
        return (rest.is_empty() && !negative).then_some(0);
    }
    let mut value: i64 = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        // Counts downwards, because the smallest number has no positive counterpart.
        value = value.checked_mul(10)?.checked_sub(i64::from(digit - b'0'))?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

/// Appends a decimal integer without allocating.
pub(crate) fn put_i64(value: i64, out: &mut BytesMut) {
    if value < 0 {
        out.put_u8(b'-');
    }
    put_u64(value.unsigned_abs(), out);
}

/// Appends a decimal integer without allocating.
pub(crate) fn put_u64(mut value: u64, out: &mut BytesMut) {
    let mut digits = [b'0'; 20];
    let mut used = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
        used += 1;
        if value == 0 {
            break;
        }
    }
    let (_, text) = digits.split_at(digits.len() - used);
    out.put_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_redis_reads_and_nothing_else() {
        let good: [(&str, i64); 8] = [
            ("0", 0),
            ("7", 7),
            ("-1", -1),
            ("10", 10),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
            ("-9223372036854775807", -i64::MAX),
            ("1000000000000000000", 1_000_000_000_000_000_000),
        ];
        for (text, value) in good {
            assert_eq!(parse_i64(text.as_bytes()), Some(value), "{text}");
        }
        let bad = [
            "",
            "-",
            "+1",
            "01",
            "-0",
            "00",
            " 1",
            "1 ",
            "1x",
            "0x1",
            "1.0",
            "9223372036854775808",
            "-9223372036854775809",
            "18446744073709551615",
            "99999999999999999999999",
        ];
        for text in bad {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn writes_every_magnitude() {
        for value in [0, 1, 9, 10, 99, 100, 12345, -1, -10, i64::MAX, i64::MIN] {
            let mut out = BytesMut::new();
            put_i64(value, &mut out);
            assert_eq!(out, value.to_string());
        }
    }
}
