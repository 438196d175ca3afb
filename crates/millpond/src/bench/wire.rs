//! The generator's own end of the protocol. It builds requests in place and looks no further into replies than it
//! must, so that what is measured is the server.

use millpond_sim::workload::{KEY_LEN, key};

/// What kind of reply it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A simple string or a number.
    Plain,
    /// A bulk string.
    Bulk,
    /// Nothing there.
    Null,
    /// An error.
    Error,
}

/// Appends a request.
pub fn request(args: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for arg in args {
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

/// Requests for records, encoded but for the key and the value.
pub struct Requests {
    get: Vec<u8>,
    set: Vec<u8>,
    /// Between a SET's key and its value.
    value: Vec<u8>,
}

impl Requests {
    /// For values of this size.
    pub fn new(value_size: usize) -> Self {
        Self {
            get: format!("*2\r\n$3\r\nGET\r\n${KEY_LEN}\r\n").into_bytes(),
            set: format!("*3\r\n$3\r\nSET\r\n${KEY_LEN}\r\n").into_bytes(),
            value: format!("\r\n${value_size}\r\n").into_bytes(),
        }
    }

    /// Appends `GET key`.
    pub fn get(&self, record: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.get);
        out.extend_from_slice(&key(record));
        out.extend_from_slice(b"\r\n");
    }

    /// Appends `SET key value`. The value has the size given at the start.
    pub fn set(&self, record: u64, value: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&self.set);
        out.extend_from_slice(&key(record));
        out.extend_from_slice(&self.value);
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

/// The kind and length of the reply at the start of `input`; `None` if it is not complete.
///
/// # Errors
/// If it is none of the replies that GET and SET have.
pub fn scan(input: &[u8]) -> Result<Option<(Kind, usize)>, String> {
    let Some((first, rest)) = input.split_first() else { return Ok(None) };
    let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let header = 1 + end + 1;
    match first {
        b'+' | b':' => Ok(Some((Kind::Plain, header))),
        b'-' => Ok(Some((Kind::Error, header))),
        b'_' => Ok(Some((Kind::Null, header))),
        b'$' => {
            let digits = rest.get(..end).unwrap_or_default().trim_ascii();
            match std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<i64>().ok()) {
                Some(-1) => Ok(Some((Kind::Null, header))),
                Some(length @ 0..=0x4000_0000) => {
                    let length = header + length as usize + 2;
                    Ok((input.len() >= length).then_some((Kind::Bulk, length)))
                }
                _ => Err("the reply is not RESP; is this a Redis server?".to_owned()),
            }
        }
        _ => Err("the reply is not RESP; is this a Redis server?".to_owned()),
    }
}

/// The text of the error reply at the start of `input`.
pub fn error_line(input: &[u8]) -> String {
    let line = input.split(|byte| *byte == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(line).trim_start_matches('-').trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_told_apart_at_every_cut() {
        let replies: [(&[u8], Kind); 7] = [
            (b"+OK\r\n", Kind::Plain),
            (b":12\r\n", Kind::Plain),
            (b"$3\r\na\nb\r\n", Kind::Bulk),
            (b"$0\r\n\r\n", Kind::Bulk),
            (b"$-1\r\n", Kind::Null),
            (b"_\r\n", Kind::Null),
            (b"-OOM full\r\n", Kind::Error),
        ];
        for (reply, kind) in replies {
            for cut in 0..reply.len() {
                assert_eq!(scan(&reply[..cut]), Ok(None));
            }
            let longer = [reply, b"+next"].concat();
            assert_eq!(scan(&longer), Ok(Some((kind, reply.len()))));
        }
        assert_eq!(error_line(b"-OOM full\r\n+x"), "OOM full");
        assert!(scan(b"HTTP/1.1 400\r\n").is_err());
        assert!(scan(b"$99999999999\r\n").is_err());
    }

    #[test]
    fn requests_are_resp() {
        let requests = Requests::new(3);
        let (mut out, mut expected) = (Vec::new(), Vec::new());
        requests.get(7, &mut out);
        requests.set(8, b"abc", &mut out);
        request(&[b"GET", &key(7)], &mut expected);
        request(&[b"SET", &key(8), b"abc"], &mut expected);
        assert_eq!(out, expected);
    }
}
