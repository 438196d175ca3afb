//! What connections, the admin endpoint and the shutdown share: the stores and some counters.

use crate::config::{Config, Secret, StoreConfig};
use crate::metrics::{Figures, StoreFigures};
use millpond_engine::StoreHandle;
use millpond_resp::{Environment, Limits, Session, command};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A store that is served.
pub struct Served {
    /// The way to its engine.
    pub handle: StoreHandle,
    /// Its database number.
    pub db: u16,
    /// Its scheme's name.
    pub scheme: &'static str,
    /// Its back end, without passwords.
    pub backend: String,
    /// Requests by command, for every command there is.
    commands: Vec<(&'static str, AtomicU64)>,
}

impl Served {
    /// A store as configured, now running.
    pub fn new(config: &StoreConfig, handle: StoreHandle) -> Self {
        Self {
            handle,
            db: config.db,
            scheme: config.scheme.as_str(),
            backend: config.backend.to_string(),
            commands: command::TABLE.iter().map(|command| (command.name, AtomicU64::new(0))).collect(),
        }
    }

    /// Counts a request, by its command's name in any case.
    pub fn count(&self, command: &[u8]) {
        if let Some((_, count)) = self.commands.iter().find(|(name, _)| command.eq_ignore_ascii_case(name.as_bytes())) {
            count.fetch_add(1, Relaxed);
        }
    }

    fn figures(&self) -> StoreFigures {
        let commands = self.commands.iter().map(|(name, count)| (*name, count.load(Relaxed)));
        StoreFigures {
            name: self.handle.name().to_owned(),
            stats: self.handle.stats(),
            commands: commands.filter(|(_, count)| *count > 0).collect(),
        }
    }
}

/// The running proxy.
pub struct Proxy {
    /// Filled once all stores are open.
    stores: OnceLock<Vec<Served>>,
    environment: Arc<Environment>,
    largest_value: usize,
    max_clients: usize,
    started: Instant,
    draining: AtomicBool,
    clients: AtomicUsize,
    connections: AtomicU64,
    refused: AtomicU64,
}

impl Proxy {
    /// Keys that one connection may have under way, if their values are small.
    const WAITING_KEYS: usize = 4096;
    /// What the values of the keys under way on one connection may take, in bytes.
    const WAITING_BYTES: usize = 64 << 20;

    /// A proxy whose stores are still being opened.
    pub fn new(config: &Config, password: Option<&Secret>) -> Self {
        Self {
            stores: OnceLock::new(),
            environment: Arc::new(Environment {
                password: password.map(|password| password.expose().as_bytes().to_vec()),
                databases: config.stores.iter().map(|store| store.db).collect(),
            }),
            largest_value: config.stores.iter().map(|store| store.value_size).max().unwrap_or(0),
            max_clients: config.server.max_clients,
            started: Instant::now(),
            draining: AtomicBool::new(false),
            clients: AtomicUsize::new(0),
            connections: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// The stores are open. Only the first call counts.
    pub fn open(&self, stores: Vec<Served>) {
        // A second set of stores is never made.
        let _ = self.stores.set(stores);
    }

    /// The state of a new connection.
    pub fn session(&self, id: u64) -> Session {
        Session::new(id, Arc::clone(&self.environment))
    }

    /// The stores; none while they are being opened.
    pub fn stores(&self) -> &[Served] {
        self.stores.get().map_or(&[], Vec::as_slice)
    }

    /// How large a client's frame may be. Values somewhat above the limit of a store still get that store's own error.
    pub fn limits(&self) -> Limits {
        let bulk_bytes = (2 * self.largest_value).max(16 << 20);
        Limits { bulk_bytes, frame_bytes: 4 * bulk_bytes, ..Limits::default() }
    }

    /// How many keys one connection may have under way before it is read no further.
    pub fn waiting_keys_limit(&self) -> usize {
        (Self::WAITING_BYTES / self.largest_value.max(1)).clamp(1, Self::WAITING_KEYS)
    }

    /// Counts a new connection; `None` if there are too many.
    pub fn admit(&self) -> Option<Admission<'_>> {
        if self.clients.fetch_add(1, Relaxed) >= self.max_clients {
            self.clients.fetch_sub(1, Relaxed);
            self.refused.fetch_add(1, Relaxed);
            return None;
        }
        Some(Admission { proxy: self, id: 1 + self.connections.fetch_add(1, Relaxed) })
    }

    /// Connections now.
    pub fn clients(&self) -> usize {
        self.clients.load(Relaxed)
    }

    /// Time since the start.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// From now on it is not ready: it stops.
    pub fn drain(&self) {
        self.draining.store(true, Relaxed);
    }

    /// Why it is not ready to serve; `None`: it is.
    pub fn not_ready(&self) -> Option<String> {
        if self.draining.load(Relaxed) {
            return Some("shutting down".to_owned());
        }
        let Some(stores) = self.stores.get() else { return Some("opening the stores".to_owned()) };
        stores.iter().find_map(|store| {
            let (name, stats) = (store.handle.name(), store.handle.stats());
            let reason = |error: &Option<String>| error.clone().unwrap_or_else(|| "no reason known".to_owned());
            if !stats.store_up {
                return Some(format!("store {name} is down: {}", reason(&stats.store_error)));
            }
            let error = stats.journal_error.as_ref()?;
            Some(format!("store {name} takes no writes, its journal can't be written: {error}"))
        })
    }

    /// All figures, now.
    pub fn figures(&self) -> Figures {
        Figures {
            clients: self.clients() as u64,
            connections: self.connections.load(Relaxed),
            refused: self.refused.load(Relaxed),
            stores: self.stores().iter().map(Served::figures).collect(),
        }
    }
}

/// A connection's place among the clients, given back when dropped.
pub struct Admission<'p> {
    proxy: &'p Proxy,
    /// The connection's number, from 1.
    pub id: u64,
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        self.proxy.clients.fetch_sub(1, Relaxed);
    }
}
