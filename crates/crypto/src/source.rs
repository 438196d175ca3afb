//! Where a master key comes from: `file:`, `env:` or `exec:`.

use crate::{KeyError, MasterKey};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use zeroize::Zeroizing;

/// Makes a key file, readable by its owner alone. Never overwrites.
///
/// # Errors
/// If the file exists, or can't be written.
pub fn generate_file(path: &Path) -> Result<(), KeyError> {
    let failed = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::AlreadyExists => {
            KeyError(format!("{} exists already, and a key is never overwritten: choose another name", path.display()))
        }
        _ => KeyError(format!("can't write {}: {e}", path.display())),
    };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    file.write_all(MasterKey::generate().to_file().as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent).and_then(|dir| dir.sync_all()).map_err(failed)
}

/// Loads the master key that `source` names; a relative file is looked for in `base`.
///
/// # Errors
/// If the source is unknown, unreadable, readable by others, or does not hold a key.
pub fn load_master(source: &str, base: &Path) -> Result<MasterKey, KeyError> {
    let text = match source.split_once(':') {
        Some(("file", path)) => read_file(&base.join(path))?,
        Some(("env", name)) => {
            let value =
                std::env::var(name).map_err(|_| KeyError(format!("the environment variable {name} is not set")))?;
            Zeroizing::new(value.into_bytes())
        }
        Some(("exec", command)) => run(command, base)?,
        _ => return Err(KeyError("a key source is file:PATH, env:NAME or exec:COMMAND".into())),
    };
    MasterKey::parse(&text)
}

fn read_file(path: &Path) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let failed = |e: std::io::Error| {
        KeyError(format!("can't read the key file {}: {e}; `millpond keygen -o FILE` makes one", path.display()))
    };
    let mut file = File::open(path).map_err(failed)?;
    // Of the open file, so that it is the one that is read.
    let about = file.metadata().map_err(failed)?;
    if about.mode() & 0o077 != 0 {
        let text = format!("the key file {} can be read by others: chmod 600 {0}", path.display());
        return Err(KeyError(text));
    }
    // Room for all of it at once: a buffer that grows leaves copies of the key behind.
    let mut text = Zeroizing::new(Vec::with_capacity(about.len() as usize + 1));
    file.read_to_end(&mut text).map_err(failed)?;
    Ok(text)
}

fn run(command: &str, base: &Path) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let output =
        Command::new("sh").arg("-c").arg(command).current_dir(base).stderr(std::process::Stdio::inherit()).output();
    let output = output.map_err(|e| KeyError(format!("can't run the key command: {e}")))?;
    let stdout = Zeroizing::new(output.stdout);
    if output.status.success() {
        Ok(stdout)
    } else {
        Err(KeyError(format!("the key command failed: {}", output.status)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn key_files() {
        let dir = std::env::temp_dir().join(format!("millpond-keys-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("master.key");
        assert!(load_master("file:master.key", &dir).err().unwrap().0.contains("millpond keygen"));
        generate_file(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(load_master("file:master.key", &dir).is_ok());
        assert!(load_master("exec:cat master.key", &dir).is_ok());
        assert!(generate_file(&path).unwrap_err().0.contains("never overwritten"));
        for mode in [0o640, 0o604, 0o660] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(load_master("file:master.key", &dir).err().unwrap().0.contains("chmod 600"), "{mode:o}");
        }
        assert!(load_master("exec:cat master.key; exit 3", &dir).err().unwrap().0.contains('3'));
        // It is no key, and does not show in the error.
        let error = load_master("env:PATH", &dir).err().unwrap().0;
        assert!(error.contains("millpond keygen") && !error.contains(&std::env::var("PATH").unwrap()), "{error}");
        assert!(load_master("env:MILLPOND_NO_SUCH", &dir).err().unwrap().0.contains("MILLPOND_NO_SUCH is not set"));
        assert!(load_master("vault:x", &dir).err().unwrap().0.contains("file:PATH, env:NAME or exec:COMMAND"));
        for bad in ["exec:false", "exec:echo x", "env:MILLPOND_NO_SUCH", "file:none", "vault:x", ""] {
            assert!(load_master(bad, &dir).is_err(), "{bad}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// Setting a variable would be unsafe here, so this test runs itself again with one.
    #[test]
    fn a_key_in_the_environment() {
        const NAME: &str = "MILLPOND_TEST_KEY";
        if std::env::var(NAME).is_ok() {
            assert!(load_master("env:MILLPOND_TEST_KEY", Path::new(".")).is_ok());
            return;
        }
        let again = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "source::tests::a_key_in_the_environment"])
            .env(NAME, MasterKey::generate().to_file().as_str())
            .output();
        let output = again.unwrap();
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
    }
}
