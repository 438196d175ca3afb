//! Where a master key comes from: `file:`, `env:` or `exec:`.

use crate::{KeyError, MasterKey};
use std::fs::{File, OpenOptions};
use std::io::Write;
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
    let mode = std::fs::metadata(path).map_err(failed)?.mode();
    if mode & 0o077 != 0 {
        let text = format!("the key file {} can be read by others: chmod 600 {0}", path.display());
        return Err(KeyError(text));
    }
    std::fs::read(path).map(Zeroizing::new).map_err(failed)
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
        generate_file(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(load_master("file:master.key", &dir).is_ok());
        assert!(load_master("exec:cat master.key", &dir).is_ok());
        assert!(generate_file(&path).unwrap_err().0.contains("never overwritten"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(load_master("file:master.key", &dir).err().unwrap().0.contains("chmod 600"));
        for bad in ["exec:false", "exec:echo x", "env:MILLPOND_NO_SUCH", "file:none", "vault:x", ""] {
            assert!(load_master(bad, &dir).is_err(), "{bad}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
