//! The open loop's clock: tells connections when operations are due, from a thread of its own, because the runtime's
//! timers are a millisecond coarse.

use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Starts the clock: `operations` at `rate` a second, to `connections` in turn. It stops when all have been told, or
/// nobody listens any more.
pub fn start(operations: u64, rate: f64, connections: usize) -> Vec<UnboundedReceiver<Instant>> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..connections).map(|_| unbounded_channel()).unzip();
    thread::spawn(move || pace(operations, rate, &senders));
    receivers
}

fn pace(operations: u64, rate: f64, connections: &[UnboundedSender<Instant>]) {
    /// Shorter sleeps cost more than they gain.
    const SHORTEST: Duration = Duration::from_micros(50);
    let start = Instant::now();
    for (operation, connection) in (0..operations).zip(connections.iter().cycle()) {
        let due = start + Duration::from_secs_f64(operation as f64 / rate);
        let wait = due.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            thread::sleep(wait.max(SHORTEST));
        }
        if connection.send(due).is_err() && connections.iter().all(UnboundedSender::is_closed) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_told_in_turn_and_on_time() {
        let mut connections = start(1001, 10_000.0, 3);
        let times: Vec<Vec<Instant>> =
            connections.iter_mut().map(|c| std::iter::from_fn(|| c.blocking_recv()).collect()).collect();
        assert_eq!(times.iter().map(Vec::len).collect::<Vec<_>>(), [334, 334, 333]);
        let (first, last) = (times[0][0], times[1][333]);
        assert!((last - first).abs_diff(Duration::from_millis(100)) < Duration::from_micros(10));
    }
}
