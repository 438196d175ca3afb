//! `/status`, and the `status` command that reads it.

use crate::cli::say;
use crate::error::Error;
use crate::proxy::{Proxy, Served};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// What the admin endpoint says of the proxy.
pub fn json(proxy: &Proxy) -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "ready": proxy.not_ready().is_none(),
        "reason": proxy.not_ready(),
        "uptime_seconds": proxy.uptime().as_secs(),
        "clients": proxy.clients(),
        "stores": proxy.stores().iter().map(store).collect::<Vec<_>>(),
    })
}

fn store(served: &Served) -> Value {
    let stats = served.handle.stats();
    let scheme = &stats.scheme;
    json!({
        "name": served.handle.name(),
        "db": served.db,
        "scheme": served.scheme,
        "backend": served.backend,
        "value_size": served.handle.value_limit(),
        "up": stats.store_up,
        "error": stats.store_error,
        "errors": stats.store_errors,
        "volatile": stats.volatile,
        "degraded": stats.degraded,
        "integrity_failures": scheme.integrity_failures,
        "journal_error": stats.journal_error,
        "journal_bytes": stats.journal_bytes,
        "journal_fsyncs": stats.journal_fsyncs,
        "barriers": stats.barriers,
        "barrier_age_seconds": stats.barrier_age_s,
        "keys": scheme.keys,
        "capacity": scheme.capacity,
        "requests": stats.requests,
        "rounds": scheme.rounds,
        "accesses": scheme.accesses,
        "cover_batches": stats.cover_batches,
        "deadlines": stats.deadlines,
        "queue_depth": scheme.queue_depth,
        "update_cache_records": scheme.update_cache_records,
        "update_cache_bytes": scheme.update_cache_bytes,
        "update_cache_peak": scheme.update_cache_peak,
        "staged_keys": scheme.staged_keys,
        "epoch": scheme.epoch,
        "delta": scheme.delta,
    })
}

/// Asks a proxy's admin endpoint for its status, and prints it.
///
/// # Errors
/// If the endpoint can't be reached, does not answer, or says that the proxy is not ready (after printing).
pub fn print(address: &str, as_json: bool) -> Result<(), Error> {
    let status = fetch(address).map_err(|problem| {
        Error::Failed(format!("{address}: {problem}; is millpond serving, with server.admin at this address?"))
    })?;
    if as_json {
        say(&format!("{status:#}\n"));
    } else {
        say(&table(&status));
    }
    match status.get("reason").and_then(Value::as_str) {
        None => Ok(()),
        Some(reason) => Err(Error::Failed(format!("not ready: {reason}"))),
    }
}

fn fetch(address: &str) -> Result<Value, String> {
    const PATIENCE: Duration = Duration::from_secs(5);
    const LARGEST: u64 = 16 << 20;
    let say = |error: std::io::Error| error.to_string();
    let address = address.to_socket_addrs().map_err(say)?.next().ok_or("no such host")?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(say)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(say)?;
    stream.write_all(b"GET /status HTTP/1.0\r\n\r\n").map_err(say)?;
    let mut response = Vec::new();
    stream.take(LARGEST).read_to_end(&mut response).map_err(say)?;
    let response = String::from_utf8_lossy(&response);
    match response.split_once("\r\n\r\n") {
        Some((head, body)) if head.split(' ').nth(1) == Some("200") => {
            serde_json::from_str(body).map_err(|_| "the answer is not a status".to_owned())
        }
        _ => Err("the answer is not a status".to_owned()),
    }
}

/// A status for people: the proxy first, then every store, one figure a line.
fn table(status: &Value) -> String {
    let mut out = String::new();
    let mut section = |title: &str, value: &Value| {
        // Writing to a String can't fail.
        let _ = writeln!(out, "{title}");
        for (name, value) in value.as_object().into_iter().flatten() {
            match value {
                Value::Null | Value::Array(_) => {}
                Value::String(text) => _ = writeln!(out, "  {name:<22} {text}"),
                other => _ = writeln!(out, "  {name:<22} {other}"),
            }
        }
    };
    section("millpond", status);
    for store in status.get("stores").and_then(Value::as_array).into_iter().flatten() {
        section(&format!("store {}", store.get("name").and_then(Value::as_str).unwrap_or("?")), store);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_shows_every_figure() {
        let status = json!({ "ready": true, "reason": null, "stores": [{ "name": "a", "keys": 3, "up": true }] });
        let table = table(&status);
        assert_eq!(table.lines().count(), 6, "{table}");
        assert!(table.contains("store a\n") && table.contains("keys                   3\n"), "{table}");
    }
}
