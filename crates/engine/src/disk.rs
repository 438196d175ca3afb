//! The journal's storage, which tests replace by one that crashes.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// Makes what was appended before durable. May run on any thread.
pub type SyncJob = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// A directory of files: one that is appended to, and others that are written whole.
pub trait Disk: Send {
    /// Names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// A file's content.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;
    /// Starts a new file to append to.
    fn create(&mut self, name: &str) -> io::Result<()>;
    /// Appends to it: handed to the operating system when this returns.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// A job that makes everything appended so far durable, in files left behind too.
    fn syncer(&mut self) -> SyncJob;
    /// A function that writes a file whole, durably, or not at all.
    fn writer(&self, name: &str) -> Box<dyn FnOnce(&[u8]) -> io::Result<()> + Send>;
    /// Removes a file.
    fn remove(&mut self, name: &str) -> io::Result<()>;
}

/// A directory of the file system.
pub struct FsDisk {
    dir: PathBuf,
    current: Option<Arc<File>>,
    /// Files left behind that may hold bytes that are not durable.
    unsynced: Vec<Arc<File>>,
}

impl FsDisk {
    /// The directory must exist.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), current: None, unsynced: Vec::new() }
    }
}

impl Disk for FsDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let name = |entry: io::Result<std::fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
        std::fs::read_dir(&self.dir)?.map(name).collect()
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        std::fs::read(self.dir.join(name))
    }

    fn create(&mut self, name: &str) -> io::Result<()> {
        let file = OpenOptions::new().append(true).create_new(true).open(self.dir.join(name))?;
        File::open(&self.dir)?.sync_all()?;
        self.unsynced.extend(self.current.replace(Arc::new(file)));
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &self.current {
            Some(file) => (&**file).write_all(bytes),
            None => Err(io::Error::other("no journal file is open")),
        }
    }

    fn syncer(&mut self) -> SyncJob {
        let files: Vec<_> = self.unsynced.drain(..).chain(self.current.clone()).collect();
        Box::new(move || files.iter().try_for_each(|file| file.sync_data()))
    }

    fn writer(&self, name: &str) -> Box<dyn FnOnce(&[u8]) -> io::Result<()> + Send> {
        let (dir, path, temporary) = (self.dir.clone(), self.dir.join(name), self.dir.join(format!("{name}.tmp")));
        Box::new(move |bytes| {
            let mut file = File::create(&temporary)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            std::fs::rename(&temporary, &path)?;
            File::open(dir)?.sync_all()
        })
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.dir.join(name))?;
        File::open(&self.dir)?.sync_all()
    }
}
