//! A disk in memory that can crash: a killed process leaves everything, a power loss only what was synced.

use millpond_engine::{Disk, SyncJob};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Clone, Default)]
struct File {
    bytes: Vec<u8>,
    synced: usize,
}

#[derive(Default)]
struct Files {
    files: BTreeMap<String, File>,
    current: Option<String>,
}

/// Clones share the files.
#[derive(Clone, Default)]
pub struct SimDisk(Arc<Mutex<Files>>);

impl SimDisk {
    fn lock(&self) -> MutexGuard<'_, Files> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The power fails: of what was appended and not synced, `keep` (0 to 1) of the bytes survive.
    pub fn power_loss(&self, keep: f64) {
        let mut lost = false;
        // A segment's tail is lost before anything of the next one can be there: files are written in order.
        for file in self.lock().files.values_mut() {
            let unsynced = file.bytes.len() - file.synced;
            let kept = if lost { 0 } else { (unsynced as f64 * keep) as usize };
            lost |= kept < unsynced;
            file.bytes.truncate(file.synced + kept);
        }
    }
}

fn missing() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

impl Disk for SimDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.lock().files.keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.lock().files.get(name).map(|f| f.bytes.clone()).ok_or_else(missing)
    }

    fn create(&mut self, name: &str) -> io::Result<()> {
        let mut files = self.lock();
        files.files.insert(name.into(), File::default());
        files.current = Some(name.into());
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut files = self.lock();
        let current = files.current.clone().ok_or_else(missing)?;
        files.files.get_mut(&current).ok_or_else(missing)?.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn syncer(&mut self) -> SyncJob {
        let lengths: Vec<_> = self.lock().files.iter().map(|(name, file)| (name.clone(), file.bytes.len())).collect();
        let disk = self.clone();
        Box::new(move || {
            let mut files = disk.lock();
            for (name, len) in lengths {
                if let Some(file) = files.files.get_mut(&name) {
                    file.synced = file.synced.max(len);
                }
            }
            Ok(())
        })
    }

    fn writer(&self, name: &str) -> Box<dyn FnOnce(&[u8]) -> io::Result<()> + Send> {
        let (disk, name) = (self.clone(), name.to_owned());
        Box::new(move |bytes| {
            disk.lock().files.insert(name, File { bytes: bytes.to_vec(), synced: bytes.len() });
            Ok(())
        })
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.lock().files.remove(name).map(|_| ()).ok_or_else(missing)
    }
}
