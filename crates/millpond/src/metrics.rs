//! `/metrics`: what each store's engine counts, in Prometheus's text form.
//!
//! Everything is labelled with the store, and nothing depends on a key. The admin endpoint is on the trusted side: what
//! is shown here says much about the traffic.

use millpond_engine::Stats;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::Arc;

/// A moment's figures of everything.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Connections now.
    pub clients: u64,
    /// Connections so far.
    pub connections: u64,
    /// Connections refused because there were too many.
    pub refused: u64,
    /// Each store's.
    pub stores: Vec<StoreFigures>,
}

/// A moment's figures of one store.
#[derive(Debug, Clone, Default)]
pub struct StoreFigures {
    /// Its name.
    pub name: String,
    /// What its engine says.
    pub stats: Arc<Stats>,
    /// Requests so far by command, for the commands that have been used.
    pub commands: Vec<(&'static str, u64)>,
}

type Read = fn(&Stats) -> f64;

/// Name, help and value of every counter. The encoder appends `_total`.
const COUNTERS: &[(&str, &str, Read)] = &[
    ("rounds", "Rounds", |s| s.scheme.rounds as f64),
    ("accesses", "Accesses, a read and a write each", |s| s.scheme.accesses as f64),
    ("cover_batches", "Batches sent without a request", |s| s.cover_batches as f64),
    ("deadlines", "Requests given up at their deadline", |s| s.deadlines as f64),
    ("integrity_failures", "Blocks that failed to open", |s| s.scheme.integrity_failures as f64),
    ("store_errors", "Failures of the store", |s| s.store_errors as f64),
    ("journal_fsyncs", "fsyncs of the journal", |s| s.journal_fsyncs as f64),
    ("barriers", "Barriers completed", |s| s.barriers as f64),
    ("seals", "Blocks sealed", |s| s.scheme.seals as f64),
    ("opens", "Blocks opened", |s| s.scheme.opens as f64),
];

/// Name, help and value of every gauge.
const GAUGES: &[(&str, &str, Read)] = &[
    ("keys", "Keys that exist", |s| s.scheme.keys as f64),
    ("capacity_keys", "Most keys the store can hold", |s| s.scheme.capacity as f64),
    ("queue_depth", "Requests whose turn has not come", |s| s.scheme.queue_depth as f64),
    ("update_cache_records", "Records in the update cache", |s| s.scheme.update_cache_records as f64),
    ("update_cache_bytes", "Bytes of the records in the update cache", |s| s.scheme.update_cache_bytes as f64),
    ("update_cache_peak_records", "Most records the update cache ever held", |s| s.scheme.update_cache_peak as f64),
    ("staged_keys", "Keys that wait for slots", |s| s.scheme.staged_keys as f64),
    ("epoch", "Table refreshes", |s| s.scheme.epoch as f64),
    ("store_up", "1 while the store answers", |s| f64::from(u8::from(s.store_up))),
    ("volatile", "1 if the store loses everything when it restarts", |s| f64::from(u8::from(s.volatile))),
    ("degraded", "1 once a block failed to open", |s| f64::from(u8::from(s.degraded))),
    ("journal_up", "1 while the journal can be written", |s| f64::from(u8::from(s.journal_error.is_none()))),
    ("journal_bytes", "Bytes in the journal since the last checkpoint", |s| s.journal_bytes as f64),
    ("barrier_age_seconds", "Time since the last barrier", |s| s.barrier_age_s as f64),
];

/// Renders the figures.
///
/// # Errors
/// Never, in practice: the text goes into memory.
pub fn text(figures: Figures) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("millpond");
    registry.register_collector(Box::new(figures));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let encoder = &mut encoder;
        let server = [
            ("clients", "Connections now", self.clients, MetricType::Gauge),
            ("connections", "Connections so far", self.connections, MetricType::Counter),
            (
                "connections_refused",
                "Connections refused because there were too many",
                self.refused,
                MetricType::Counter,
            ),
        ];
        for (name, help, value, kind) in server {
            let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
            number(&mut metric, kind, value as f64)?;
        }
        self.requests(encoder)?;
        for (kind, table) in [(MetricType::Counter, COUNTERS), (MetricType::Gauge, GAUGES)] {
            for (name, help, read) in table {
                let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
                for store in &self.stores {
                    let labels = [("store", store.name.as_str())];
                    number(&mut metric.encode_family(&labels)?, kind, read(&store.stats))?;
                }
            }
        }
        self.latency(encoder)
    }
}

impl Figures {
    fn requests(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let mut metric = encoder.encode_descriptor("requests", "Requests for keys", None, MetricType::Counter)?;
        for store in &self.stores {
            for (command, count) in &store.commands {
                let labels = [("store", store.name.as_str()), ("command", *command)];
                number(&mut metric.encode_family(&labels)?, MetricType::Counter, *count as f64)?;
            }
        }
        Ok(())
    }

    fn latency(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let help = "Time from a request's arrival to its reply; the sum is estimated from the buckets";
        let mut metric = encoder.encode_descriptor("request_seconds", help, None, MetricType::Histogram)?;
        for store in &self.stores {
            let labels = [("store", store.name.as_str())];
            histogram(&mut metric.encode_family(&labels)?, &store.stats.request_us_log2)?;
        }
        Ok(())
    }
}

type NoLabels = [(&'static str, &'static str); 0];

fn number(metric: &mut MetricEncoder, kind: MetricType, value: f64) -> fmt::Result {
    match kind {
        MetricType::Counter => metric.encode_counter(&value, None::<&Exemplar<NoLabels, f64>>),
        _ => metric.encode_gauge(&value),
    }
}

/// Counts by upper bounds of 2^i microseconds. A duration is taken for three quarters of its bucket's bound.
fn histogram(metric: &mut MetricEncoder, counts: &[u64; 32]) -> fmt::Result {
    let bound = |i: usize| (1_u64 << i) as f64 / 1e6;
    let mut buckets: Vec<(f64, u64)> = counts.iter().enumerate().map(|(i, count)| (bound(i), *count)).collect();
    let sum = buckets.iter().map(|(bound, count)| 0.75 * bound * *count as f64).sum();
    buckets.push((f64::INFINITY, 0));
    metric.encode_histogram::<NoLabels>(sum, counts.iter().sum(), &buckets, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_promised_names_are_there() {
        let mut stats = Stats { journal_fsyncs: 4, store_up: true, ..Stats::default() };
        stats.scheme.accesses = 12;
        stats.request_us_log2[10] = 5;
        stats.request_us_log2[3] = 1;
        let store = StoreFigures { name: "s".into(), stats: Arc::new(stats), commands: vec![("get", 3)] };
        let text = text(Figures { clients: 2, connections: 9, refused: 1, stores: vec![store] }).unwrap();
        for line in [
            "millpond_clients 2.0",
            "millpond_connections_total 9.0",
            "millpond_requests_total{store=\"s\",command=\"get\"} 3.0",
            "millpond_accesses_total{store=\"s\"} 12.0",
            "millpond_store_up{store=\"s\"} 1.0",
            "millpond_journal_fsyncs_total{store=\"s\"} 4.0",
            "millpond_request_seconds_bucket{le=\"0.001024\",store=\"s\"} 6",
            "millpond_request_seconds_bucket{le=\"+Inf\",store=\"s\"} 6",
            "millpond_request_seconds_count{store=\"s\"} 6",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        for name in [
            "rounds_total",
            "queue_depth",
            "update_cache_records",
            "update_cache_bytes",
            "staged_keys",
            "epoch",
            "integrity_failures_total",
            "store_errors_total",
        ] {
            assert!(text.lines().any(|l| l.starts_with(&format!("millpond_{name}{{store=\"s\""))), "{name}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
