//! Keys and their time to live.

use super::{STRING, item, not_an_integer, single, summed, syntax};
use crate::number::parse_i64;
use bytes::Bytes;
use millpond_core::{Body, Change, Operation, Record, Reply, View};

fn on(key: &Bytes, run: impl FnOnce(View<'_>) -> (Reply, Change) + Send + 'static) -> Body {
    single(item(key, false, Box::new(run)))
}

pub(super) fn del(args: &[Bytes]) -> Result<Body, Reply> {
    let one = |key: &Bytes| {
        let apply: Operation = Box::new(|view| match view.record {
            Some(_) => (Reply::Integer(1), Change::Delete),
            None => (Reply::Integer(0), Change::Keep),
        });
        item(key, false, apply)
    };
    Ok(summed(args[1..].iter().map(one).collect()))
}

pub(super) fn exists(args: &[Bytes]) -> Result<Body, Reply> {
    let one = |key: &Bytes| {
        let apply: Operation = Box::new(|view| (Reply::Integer(i64::from(view.record.is_some())), Change::Keep));
        item(key, false, apply)
    };
    Ok(summed(args[1..].iter().map(one).collect()))
}

pub(super) fn kind(args: &[Bytes]) -> Result<Body, Reply> {
    Ok(on(&args[1], |view| {
        let name = match view.record {
            None => "none",
            Some(record) if record.kind == STRING => "string",
            Some(_) => "hash",
        };
        (Reply::Simple(name.into()), Change::Keep)
    }))
}

pub(super) fn flushdb(args: &[Bytes]) -> Result<Body, Reply> {
    match args {
        [_] => Ok(Body::Flush),
        [_, how] if how.eq_ignore_ascii_case(b"sync") || how.eq_ignore_ascii_case(b"async") => Ok(Body::Flush),
        _ => Err(syntax()),
    }
}

/// −2 without a key, −1 without an expiry, else what `show` makes of it.
fn expiry(key: &Bytes, show: fn(u64, u64) -> i64) -> Body {
    on(key, move |view| {
        let reply = match view.record {
            None => -2,
            Some(record) => record.expires_at_ms.map_or(-1, |at| show(at, view.now_ms)),
        };
        (Reply::Integer(reply), Change::Keep)
    })
}

pub(super) fn ttl(args: &[Bytes]) -> Result<Body, Reply> {
    Ok(expiry(&args[1], |at, now| ((at - now + 500) / 1000) as i64))
}

pub(super) fn pttl(args: &[Bytes]) -> Result<Body, Reply> {
    Ok(expiry(&args[1], |at, now| (at - now) as i64))
}

pub(super) fn expiretime(args: &[Bytes]) -> Result<Body, Reply> {
    Ok(expiry(&args[1], |at, _| ((at + 500) / 1000) as i64))
}

pub(super) fn pexpiretime(args: &[Bytes]) -> Result<Body, Reply> {
    Ok(expiry(&args[1], |at, _| at as i64))
}

pub(super) fn persist(args: &[Bytes]) -> Result<Body, Reply> {
    Ok(on(&args[1], |view| match view.record.filter(|r| r.expires_at_ms.is_some()) {
        Some(record) => (Reply::Integer(1), Change::Put(Record { expires_at_ms: None, ..record.clone() })),
        None => (Reply::Integer(0), Change::Keep),
    }))
}

pub(super) fn expire(args: &[Bytes]) -> Result<Body, Reply> {
    set_expiry(args, 1000, true, "expire")
}

pub(super) fn pexpire(args: &[Bytes]) -> Result<Body, Reply> {
    set_expiry(args, 1, true, "pexpire")
}

pub(super) fn expireat(args: &[Bytes]) -> Result<Body, Reply> {
    set_expiry(args, 1000, false, "expireat")
}

pub(super) fn pexpireat(args: &[Bytes]) -> Result<Body, Reply> {
    set_expiry(args, 1, false, "pexpireat")
}

fn set_expiry(args: &[Bytes], unit_ms: i64, relative: bool, command: &'static str) -> Result<Body, Reply> {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for option in &args[3..] {
        match &option.to_ascii_uppercase()[..] {
            b"NX" => nx = true,
            b"XX" => xx = true,
            b"GT" => gt = true,
            b"LT" => lt = true,
            _ => return Err(Reply::error(format!("ERR Unsupported option {}", String::from_utf8_lossy(option)))),
        }
    }
    if nx && (xx || gt || lt) {
        return Err(Reply::error("ERR NX and XX, GT or LT options at the same time are not compatible"));
    }
    if gt && lt {
        return Err(Reply::error("ERR GT and LT options at the same time are not compatible"));
    }
    let number = parse_i64(&args[2]).ok_or_else(not_an_integer)?;
    // Sums with the time of day must stay within 64 bits.
    let ms = number.checked_mul(unit_ms).filter(|ms| ms.unsigned_abs() < 1 << 62);
    let ms = ms.ok_or_else(|| Reply::error(format!("ERR invalid expire time in '{command}' command")))?;
    Ok(on(&args[1], move |view| {
        let Some(record) = view.record else { return (Reply::Integer(0), Change::Keep) };
        let at = if relative { view.now_ms as i64 + ms } else { ms };
        let current = record.expires_at_ms.map(|c| c as i64);
        let refused = (nx && current.is_some())
            || (xx && current.is_none())
            || (gt && current.is_none_or(|c| at <= c))
            || (lt && current.is_some_and(|c| at >= c));
        if refused {
            return (Reply::Integer(0), Change::Keep);
        }
        if at <= view.now_ms as i64 {
            return (Reply::Integer(1), Change::Delete);
        }
        (Reply::Integer(1), Change::Put(Record { expires_at_ms: Some(at as u64), ..record.clone() }))
    }))
}
