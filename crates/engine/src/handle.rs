//! How the server talks to a running store: requests go in by the batch, replies come back through a mailbox.

use millpond_core::{Body, Reply, Status};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Notify, mpsc, watch};

/// Where a connection's replies arrive. One per connection.
#[derive(Default)]
pub struct Mailbox {
    replies: Mutex<Vec<(u64, Reply)>>,
    ready: Notify,
}

impl Mailbox {
    /// An empty mailbox.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Waits until there is a reply to take.
    pub async fn ready(&self) {
        self.ready.notified().await;
    }

    /// Moves all replies that have arrived to `out`, as (token, reply), in no particular order.
    pub fn take(&self, out: &mut Vec<(u64, Reply)>) {
        out.append(&mut self.replies.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Puts replies in, and wakes the owner.
    pub(crate) fn put(&self, replies: &mut Vec<(u64, Reply)>) {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner).append(replies);
        self.ready.notify_one();
    }
}

/// What a store's engine says of itself, refreshed a few times a second. For the trusted side only.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// The scheme's own counters.
    pub scheme: Status,
    /// Whether the store answers.
    pub store_up: bool,
    /// Why not, or what it last complained of.
    pub store_error: Option<String>,
    /// Failures of the store so far.
    pub store_errors: u64,
    /// The store loses everything when it restarts.
    pub volatile: bool,
    /// Set for ever once a block failed to open: something tampered with the store, or rolled it back.
    pub degraded: bool,
    /// Set when the journal can't be written; writes are refused.
    pub journal_error: Option<String>,
    /// Bytes in the journal since the last checkpoint.
    pub journal_bytes: u64,
    /// fsyncs of the journal so far.
    pub journal_fsyncs: u64,
    /// Barriers completed.
    pub barriers: u64,
    /// Seconds since the last completed barrier.
    pub barrier_age_s: u64,
    /// Requests taken in.
    pub requests: u64,
    /// Cover batches sent.
    pub cover_batches: u64,
    /// Requests given up at their deadline.
    pub deadlines: u64,
    /// Requests by duration from arrival to reply, likewise.
    pub request_us_log2: [u64; 32],
}

/// A running store. Cheap to clone.
#[derive(Clone)]
pub struct StoreHandle {
    pub(crate) name: Arc<str>,
    pub(crate) value_limit: usize,
    pub(crate) inbox: mpsc::UnboundedSender<Submission>,
    pub(crate) stats: watch::Receiver<Arc<Stats>>,
}

/// What a connection hands to the engine.
pub(crate) enum Submission {
    /// Requests, each with the token its reply carries.
    Requests(Arc<Mailbox>, Vec<(u64, Body)>),
    /// Finish what is there, make everything durable, stop, and say so.
    Shutdown(tokio::sync::oneshot::Sender<()>),
}

impl StoreHandle {
    /// The store's name in the configuration.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The largest value, in bytes.
    pub fn value_limit(&self) -> usize {
        self.value_limit
    }

    /// Hands requests in. Every one of them is answered through the mailbox, sooner or later, in any order; each reply
    /// carries the token its request came with.
    pub fn submit(&self, mailbox: &Arc<Mailbox>, requests: Vec<(u64, Body)>) {
        if let Err(mpsc::error::SendError(Submission::Requests(mailbox, requests))) =
            self.inbox.send(Submission::Requests(Arc::clone(mailbox), requests))
        {
            let gone = |(token, _)| (token, Reply::error("TRYAGAIN the store has been shut down"));
            mailbox.put(&mut requests.into_iter().map(gone).collect());
        }
    }

    /// The latest statistics.
    pub fn stats(&self) -> Arc<Stats> {
        self.stats.borrow().clone()
    }

    /// Answers what has been taken in, makes everything durable and stops. Later requests are refused.
    pub async fn shutdown(&self) {
        let (done, wait) = tokio::sync::oneshot::channel();
        if self.inbox.send(Submission::Shutdown(done)).is_ok() {
            wait.await.ok();
        }
    }
}
