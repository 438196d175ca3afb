//! `millpond serve`: opens the stores, serves, and stops in order.

use crate::config::{Config, Distribution, PasswordSource, SchemeName, Secret};
use crate::error::Error;
use crate::proxy::{Proxy, Served};
use crate::stores::open_store;
use crate::{admin, server};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Serves until a signal stops it.
///
/// # Errors
/// If something can't be opened.
pub fn main(config: &Config) -> Result<(), Error> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = config.server.threads {
        runtime.worker_threads(threads);
    }
    let runtime = runtime.enable_all().build();
    runtime
        .map_err(|error| Error::Failed(format!("can't start threads: {error}; lower server.threads")))?
        .block_on(serve(config))
}

async fn serve(config: &Config) -> Result<(), Error> {
    let mut signals = Signals::new()?;
    let password = config.server.password.as_ref().map(PasswordSource::read).transpose()?;
    warn(config, password.as_ref());
    let listener = bind("server.listen", &config.server.listen).await?;
    let proxy = Arc::new(Proxy::new(config, password.as_ref()));
    if let Some(address) = &config.server.admin {
        tokio::spawn(admin::serve(bind("server.admin", address).await?, Arc::clone(&proxy)));
        tracing::info!("metrics, health and status on http://{address}");
    }
    tokio::select! {
        opened = open_stores(config, &proxy) => opened?,
        () = signals.next() => {
            tracing::info!("stopped before all stores were open");
            return Ok(());
        }
    }
    tracing::info!("serving clients on {}", config.server.listen);
    let (drain, draining) = watch::channel(false);
    // By then every request has been answered, if only that it was given up.
    let patience = config.server.deadline + Duration::from_secs(1);
    let serving = server::serve(listener, Arc::clone(&proxy), draining, patience);
    let stopping = async {
        signals.next().await;
        tracing::info!("stopping: requests under way are finished; a second signal stops at once");
        proxy.drain();
        // The receiver is in `serving`.
        drain.send(true).ok();
        signals.next().await;
        tracing::warn!("stopped at once; the journal is replayed at the next start");
        std::process::exit(1)
    };
    let finishing = async {
        serving.await;
        for store in proxy.stores() {
            store.handle.shutdown().await;
        }
    };
    tokio::select! {
        () = finishing => {}
        () = stopping => {}
    }
    tracing::info!("stopped in order");
    Ok(())
}

/// Opens all stores, one after the other.
async fn open_stores(config: &Config, proxy: &Proxy) -> Result<(), Error> {
    let master = config.master.fetch()?;
    let mut stores = Vec::new();
    for store in &config.stores {
        tracing::info!("opening store {}: {} over {}", store.name, store.scheme.as_str(), store.backend);
        let handle = open_store(config, store, &master).await?;
        if handle.stats().volatile {
            tracing::warn!("store {} is volatile: it loses everything when its back end restarts", store.name);
        }
        stores.push(Served::new(store, handle));
    }
    proxy.open(stores);
    Ok(())
}

async fn bind(key: &str, address: &str) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|error| {
        Error::Failed(format!("can't listen on {address}: {error}; stop what does, or set {key} to another address"))
    })
}

/// Says at the start what the operator should know.
fn warn(config: &Config, password: Option<&Secret>) {
    for store in &config.stores {
        let name = &store.name;
        match store.scheme {
            SchemeName::Plain => tracing::warn!(
                "STORE {name} IS PLAIN: its operator reads every key and value and sees every access. Use it for \
                 measuring only; set scheme = \"pancake\" for anything else"
            ),
            SchemeName::Sealed => tracing::warn!(
                "store {name} is sealed: its operator sees which blocks are popular. Use it for measuring only"
            ),
            SchemeName::Pancake if store.distribution == Distribution::Uniform => tracing::warn!(
                "store {name} starts from a uniform guess: until an estimate fits, popular keys show. Give it \
                 distribution = \"file:…\" or \"trace:…\""
            ),
            SchemeName::Pancake => {}
        }
    }
    if password.is_none() && !is_loopback(&config.server.listen) {
        tracing::warn!("{} is open to the network without a password; set server.password", config.server.listen);
    }
    if let Some(admin) = config.server.admin.as_ref().filter(|address| !is_loopback(address)) {
        tracing::warn!("{admin} shows figures that tell about the traffic; keep server.admin on the trusted side");
    }
}

fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, Error> {
        let listen = |kind| signal(kind).map_err(|error| Error::Failed(format!("can't listen for signals: {error}")));
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    /// Waits for either.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
