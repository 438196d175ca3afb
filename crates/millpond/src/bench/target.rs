//! Where to measure: a RESP server's address, with an optional name, password and database.

use crate::config::Secret;
use std::str::FromStr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::wire::{self, Kind};

/// A server to measure: `[NAME=]HOST:PORT` or `[NAME=]redis://[[USER]:PASSWORD@]HOST:PORT[/DB]`.
#[derive(Clone)]
pub struct Target {
    /// What the report calls it.
    pub name: String,
    /// HOST:PORT.
    pub address: String,
    password: Option<Secret>,
    db: Option<u16>,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const USAGE: &str = "write a target as [NAME=]HOST:PORT or [NAME=]redis://[:PASSWORD@]HOST:PORT[/DB]";
        let (name, rest) = match text.split_once('=') {
            Some((name, rest)) if !name.contains(['/', ':', '@']) => (Some(name), rest),
            _ => (None, text),
        };
        let (rest, is_url) = rest.strip_prefix("redis://").map_or((rest, false), |rest| (rest, true));
        let (password, rest) = match rest.rsplit_once('@') {
            Some((user, rest)) if is_url => (user.split_once(':').map(|(_, password)| password), rest),
            _ => (None, rest),
        };
        let (address, db) = match rest.split_once('/') {
            None | Some((_, "")) => (rest.trim_end_matches('/'), None),
            Some((address, db)) => (address, Some(db.parse().map_err(|_| USAGE.to_owned())?)),
        };
        match address.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(Self {
                name: name.unwrap_or(address).to_owned(),
                address: address.to_owned(),
                password: password.map(|password| Secret::new(password.to_owned())),
                db,
            }),
            _ => Err(USAGE.to_owned()),
        }
    }
}

impl Target {
    /// Connects, logs in and selects the database.
    ///
    /// # Errors
    /// In words, with what to do.
    pub async fn connect(&self) -> Result<TcpStream, String> {
        let fail = |error: std::io::Error| format!("{}: {error}; is a server running there?", self.address);
        let mut stream = TcpStream::connect(&self.address).await.map_err(fail)?;
        stream.set_nodelay(true).map_err(fail)?;
        let mut requests = Vec::new();
        let mut due = 0;
        if let Some(password) = &self.password {
            wire::request(&[b"AUTH", password.expose().as_bytes()], &mut requests);
            due += 1;
        }
        if let Some(db) = self.db {
            wire::request(&[b"SELECT", db.to_string().as_bytes()], &mut requests);
            due += 1;
        }
        stream.write_all(&requests).await.map_err(fail)?;
        let mut input = Vec::new();
        while due > 0 {
            if stream.read_buf(&mut input).await.map_err(fail)? == 0 {
                return Err(format!("{}: closed the connection", self.address));
            }
            while let Some((kind, length)) = wire::scan(&input)? {
                if kind == Kind::Error {
                    return Err(format!("{}: {}", self.address, wire::error_line(&input)));
                }
                input.drain(..length);
                due -= 1;
            }
        }
        Ok(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_parsed() {
        let parse = |text: &str| {
            let t: Target = text.parse().unwrap();
            (t.name, t.address, t.password.map(|p| p.expose().to_owned()), t.db)
        };
        let plain = |name: &str| (name.to_owned(), "h:1".to_owned(), None, None);
        assert_eq!(parse("h:1"), plain("h:1"));
        assert_eq!(parse("redis=h:1"), plain("redis"));
        assert_eq!(parse("redis://h:1/"), plain("h:1"));
        let full = ("a".to_owned(), "h:1".to_owned(), Some("p@=w".to_owned()), Some(2));
        assert_eq!(parse("a=redis://:p@=w@h:1/2"), full);
        assert_eq!(parse("[::1]:1").1, "[::1]:1");
        for bad in ["", "h", ":1", "h:x", "h:1/x", "a=", "redis://"] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
