//! Writing replies, and requests from a client's side.

use super::Protocol;
use crate::number::{put_i64, put_u64};
use bytes::{BufMut, BytesMut};
use millpond_core::Reply;

/// Appends a reply in the connection's protocol. The RESP3-only kinds look in RESP2 as [`Reply`] says.
pub fn encode(reply: &Reply, proto: Protocol, out: &mut BytesMut) {
    let resp3 = proto == Protocol::Resp3;
    match reply {
        Reply::Simple(text) => put_line(b'+', text, out),
        Reply::Error(line) => put_line(b'-', line, out),
        Reply::Integer(value) => {
            out.put_u8(b':');
            put_i64(*value, out);
            out.put_slice(b"\r\n");
        }
        Reply::Double(value) if resp3 => put_line(b',', &double_text(*value), out),
        Reply::Double(value) => put_bulk(double_text(*value).as_bytes(), out),
        Reply::Boolean(value) => out.put_slice(match (resp3, value) {
            (true, true) => b"#t\r\n",
            (true, false) => b"#f\r\n",
            (false, true) => b":1\r\n",
            (false, false) => b":0\r\n",
        }),
        Reply::Bulk(bytes) => put_bulk(bytes, out),
        Reply::Verbatim(text) if resp3 => {
            put_length(b'=', text.len() + 4, out);
            out.put_slice(b"txt:");
            out.put_slice(text);
            out.put_slice(b"\r\n");
        }
        Reply::Verbatim(text) => put_bulk(text, out),
        Reply::Null | Reply::NullArray if resp3 => out.put_slice(b"_\r\n"),
        Reply::Null => out.put_slice(b"$-1\r\n"),
        Reply::NullArray => out.put_slice(b"*-1\r\n"),
        Reply::Array(items) => put_all(b'*', items, proto, out),
        Reply::Set(items) => put_all(if resp3 { b'~' } else { b'*' }, items, proto, out),
        Reply::Map(pairs) => {
            if resp3 {
                put_length(b'%', pairs.len(), out);
            } else {
                put_length(b'*', pairs.len() * 2, out);
            }
            for (key, value) in pairs {
                encode(key, proto, out);
                encode(value, proto, out);
            }
        }
    }
}

/// Appends a request as an array of bulk strings.
pub fn encode_request(args: &[&[u8]], out: &mut BytesMut) {
    out.reserve(16 + args.iter().map(|arg| arg.len() + 16).sum::<usize>());
    put_length(b'*', args.len(), out);
    for arg in args {
        put_bulk(arg, out);
    }
}

fn put_all(mark: u8, items: &[Reply], proto: Protocol, out: &mut BytesMut) {
    put_length(mark, items.len(), out);
    for item in items {
        encode(item, proto, out);
    }
}

fn put_length(mark: u8, length: usize, out: &mut BytesMut) {
    out.put_u8(mark);
    put_u64(length as u64, out);
    out.put_slice(b"\r\n");
}

fn put_bulk(bytes: &[u8], out: &mut BytesMut) {
    out.reserve(bytes.len() + 32);
    put_length(b'$', bytes.len(), out);
    out.put_slice(bytes);
    out.put_slice(b"\r\n");
}

/// A line; like Redis, shows line ends within the text as blanks, so that no text can forge a second reply.
fn put_line(mark: u8, text: &str, out: &mut BytesMut) {
    out.put_u8(mark);
    for part in text.split_inclusive(['\r', '\n']) {
        match part.strip_suffix(['\r', '\n']) {
            Some(part) => {
                out.put_slice(part.as_bytes());
                out.put_u8(b' ');
            }
            None => out.put_slice(part.as_bytes()),
        }
    }
    out.put_slice(b"\r\n");
}

/// A floating-point number as RESP3 writes it.
fn double_text(value: f64) -> String {
    if value.is_nan() {
        "nan".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "inf" } else { "-inf" }.to_owned()
    } else {
        value.to_string()
    }
}
