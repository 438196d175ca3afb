//! Why a command stopped: what is said, and the exit code.

use crate::config::ConfigError;
use std::fmt;

/// A command's failure. The text says what happened and what to do next, and holds no key name and no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// It can't be done as asked: exit code 2.
    Usage(String),
    /// It was tried, and failed: exit code 1.
    Failed(String),
}

impl Error {
    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Usage(text) | Self::Failed(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for Error {}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self::Usage(error.0)
    }
}
