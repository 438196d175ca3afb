//! A store's state directory: a lock, what the store was made with, the journal.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// An open state directory. One process at a time has it.
pub struct StateDir {
    path: PathBuf,
    _lock: File,
}

/// What a store was made with. It never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// The store's id.
    pub store_id: [u8; 16],
    /// The epoch's secret, sealed under the master key.
    pub secret: Vec<u8>,
    /// Scheme, capacity and value size, as one line: a store can't be opened with others.
    pub shape: String,
}

impl StateDir {
    /// Makes the directory if need be, and locks it.
    ///
    /// # Errors
    /// If it can't be made, or another process has it.
    pub fn open(path: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(path)?;
        let lock = OpenOptions::new().write(true).create(true).truncate(false).open(path.join("lock"))?;
        lock.try_lock().map_err(|_| {
            io::Error::other(format!(
                "{} is in use by another millpond: one state directory has one proxy",
                path.display()
            ))
        })?;
        Ok(Self { path: path.into(), _lock: lock })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the store was made with; `None` if it is new.
    ///
    /// # Errors
    /// If the file can't be read or is not one.
    pub fn meta(&self) -> io::Result<Option<Meta>> {
        let text = match std::fs::read_to_string(self.path.join("meta")) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        Meta::parse(&text)
            .map(Some)
            .ok_or_else(|| io::Error::other("the file `meta` of the state directory is damaged"))
    }

    /// Writes what the store is made with.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn create(&self, meta: &Meta) -> io::Result<()> {
        let (path, temporary) = (self.path.join("meta"), self.path.join("meta.tmp"));
        let mut file = File::create(&temporary)?;
        file.write_all(meta.to_text().as_bytes())?;
        file.sync_all()?;
        std::fs::rename(temporary, path)?;
        File::open(&self.path)?.sync_all()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

impl Meta {
    fn to_text(&self) -> String {
        format!(
            "millpond-state 1\nstore-id {}\nepoch-secret {}\nshape {}\n",
            hex(&self.store_id),
            hex(&self.secret),
            self.shape
        )
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        (lines.next()? == "millpond-state 1").then_some(())?;
        let store_id = unhex(lines.next()?.strip_prefix("store-id ")?)?.try_into().ok()?;
        let secret = unhex(lines.next()?.strip_prefix("epoch-secret ")?)?;
        Some(Self { store_id, secret, shape: lines.next()?.strip_prefix("shape ")?.into() })
    }
}
