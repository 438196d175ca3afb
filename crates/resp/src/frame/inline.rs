//! Splitting an inline command into arguments by Redis's quoting rules (its `sdssplitargs`).
//!
//! `"…"` knows `\n \r \t \b \a \xHH` and takes any other escaped byte as it is; `'…'` knows only `\'`.
//! A closing quote must be followed by a blank or the end. A line ends at its first NUL byte.

use bytes::Bytes;

/// The blanks of C's `isspace`.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// The arguments, or `None` if quotes do not match.
pub(super) fn split(line: &[u8]) -> Option<Vec<Bytes>> {
    let mut rest = line.split(|&byte| byte == 0).next().unwrap_or_default();
    let mut args = Vec::new();
    loop {
        let blanks = rest.iter().take_while(|&&byte| is_blank(byte)).count();
        rest = rest.get(blanks..).unwrap_or_default();
        if rest.is_empty() {
            return Some(args);
        }
        let mut arg = Vec::new();
        rest = take_word(rest, &mut arg)?;
        args.push(Bytes::from(arg));
    }
}

/// Appends one argument to `arg` and gives what follows it.
fn take_word<'a>(mut rest: &'a [u8], arg: &mut Vec<u8>) -> Option<&'a [u8]> {
    while let Some((&byte, tail)) = rest.split_first() {
        match byte {
            b'"' => return closed(take_double(tail, arg)?),
            b'\'' => return closed(take_single(tail, arg)?),
            byte if is_blank(byte) => return Some(rest),
            byte => arg.push(byte),
        }
        rest = tail;
    }
    Some(rest)
}

/// `rest` if a blank or the end follows a closing quote.
fn closed(rest: &[u8]) -> Option<&[u8]> {
    rest.first().is_none_or(|&byte| is_blank(byte)).then_some(rest)
}

/// The inside of `"…"`; what follows the closing quote.
fn take_double<'a>(mut rest: &'a [u8], arg: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [b'\\', b'x', high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                arg.push(hex(*high) << 4 | hex(*low));
                rest = tail;
            }
            [b'\\', escaped, tail @ ..] => {
                arg.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                rest = tail;
            }
            [b'"', tail @ ..] => return Some(tail),
            [byte, tail @ ..] => {
                arg.push(*byte);
                rest = tail;
            }
            [] => return None,
        }
    }
}

/// The inside of `'…'`; what follows the closing quote.
fn take_single<'a>(mut rest: &'a [u8], arg: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [b'\\', b'\'', tail @ ..] => {
                arg.push(b'\'');
                rest = tail;
            }
            [b'\'', tail @ ..] => return Some(tail),
            [byte, tail @ ..] => {
                arg.push(*byte);
                rest = tail;
            }
            [] => return None,
        }
    }
}

/// The value of a hexadecimal digit.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.wrapping_sub(b'A').wrapping_add(10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_as_redis_does() {
        let table: [(&[u8], Option<&[&[u8]]>); 17] = [
            (b"", Some(&[])),
            (b"   \t ", Some(&[])),
            (b"PING", Some(&[b"PING"])),
            (b"  SET  a\tb  ", Some(&[b"SET", b"a", b"b"])),
            (b"\"a b\" 'c d'", Some(&[b"a b", b"c d"])),
            (b"\"\\x41\\n\\r\\t\\b\\a\\q\\\"\"", Some(&[b"A\n\r\t\x08\x07q\""])),
            (b"\"\\xff\\xFa\\xg1\"", Some(&[b"\xff\xfaxg1"])),
            (b"'it\\'s \\n'", Some(&[b"it's \\n"])),
            (b"a\"b\"", Some(&[b"ab"])),
            (b"\"\" ''", Some(&[b"", b""])),
            (b"\"a\"b", None),
            (b"'a'b", None),
            (b"\"a", None),
            (b"'a", None),
            (b"\"a\\", None),
            (b"GET \"", None),
            (b"GET a\0b c", Some(&[b"GET", b"a"])),
        ];
        for (line, expected) in table {
            let got = split(line);
            let expected = expected.map(|args| args.iter().map(|arg| Bytes::copy_from_slice(arg)).collect::<Vec<_>>());
            assert_eq!(got, expected, "{line:?}");
        }
    }
}
