//! PANCAKE: frequency smoothing (Grubbs et al., USENIX Security 2020; §4 for a given distribution).
//!
//! Every key has replicas in slots in proportion to its popularity, and every request is followed by B accesses that
//! are uniform over all 2n slots, whatever was asked (see [`tables`]). A round is the batches of all requests that
//! waited: its slots are read, opened, sealed anew and written back. Rounds overlap; they apply and write in the
//! order in which they were planned, and blocks not yet acknowledged are served from the overlay.
//!
//! Durable state and its transitions are in [`state`]; this file holds the parts together.

pub(crate) mod alias;
pub(crate) mod cache;
mod commands;
mod directory;
mod refresh;
mod round;
mod state;
pub(crate) mod tables;
#[cfg(test)]
mod uniform;

use crate::Coins;
use bytes::Bytes;
use commands::Requests;
use millpond_core::{
    Batch, Budget, Cancelled, Computed, Effect, Event, IoId, Job, JobId, Key, Label, Now, Op, Reply, Request,
    RequestId, Scheme, SchemeError, Seq, Snapshot, Status,
};
use millpond_crypto::{BlockCipher, Header, random_nonces};
use refresh::Refresh;
use round::Rounds;
use state::State;
use std::sync::Arc;
use tables::{Slot, Tables};

/// What a PANCAKE store is made with. Public.
#[derive(Debug, Clone)]
pub struct Params {
    /// The store's name, for error messages.
    pub store: String,
    /// n: the most keys it will ever hold. There are 2n slots.
    pub capacity: u32,
    /// B: accesses for each request.
    pub batch: u32,
    /// Largest value in bytes.
    pub value_limit: usize,
}

/// Keys the distribution names, with their weights in any unit.
pub type Distribution = Vec<(Key, u64)>;

/// A PANCAKE store's state machine.
pub struct Pancake {
    params: Params,
    cipher: BlockCipher,
    labels: Arc<[Label]>,
    coins: Coins,
    state: State,
    tables: Arc<Tables>,
    requests: Requests,
    rounds: Rounds,
    refresh: Refresh,
    effects: Vec<Effect>,
    /// Journal records handed out so far.
    journaled: Seq,
    /// What to answer to writes while the journal can't be written.
    read_only: Option<Reply>,
    /// The last round that was acknowledged when the running barrier started.
    sync_mark: Option<u64>,
    /// The next slot to initialise.
    init_from: Slot,
    status: Status,
}

impl Pancake {
    /// A new store, or the frame that [`Scheme::restore`] fills.
    ///
    /// # Errors
    /// If the distribution names more keys than the capacity, a key twice, or a weight of 0.
    pub fn new(
        params: Params,
        cipher: BlockCipher,
        distribution: &Distribution,
        mut coins: Coins,
    ) -> Result<Self, SchemeError> {
        if distribution.len() > params.capacity as usize {
            let text =
                format!("the distribution names {} keys, but capacity is {}", distribution.len(), params.capacity);
            return Err(SchemeError(text));
        }
        let rarest = distribution.iter().map(|&(_, weight)| weight).min();
        let mut state = State::new(params.capacity, rarest.unwrap_or(1 << 20));
        let mut named = Vec::with_capacity(distribution.len());
        for (key, weight) in distribution {
            if *weight == 0 || state.directory.find(key.as_bytes()).is_some() {
                return Err(SchemeError("the distribution names a key twice, or with a weight of 0".into()));
            }
            named.push((state.directory.add_named(key, *weight), *weight));
        }
        let edit = state.layout.plan(&named, &[], f64::INFINITY, &mut coins);
        state.layout = Arc::new(state.layout.edited(&edit));
        let labels = (0..2 * u64::from(params.capacity)).map(|slot| cipher.label(slot)).collect();
        Ok(Self {
            tables: Tables::new(Arc::clone(&state.layout)),
            refresh: Refresh::new(params.capacity, params.batch),
            params,
            cipher,
            labels,
            coins,
            state,
            requests: Requests::default(),
            rounds: Rounds::default(),
            effects: Vec::new(),
            journaled: 0,
            read_only: None,
            sync_mark: None,
            init_from: 0,
            status: Status::default(),
        })
    }

    /// Bytes of payload in a block for values of up to `value_limit` bytes.
    pub fn payload_limit(value_limit: usize) -> usize {
        value_limit + millpond_core::Record::OVERHEAD
    }

    /// Appends to the journal, unless it can't be written.
    fn journal(&mut self, delta: Bytes, force: bool) {
        if self.read_only.is_none() {
            self.journaled += 1;
            self.effects.push(Effect::Journal { delta, force });
        }
    }

    fn compute<T: Send + 'static>(&mut self, id: JobId, work: impl FnOnce() -> T + Send + 'static) {
        self.effects.push(Effect::Compute { id, job: Job::new(work), background: id == refresh::JOB });
    }
}

impl Scheme for Pancake {
    fn submit(&mut self, _: Now, request: Request) {
        self.refresh.count(request.body.cost());
        self.requests.push(request);
    }

    fn tick(&mut self, now: Now, budget: Budget) {
        self.start_refresh(now);
        self.plan(budget.batches);
    }

    fn complete(&mut self, now: Now, event: Event) {
        match event {
            Event::Io(id, answer) => self.answered(id, answer),
            Event::Computed(id, result) => self.computed(now, id, result),
            Event::Durable(seq) => self.refresh_durable(seq),
            Event::SyncStarted => self.sync_mark = self.state.freshness.last_acknowledged(),
            Event::Synced => {
                if let Some(counter) = self.sync_mark.take() {
                    // A turn planned under older tables may still read a slot its key has lost meanwhile, which is
                    // stale once the key's entry ends: until it has been taken no entry ends.
                    let (pins, old) = (&self.refresh, self.refresh.in_transit(self.rounds.first_unapplied()));
                    self.state.synced(counter, |key| old || pins.pins(key));
                    self.journal(state::barrier_delta(counter), false);
                }
            }
            Event::StoreRestarted => {
                self.sync_mark = None;
                self.state.rolled_back();
                self.journal(state::rolled_back_delta(), false);
            }
            Event::JournalFailed(reply) => self.read_only = Some(reply),
            Event::JournalRestored => self.read_only = None,
        }
    }

    fn poll(&mut self, out: &mut Vec<Effect>) {
        out.append(&mut self.effects);
    }

    fn rounds_in_flight(&self) -> usize {
        self.rounds.len()
    }

    fn cancel(&mut self, id: RequestId) -> Cancelled {
        if self.requests.cancel(id) { Cancelled::NotApplied } else { Cancelled::Applied }
    }

    fn snapshot(&self) -> Snapshot {
        self.state.freeze(&self.rounds.in_flight())
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), SchemeError> {
        self.state.thaw(snapshot)
    }

    fn replay(&mut self, delta: &[u8]) -> Result<(), SchemeError> {
        self.state.replay(delta)
    }

    fn recover(&mut self, incarnation: u64, clean: bool) {
        if !clean {
            self.state.rolled_back();
        }
        let first = self.state.freshness.begin(incarnation);
        // Sequence numbers leave room for those of a journal tail that a power loss took.
        self.state.next_seq += 1 << 32;
        self.journal(state::incarnation_delta(incarnation, first, self.state.next_seq, clean), true);
        self.tables = Tables::new(Arc::clone(&self.state.layout));
    }

    fn init(&mut self, most: usize) -> Option<Batch> {
        let from = self.init_from;
        if self.state.initialised {
            return None;
        }
        let counter = self.state.freshness.counter();
        let until = self.state.layout.slot_count().min(from.saturating_add(most as u32));
        self.init_from = until;
        if from == until {
            self.state.freshness.initialised(counter);
            self.state.initialised = true;
            self.journal(state::initialised_delta(counter), true);
            return None;
        }
        let incarnation = self.state.freshness.incarnation();
        let nonces = random_nonces((until - from) as usize);
        let blocks = (from..until).zip(nonces).map(|(slot, nonce)| {
            let key = u64::from(self.state.layout.owner(slot).0);
            let label = self.labels[slot as usize];
            (label, round::seal(&self.cipher, nonce, &label, &Header { incarnation, counter, key, seq: 0 }, &[]))
        });
        Some(Batch { round: 0, op: Op::Write(blocks.collect()) })
    }

    fn status(&self) -> Status {
        let staged_keys = self.state.directory.staged().len() as u64;
        Status {
            keys: u64::from(self.state.directory.live()),
            keys_with_expiry: self.state.directory.expiring() as u64,
            capacity: u64::from(self.params.capacity),
            queue_depth: self.requests.waiting() as u64,
            update_cache_records: self.state.cache.len() as u64 - staged_keys.min(self.state.cache.len() as u64),
            update_cache_bytes: self.state.cache.bytes(),
            update_cache_peak: self.state.cache.peak() as u64,
            staged_keys,
            delta: self.tables.delta,
            ..self.status.clone()
        }
    }
}

impl Pancake {
    fn computed(&mut self, now: Now, id: JobId, result: Computed) {
        if id == refresh::JOB { self.refresh_planned(result) } else { self.rounds_computed(now, id, result) }
    }

    fn io_id(round: u64, write: bool) -> IoId {
        IoId(round << 1 | u64::from(write))
    }
}
