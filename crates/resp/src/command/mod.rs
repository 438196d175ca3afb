//! One table defines a command: name, arity, flags, keys, summary, and what it does.

mod keys;
mod strings;

use bytes::Bytes;
use millpond_core::{Body, Change, Group, Item, Key, Operation, Reply};
use std::fmt::Write as _;

/// Type of string records.
pub const STRING: u8 = 1;

/// Longest key, in bytes.
pub const KEY_LIMIT: usize = 4096;

/// What a command is.
pub struct Command {
    /// Its name, in lower case.
    pub name: &'static str,
    /// Number of arguments with the name; negative: at least so many.
    pub arity: i32,
    /// Redis's flags.
    pub flags: &'static [&'static str],
    /// Position of the first key, of the last one (−1: the last argument), and the distance between keys; 0: no keys.
    pub keys: (i32, i32, i32),
    /// What it does, in a line.
    pub summary: &'static str,
    /// What handles it.
    pub kind: Kind,
}

/// What handles a command.
pub enum Kind {
    /// The connection.
    Connection,
    /// A store: makes the request of the arguments.
    Data(fn(&[Bytes]) -> Result<Body, Reply>),
}

/// `ERR syntax error`
pub(crate) fn syntax() -> Reply {
    Reply::error("ERR syntax error")
}

pub(crate) fn not_an_integer() -> Reply {
    Reply::error("ERR value is not an integer or out of range")
}

pub(crate) fn wrong_type() -> Reply {
    Reply::error("WRONGTYPE Operation against a key holding the wrong kind of value")
}

/// An item for a key, or one that only says that the key is too long, at the same cost.
pub(crate) fn item(key: &Bytes, blind: bool, apply: Operation) -> Item {
    if key.len() > KEY_LIMIT {
        let text = format!("ERR key is too long: {} bytes, the limit is {KEY_LIMIT}", key.len());
        let stand_in = Key::new(Bytes::copy_from_slice(&key[..64]));
        return Item { key: stand_in, blind: false, apply: Box::new(move |_| (Reply::error(text), Change::Keep)) };
    }
    Item { key: Key::new(Bytes::copy_from_slice(key)), apply, blind }
}

pub(crate) fn single(item: Item) -> Body {
    Body::Group(Group { items: vec![item], combine: None })
}

/// A request whose reply is the sum of its items' integers, or the first error.
pub(crate) fn summed(items: Vec<Item>) -> Body {
    let combine = |replies: Vec<Reply>| {
        let mut sum = 0;
        for reply in replies {
            match reply {
                Reply::Integer(n) => sum += n,
                other => return other,
            }
        }
        Reply::Integer(sum)
    };
    Body::Group(Group { items, combine: Some(Box::new(combine)) })
}

const fn connection(name: &'static str, arity: i32, flags: &'static [&'static str], summary: &'static str) -> Command {
    Command { name, arity, flags, keys: (0, 0, 0), summary, kind: Kind::Connection }
}

const READ: &[&str] = &["readonly", "fast"];
const WRITE: &[&str] = &["write", "denyoom", "fast"];
const REMOVE: &[&str] = &["write", "fast"];
const ONE: (i32, i32, i32) = (1, 1, 1);
const ALL: (i32, i32, i32) = (1, -1, 1);

const fn data(
    name: &'static str,
    arity: i32,
    flags: &'static [&'static str],
    keys: (i32, i32, i32),
    run: fn(&[Bytes]) -> Result<Body, Reply>,
    summary: &'static str,
) -> Command {
    Command { name, arity, flags, keys, summary, kind: Kind::Data(run) }
}

/// All commands.
pub static TABLE: &[Command] = &[
    connection("auth", -2, &["noscript", "loading", "stale", "fast", "no_auth"], "Authenticates the connection."),
    connection(
        "client",
        -2,
        &["noscript", "loading", "stale"],
        "Names and describes the connection: ID, SETNAME, GETNAME, SETINFO, INFO, NO-EVICT, NO-TOUCH.",
    ),
    connection("command", -1, &["loading", "stale"], "Describes the commands: COUNT, INFO, DOCS, LIST."),
    connection("dbsize", 1, &["readonly", "fast"], "Returns the number of keys."),
    connection("echo", 2, &["loading", "stale", "fast"], "Returns the given string."),
    connection(
        "hello",
        -1,
        &["noscript", "loading", "stale", "fast", "no_auth"],
        "Chooses the protocol version, authenticates and names the connection.",
    ),
    connection("info", -1, &["loading", "stale"], "Returns information about the server."),
    connection("ping", -1, &["fast"], "Returns PONG, or the given string."),
    connection("quit", -1, &["noscript", "loading", "stale", "fast", "no_auth"], "Closes the connection."),
    connection("reset", 1, &["noscript", "loading", "stale", "fast", "no_auth"], "Resets the connection."),
    connection("select", 2, &["loading", "stale", "fast"], "Changes the database."),
    data("append", 3, WRITE, ONE, strings::append, "Appends to a value."),
    data("decr", 2, WRITE, ONE, strings::decr, "Subtracts one."),
    data("decrby", 3, WRITE, ONE, strings::decrby, "Subtracts an integer."),
    data("del", -2, REMOVE, ALL, keys::del, "Deletes keys."),
    data("exists", -2, READ, ALL, keys::exists, "Counts the keys that exist."),
    data("expire", -3, REMOVE, ONE, keys::expire, "Sets a key's time to live in seconds."),
    data("expireat", -3, REMOVE, ONE, keys::expireat, "Sets a key's expiry as a Unix time in seconds."),
    data("expiretime", 2, READ, ONE, keys::expiretime, "Returns a key's expiry as a Unix time in seconds."),
    data("flushdb", -1, &["write"], (0, 0, 0), keys::flushdb, "Removes all keys of the database."),
    data("get", 2, READ, ONE, strings::get, "Returns a value."),
    data("getdel", 2, REMOVE, ONE, strings::getdel, "Returns a value and deletes the key."),
    data("getset", 3, WRITE, ONE, strings::getset, "Sets a value and returns the old one."),
    data("incr", 2, WRITE, ONE, strings::incr, "Adds one."),
    data("incrby", 3, WRITE, ONE, strings::incrby, "Adds an integer."),
    data("mget", -2, READ, ALL, strings::mget, "Returns the values of several keys."),
    data("mset", -3, WRITE, (1, -1, 2), strings::mset, "Sets several keys together."),
    data("persist", 2, REMOVE, ONE, keys::persist, "Removes a key's time to live."),
    data("pexpire", -3, REMOVE, ONE, keys::pexpire, "Sets a key's time to live in milliseconds."),
    data("pexpireat", -3, REMOVE, ONE, keys::pexpireat, "Sets a key's expiry as a Unix time in milliseconds."),
    data("pexpiretime", 2, READ, ONE, keys::pexpiretime, "Returns a key's expiry as a Unix time in milliseconds."),
    data("psetex", 4, WRITE, ONE, strings::psetex, "Sets a value with a time to live in milliseconds."),
    data("pttl", 2, READ, ONE, keys::pttl, "Returns a key's time to live in milliseconds."),
    data("set", -3, WRITE, ONE, strings::set, "Sets a value."),
    data("setex", 4, WRITE, ONE, strings::setex, "Sets a value with a time to live in seconds."),
    data("setnx", 3, WRITE, ONE, strings::setnx, "Sets a value if the key does not exist."),
    data("strlen", 2, READ, ONE, strings::strlen, "Returns a value's length."),
    data("ttl", 2, READ, ONE, keys::ttl, "Returns a key's time to live in seconds."),
    data("type", 2, READ, ONE, keys::kind, "Returns the type of a key's value."),
    data("unlink", -2, REMOVE, ALL, keys::del, "Deletes keys."),
];

/// Finds a command by its name, in any case.
pub fn find(name: &[u8]) -> Option<&'static Command> {
    TABLE.iter().find(|c| c.name.as_bytes().eq_ignore_ascii_case(name))
}

impl Command {
    /// Whether so many arguments (with the name) are right.
    pub fn accepts(&self, args: usize) -> bool {
        let wanted = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { args >= wanted } else { args == wanted }
    }
}

/// The error for a command that is not in the table, as Redis words it.
pub fn unknown(args: &[Bytes]) -> Reply {
    let text = |bytes: &[u8], most: usize| String::from_utf8_lossy(&bytes[..bytes.len().min(most)]).into_owned();
    let name = args.first().map_or(String::new(), |n| text(n, 128));
    let mut line = format!("ERR unknown command '{name}', with args beginning with: ");
    let mut left = 128usize;
    for arg in args.iter().skip(1) {
        if left == 0 {
            break;
        }
        let shown = text(arg, left);
        left = left.saturating_sub(shown.len() + 3);
        // Writing to a string cannot fail.
        write!(line, "'{shown}' ").ok();
    }
    Reply::error(line.replace(['\r', '\n'], " "))
}

/// The table as documentation.
pub fn reference_markdown() -> String {
    let mut text = String::from("# Commands\n\n| command | arity | does |\n|---|---|---|\n");
    for c in TABLE {
        writeln!(text, "| {} | {} | {} |", c.name.to_uppercase(), c.arity, c.summary).ok();
    }
    text.push_str("\nEvery other command is refused with `ERR unknown command`.\n");
    text
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use millpond_core::{Record, View};
    use std::collections::BTreeMap;

    /// A store that is a map.
    #[derive(Default)]
    pub struct Db {
        pub records: BTreeMap<Vec<u8>, Record>,
        pub now_ms: u64,
    }

    impl Db {
        pub fn run(&mut self, line: &str) -> Reply {
            let args: Vec<Bytes> = line.split(' ').map(|a| Bytes::copy_from_slice(a.as_bytes())).collect();
            let command = find(&args[0]).unwrap();
            let Kind::Data(run) = command.kind else { panic!("{line} is not a data command") };
            let group = match run(&args) {
                Ok(Body::Group(group)) => group,
                Ok(Body::Flush) => {
                    self.records.clear();
                    return Reply::OK;
                }
                Err(reply) => return reply,
            };
            let mut replies = Vec::new();
            for item in group.items {
                let key = item.key.as_bytes().to_vec();
                let record = self.records.get(&key).filter(|r| r.is_live(self.now_ms)).cloned();
                let (reply, change) =
                    (item.apply)(View { record: record.as_ref(), now_ms: self.now_ms, value_limit: 100 });
                match change {
                    Change::Keep => {}
                    Change::Put(record) => drop(self.records.insert(key, record)),
                    Change::Delete => drop(self.records.remove(&key)),
                }
                replies.push(reply);
            }
            match group.combine {
                Some(combine) => combine(replies),
                None => replies.pop().unwrap(),
            }
        }
    }

    #[test]
    fn commands_answer_as_redis_does() {
        let mut db = Db { now_ms: 1_000_000, ..Db::default() };
        let ok = Reply::OK;
        let bulk = |s: &str| Reply::bulk(s.to_owned());
        let int = Reply::Integer;
        let error = |s: &str| Reply::error(s.to_owned());
        let script: Vec<(&str, Reply)> = vec![
            ("GET a", Reply::Null),
            ("SET a 1", ok.clone()),
            ("GET a", bulk("1")),
            ("SET a 2 NX", Reply::Null),
            ("SET a 2 XX GET", bulk("1")),
            ("INCR a", int(3)),
            ("DECRBY a 5", int(-2)),
            ("INCRBY a 9223372036854775807", int(9_223_372_036_854_775_805)),
            ("INCRBY a 5", error("ERR increment or decrement would overflow")),
            ("APPEND s xyz", int(3)),
            ("INCR s", error("ERR value is not an integer or out of range")),
            ("STRLEN s", int(3)),
            ("STRLEN none", int(0)),
            ("MSET x 1 y 2", ok.clone()),
            ("MGET x none y", Reply::Array(vec![bulk("1"), Reply::Null, bulk("2")])),
            ("MSET x 1 y", error("ERR wrong number of arguments for 'mset' command")),
            ("EXISTS x y none x", int(3)),
            ("DEL x none", int(1)),
            ("TTL none", int(-2)),
            ("TTL y", int(-1)),
            ("EXPIRE y 100", int(1)),
            ("TTL y", int(100)),
            ("PTTL y", int(100_000)),
            ("EXPIRETIME y", int(1100)),
            ("EXPIRE y 50 GT", int(0)),
            ("EXPIRE y 200 NX GT", error("ERR NX and XX, GT or LT options at the same time are not compatible")),
            ("PERSIST y", int(1)),
            ("PERSIST y", int(0)),
            ("SET y 5 EX 10", ok.clone()),
            ("SET y 6 KEEPTTL", ok.clone()),
            ("TTL y", int(10)),
            ("SET y 6 EX 0", error("ERR invalid expire time in 'set' command")),
            ("SET y 6 EX a", error("ERR value is not an integer or out of range")),
            ("SET y 6 EX 1 PX 1", error("ERR syntax error")),
            ("SETEX y 5 v", ok.clone()),
            ("PTTL y", int(5000)),
            ("EXPIRE y -1", int(1)),
            ("GET y", Reply::Null),
            ("SETNX n 1", int(1)),
            ("SETNX n 2", int(0)),
            ("GETSET n 3", bulk("1")),
            ("GETDEL n", bulk("3")),
            ("TYPE n", Reply::Simple("none".into())),
            ("TYPE a", Reply::Simple("string".into())),
            ("FLUSHDB", ok),
            ("GET a", Reply::Null),
        ];
        for (line, expected) in script {
            assert_eq!(db.run(line), expected, "{line}");
        }
        let long = "v".repeat(101);
        let refused = error("ERR value is too large for this store: 101 bytes, value_size is 100");
        assert_eq!(db.run(&format!("SET a {long}")), refused);
        assert_eq!(db.run(&format!("MSET b 1 a {long}")), refused);
        assert_eq!(db.run("EXISTS a b"), int(0));
        assert!(db.run(&format!("GET {}", "k".repeat(4097))).is_error());
    }

    #[test]
    fn unknown_commands_are_named_as_redis_names_them() {
        let args = ["foo", "bar", "b\nz"].map(|a| Bytes::copy_from_slice(a.as_bytes()));
        assert_eq!(unknown(&args), Reply::error("ERR unknown command 'foo', with args beginning with: 'bar' 'b z' "));
    }
}
