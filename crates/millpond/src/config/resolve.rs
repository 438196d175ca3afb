//! Turns checked layers into a [`Config`]: types, ranges, paths, and what must not be together.

use super::layers::{Fields, Layers, comparable};
use super::{
    Backend, Config, ConfigError, Cover, Distribution, Durability, MasterKeySource, PasswordSource, SchemeName, Secret,
    Server, StoreConfig,
};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

type Result<T> = std::result::Result<T, ConfigError>;

/// Resolves all of it; relative paths start at `base`.
pub fn resolve(layers: &Layers, base: &Path) -> Result<Config> {
    let server = server(&layers.server, base)?;
    let master = master(&layers.keys, base, &server)?;
    let mut stores = layers
        .stores
        .iter()
        .enumerate()
        .map(|(position, fields)| store(fields, position, base, &server))
        .collect::<Result<Vec<_>>>()?;
    for (i, (one, fields)) in stores.iter().zip(&layers.stores).enumerate() {
        let before = stores.get(..i).unwrap_or_default();
        if let Some(other) = before.iter().find(|other| comparable(&other.name) == comparable(&one.name)) {
            return Err(fields.error("name", format!("too like \"{}\"; give each store its own name", other.name)));
        }
        if let Some(other) = before.iter().find(|other| other.db == one.db) {
            return Err(fields.error("db", format!("{} is \"{}\" already; choose another number", one.db, other.name)));
        }
        if let (Backend::Embedded(path), Some(other)) = (&one.backend, before.iter().find(|other| shares(other, one))) {
            let what = format!("{} belongs to \"{}\" already; choose another directory", path.display(), other.name);
            return Err(fields.error("backend", what));
        }
    }
    // A connection starts with the first one.
    stores.sort_by_key(|store| store.db);
    Ok(Config { server, master, stores })
}

fn shares(one: &StoreConfig, other: &StoreConfig) -> bool {
    matches!((&one.backend, &other.backend), (Backend::Embedded(a), Backend::Embedded(b)) if a == b)
}

fn server(fields: &Fields, base: &Path) -> Result<Server> {
    let admin = text(fields, "admin")?;
    let threads = match fields.integer("threads") {
        None => None,
        Some(_) => Some(integer(fields, "threads", 1..=1024)? as usize),
    };
    Ok(Server {
        listen: address(fields, "listen", text(fields, "listen")?)?,
        admin: if admin == "off" { None } else { Some(address(fields, "admin", admin)?) },
        password: password(fields, base)?,
        state: base.join(text(fields, "state")?),
        threads,
        max_clients: integer(fields, "max_clients", 1..=1_000_000)? as usize,
        deadline: Duration::from_millis(integer(fields, "deadline_ms", 10..=3_600_000)?),
    })
}

fn password(fields: &Fields, base: &Path) -> Result<Option<PasswordSource>> {
    let Some(text) = fields.text("password") else { return Ok(None) };
    let source = match text.split_once(':') {
        Some(("env", name)) if !name.is_empty() => PasswordSource::Env(name.to_owned()),
        Some(("file", path)) if !path.is_empty() => PasswordSource::File(base.join(path)),
        Some(("env" | "file", _)) => return Err(fields.error("password", "name the variable or file after the colon")),
        _ if text.is_empty() => return Err(fields.error("password", "is empty; leave it out where none is wanted")),
        _ => PasswordSource::Literal(Secret::new(text)),
    };
    Ok(Some(source))
}

fn master(fields: &Fields, base: &Path, server: &Server) -> Result<MasterKeySource> {
    // A command can't be run in a directory without a name.
    let base = if base.as_os_str().is_empty() { Path::new(".") } else { base };
    let Some(source) = fields.text("master") else {
        let path = std::path::absolute(server.state.join("master.key"))
            .map_err(|error| fields.error("master", format!("the working directory is gone ({error}); set it")))?;
        let source = format!("file:{}", path.display());
        return Ok(MasterKeySource { source, base: base.to_owned(), create: Some(path) });
    };
    match source.split_once(':') {
        Some((_, "")) => Err(fields.error("master", "name the file, variable or command after the colon")),
        Some(("file" | "env" | "exec", _)) => Ok(MasterKeySource { source, base: base.to_owned(), create: None }),
        // The value is not shown: somebody may have put the key itself here.
        _ => Err(fields.error("master", "takes file:PATH, env:NAME or exec:COMMAND, never the key itself")),
    }
}

fn store(fields: &Fields, position: usize, base: &Path, server: &Server) -> Result<StoreConfig> {
    let name = store_name(fields)?;
    let scheme = scheme(fields)?;
    let db = match fields.integer("db") {
        None => position as u64,
        Some(db) => db,
    };
    if db > 15 {
        return Err(fields.error("db", "must be 0 to 15; set it to a number no other store has"));
    }
    Ok(StoreConfig {
        db: db as u16,
        capacity: integer(fields, "capacity", 2..=2_000_000_000)?,
        value_size: integer(fields, "value_size", 1..=16 << 20)? as usize,
        backend: backend(fields, base, server, &name)?,
        batch: batch(fields)?,
        distribution: distribution(fields, base)?,
        cover: cover(fields, scheme)?,
        hold: integer(fields, "hold", 0..=1000)? as u32,
        durability: durability(fields)?,
        state: server.state.join(&name),
        scheme,
        name,
    })
}

fn store_name(fields: &Fields) -> Result<String> {
    let Some(name) = fields.text("name") else {
        return Err(fields.error("name", "is missing; give the store a name, as in name = \"sessions\""));
    };
    let well_formed = name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    if !well_formed {
        return Err(fields.error("name", "must be a letter, then letters, digits, - and _, at most 64 in all"));
    }
    Ok(name)
}

fn scheme(fields: &Fields) -> Result<SchemeName> {
    match text(fields, "scheme")?.as_str() {
        "pancake" => Ok(SchemeName::Pancake),
        "sealed" => Ok(SchemeName::Sealed),
        "plain" => Ok(SchemeName::Plain),
        planned @ ("burst-oram" | "pro-oram" | "path-oram" | "oblivistore") => {
            Err(fields
                .error("scheme", format!("{planned} isn't built yet; use pancake, or sealed or plain as yardsticks")))
        }
        _ => Err(fields.error("scheme", "unknown scheme; use pancake, or sealed or plain as yardsticks")),
    }
}

fn backend(fields: &Fields, base: &Path, server: &Server, name: &str) -> Result<Backend> {
    // A store's name has no dot, so this can't be another store's state.
    let Some(url) = fields.text("backend") else {
        return Ok(Backend::Embedded(server.state.join(format!("{name}.blocks"))));
    };
    let (kind, rest) = url.split_once(':').unwrap_or((url.as_str(), ""));
    match kind {
        "memory" if rest.is_empty() => Ok(Backend::Memory),
        "embedded" if !rest.is_empty() => Ok(Backend::Embedded(base.join(rest))),
        "redis" | "rediss" if rest.len() > 2 && rest.starts_with("//") => Ok(Backend::Redis(Secret::new(url))),
        "redis-cluster" | "memcached" | "rocksdb" | "s3" => Err(fields
            .error("backend", format!("{kind} isn't built yet; use embedded:PATH, memory:, redis:// or rediss://"))),
        // The value is not shown: it may hold a password.
        _ => Err(fields.error("backend", "use embedded:PATH, memory:, redis://HOST:PORT/DB or rediss://HOST:PORT/DB")),
    }
}

fn batch(fields: &Fields) -> Result<u32> {
    match fields.integer("batch") {
        Some(0..=2) => {
            Err(fields.error("batch", "must be at least 3: with fewer, requests queue up without end; leave it at 3"))
        }
        _ => Ok(integer(fields, "batch", 3..=64)? as u32),
    }
}

fn distribution(fields: &Fields, base: &Path) -> Result<Distribution> {
    let text = text(fields, "distribution")?;
    match text.split_once(':') {
        None if text == "uniform" => Ok(Distribution::Uniform),
        Some(("file", path)) if !path.is_empty() => Ok(Distribution::Weights(base.join(path))),
        Some(("trace", path)) if !path.is_empty() => Ok(Distribution::Trace(base.join(path))),
        _ => Err(fields.error("distribution", "use uniform, file:WEIGHTS.csv or trace:FILE")),
    }
}

fn cover(fields: &Fields, scheme: SchemeName) -> Result<Cover> {
    let text = text(fields, "cover")?;
    let usage = "use idle, constant:RATE (batches a second, above 0, at most 1000000) or off";
    match text.as_str() {
        "idle" => Ok(Cover::Idle),
        "off" if scheme == SchemeName::Pancake => Err(fields.error(
            "cover",
            "off lets a request wait for ever when traffic pauses; use idle, or off-i-accept-stalls if that is wanted",
        )),
        "off" | "off-i-accept-stalls" => Ok(Cover::Off),
        text => match text.strip_prefix("constant:").and_then(|rate| rate.trim().parse::<f64>().ok()) {
            Some(rate) if rate > 0.0 && rate <= 1e6 => Ok(Cover::Constant(rate)),
            _ => Err(fields.error("cover", usage)),
        },
    }
}

fn durability(fields: &Fields) -> Result<Durability> {
    match text(fields, "durability")?.as_str() {
        "always" => Ok(Durability::Always),
        "everysec" => Ok(Durability::EverySecond),
        "os" => Ok(Durability::Os),
        _ => Err(fields.error("durability", "use always, everysec or os")),
    }
}

fn address(fields: &Fields, name: &str, text: String) -> Result<String> {
    let port =
        text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).and_then(|(_, port)| port.parse::<u16>().ok());
    match port {
        Some(_) => Ok(text),
        None => Err(fields.error(name, "write it as HOST:PORT, as in 127.0.0.1:6380")),
    }
}

/// The text of a key that always has one.
fn text(fields: &Fields, name: &str) -> Result<String> {
    fields.text(name).ok_or_else(|| fields.error(name, "is missing; set it"))
}

/// The number of a key that always has one.
fn integer(fields: &Fields, name: &str, range: RangeInclusive<u64>) -> Result<u64> {
    match fields.integer(name) {
        Some(number) if range.contains(&number) => Ok(number),
        _ => Err(fields.error(name, format!("must be {} to {}", range.start(), range.end()))),
    }
}
