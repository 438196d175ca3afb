//! The master key: made at the first start where nobody named one, fetched from where the configuration says.

use crate::config::MasterKeySource;
use crate::error::Error;
use millpond_crypto::{KeyError, MasterKey, generate_file, load_master};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Self {
        Self::Failed(error.0)
    }
}

/// Makes a key file, and its directory if need be; both are for their owner only.
///
/// # Errors
/// If the file exists already (it is never overwritten) or can't be written.
pub fn generate(path: &Path) -> Result<(), Error> {
    if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|error| {
            Error::Failed(format!("can't make {}: {error}; give a path that can be written", directory.display()))
        })?;
    }
    Ok(generate_file(path)?)
}

impl MasterKeySource {
    /// Fetches the key; makes it first where the configuration leaves that to us and it is missing.
    ///
    /// # Errors
    /// If it is not there or is not a key.
    pub fn fetch(&self) -> Result<MasterKey, Error> {
        if let Some(path) = self.create.as_ref().filter(|path| !path.exists()) {
            generate(path)?;
            tracing::warn!("made a new master key, {}; keep a copy: without it the data is lost", path.display());
        }
        Ok(load_master(&self.source, &self.base)?)
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_default_key_is_made_once_and_a_named_one_is_not() {
        let dir = std::env::temp_dir().join(format!("millpond-binary-keys-{}", std::process::id()));
        let load = |set: &str| Config::load(None, &[set.to_owned()]).unwrap().master;
        let default = load(&format!("server.state={}/state", dir.display()));
        let file = dir.join("state").join("master.key");
        assert!(!file.exists());
        assert!(default.fetch().is_ok());
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        let text = std::fs::read(&file).unwrap();
        assert!(default.fetch().is_ok());
        assert_eq!(std::fs::read(&file).unwrap(), text);
        assert!(load(&format!("keys.master=exec:cat '{}'", file.display())).fetch().is_ok());
        let named = load(&format!("keys.master=file:{}/none", dir.display()));
        assert!(named.fetch().err().unwrap().to_string().contains("millpond keygen"));
        assert!(!dir.join("none").exists());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
