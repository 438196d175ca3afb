//! Runs a [`Driver`] on the real clock, disk and store, as one task.

use crate::disk::FsDisk;
use crate::driver::{Action, Config, Driver, Input};
use crate::handle::{Mailbox, Stats, StoreHandle, Submission};
use crate::state_dir::StateDir;
use millpond_core::{
    BarrierKind, BoxFuture, Incarnation, Now, Reply, Request, RequestId, Scheme, Store, StoreError, StoreErrorKind,
};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot, watch};

/// Why a store can't be started.
#[derive(Debug)]
pub struct EngineError(pub String);

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EngineError {}

/// What a store is started from.
pub struct Start {
    /// Its name.
    pub name: String,
    /// Its largest value in bytes.
    pub value_limit: usize,
    /// Bytes that name the store, random: part of its claim.
    pub store_id: [u8; 16],
    /// A random number for this run.
    pub incarnation: u64,
    /// How it is driven.
    pub config: Config,
    /// Its state.
    pub dir: StateDir,
    /// Its scheme, new.
    pub scheme: Box<dyn Scheme>,
    /// Its back end.
    pub store: Arc<dyn Store>,
}

/// Blocks written at a time when a store is filled for the first time.
const INIT_BLOCKS: usize = 1500;

struct Clock(Instant);

impl Clock {
    fn now(&self) -> Now {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { mono_us: self.0.elapsed().as_micros() as u64, unix_ms: unix.as_millis() as u64 }
    }
}

fn claim_text(store_id: [u8; 16], incarnation: u64) -> String {
    format!("millpond-claim 1 {:032x} {incarnation:016x}", u128::from_be_bytes(store_id))
}

/// Connects and takes the claim: the store is ours if nobody claimed it, or a proxy with the same state did.
async fn take_claim(start: &Start) -> Result<Incarnation, EngineError> {
    let failed = |e: StoreError| EngineError(format!("store '{}': {e}", start.name));
    let run = start.store.connect().await.map_err(failed)?;
    let claim = start.store.read_claim().await.map_err(failed)?;
    let mine = format!("millpond-claim 1 {:032x}", u128::from_be_bytes(start.store_id));
    if claim.is_some_and(|c| !c.starts_with(mine.as_bytes())) {
        return Err(EngineError(format!(
            "store '{}' is claimed by a millpond with another state directory: use that one, or another database",
            start.name
        )));
    }
    let claim = claim_text(start.store_id, start.incarnation);
    start.store.write_claim(claim.into()).await.map_err(failed)?;
    Ok(run)
}

/// Connects again, and makes sure that the claim is still ours.
fn reconnect(store: Arc<dyn Store>, claim: String) -> BoxFuture<Result<Incarnation, StoreError>> {
    Box::pin(async move {
        let run = store.connect().await?;
        match store.read_claim().await? {
            Some(found) if found == claim.as_bytes() => Ok(run),
            Some(_) => {
                Err(StoreError::new(StoreErrorKind::Fatal, "another millpond has claimed the store: stop one of them"))
            }
            None => Err(StoreError::new(
                StoreErrorKind::Fatal,
                "the store has lost its data (the claim is gone): restore a backup",
            )),
        }
    })
}

/// Recovers a store, fills it if it is new, and starts serving it.
///
/// # Errors
/// If the state directory or the store can't be used.
pub async fn start(start: Start) -> Result<StoreHandle, EngineError> {
    let named = |e: &dyn fmt::Display| EngineError(format!("store '{}': {e}", start.name));
    let run = take_claim(&start).await?;
    let clock = Clock(Instant::now());
    let claim = claim_text(start.store_id, start.incarnation);
    let (store, disk) = (Arc::clone(&start.store), FsDisk::new(start.dir.path()));
    let volatile = store.capabilities().barrier == BarrierKind::Volatile;
    let opened = Driver::open(start.config.clone(), disk, start.scheme, run, start.incarnation, clock.now());
    let mut driver = opened.map_err(|e| named(&e))?;
    while let Some(batch) = driver.init(INIT_BLOCKS) {
        store.execute(Arc::new(batch)).await.map_err(|e| named(&e))?;
    }
    // What fills the store must be durable before the journal says so.
    store.sync().await.map_err(|e| named(&e))?;
    driver.ready(clock.now()).map_err(|e| named(&e))?;
    let (inbox, submissions) = mpsc::unbounded_channel();
    let (stats, watch) = watch::channel(Arc::new(Stats { store_up: true, volatile, ..Stats::default() }));
    let (events, arrived) = mpsc::unbounded_channel();
    let shell = Shell {
        driver,
        store,
        claim,
        clock,
        events,
        sinks: HashMap::new(),
        next_id: 0,
        outbox: HashMap::new(),
        stats,
        stats_due: Instant::now(),
        volatile,
        _dir: start.dir,
    };
    tokio::spawn(shell.run(submissions, arrived));
    Ok(StoreHandle { name: start.name.into(), value_limit: start.value_limit, inbox, stats: watch })
}

struct Shell {
    driver: Driver<FsDisk>,
    store: Arc<dyn Store>,
    claim: String,
    clock: Clock,
    events: mpsc::UnboundedSender<Input>,
    sinks: HashMap<RequestId, (Arc<Mailbox>, u64)>,
    next_id: u64,
    /// Replies of this turn of the loop, by the mailbox's address.
    outbox: HashMap<usize, (Arc<Mailbox>, Vec<(u64, Reply)>)>,
    stats: watch::Sender<Arc<Stats>>,
    stats_due: Instant,
    volatile: bool,
    _dir: StateDir,
}

impl Shell {
    async fn run(
        mut self,
        mut submissions: mpsc::UnboundedReceiver<Submission>,
        mut arrived: mpsc::UnboundedReceiver<Input>,
    ) {
        let mut stopping: Option<oneshot::Sender<()>> = None;
        loop {
            let now = self.clock.now();
            let wait = Duration::from_micros(self.driver.wake_us(now).saturating_sub(now.mono_us));
            tokio::select! {
                biased;
                Some(input) = arrived.recv() => {
                    self.handle(input);
                    while let Ok(input) = arrived.try_recv() {
                        self.handle(input);
                    }
                }
                submission = submissions.recv(), if stopping.is_none() => {
                    stopping = self.submitted(submission, &mut submissions);
                }
                () = tokio::time::sleep(wait) => self.handle(Input::Timer),
            }
            self.flush();
            self.publish();
            if stopping.is_some() && self.driver.is_idle() {
                break;
            }
        }
        self.close().await;
        if let Some(done) = stopping {
            done.send(()).ok();
        }
    }

    /// Takes in all that waits. Returns the one to tell when the store is to stop.
    fn submitted(
        &mut self,
        first: Option<Submission>,
        more: &mut mpsc::UnboundedReceiver<Submission>,
    ) -> Option<oneshot::Sender<()>> {
        let mut requests = Vec::new();
        let (mut next, mut stop) = (first, None);
        while let Some(submission) = next {
            match submission {
                Submission::Requests(mailbox, batch) => {
                    for (token, body) in batch {
                        let id = RequestId(self.next_id);
                        self.next_id += 1;
                        self.sinks.insert(id, (Arc::clone(&mailbox), token));
                        requests.push(Request { id, body });
                    }
                }
                Submission::Shutdown(done) => {
                    stop = Some(done);
                    break;
                }
            }
            next = more.try_recv().ok();
        }
        if !requests.is_empty() {
            self.handle(Input::Requests(requests));
        }
        stop
    }

    fn handle(&mut self, input: Input) {
        self.driver.handle(self.clock.now(), input);
        loop {
            let actions = self.driver.take_actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                self.perform(action);
            }
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Execute(attempt, id, batch) => {
                let answer = self.store.execute(batch);
                self.later(async move { Input::Io(attempt, id, answer.await) });
            }
            Action::Connect => {
                let connected = reconnect(Arc::clone(&self.store), self.claim.clone());
                self.later(async move { Input::Connected(connected.await) });
            }
            Action::Sync(attempt) => {
                let synced = self.store.sync();
                self.later(async move { Input::Synced(attempt, synced.await) });
            }
            Action::Fsync(seq, job) => self.blocking(move || Input::Fsynced(seq, job())),
            Action::Checkpoint(job) => self.blocking(move || Input::Checkpointed(job())),
            Action::Compute(id, job, true) => self.blocking(move || Input::Computed(id, job.run())),
            Action::Compute(id, job, false) => self.driver.handle(self.clock.now(), Input::Computed(id, job.run())),
            Action::Reply(id, reply) => {
                if let Some((mailbox, token)) = self.sinks.remove(&id) {
                    let (_, replies) =
                        self.outbox.entry(Arc::as_ptr(&mailbox) as usize).or_insert_with(|| (mailbox, Vec::new()));
                    replies.push((token, reply));
                }
            }
        }
    }

    fn later(&self, work: impl Future<Output = Input> + Send + 'static) {
        let events = self.events.clone();
        tokio::spawn(async move { events.send(work.await).ok() });
    }

    fn blocking(&self, work: impl FnOnce() -> Input + Send + 'static) {
        let events = self.events.clone();
        tokio::task::spawn_blocking(move || events.send(work()).ok());
    }

    fn flush(&mut self) {
        for (_, (mailbox, mut replies)) in self.outbox.drain() {
            mailbox.put(&mut replies);
        }
    }

    fn publish(&mut self) {
        if Instant::now() < self.stats_due {
            return;
        }
        self.stats_due = Instant::now() + Duration::from_millis(100);
        let (counters, scheme) = (self.driver.counters(), self.driver.status());
        let now = self.clock.now();
        let stats = Stats {
            store_up: self.driver.is_up(),
            store_error: counters.store_error.clone(),
            store_errors: counters.store_errors,
            volatile: self.volatile,
            degraded: scheme.integrity_failures > 0,
            journal_error: counters.journal_error.clone(),
            journal_bytes: self.driver.journal_bytes(),
            journal_fsyncs: counters.fsyncs,
            barriers: counters.barriers,
            barrier_age_s: now.mono_us.saturating_sub(counters.last_barrier_us) / 1_000_000,
            requests: counters.requests,
            cover_batches: counters.cover_batches,
            deadlines: counters.deadlines,
            request_us_log2: counters.request_us_log2,
            scheme,
        };
        self.stats.send_replace(Arc::new(stats));
    }

    async fn close(&mut self) {
        if self.store.sync().await.is_ok()
            && let Err(e) = self.driver.close(self.clock.now())
        {
            tracing::warn!("the state was not closed in order: {e}");
        }
    }
}
