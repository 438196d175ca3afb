//! Table refreshes: staged keys get slots, dead ones give theirs up (pancake.md, *Keys come and go*).
//!
//! The schedule is public: every 1 % of n requests. The new layout and its samplers are built off the request path.

use super::Pancake;
use super::state::{self, Restaged};
use super::tables::{EPSILON, Edit, KeyId, Layout, Tables};
use millpond_core::{Computed, JobId, Now, Seq};
use std::collections::HashSet;
use std::sync::Arc;

/// The refresh's job.
pub const JOB: JobId = JobId(u64::MAX);

/// When the next refresh is due, and the one under way.
pub struct Refresh {
    /// Requests between two refreshes.
    every: u32,
    since: u32,
    alpha_max: f64,
    /// Keys whose update cache entry must stay: those that the refresh under way gives slots to, or may take them from.
    pinned: HashSet<KeyId>,
    /// The tables it built, and the journal record that must be durable before they count.
    ready: Option<(Arc<Tables>, Seq)>,
    /// The first round planned under the tables in force.
    first_round: u64,
}

impl Refresh {
    pub fn new(capacity: u32, batch: u32) -> Self {
        let alpha_max = f64::from(batch) / (2.0 * f64::from(capacity) * (1.0 + EPSILON));
        Self {
            every: (capacity / 100).max(1),
            since: 0,
            alpha_max,
            pinned: HashSet::new(),
            ready: None,
            first_round: 0,
        }
    }

    /// Counts requests towards the next refresh.
    pub fn count(&mut self, requests: u32) {
        self.since = self.since.saturating_add(requests);
    }

    /// Whether rounds planned under tables older than the state are still to be applied.
    pub fn in_transit(&self, first_unapplied: u64) -> bool {
        self.ready.is_some() || first_unapplied < self.first_round
    }

    /// Whether a key's entry must stay.
    pub fn pins(&self, key: KeyId) -> bool {
        self.pinned.contains(&key)
    }
}

/// What the job returns.
type Planned = (Edit, Arc<Tables>);

impl Pancake {
    /// Starts a refresh if one is due and there is anything to do.
    pub(super) fn start_refresh(&mut self, now: Now) {
        if self.refresh.since < self.refresh.every
            || !self.refresh.pinned.is_empty()
            || self.refresh.ready.is_some()
            || self.read_only.is_some()
        {
            return;
        }
        self.refresh.since = 0;
        let directory = &mut self.state.directory;
        directory.expire(now.unix_ms);
        let gone: Vec<KeyId> = directory.staged().iter().copied().filter(|&id| !directory.is_live(id)).collect();
        if !gone.is_empty() {
            gone.iter().for_each(|&id| self.state.forget(id));
            self.journal(state::forget_delta(&gone), false);
        }
        let directory = &self.state.directory;
        let staged: Vec<_> = directory.staged().iter().map(|&id| (id, directory.weight(id))).collect();
        let mut dead: Vec<_> = directory.dead().iter().copied().collect();
        if staged.is_empty() && dead.is_empty() {
            return;
        }
        self.coins.shuffle(&mut dead);
        self.refresh.pinned = staged.iter().map(|&(id, _)| id).chain(dead.iter().copied()).collect();
        let (layout, alpha_max, mut coins) =
            (Arc::clone(&self.state.layout), self.refresh.alpha_max, self.coins.fork());
        self.compute(JOB, move || -> Planned {
            let edit = layout.plan(&staged, &dead, alpha_max, &mut coins);
            let tables = Tables::new(Arc::new(Layout::edited(&layout, &edit)));
            (edit, tables)
        });
    }

    /// The job is done: the change takes effect on the state, and on the drawing of slots once it is durable. Rounds
    /// planned in between complete for the owners they were planned for, so until then the store holds nothing that
    /// a journal without this record could not explain.
    pub(super) fn refresh_planned(&mut self, result: Computed) {
        let Ok(planned) = result.0.downcast::<Planned>() else { return };
        let (edit, tables) = *planned;
        self.refresh.pinned.clear();
        if self.read_only.is_some() {
            return;
        }
        let revived = edit.retired.iter().filter(|&&id| self.state.directory.is_live(id));
        let record = |&id: &KeyId| {
            let entry = self.state.cache.get(id)?;
            Some(Restaged { id, seq: entry.seq, payload: entry.payload.clone() })
        };
        let restaged: Vec<_> = revived.filter_map(record).collect();
        self.journal(state::switch_delta(&edit, &restaged), true);
        self.state.switch(Arc::clone(&tables.layout), &edit, &restaged);
        self.refresh.ready = Some((tables, self.journaled));
        self.status.epoch += 1;
    }

    /// The journal is durable up to `seq`: slots are drawn from the new tables from the next round on.
    pub(super) fn refresh_durable(&mut self, seq: Seq) {
        if let Some((tables, _)) = self.refresh.ready.take_if(|(_, after)| *after <= seq) {
            self.tables = tables;
            self.refresh.first_round = self.rounds.planned();
        }
    }
}
