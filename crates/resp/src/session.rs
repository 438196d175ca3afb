//! A connection's state: protocol, authentication, database, name.

use crate::command::{self, Command, Kind, TABLE};
use crate::frame::Protocol;
use crate::number::parse_i64;
use bytes::Bytes;
use millpond_core::{Body, Reply};
use std::sync::Arc;

/// The Redis version whose behaviour is kept.
pub const REDIS_VERSION: &str = "7.2.5";

/// What all connections share.
#[derive(Default)]
pub struct Environment {
    /// The password, if one is needed.
    pub password: Option<Vec<u8>>,
    /// Database number of each store, by the store's index.
    pub databases: Vec<u16>,
}

/// What is to be done about a request.
pub enum Outcome {
    /// Answer it.
    Reply(Reply),
    /// Answer it and close the connection.
    Close(Reply),
    /// Hand it to a store.
    Data {
        /// The store's index.
        store: usize,
        /// The request.
        body: Body,
    },
    /// INFO: the server knows.
    Info,
    /// DBSIZE of this store: the server knows.
    DbSize(usize),
}

/// One connection.
pub struct Session {
    id: u64,
    environment: Arc<Environment>,
    protocol: Protocol,
    authenticated: bool,
    store: usize,
    name: Bytes,
}

fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (x, y)| difference | (x ^ y)) == 0
}

fn reply(reply: Reply) -> Outcome {
    Outcome::Reply(reply)
}

fn error(text: impl Into<std::borrow::Cow<'static, str>>) -> Outcome {
    Outcome::Reply(Reply::error(text))
}

fn text(text: &'static str) -> Reply {
    Reply::bulk(Bytes::from_static(text.as_bytes()))
}

impl Session {
    /// A new connection, in the first store.
    pub fn new(id: u64, environment: Arc<Environment>) -> Self {
        let authenticated = environment.password.is_none();
        Self { id, environment, protocol: Protocol::Resp2, authenticated, store: 0, name: Bytes::new() }
    }

    /// The protocol replies are to be encoded in.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Whether the client may do anything.
    pub fn is_authenticated(&self) -> bool {
        self.authenticated
    }

    /// Carries out a request as far as the connection can.
    pub fn handle(&mut self, args: &[Bytes]) -> Outcome {
        let Some(command) = args.first().and_then(|name| command::find(name)) else {
            return reply(if self.authenticated {
                command::unknown(args)
            } else {
                Reply::error("NOAUTH Authentication required.")
            });
        };
        if !command.accepts(args.len()) {
            return error(format!("ERR wrong number of arguments for '{}' command", command.name));
        }
        if !self.authenticated && !command.flags.contains(&"no_auth") {
            return error("NOAUTH Authentication required.");
        }
        match &command.kind {
            Kind::Data(make) => match make(args) {
                Ok(body) => Outcome::Data { store: self.store, body },
                Err(refusal) => reply(refusal),
            },
            Kind::Connection => self.connection(command, args),
        }
    }

    fn connection(&mut self, command: &Command, args: &[Bytes]) -> Outcome {
        match (command.name, args) {
            ("ping", [_]) => reply(Reply::Simple("PONG".into())),
            ("ping" | "echo", [_, message]) => reply(Reply::Bulk(message.clone())),
            ("ping", _) => error("ERR wrong number of arguments for 'ping' command"),
            ("quit", _) => Outcome::Close(Reply::OK),
            ("reset", _) => {
                *self = Self::new(self.id, Arc::clone(&self.environment));
                reply(Reply::Simple("RESET".into()))
            }
            ("select", [_, number]) => reply(self.select(number)),
            ("auth", [_, password]) => reply(self.auth(b"default", password)),
            ("auth", [_, user, password]) => reply(self.auth(user, password)),
            ("auth", _) => reply(command::syntax()),
            ("hello", [_, rest @ ..]) => reply(self.hello(rest).unwrap_or_else(|refusal| refusal)),
            ("client", [_, sub, rest @ ..]) => reply(self.client(sub, rest)),
            ("command", [_, rest @ ..]) => reply(describe(rest)),
            ("info", _) => Outcome::Info,
            ("dbsize", _) => Outcome::DbSize(self.store),
            _ => reply(command::unknown(args)),
        }
    }

    fn select(&mut self, number: &Bytes) -> Reply {
        let Some(number) = parse_i64(number) else { return Reply::error("ERR invalid DB index") };
        match self.environment.databases.iter().position(|&db| i64::from(db) == number) {
            Some(store) => {
                self.store = store;
                Reply::OK
            }
            None => Reply::error("ERR DB index is out of range"),
        }
    }

    fn auth(&mut self, user: &[u8], password: &[u8]) -> Reply {
        let Some(expected) = &self.environment.password else {
            return Reply::error(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
            );
        };
        if user != b"default" || !same(password, expected) {
            return Reply::error("WRONGPASS invalid username-password pair or user is disabled.");
        }
        self.authenticated = true;
        Reply::OK
    }

    fn hello(&mut self, args: &[Bytes]) -> Result<Reply, Reply> {
        let mut protocol = self.protocol;
        let mut rest = args.iter();
        if let Some(version) = rest.next() {
            protocol = match parse_i64(version) {
                Some(2) => Protocol::Resp2,
                Some(3) => Protocol::Resp3,
                Some(_) => return Err(Reply::error("NOPROTO unsupported protocol version")),
                None => return Err(Reply::error("ERR Protocol version is not an integer or out of range")),
            };
        }
        let mut name = None;
        while let Some(option) = rest.next() {
            let wrong =
                || Reply::error(format!("ERR Syntax error in HELLO option '{}'", String::from_utf8_lossy(option)));
            if option.eq_ignore_ascii_case(b"auth") {
                let (user, password) = (rest.next().ok_or_else(wrong)?, rest.next().ok_or_else(wrong)?);
                let answer = if self.environment.password.is_some() { self.auth(user, password) } else { Reply::OK };
                if answer.is_error() {
                    return Err(answer);
                }
            } else if option.eq_ignore_ascii_case(b"setname") {
                name = Some(rest.next().ok_or_else(wrong)?);
            } else {
                return Err(wrong());
            }
        }
        if !self.authenticated {
            return Err(Reply::error(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
            ));
        }
        if let Some(name) = name {
            self.set_name(name)?;
        }
        self.protocol = protocol;
        let version = if protocol == Protocol::Resp3 { 3 } else { 2 };
        Ok(Reply::Map(vec![
            (text("server"), text("redis")),
            (text("version"), text(REDIS_VERSION)),
            (text("proto"), Reply::Integer(version)),
            (text("id"), Reply::Integer(self.id as i64)),
            (text("mode"), text("standalone")),
            (text("role"), text("master")),
            (text("modules"), Reply::Array(Vec::new())),
        ]))
    }

    fn set_name(&mut self, name: &Bytes) -> Result<(), Reply> {
        if name.iter().any(|b| !(b'!'..=b'~').contains(b)) {
            return Err(Reply::error("ERR Client names cannot contain spaces, newlines or special characters."));
        }
        self.name = Bytes::copy_from_slice(name);
        Ok(())
    }

    fn client(&mut self, sub: &Bytes, rest: &[Bytes]) -> Reply {
        match (&sub.to_ascii_lowercase()[..], rest) {
            (b"id", []) => Reply::Integer(self.id as i64),
            (b"getname", []) if self.name.is_empty() => Reply::Null,
            (b"getname", []) => Reply::Bulk(self.name.clone()),
            (b"setname", [name]) => self.set_name(name).map_or_else(|refusal| refusal, |()| Reply::OK),
            (b"setinfo", [what, _])
                if what.eq_ignore_ascii_case(b"lib-name") || what.eq_ignore_ascii_case(b"lib-ver") =>
            {
                Reply::OK
            }
            (b"no-evict" | b"no-touch", [_]) => Reply::OK,
            (b"info", []) => {
                Reply::bulk(format!("id={} name={} db={}\n", self.id, String::from_utf8_lossy(&self.name), self.store))
            }
            _ => Reply::error(format!("ERR unknown subcommand '{}'. Try CLIENT HELP.", String::from_utf8_lossy(sub))),
        }
    }
}

fn info(command: &Command) -> Reply {
    let flags = command.flags.iter().map(|f| Reply::Simple((*f).into())).collect();
    let (first, last, step) = command.keys;
    let number = |n: i32| Reply::Integer(i64::from(n));
    let empty = || Reply::Array(Vec::new());
    Reply::Array(vec![
        text(command.name),
        number(command.arity),
        Reply::Set(flags),
        number(first),
        number(last),
        number(step),
        Reply::Set(Vec::new()),
        Reply::Set(Vec::new()),
        empty(),
        empty(),
    ])
}

fn docs(command: &Command) -> (Reply, Reply) {
    let group = if matches!(command.kind, Kind::Connection) { "connection" } else { "generic" };
    (text(command.name), Reply::Map(vec![(text("summary"), text(command.summary)), (text("group"), text(group))]))
}

/// COMMAND and its subcommands, from the table.
fn describe(args: &[Bytes]) -> Reply {
    let Some((sub, names)) = args.split_first() else { return Reply::Array(TABLE.iter().map(info).collect()) };
    let chosen = || -> Vec<&Command> {
        if names.is_empty() { TABLE.iter().collect() } else { names.iter().filter_map(|n| command::find(n)).collect() }
    };
    match &sub.to_ascii_lowercase()[..] {
        b"count" => Reply::Integer(TABLE.len() as i64),
        b"list" => Reply::Array(TABLE.iter().map(|c| text(c.name)).collect()),
        b"docs" => Reply::Map(chosen().into_iter().map(docs).collect()),
        b"info" if names.is_empty() => Reply::Array(TABLE.iter().map(info).collect()),
        b"info" => Reply::Array(names.iter().map(|n| command::find(n).map_or(Reply::NullArray, info)).collect()),
        _ => Reply::error(format!("ERR unknown subcommand '{}'. Try COMMAND HELP.", String::from_utf8_lossy(sub))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(session: &mut Session, line: &str) -> Reply {
        let args: Vec<Bytes> = line.split(' ').map(|a| Bytes::copy_from_slice(a.as_bytes())).collect();
        match session.handle(&args) {
            Outcome::Reply(reply) | Outcome::Close(reply) => reply,
            Outcome::Data { .. } | Outcome::Info | Outcome::DbSize(_) => Reply::OK,
        }
    }

    #[test]
    fn a_password_guards_everything() {
        let environment = Environment { password: Some(b"secret".to_vec()), databases: vec![0, 3] };
        let mut session = Session::new(7, Arc::new(environment));
        for line in ["GET a", "PING", "HELLO 3", "NOSUCH"] {
            assert!(matches!(run(&mut session, line), Reply::Error(e) if e.starts_with("NOAUTH")), "{line}");
        }
        assert!(matches!(run(&mut session, "AUTH wrong"), Reply::Error(e) if e.starts_with("WRONGPASS")));
        assert!(matches!(run(&mut session, "HELLO 3 AUTH default secret SETNAME me"), Reply::Map(_)));
        assert_eq!(session.protocol(), Protocol::Resp3);
        assert_eq!(run(&mut session, "CLIENT GETNAME"), Reply::bulk("me"));
        assert_eq!(run(&mut session, "CLIENT ID"), Reply::Integer(7));
        assert_eq!(run(&mut session, "SELECT 3"), Reply::OK);
        assert_eq!(run(&mut session, "SELECT 1"), Reply::error("ERR DB index is out of range"));
        assert!(run(&mut session, "CLIENT TRACKING on").is_error());
        assert!(matches!(run(&mut session, "HELLO 4"), Reply::Error(e) if e.starts_with("NOPROTO")));
        assert_eq!(run(&mut session, "GET"), Reply::error("ERR wrong number of arguments for 'get' command"));
        assert!(matches!(run(&mut session, "COMMAND INFO get nosuch"), Reply::Array(a) if a.len() == 2));
    }
}
