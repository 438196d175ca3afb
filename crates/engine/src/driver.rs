//! The engine as a synchronous state machine: what arrives goes in as [`Input`], what is to be done comes out as [`Action`].
//!
//! * Effects are carried out in order; a journal record is with the operating system before the next effect begins.
//! * What is sent to the store stays in `outstanding` until it is answered, and is repeated unchanged, in order, after
//!   the store failed.
//! * Replies leave when the journal is as durable as the store's setting asks.

use crate::cover::Cover;
use crate::disk::{Disk, SyncJob};
use crate::journal::{Journal, JournalError};
use millpond_core::{
    Answer, Batch, Budget, Cancelled, Computed, Effect, Event, Incarnation, IoId, Job, JobId, Now, Reply, Request,
    RequestId, Scheme, Seq, Status, StoreError,
};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

/// When a reply may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When the journal is fsynced.
    Always,
    /// When the operating system has it; it is fsynced every second.
    EverySecond,
    /// When the operating system has it.
    Os,
}

/// What is sent while nobody asks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// Cover batches after the last arrival.
    Idle,
    /// Batches at this rate for each second, and no others.
    Constant(f64),
    /// Nothing: waiting clients may wait for ever.
    Off,
}

/// How a store is driven. Public.
#[derive(Debug, Clone)]
pub struct Config {
    /// When a reply may leave.
    pub durability: Durability,
    /// Cover.
    pub pace: Pace,
    /// B.
    pub batch: u32,
    /// Batches between a request's arrival and its reply, at least.
    pub hold: u64,
    /// Rounds in flight, at most.
    pub rounds: usize,
    /// Batches in a round, at most.
    pub round_batches: u32,
    /// After this long a request is answered with an error.
    pub deadline_us: u64,
    /// Between two barriers.
    pub barrier_us: u64,
    /// Journal bytes after which a checkpoint is due.
    pub checkpoint_bytes: u64,
}

/// Something happened.
pub enum Input {
    /// Clients asked.
    Requests(Vec<Request>),
    /// The store answered an [`Action::Execute`] of this attempt.
    Io(u64, IoId, Result<Answer, StoreError>),
    /// The store answered [`Action::Connect`].
    Connected(Result<Incarnation, StoreError>),
    /// The store answered an [`Action::Sync`] of this attempt.
    Synced(u64, Result<(), StoreError>),
    /// The journal is fsynced up to this record.
    Fsynced(Seq, io::Result<()>),
    /// A job is done.
    Computed(JobId, Computed),
    /// The checkpoint is written.
    Checkpointed(io::Result<()>),
    /// Time passed.
    Timer,
}

/// Something is to be done.
pub enum Action {
    /// Call `Store::execute`; the order of calls counts.
    Execute(u64, IoId, Arc<Batch>),
    /// Call `Store::connect`.
    Connect,
    /// Call `Store::sync`.
    Sync(u64),
    /// Run the job, then say [`Input::Fsynced`] with this number.
    Fsync(Seq, SyncJob),
    /// Run the job; `true`: on another thread.
    Compute(JobId, Job, bool),
    /// Run the job on another thread, then say [`Input::Checkpointed`].
    Checkpoint(SyncJob),
    /// Answer a client.
    Reply(RequestId, Reply),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Up,
    Connecting,
    /// Connect again at this time.
    Down(u64),
}

struct Asked {
    at_us: u64,
    /// Batches started when it arrived.
    batches: u64,
}

/// Counters for the operator.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    pub requests: u64,
    pub cover_batches: u64,
    pub deadlines: u64,
    pub store_errors: u64,
    pub store_error: Option<String>,
    pub journal_error: Option<String>,
    pub barriers: u64,
    pub last_barrier_us: u64,
    pub fsyncs: u64,
    pub request_us_log2: [u64; 32],
}

/// Drives one store.
pub struct Driver<D> {
    config: Config,
    scheme: Box<dyn Scheme>,
    journal: Journal<D>,
    cover: Cover,
    asked: HashMap<RequestId, Asked>,
    by_age: VecDeque<RequestId>,
    /// Batches the next rounds owe for requests taken in.
    owed: u32,
    batches: u64,
    outstanding: VecDeque<(IoId, Arc<Batch>)>,
    link: Link,
    attempt: u64,
    incarnation: Option<Incarnation>,
    backoff_us: u64,
    appended: Seq,
    fsynced: Seq,
    forced: Seq,
    fsyncing: bool,
    next_fsync_us: u64,
    replies: VecDeque<(Seq, RequestId, Reply)>,
    syncing: bool,
    next_barrier_us: u64,
    checkpointing: bool,
    actions: Vec<Action>,
    counters: Counters,
}

impl<D: Disk> Driver<D> {
    /// Recovers a store's state and begins a new incarnation, whose number must be random. The store must be connected.
    ///
    /// # Errors
    /// If the disk fails or holds something else.
    pub fn open(
        config: Config,
        disk: D,
        mut scheme: Box<dyn Scheme>,
        store: Incarnation,
        incarnation: u64,
        now: Now,
    ) -> Result<Self, JournalError> {
        let (journal, clean) = Journal::recover(disk, scheme.as_mut())?;
        scheme.recover(incarnation, clean);
        let mut driver = Self {
            cover: Cover::new(config.pace, config.batch, now.mono_us),
            next_barrier_us: now.mono_us + config.barrier_us,
            config,
            scheme,
            journal,
            asked: HashMap::new(),
            by_age: VecDeque::new(),
            owed: 0,
            batches: 0,
            outstanding: VecDeque::new(),
            link: Link::Up,
            attempt: 0,
            incarnation: Some(store),
            backoff_us: 0,
            appended: 0,
            fsynced: 0,
            forced: 0,
            fsyncing: false,
            next_fsync_us: now.mono_us,
            replies: VecDeque::new(),
            syncing: false,
            checkpointing: false,
            actions: Vec::new(),
            counters: Counters { last_barrier_us: now.mono_us, ..Counters::default() },
        };
        driver.settle(now)?;
        Ok(driver)
    }

    /// Carries out what the scheme wants and makes it durable at once: for start-up, before anything is served.
    fn settle(&mut self, now: Now) -> Result<(), JournalError> {
        self.drain(now);
        self.journal.syncer()()?;
        self.fsynced = self.appended;
        self.scheme.complete(now, Event::Durable(self.fsynced));
        self.drain(now);
        Ok(())
    }

    /// The next batch that fills an empty store; `None` when there are no more.
    pub fn init(&mut self, most: usize) -> Option<Batch> {
        self.scheme.init(most)
    }

    /// The store is filled and that is durable: makes the journal say so.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn ready(&mut self, now: Now) -> Result<(), JournalError> {
        self.settle(now)
    }

    /// Takes an input in.
    pub fn handle(&mut self, now: Now, input: Input) {
        match input {
            Input::Requests(requests) => self.ask(now, requests),
            Input::Io(attempt, id, result) if attempt == self.attempt && self.link == Link::Up => {
                self.answered(now, id, result);
            }
            Input::Connected(result) => self.connected(now, result),
            Input::Synced(attempt, result) if attempt == self.attempt => self.synced(now, result),
            Input::Io(..) | Input::Synced(..) | Input::Timer => {}
            Input::Fsynced(seq, result) => self.fsync_done(now, seq, result),
            Input::Computed(id, result) => self.scheme.complete(now, Event::Computed(id, result)),
            Input::Checkpointed(result) => {
                self.checkpointing = false;
                // A checkpoint that failed leaves the old one and all segments: nothing is lost, it is tried again.
                if let Err(e) = result.and_then(|()| self.journal.retire()) {
                    self.counters.journal_error = Some(format!("writing a checkpoint failed: {e}"));
                }
            }
        }
        self.run(now);
    }

    /// What is to be done, in order.
    pub fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// When [`Input::Timer`] is due at the latest.
    pub fn wake_us(&self, now: Now) -> u64 {
        let link = if let Link::Down(at) = self.link { at } else { u64::MAX };
        let idle = self.link == Link::Up
            && (self.scheme.rounds_in_flight() == 0 || matches!(self.config.pace, Pace::Constant(_)));
        let cover = if idle { self.cover.due_us().unwrap_or(u64::MAX) } else { u64::MAX };
        link.min(cover).min(now.mono_us + 100_000)
    }

    /// Whether everything asked has been answered and written.
    pub fn is_idle(&self) -> bool {
        self.asked.is_empty()
            && self.outstanding.is_empty()
            && self.scheme.rounds_in_flight() == 0
            && !self.checkpointing
    }

    /// Whether the store answers.
    pub fn is_up(&self) -> bool {
        self.link == Link::Up
    }

    /// The scheme's counters.
    pub fn status(&self) -> Status {
        self.scheme.status()
    }

    /// The engine's counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes in the journal since the last checkpoint.
    pub fn journal_bytes(&self) -> u64 {
        self.journal.bytes()
    }

    /// Ends in order: the store has been synced since everything was answered. Writes a checkpoint.
    ///
    /// # Errors
    /// If the disk fails; then the next start is an unclean one.
    pub fn close(&mut self, now: Now) -> Result<(), JournalError> {
        self.scheme.complete(now, Event::SyncStarted);
        self.scheme.complete(now, Event::Synced);
        self.drain(now);
        let write = self.journal.checkpoint(self.scheme.snapshot())?;
        write()?;
        self.journal.retire()?;
        Ok(self.journal.mark_clean()?)
    }

    fn ask(&mut self, now: Now, requests: Vec<Request>) {
        self.cover.arrived(now.mono_us);
        for request in requests {
            self.counters.requests += 1;
            if let Some(error) = &self.counters.journal_error {
                let text = format!("MISCONF the journal can't be written ({error}): fix the disk and restart millpond");
                self.actions.push(Action::Reply(request.id, Reply::error(text)));
                continue;
            }
            if !matches!(self.config.pace, Pace::Constant(_)) {
                self.owed += request.body.cost();
            }
            self.asked.insert(request.id, Asked { at_us: now.mono_us, batches: self.batches });
            self.by_age.push_back(request.id);
            self.scheme.submit(now, request);
        }
    }

    fn answered(&mut self, now: Now, id: IoId, result: Result<Answer, StoreError>) {
        match result {
            Ok(answer) => {
                self.outstanding.retain(|(other, _)| *other != id);
                self.scheme.complete(now, Event::Io(id, answer));
            }
            Err(error) => self.store_failed(&error),
        }
    }

    fn store_failed(&mut self, error: &StoreError) {
        self.counters.store_errors += 1;
        self.counters.store_error = Some(error.message.clone());
        self.attempt += 1;
        self.syncing = false;
        self.backoff_us = 0;
        self.link = Link::Connecting;
        self.actions.push(Action::Connect);
    }

    fn connected(&mut self, now: Now, result: Result<Incarnation, StoreError>) {
        match result {
            Ok(incarnation) => {
                if self.incarnation.as_ref() != Some(&incarnation) {
                    self.scheme.complete(now, Event::StoreRestarted);
                    self.incarnation = Some(incarnation);
                }
                self.link = Link::Up;
                self.counters.store_error = None;
                for (id, batch) in &self.outstanding {
                    self.actions.push(Action::Execute(self.attempt, *id, Arc::clone(batch)));
                }
            }
            Err(error) => {
                self.counters.store_errors += 1;
                self.counters.store_error = Some(error.message);
                self.backoff_us = (self.backoff_us * 2).clamp(50_000, 2_000_000);
                self.link = Link::Down(now.mono_us + self.backoff_us);
            }
        }
    }

    fn synced(&mut self, now: Now, result: Result<(), StoreError>) {
        self.syncing = false;
        self.next_barrier_us = now.mono_us + self.config.barrier_us;
        match result {
            Ok(()) => {
                self.counters.barriers += 1;
                self.counters.last_barrier_us = now.mono_us;
                self.scheme.complete(now, Event::Synced);
            }
            Err(error) => {
                self.counters.store_errors += 1;
                self.counters.store_error = Some(error.message);
            }
        }
    }

    fn fsync_done(&mut self, now: Now, seq: Seq, result: io::Result<()>) {
        self.fsyncing = false;
        self.counters.fsyncs += 1;
        match result {
            Ok(()) => {
                self.fsynced = self.fsynced.max(seq);
                if self.forced != 0 && self.forced <= seq {
                    self.forced = 0;
                    self.scheme.complete(now, Event::Durable(seq));
                }
            }
            Err(e) => self.poison(&e),
        }
    }

    /// A durable write failed: nothing more is acknowledged, since what the disk holds is not known any more.
    fn poison(&mut self, error: &io::Error) {
        self.counters.journal_error.get_or_insert_with(|| error.to_string());
    }

    fn poisoned(&self) -> bool {
        self.counters.journal_error.is_some()
    }

    fn run(&mut self, now: Now) {
        if let Link::Down(at) = self.link
            && at <= now.mono_us
        {
            self.link = Link::Connecting;
            self.actions.push(Action::Connect);
        }
        self.drain(now);
        while self.start_round(now) {
            self.drain(now);
        }
        self.start_barrier(now);
        self.start_fsync(now);
        self.start_checkpoint();
        self.release(now);
        self.expire(now);
    }

    /// Carries out the scheme's effects.
    fn drain(&mut self, now: Now) {
        let mut effects = Vec::new();
        loop {
            self.scheme.poll(&mut effects);
            if effects.is_empty() || self.poisoned() {
                return;
            }
            for effect in effects.drain(..) {
                self.effect(now, effect);
                if self.poisoned() {
                    return;
                }
            }
        }
    }

    fn effect(&mut self, _: Now, effect: Effect) {
        match effect {
            Effect::Journal { delta, force } => {
                self.appended += 1;
                if force {
                    self.forced = self.appended;
                }
                if let Err(e) = self.journal.append(&delta) {
                    self.poison(&e);
                }
            }
            Effect::Io { id, batch } => {
                self.outstanding.push_back((id, Arc::clone(&batch)));
                if self.link == Link::Up {
                    self.actions.push(Action::Execute(self.attempt, id, batch));
                }
            }
            Effect::Compute { id, job, background } => self.actions.push(Action::Compute(id, job, background)),
            Effect::Reply { to, reply, after } => self.replies.push_back((after, to, reply)),
        }
    }

    /// Starts a round for what waits, or a cover round. Whether, and how large, depends on arrivals and on what the
    /// store has seen.
    fn start_round(&mut self, now: Now) -> bool {
        let flying = self.scheme.rounds_in_flight();
        if self.link != Link::Up || flying >= self.config.rounds || self.poisoned() {
            return false;
        }
        let mut batches = self.owed.min(self.config.round_batches);
        self.owed -= batches;
        if batches == 0 && (flying == 0 || matches!(self.config.pace, Pace::Constant(_))) {
            batches = self.cover.take(now.mono_us);
            self.counters.cover_batches += u64::from(batches);
        }
        if batches > 0 {
            self.batches += u64::from(batches);
            self.scheme.tick(now, Budget { batches });
        }
        batches > 0
    }

    fn start_barrier(&mut self, now: Now) {
        if !self.syncing && self.link == Link::Up && now.mono_us >= self.next_barrier_us {
            self.syncing = true;
            self.scheme.complete(now, Event::SyncStarted);
            self.actions.push(Action::Sync(self.attempt));
        }
    }

    fn start_fsync(&mut self, now: Now) {
        let due = match self.config.durability {
            Durability::Always => true,
            Durability::EverySecond => now.mono_us >= self.next_fsync_us,
            Durability::Os => false,
        };
        if !self.fsyncing && self.appended > self.fsynced && (due || self.forced != 0) && !self.poisoned() {
            self.fsyncing = true;
            self.next_fsync_us = now.mono_us + 1_000_000;
            self.actions.push(Action::Fsync(self.appended, self.journal.syncer()));
        }
    }

    fn start_checkpoint(&mut self) {
        if self.checkpointing || self.journal.bytes() < self.config.checkpoint_bytes || self.poisoned() {
            return;
        }
        match self.journal.checkpoint(self.scheme.snapshot()) {
            Ok(job) => {
                self.checkpointing = true;
                self.actions.push(Action::Checkpoint(job));
            }
            Err(e) => self.poison(&e),
        }
    }

    /// Lets replies leave, in order.
    fn release(&mut self, now: Now) {
        let durable = if self.config.durability == Durability::Always { self.fsynced } else { self.appended };
        while let Some((after, to, _)) = self.replies.front() {
            let early = self.asked.get(to).is_some_and(|a| self.batches < a.batches + self.config.hold);
            if *after > durable || early || self.poisoned() {
                return;
            }
            if let Some((_, to, reply)) = self.replies.pop_front()
                && let Some(asked) = self.asked.remove(&to)
            {
                let us = now.mono_us.saturating_sub(asked.at_us).max(1);
                self.counters.request_us_log2[us.ilog2().min(31) as usize] += 1;
                self.actions.push(Action::Reply(to, reply));
            }
        }
    }

    /// Gives requests up whose deadline has passed.
    fn expire(&mut self, now: Now) {
        while let Some(&id) = self.by_age.front() {
            match self.asked.get(&id) {
                Some(asked) if asked.at_us + self.config.deadline_us > now.mono_us && !self.poisoned() => return,
                Some(_) => {
                    self.asked.remove(&id);
                    self.counters.deadlines += 1;
                    let text = match self.scheme.cancel(id) {
                        _ if self.poisoned() => {
                            "MISCONF the journal can't be written; the outcome is unknown: fix the disk and restart millpond"
                        }
                        Cancelled::NotApplied => "TRYAGAIN the store did not answer in time; nothing was changed",
                        Cancelled::Applied => "UNCERTAIN the store did not confirm in time; a write may take effect",
                    };
                    self.actions.push(Action::Reply(id, Reply::error(text)));
                }
                None => {}
            }
            self.by_age.pop_front();
        }
    }
}
