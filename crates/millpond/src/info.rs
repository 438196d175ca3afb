//! INFO: what clients and tools of Redis look for, and a section of our own.

use crate::proxy::{Proxy, Served};
use millpond_core::Reply;
use millpond_resp::REDIS_VERSION;
use std::fmt::Write;

/// The whole text, as a reply.
pub fn reply(proxy: &Proxy) -> Reply {
    Reply::Verbatim(text(proxy).into())
}

fn text(proxy: &Proxy) -> String {
    let figures = proxy.figures();
    let seconds = proxy.uptime().as_secs();
    let loading = u8::from(proxy.stores().is_empty());
    let requests: u64 = figures.stores.iter().map(|store| store.stats.requests).sum();
    let mut text = format!(
        "# Server\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nos:{}\r\narch_bits:{}\r\n\
         process_id:{}\r\nuptime_in_seconds:{seconds}\r\nuptime_in_days:{}\r\n\r\n\
         # Clients\r\nconnected_clients:{}\r\n\r\n\
         # Persistence\r\nloading:{loading}\r\n\r\n\
         # Stats\r\ntotal_connections_received:{}\r\ntotal_commands_processed:{requests}\r\n\
         rejected_connections:{}\r\n\r\n\
         # Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n\
         # Cluster\r\ncluster_enabled:0\r\n\r\n# Keyspace\r\n",
        std::env::consts::OS,
        usize::BITS,
        std::process::id(),
        seconds / 86_400,
        figures.clients,
        figures.connections,
        figures.refused,
    );
    // Writing to a String can't fail.
    for store in proxy.stores() {
        let scheme = &store.handle.stats().scheme;
        if scheme.keys > 0 {
            let _ =
                write!(text, "db{}:keys={},expires={},avg_ttl=0\r\n", store.db, scheme.keys, scheme.keys_with_expiry);
        }
    }
    let _ = write!(text, "\r\n# Millpond\r\nmillpond_version:{}\r\n", env!("CARGO_PKG_VERSION"));
    for store in proxy.stores() {
        text += &line(store);
    }
    text
}

/// One line for a store, in the manner of the keyspace's.
fn line(store: &Served) -> String {
    let stats = store.handle.stats();
    let flag = |set: bool| u8::from(set);
    format!(
        "store{}:name={},scheme={},capacity={},up={},volatile={},degraded={},journal_ok={},update_cache_records={},\
         staged_keys={},integrity_failures={}\r\n",
        store.db,
        store.handle.name(),
        store.scheme,
        stats.scheme.capacity,
        flag(stats.store_up),
        flag(stats.volatile),
        flag(stats.degraded),
        flag(stats.journal_error.is_none()),
        stats.scheme.update_cache_records,
        stats.scheme.staged_keys,
        stats.scheme.integrity_failures,
    )
}
