//! Starts the engine of a configured store.

use crate::config::{Backend, Config, Cover, Durability, SchemeName, StoreConfig};
use crate::error::Error;
use crate::weights::Weights;
use millpond_core::{BarrierKind, Key, Store};
use millpond_crypto::{BlockCipher, EpochSecret, MasterKey, SchemeTag, StoreId};
use millpond_engine::{Meta, Pace, Start, StateDir, StoreHandle};
use millpond_schemes::{Coins, Distribution, Pancake, Params};
use std::path::Path;
use std::sync::Arc;

/// The epoch a store is in; keys are not rotated yet.
const EPOCH: u32 = 0;

/// Opens a store: its back end, its scheme with the estimate it starts from, its journal, and the engine over them.
///
/// # Errors
/// If any of them can't be opened.
pub async fn open_store(config: &Config, store: &StoreConfig, master: &MasterKey) -> Result<StoreHandle, Error> {
    let failed = |e: &dyn std::fmt::Display| Error::Failed(format!("store '{}': {e}", store.name));
    if store.scheme != SchemeName::Pancake {
        return Err(failed(&"only the scheme pancake is built so far: set scheme = \"pancake\""));
    }
    let capacity = u32::try_from(store.capacity).ok().filter(|&n| n < 1 << 31);
    let capacity = capacity.ok_or_else(|| failed(&"capacity must be below 2^31"))?;
    let distribution = distribution(store.distribution.weights(store.capacity)?);
    let dir = StateDir::open(&store.state).map_err(|e| failed(&e))?;
    let shape = format!("pancake capacity={capacity} value_size={}", store.value_size);
    let meta = match dir.meta().map_err(|e| failed(&e))? {
        Some(meta) if meta.shape != shape => {
            let text = format!(
                "it was made as `{}`, which can't become `{shape}`: load the data into a new store",
                meta.shape
            );
            return Err(failed(&text));
        }
        Some(meta) => meta,
        None => new_store(&dir, master, shape).map_err(|e| failed(&e))?,
    };
    let store_id = StoreId(meta.store_id);
    let secret = EpochSecret::open(&meta.secret, master, &store_id, EPOCH)?;
    let payload_limit = Pancake::payload_limit(store.value_size);
    let cipher = BlockCipher::new(master, &secret, store_id, EPOCH, SchemeTag::PANCAKE, payload_limit)?;
    let params = Params { store: store.name.clone(), capacity, batch: store.batch, value_limit: store.value_size };
    let mut coins = Coins::from_os();
    let incarnation = coins.bits();
    let scheme = Pancake::new(params, cipher, &distribution, coins).map_err(|e| failed(&e))?;
    let backend = open_backend(&store.backend).map_err(|e| failed(&e))?;
    let barrier_us = match backend.capabilities().barrier {
        BarrierKind::Volatile | BarrierKind::Cheap => 1_000_000,
        BarrierKind::Costly => 60_000_000,
    };
    let start = Start {
        name: store.name.clone(),
        value_limit: store.value_size,
        store_id: meta.store_id,
        incarnation,
        config: drive(config, store, barrier_us),
        dir,
        scheme: Box::new(scheme),
        store: backend,
    };
    millpond_engine::start(start).await.map_err(|e| Error::Failed(e.0))
}

fn new_store(dir: &StateDir, master: &MasterKey, shape: String) -> Result<Meta, Error> {
    let id = StoreId::generate();
    let secret = EpochSecret::generate().seal(master, &id, EPOCH);
    let meta = Meta { store_id: id.0, secret, shape };
    dir.create(&meta).map_err(|e| Error::Failed(e.to_string()))?;
    Ok(meta)
}

fn open_backend(backend: &Backend) -> Result<Arc<dyn Store>, Error> {
    if let Backend::Redis(_) = backend {
        return Err(Error::Failed("redis:// is not built yet: supported are embedded:PATH and memory:".into()));
    }
    if let Backend::Embedded(path) = backend {
        std::fs::create_dir_all(path).map_err(|e| Error::Failed(format!("can't make {}: {e}", path.display())))?;
    }
    millpond_stores::open(&backend.to_string(), Path::new("")).map_err(|e| Error::Failed(e.message))
}

/// Weights as integers: the least is at least 1, and they sum to about 2^48.
fn distribution(weights: Weights) -> Distribution {
    let scale = (1u64 << 48) as f64 / weights.iter().map(|(_, w)| w).sum::<f64>();
    weights.into_iter().map(|(key, w)| (Key::new(key), ((w * scale) as u64).max(1))).collect()
}

fn drive(config: &Config, store: &StoreConfig, barrier_us: u64) -> millpond_engine::Config {
    millpond_engine::Config {
        durability: match store.durability {
            Durability::Always => millpond_engine::Durability::Always,
            Durability::EverySecond => millpond_engine::Durability::EverySecond,
            Durability::Os => millpond_engine::Durability::Os,
        },
        pace: match store.cover {
            Cover::Idle => Pace::Idle,
            Cover::Constant(rate) => Pace::Constant(rate),
            Cover::Off => Pace::Off,
        },
        batch: store.batch,
        hold: u64::from(store.hold),
        rounds: 2,
        round_batches: 1024,
        deadline_us: config.server.deadline.as_micros() as u64,
        barrier_us,
        checkpoint_bytes: 256 << 20,
    }
}
