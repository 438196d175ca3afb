//! `embedded:PATH`: a log-structured store in this process (fjall).
//!
//! One thread writes, in the order of the calls; another reads beside it. After a write failed, everything fails until
//! the next `connect`.

use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use millpond_core::{
    Answer, BarrierKind, Batch, BoxFuture, Capabilities, Incarnation, Op, Store, StoreError, StoreErrorKind,
};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use tokio::sync::oneshot;

const CLAIM: &[u8] = b"claim";
const CACHE_BYTES: u64 = 256 << 20;

type Done = oneshot::Sender<Result<Answer, StoreError>>;

enum Job {
    Batch(Arc<Batch>, Done),
    Sync(Done),
}

#[derive(Clone)]
struct Parts {
    database: Database,
    blocks: Keyspace,
    meta: Keyspace,
    failed: Arc<AtomicBool>,
}

/// A store in a directory.
pub struct Embedded {
    parts: Parts,
    reader: mpsc::Sender<Job>,
    writer: mpsc::Sender<Job>,
    run: Incarnation,
}

fn failure(error: &fjall::Error) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, format!("the embedded store failed: {error}; check its disk"))
}

impl Parts {
    fn read(&self, batch: &Batch) -> Result<Answer, StoreError> {
        let Op::Read(labels) = &batch.op else { return self.write(batch) };
        let get = |l: &millpond_core::Label| {
            self.blocks.get(l.0).map(|b| b.map(|b| Bytes::copy_from_slice(&b))).map_err(|e| failure(&e))
        };
        labels.iter().map(get).collect::<Result<_, _>>().map(Answer::Blocks)
    }

    fn write(&self, batch: &Batch) -> Result<Answer, StoreError> {
        let mut changes = self.database.batch();
        match &batch.op {
            Op::Read(_) => return self.read(batch),
            Op::Write(blocks) => {
                blocks.iter().for_each(|(label, block)| changes.insert(&self.blocks, label.0, &block[..]));
            }
            Op::Delete(labels) => labels.iter().for_each(|label| changes.remove(&self.blocks, label.0)),
        }
        changes.commit().map(|()| Answer::Done).map_err(|e| failure(&e))
    }

    fn work(&self, jobs: &mpsc::Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            if self.failed.load(Ordering::Acquire) {
                let (Job::Batch(_, done) | Job::Sync(done)) = job;
                done.send(Err(StoreError::new(StoreErrorKind::Refused, "the embedded store failed before"))).ok();
                continue;
            }
            let (result, done) = match job {
                Job::Batch(batch, done) => (self.read(&batch), done),
                Job::Sync(done) => {
                    (self.database.persist(PersistMode::SyncAll).map(|()| Answer::Done).map_err(|e| failure(&e)), done)
                }
            };
            if result.is_err() {
                self.failed.store(true, Ordering::Release);
            }
            // Whoever asked may have gone.
            done.send(result).ok();
        }
    }
}

impl Embedded {
    /// Opens or makes the store in `path`.
    ///
    /// # Errors
    /// If the directory can't be used, or another process has it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let fatal = |e: &dyn std::fmt::Display| {
            let text = format!("can't open the embedded store {}: {e}; is another millpond using it?", path.display());
            StoreError::new(StoreErrorKind::Fatal, text)
        };
        let options = || {
            KeyspaceCreateOptions::default().data_block_compression_policy(fjall::config::CompressionPolicy::disabled())
        };
        let database = Database::builder(path).cache_size(CACHE_BYTES).open().map_err(|e| fatal(&e))?;
        let blocks = database.keyspace("blocks", options).map_err(|e| fatal(&e))?;
        let meta = database.keyspace("meta", KeyspaceCreateOptions::default).map_err(|e| fatal(&e))?;
        let parts = Parts { database, blocks, meta, failed: Arc::default() };
        let spawn = |name: &str| {
            let (jobs, inbox) = mpsc::channel();
            let parts = parts.clone();
            let work = move || parts.work(&inbox);
            std::thread::Builder::new().name(name.into()).spawn(work).map(|_| jobs).map_err(|e| fatal(&e))
        };
        let (reader, writer) = (spawn("embedded-read")?, spawn("embedded-write")?);
        let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let run = Incarnation(format!("{}-{}", std::process::id(), started.as_nanos()));
        Ok(Self { parts, reader, writer, run })
    }

    fn send(to: &mpsc::Sender<Job>, job: impl FnOnce(Done) -> Job) -> BoxFuture<Result<Answer, StoreError>> {
        let (done, result) = oneshot::channel();
        let gone = || StoreError::new(StoreErrorKind::Fatal, "the embedded store's thread has stopped");
        let sent = to.send(job(done));
        Box::pin(async move {
            sent.map_err(|_| gone())?;
            result.await.map_err(|_| gone())?
        })
    }
}

impl Store for Embedded {
    fn capabilities(&self) -> Capabilities {
        Capabilities { barrier: BarrierKind::Cheap, block_limit: 256 << 20 }
    }

    fn connect(&self) -> BoxFuture<Result<Incarnation, StoreError>> {
        // Nothing called before may take effect later: the threads empty their queues first.
        let drained = [Self::send(&self.reader, Job::Sync), Self::send(&self.writer, Job::Sync)];
        let (failed, run) = (Arc::clone(&self.parts.failed), self.run.clone());
        Box::pin(async move {
            for queue in drained {
                queue.await.ok();
            }
            failed.store(false, Ordering::Release);
            Ok(run)
        })
    }

    fn execute(&self, batch: Arc<Batch>) -> BoxFuture<Result<Answer, StoreError>> {
        let to = if matches!(batch.op, Op::Read(_)) { &self.reader } else { &self.writer };
        Self::send(to, |done| Job::Batch(batch, done))
    }

    fn sync(&self) -> BoxFuture<Result<(), StoreError>> {
        let synced = Self::send(&self.writer, Job::Sync);
        Box::pin(async move { synced.await.map(|_| ()) })
    }

    fn read_claim(&self) -> BoxFuture<Result<Option<Bytes>, StoreError>> {
        let claim = self.parts.meta.get(CLAIM).map(|c| c.map(|c| Bytes::copy_from_slice(&c))).map_err(|e| failure(&e));
        Box::pin(std::future::ready(claim))
    }

    fn write_claim(&self, claim: Bytes) -> BoxFuture<Result<(), StoreError>> {
        let written =
            self.parts.meta.insert(CLAIM, &claim[..]).and_then(|()| self.parts.database.persist(PersistMode::SyncAll));
        Box::pin(std::future::ready(written.map_err(|e| failure(&e))))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use millpond_core::Label;

    #[tokio::test]
    async fn blocks_survive_a_reopening_and_writes_keep_their_order() {
        let path = std::env::temp_dir().join(format!("millpond-embedded-{}", std::process::id()));
        let label = |n: u8| Label([n; 16]);
        {
            let store = Embedded::open(&path).unwrap();
            assert_eq!(store.connect().await, store.connect().await);
            let write = |n, text: &'static str| {
                Arc::new(Batch { round: 0, op: Op::Write(vec![(label(n), Bytes::from_static(text.as_bytes()))]) })
            };
            let answers =
                [store.execute(write(1, "old")), store.execute(write(1, "new")), store.execute(write(2, "two"))];
            for answer in answers {
                assert_eq!(answer.await, Ok(Answer::Done));
            }
            store.execute(Arc::new(Batch { round: 0, op: Op::Delete(vec![label(2)]) })).await.unwrap();
            store.write_claim(Bytes::from_static(b"mine")).await.unwrap();
            store.sync().await.unwrap();
        }
        let store = Embedded::open(&path).unwrap();
        let read = Arc::new(Batch { round: 0, op: Op::Read(vec![label(1), label(2), label(1)]) });
        let new = Some(Bytes::from_static(b"new"));
        assert_eq!(store.execute(read).await, Ok(Answer::Blocks(vec![new.clone(), None, new])));
        assert_eq!(store.read_claim().await, Ok(Some(Bytes::from_static(b"mine"))));
        drop(store);
        std::fs::remove_dir_all(&path).ok();
    }
}
