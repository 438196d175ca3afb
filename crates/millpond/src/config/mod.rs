//! The configuration: read in layers (file, environment, command line), checked, and resolved once into [`Config`].
//!
//! Nothing outside this module looks at TOML or at the environment. Relative paths are relative to the file's
//! directory, or to the working directory where there is no file.

mod layers;
mod resolve;
mod schema;
#[cfg(test)]
mod tests;

pub use schema::reference_markdown;

use layers::Layers;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zeroize::Zeroizing;

/// The configuration can't be used: where it is wrong, what is wrong, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(pub String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

/// A secret from the configuration. Wiped when dropped; no `Debug`.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Wraps a secret.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// Its text.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// Everything that can be configured, with defaults filled in and paths made whole.
pub struct Config {
    /// `[server]`
    pub server: Server,
    /// `[keys] master`
    pub master: MasterKeySource,
    /// Every `[[store]]`, by database number. At least one; names and numbers differ.
    pub stores: Vec<StoreConfig>,
}

/// `[server]`
pub struct Server {
    /// Address for clients.
    pub listen: String,
    /// Address for metrics, health and status.
    pub admin: Option<String>,
    /// What AUTH must give.
    pub password: Option<PasswordSource>,
    /// The trusted state directory.
    pub state: PathBuf,
    /// Worker threads; `None`: one for each core.
    pub threads: Option<usize>,
    /// Connections at a time.
    pub max_clients: usize,
    /// After this long a request is given up.
    pub deadline: Duration,
}

/// Where the password is.
pub enum PasswordSource {
    /// In an environment variable.
    Env(String),
    /// On the first line of a file.
    File(PathBuf),
    /// Here.
    Literal(Secret),
}

impl PasswordSource {
    /// Fetches the password.
    ///
    /// # Errors
    /// If it is not there, or empty.
    pub fn read(&self) -> Result<Secret, ConfigError> {
        let (secret, place) = match self {
            Self::Env(name) => (std::env::var(name).ok(), format!("set the environment variable {name}")),
            Self::File(path) => (
                std::fs::read_to_string(path).ok().map(|text| text.lines().next().unwrap_or_default().to_owned()),
                format!("put it on the first line of {}", path.display()),
            ),
            Self::Literal(secret) => return Ok(secret.clone()),
        };
        match secret {
            Some(secret) if !secret.is_empty() => Ok(Secret::new(secret)),
            _ => Err(ConfigError(format!("server.password: no password found; {place}"))),
        }
    }
}

/// Where the master key is.
pub struct MasterKeySource {
    /// `file:PATH`, `env:NAME` or `exec:COMMAND`.
    pub source: String,
    /// What a relative path is relative to, and where the command runs.
    pub base: PathBuf,
    /// Make this file where it is missing: only where nobody named a source.
    pub create: Option<PathBuf>,
}

/// One `[[store]]`.
pub struct StoreConfig {
    /// Its name.
    pub name: String,
    /// Its database number.
    pub db: u16,
    /// How it hides.
    pub scheme: SchemeName,
    /// The most keys it will ever hold.
    pub capacity: u64,
    /// The largest value in bytes.
    pub value_size: usize,
    /// The untrusted store.
    pub backend: Backend,
    /// Accesses for each request.
    pub batch: u32,
    /// How popular the keys are.
    pub distribution: Distribution,
    /// Batches without a request.
    pub cover: Cover,
    /// Batches a reply is held after its request arrived.
    pub hold: u32,
    /// When a write is on disk in the journal.
    pub durability: Durability,
    /// Where its journal and checkpoints are.
    pub state: PathBuf,
}

/// A scheme that is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemeName {
    /// Hides which keys are popular.
    Pancake,
    /// Hides contents only.
    Sealed,
    /// Hides nothing.
    Plain,
}

impl SchemeName {
    /// As the configuration writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pancake => "pancake",
            Self::Sealed => "sealed",
            Self::Plain => "plain",
        }
    }
}

/// An untrusted store.
#[derive(Clone)]
pub enum Backend {
    /// In this process's memory.
    Memory,
    /// In a directory.
    Embedded(PathBuf),
    /// `redis://` or `rediss://`, whole: it may hold a password.
    Redis(Secret),
}

impl fmt::Display for Backend {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Embedded(path) => write!(f, "embedded:{}", path.display()),
            Self::Redis(url) => {
                let (scheme, rest) = url.expose().split_once("://").unwrap_or_default();
                // A password may itself hold an '@': what follows the last one is the address.
                let address = rest.rsplit_once('@').map_or(rest, |(_, address)| address);
                write!(f, "{scheme}://{address}")
            }
        }
    }
}

/// How popular the keys are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Distribution {
    /// All alike: a guess.
    Uniform,
    /// A file of key,weight.
    Weights(PathBuf),
    /// A file of keys as they were asked for.
    Trace(PathBuf),
}

/// Batches without a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cover {
    /// A burst after traffic, then a floor.
    Idle,
    /// So many a second, always.
    Constant(f64),
    /// None.
    Off,
}

/// When a write is on disk in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Before its reply.
    Always,
    /// Within a second.
    EverySecond,
    /// When the operating system likes.
    Os,
}

impl Config {
    /// Reads the configuration from a file (or the defaults), the process's environment and `--set` arguments.
    ///
    /// # Errors
    /// If something in it is unknown, malformed or out of range.
    pub fn load(file: Option<&Path>, sets: &[String]) -> Result<Self, ConfigError> {
        // Variables that are not UTF-8 can't be ours.
        let environment = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
        Self::load_with(file, environment, sets)
    }

    fn load_with(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
        sets: &[String],
    ) -> Result<Self, ConfigError> {
        let text = match file {
            None => None,
            Some(path) => Some((path.display().to_string(), read(path)?)),
        };
        let mut layers = Layers::read(text.as_ref().map(|(name, text)| (name.as_str(), text.as_str())))?;
        layers.apply_environment(environment)?;
        for assignment in sets {
            layers.apply_set(assignment)?;
        }
        let base = file.and_then(Path::parent).unwrap_or(Path::new(""));
        resolve::resolve(&layers, base)
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|error| {
        ConfigError(format!("can't read the configuration {}: {error}; give its path with --config", path.display()))
    })
}
