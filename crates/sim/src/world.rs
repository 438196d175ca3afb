//! The production engine over a simulated disk, store and clock, driven step by step from one seed.

use crate::disk::SimDisk;
use crate::model::Op;
use crate::store::SimStore;
use millpond_core::{Batch, IoId, Job, JobId, Now, Reply, Request, RequestId, Scheme, StoreError, StoreErrorKind};
use millpond_engine::{Action, Config, Driver, Input, SyncJob};
use std::collections::VecDeque;
use std::sync::Arc;

/// What is on its way to the store.
enum Sent {
    Batch(u64, IoId, Arc<Batch>),
    /// A barrier, and the position it covers.
    Sync(u64, usize),
    Connect,
}

/// One store, its proxy, and the clients' requests.
pub struct World {
    /// The proxy's disk.
    pub disk: SimDisk,
    /// The store.
    pub store: SimStore,
    driver: Driver<SimDisk>,
    now: Now,
    sent: VecDeque<Sent>,
    answers: VecDeque<Input>,
    jobs: VecDeque<(JobId, Job)>,
    fsyncs: VecDeque<(u64, SyncJob)>,
    checkpoints: VecDeque<SyncJob>,
    next_id: u64,
    /// Requests that have not been answered, in order.
    pub asked: VecDeque<(RequestId, Op)>,
    /// Replies that have not been looked at.
    pub replies: VecDeque<(RequestId, Reply)>,
}

impl World {
    /// Starts, or starts again, a proxy on a disk and a store.
    pub fn start(
        config: Config,
        disk: SimDisk,
        mut store: SimStore,
        scheme: Box<dyn Scheme>,
        incarnation: u64,
        now: Now,
    ) -> Self {
        let opened = Driver::open(config, disk.clone(), scheme, store.incarnation(), incarnation, now);
        let mut driver = opened.unwrap_or_else(|e| panic!("recovery failed: {e}"));
        while let Some(batch) = driver.init(7) {
            store.execute(&batch);
        }
        let position = store.position();
        store.sync(position);
        driver.ready(now).unwrap_or_else(|e| panic!("start-up failed: {e}"));
        Self {
            disk,
            store,
            driver,
            now,
            sent: VecDeque::new(),
            answers: VecDeque::new(),
            jobs: VecDeque::new(),
            fsyncs: VecDeque::new(),
            checkpoints: VecDeque::new(),
            next_id: 0,
            asked: VecDeque::new(),
            replies: VecDeque::new(),
        }
    }

    /// The time.
    pub fn now(&self) -> Now {
        self.now
    }

    /// The scheme's counters.
    pub fn status(&self) -> millpond_core::Status {
        self.driver.status()
    }

    fn handle(&mut self, input: Input) {
        self.driver.handle(self.now, input);
        for action in self.driver.take_actions() {
            match action {
                Action::Execute(attempt, id, batch) => self.sent.push_back(Sent::Batch(attempt, id, batch)),
                Action::Connect => self.sent.push_back(Sent::Connect),
                Action::Sync(attempt) => self.sent.push_back(Sent::Sync(attempt, self.store.position())),
                Action::Fsync(seq, job) => self.fsyncs.push_back((seq, job)),
                Action::Compute(id, job, _) => self.jobs.push_back((id, job)),
                Action::Checkpoint(job) => self.checkpoints.push_back(job),
                Action::Reply(id, reply) => self.replies.push_back((id, reply)),
            }
        }
    }

    /// Clients ask.
    pub fn ask(&mut self, ops: Vec<Op>) {
        let mut requests = Vec::new();
        for op in ops {
            let id = RequestId(self.next_id);
            self.next_id += 1;
            requests.push(Request { id, body: op.body() });
            self.asked.push_back((id, op));
        }
        self.handle(Input::Requests(requests));
    }

    /// Something that is under way happens: the `choice`th of what can. Returns whether there was anything.
    pub fn step(&mut self, choice: usize) -> bool {
        let ready: Vec<u8> = [
            !self.sent.is_empty(),
            !self.answers.is_empty(),
            !self.jobs.is_empty(),
            !self.fsyncs.is_empty(),
            !self.checkpoints.is_empty(),
        ]
        .iter()
        .zip(0..)
        .filter(|(ready, _)| **ready)
        .map(|(_, which)| which)
        .collect();
        if ready.is_empty() {
            return false;
        }
        match ready[choice % ready.len()] {
            0 => self.deliver(),
            1 => {
                if let Some(input) = self.answers.pop_front() {
                    self.handle(input);
                }
            }
            2 => {
                if let Some((id, job)) = self.jobs.pop_front() {
                    self.handle(Input::Computed(id, job.run()));
                }
            }
            3 => {
                if let Some((seq, job)) = self.fsyncs.pop_front() {
                    let result = job();
                    self.handle(Input::Fsynced(seq, result));
                }
            }
            _ => {
                if let Some(job) = self.checkpoints.pop_front() {
                    let result = job();
                    self.handle(Input::Checkpointed(result));
                }
            }
        }
        true
    }

    /// The store carries out what was sent first.
    fn deliver(&mut self) {
        let answer = match self.sent.pop_front() {
            Some(Sent::Batch(attempt, id, batch)) => Input::Io(attempt, id, Ok(self.store.execute(&batch))),
            Some(Sent::Sync(attempt, position)) => {
                self.store.sync(position);
                // Later barriers on their way count from here.
                for sent in &mut self.sent {
                    if let Sent::Sync(_, p) = sent {
                        *p = p.saturating_sub(position);
                    }
                }
                Input::Synced(attempt, Ok(()))
            }
            Some(Sent::Connect) => Input::Connected(Ok(self.store.incarnation())),
            None => return,
        };
        self.answers.push_back(answer);
    }

    /// The connection breaks: the store still carries out the first `executed` of what was sent, and no answer arrives.
    /// With `restart`, it also restarts with only the first `kept` (0 to 1) of its writes since the last barrier.
    pub fn disconnect(&mut self, executed: usize, restart: Option<f64>) {
        let failed = |sent: &Sent| match sent {
            Sent::Batch(attempt, id, _) => Some((*attempt, *id)),
            _ => None,
        };
        let lost = self.sent.iter().find_map(failed).or_else(|| {
            self.answers
                .iter()
                .find_map(|a| if let Input::Io(attempt, id, _) = a { Some((*attempt, *id)) } else { None })
        });
        let Some((attempt, id)) = lost else { return };
        for sent in self.sent.drain(..).take(executed) {
            if let Sent::Batch(_, _, batch) = sent {
                self.store.execute(&batch);
            }
        }
        self.answers.clear();
        if let Some(kept) = restart {
            let kept = (self.store.position() as f64 * kept) as usize;
            self.store.restart(kept);
        }
        let error = StoreError::new(StoreErrorKind::Unavailable, "simulated");
        self.handle(Input::Io(attempt, id, Err(error)));
    }

    /// The proxy is killed; the store still carries out the first `executed` of what was sent. Returns what is left.
    pub fn kill(mut self, executed: usize) -> (SimDisk, SimStore, Vec<Op>) {
        for sent in self.sent.drain(..).take(executed) {
            if let Sent::Batch(_, _, batch) = sent {
                self.store.execute(&batch);
            }
        }
        (self.disk, self.store, self.asked.into_iter().map(|(_, op)| op).collect())
    }

    /// Time passes.
    pub fn pass(&mut self, us: u64) {
        self.now.mono_us += us;
        self.now.unix_ms += us / 1000;
        self.handle(Input::Timer);
    }

    /// Ends in order. Everything must have been answered.
    pub fn close(mut self) -> (SimDisk, SimStore) {
        let position = self.store.position();
        self.store.sync(position);
        self.driver.close(self.now).unwrap_or_else(|e| panic!("closing failed: {e}"));
        (self.disk, self.store)
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.driver.is_idle()
    }
}
