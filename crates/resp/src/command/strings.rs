//! Strings.

use super::{STRING, item, not_an_integer, single, syntax, wrong_type};
use crate::number::parse_i64;
use bytes::Bytes;
use millpond_core::{Body, Change, Group, Item, Operation, Record, Reply, View};

fn copy(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

/// The string a key holds; an error if it holds something else.
fn string<'a>(view: &View<'a>) -> Result<Option<&'a Record>, Reply> {
    match view.record {
        Some(record) if record.kind != STRING => Err(wrong_type()),
        other => Ok(other),
    }
}

fn too_large(size: usize, view: &View<'_>) -> Option<Reply> {
    let limit = view.value_limit;
    (size > limit)
        .then(|| Reply::error(format!("ERR value is too large for this store: {size} bytes, value_size is {limit}")))
}

/// Puts a string, if it fits.
fn put(view: &View<'_>, data: Bytes, expires_at_ms: Option<u64>, reply: Reply) -> (Reply, Change) {
    match too_large(data.len(), view) {
        Some(error) => (error, Change::Keep),
        None => (reply, Change::Put(Record { kind: STRING, expires_at_ms, data })),
    }
}

fn value_of(record: Option<&Record>) -> Reply {
    record.map_or(Reply::Null, |r| Reply::Bulk(r.data.clone()))
}

/// A command on one key's string.
fn on(key: &Bytes, run: impl FnOnce(View<'_>, Option<&Record>) -> (Reply, Change) + Send + 'static) -> Body {
    let apply: Operation = Box::new(move |view| match string(&view) {
        Ok(record) => run(view, record),
        Err(error) => (error, Change::Keep),
    });
    single(item(key, false, apply))
}

pub(super) fn get(args: &[Bytes]) -> Result<Body, Reply> {
    Ok(on(&args[1], |_, record| (value_of(record), Change::Keep)))
}

pub(super) fn getdel(args: &[Bytes]) -> Result<Body, Reply> {
    Ok(on(&args[1], |_, record| (value_of(record), if record.is_some() { Change::Delete } else { Change::Keep })))
}

pub(super) fn getset(args: &[Bytes]) -> Result<Body, Reply> {
    let value = copy(&args[2]);
    Ok(on(&args[1], move |view, record| put(&view, value, None, value_of(record))))
}

pub(super) fn strlen(args: &[Bytes]) -> Result<Body, Reply> {
    Ok(on(&args[1], |_, record| (Reply::Integer(record.map_or(0, |r| r.data.len() as i64)), Change::Keep)))
}

pub(super) fn append(args: &[Bytes]) -> Result<Body, Reply> {
    let more = copy(&args[2]);
    Ok(on(&args[1], move |view, record| {
        let data = [record.map_or(&[][..], |r| &r.data), &more].concat();
        let len = data.len() as i64;
        put(&view, data.into(), record.and_then(|r| r.expires_at_ms), Reply::Integer(len))
    }))
}

pub(super) fn setnx(args: &[Bytes]) -> Result<Body, Reply> {
    let value = copy(&args[2]);
    let apply: Operation = Box::new(move |view| match view.record {
        Some(_) => (Reply::Integer(0), Change::Keep),
        None => put(&view, value, None, Reply::Integer(1)),
    });
    Ok(single(item(&args[1], false, apply)))
}

fn add(key: &Bytes, delta: Option<i64>) -> Body {
    on(key, move |view, record| {
        let Some(delta) = delta else {
            return (Reply::error("ERR decrement would overflow"), Change::Keep);
        };
        let Some(old) = record.map_or(Some(0), |r| parse_i64(&r.data)) else {
            return (not_an_integer(), Change::Keep);
        };
        match old.checked_add(delta) {
            Some(new) => put(&view, new.to_string().into(), record.and_then(|r| r.expires_at_ms), Reply::Integer(new)),
            None => (Reply::error("ERR increment or decrement would overflow"), Change::Keep),
        }
    })
}

pub(super) fn incr(args: &[Bytes]) -> Result<Body, Reply> {
    Ok(add(&args[1], Some(1)))
}

pub(super) fn decr(args: &[Bytes]) -> Result<Body, Reply> {
    Ok(add(&args[1], Some(-1)))
}

pub(super) fn incrby(args: &[Bytes]) -> Result<Body, Reply> {
    Ok(add(&args[1], Some(parse_i64(&args[2]).ok_or_else(not_an_integer)?)))
}

pub(super) fn decrby(args: &[Bytes]) -> Result<Body, Reply> {
    Ok(add(&args[1], parse_i64(&args[2]).ok_or_else(not_an_integer)?.checked_neg()))
}

pub(super) fn mget(args: &[Bytes]) -> Result<Body, Reply> {
    let value = |key: &Bytes| {
        // A key of another type reads as missing, as Redis has it.
        let apply: Operation = Box::new(|view| (value_of(view.record.filter(|r| r.kind == STRING)), Change::Keep));
        item(key, false, apply)
    };
    let items = args[1..].iter().map(value).collect();
    Ok(Body::Group(Group { items, combine: Some(Box::new(Reply::Array)) }))
}

pub(super) fn mset(args: &[Bytes]) -> Result<Body, Reply> {
    if args.len().is_multiple_of(2) {
        return Err(Reply::error("ERR wrong number of arguments for 'mset' command"));
    }
    // If one key or value is too large for the store, all items refuse: they are applied together or not at all.
    let largest = args[2..].iter().step_by(2).map(Bytes::len).max().unwrap_or(0);
    let refused = args[1..].iter().step_by(2).any(|key| key.len() > super::KEY_LIMIT);
    let set = |pair: &[Bytes]| -> Item {
        let value = copy(&pair[1]);
        let apply: Operation = Box::new(move |view| match too_large(largest, &view) {
            Some(error) => (error, Change::Keep),
            None if refused => (Reply::OK, Change::Keep),
            None => put(&view, value, None, Reply::OK),
        });
        item(&pair[0], !refused, apply)
    };
    let items = args[1..].chunks_exact(2).map(set).collect();
    let first_error = |replies: Vec<Reply>| replies.into_iter().find(Reply::is_error).unwrap_or(Reply::OK);
    Ok(Body::Group(Group { items, combine: Some(Box::new(first_error)) }))
}

/// When a key expires, as given by SET's options.
#[derive(Clone, Copy)]
enum Expiry {
    None,
    Keep,
    /// Milliseconds from now.
    After(i64),
    /// Milliseconds since the Unix epoch.
    At(i64),
}

#[derive(Clone, Copy, PartialEq)]
enum Condition {
    Always,
    IfMissing,
    IfPresent,
}

/// A time to live of SET, SETEX and PSETEX, in milliseconds.
fn expire_time(text: &Bytes, unit_ms: i64, command: &str) -> Result<i64, Reply> {
    let number = parse_i64(text).ok_or_else(not_an_integer)?;
    let invalid = || Reply::error(format!("ERR invalid expire time in '{command}' command"));
    // Sums with the time of day must stay within 64 bits.
    let ms = number.checked_mul(unit_ms).filter(|&ms| ms > 0 && ms < i64::MAX / 2);
    ms.ok_or_else(invalid)
}

fn store(key: &Bytes, value: &Bytes, expiry: Expiry, condition: Condition, get: bool) -> Body {
    let value = copy(value);
    let blind = condition == Condition::Always && !get && !matches!(expiry, Expiry::Keep);
    let apply: Operation = Box::new(move |view| {
        let old = if get {
            match string(&view) {
                Ok(record) => value_of(record),
                Err(error) => return (error, Change::Keep),
            }
        } else {
            Reply::OK
        };
        let refused = match condition {
            Condition::Always => false,
            Condition::IfMissing => view.record.is_some(),
            Condition::IfPresent => view.record.is_none(),
        };
        if refused {
            return (if get { old } else { Reply::Null }, Change::Keep);
        }
        let now = view.now_ms as i64;
        let at = match expiry {
            Expiry::None => None,
            Expiry::Keep => view.record.and_then(|r| r.expires_at_ms),
            Expiry::After(ms) => Some((now + ms) as u64),
            Expiry::At(ms) if ms <= now => return (old, Change::Delete),
            Expiry::At(ms) => Some(ms as u64),
        };
        put(&view, value, at, old)
    });
    single(item(key, blind, apply))
}

pub(super) fn set(args: &[Bytes]) -> Result<Body, Reply> {
    let (mut expiry, mut condition, mut get) = (Expiry::None, Condition::Always, false);
    let mut rest = args[3..].iter();
    while let Some(option) = rest.next() {
        let option = option.to_ascii_uppercase();
        match &option[..] {
            b"NX" if condition != Condition::IfPresent => condition = Condition::IfMissing,
            b"XX" if condition != Condition::IfMissing => condition = Condition::IfPresent,
            b"GET" => get = true,
            b"KEEPTTL" if matches!(expiry, Expiry::None | Expiry::Keep) => expiry = Expiry::Keep,
            b"EX" | b"PX" | b"EXAT" | b"PXAT" if matches!(expiry, Expiry::None) => {
                let time = rest.next().ok_or_else(syntax)?;
                let ms = |unit| expire_time(time, unit, "set");
                expiry = match &option[..] {
                    b"EX" => Expiry::After(ms(1000)?),
                    b"PX" => Expiry::After(ms(1)?),
                    b"EXAT" => Expiry::At(ms(1000)?),
                    _ => Expiry::At(ms(1)?),
                };
            }
            _ => return Err(syntax()),
        }
    }
    Ok(store(&args[1], &args[2], expiry, condition, get))
}

pub(super) fn setex(args: &[Bytes]) -> Result<Body, Reply> {
    let expiry = Expiry::After(expire_time(&args[2], 1000, "setex")?);
    Ok(store(&args[1], &args[3], expiry, Condition::Always, false))
}

pub(super) fn psetex(args: &[Bytes]) -> Result<Body, Reply> {
    let expiry = Expiry::After(expire_time(&args[2], 1, "psetex")?);
    Ok(store(&args[1], &args[3], expiry, Condition::Always, false))
}
