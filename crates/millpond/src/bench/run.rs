//! Drives all connections of one run against one target.

use super::client::{Client, Pace, Run, Source};
use super::pacer;
use super::report::Round;
use super::target::Target;
use crate::error::Error;
use millpond_sim::workload::Ycsb;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How every run is driven.
pub struct Driver {
    /// Connections to a target.
    pub connections: usize,
    /// Operations under way on each at most.
    pub pipeline: usize,
    /// Open loop: operations a second.
    pub rate: Option<f64>,
    /// Size of a value in bytes.
    pub value_size: usize,
}

/// The load phase.
pub struct Load {
    /// Writes records 0 to this one, exclusive.
    pub records: u64,
    /// For the values.
    pub seed: u64,
}

/// How a run begins its operations.
struct Shape {
    pipeline: usize,
    rate: Option<f64>,
    /// Says on stderr how far it is.
    progress: bool,
}

impl Driver {
    /// A run in which nothing moves for so long is given up.
    const STALL: Duration = Duration::from_mins(1);
    const LOAD_PIPELINE: usize = 32;

    /// Writes all records, saying how far it is.
    pub async fn load(&self, target: &Target, load: Load) -> Result<(), Error> {
        let source = Source::Load(0..load.records);
        let shape = Shape { pipeline: Self::LOAD_PIPELINE, rate: None, progress: true };
        let (round, _) =
            self.run(target, Run::new(source, load.records, self.value_size, load.seed), load.records, shape).await?;
        eprintln!("{}: loaded {} records at {:.0} op/s", target.name, round.latencies.len(), round.throughput());
        match round.first_error {
            None => Ok(()),
            Some(error) => Err(Error::Failed(format!(
                "loading {}: {} of {} records failed, the first with: {error}; the store must hold --records keys and \
                 --value-size bytes",
                target.name, round.errors, load.records
            ))),
        }
    }

    /// One round of a workload.
    pub async fn round(&self, target: &Target, ycsb: Ycsb, operations: u64, seed: u64) -> Result<(Round, Ycsb), Error> {
        let run = Run::new(Source::Ycsb(Box::new(ycsb)), operations, self.value_size, seed);
        let shape = Shape { pipeline: self.pipeline, rate: self.rate, progress: false };
        match self.run(target, run, operations, shape).await? {
            (round, Source::Ycsb(ycsb)) => Ok((round, *ycsb)),
            (_, Source::Load(_)) => Err(Error::Failed("the run lost its workload".to_owned())),
        }
    }

    async fn run(&self, target: &Target, run: Run, operations: u64, shape: Shape) -> Result<(Round, Source), Error> {
        let mut streams = Vec::with_capacity(self.connections);
        for _ in 0..self.connections {
            streams.push(target.connect().await.map_err(Error::Failed)?);
        }
        let run = Rc::new(run);
        let mut paces = shape.rate.map(|rate| pacer::start(operations, rate, self.connections).into_iter());
        let mut clients = JoinSet::new();
        let start = Instant::now();
        for stream in streams {
            let pace = paces.as_mut().and_then(Iterator::next).map_or(Pace::Closed, Pace::Open);
            clients.spawn_local(Client::new(Rc::clone(&run), shape.pipeline).work(stream, pace));
        }
        watch(&mut clients, &run, target, shape.progress.then_some(operations)).await?;
        let elapsed = start.elapsed();
        // What no connection was left to begin.
        run.fail(operations.saturating_sub(run.ended()), || "all connections were lost".to_owned());
        let Ok(run) = Rc::try_unwrap(run) else {
            return Err(Error::Failed("a connection outlived its run".to_owned()));
        };
        let (source, latencies, errors, first_error) = run.finish();
        Ok((Round { latencies, elapsed, errors, first_error }, source))
    }
}

/// Waits for all connections, at most [`Driver::STALL`] without anything moving.
async fn watch(clients: &mut JoinSet<()>, run: &Run, target: &Target, progress: Option<u64>) -> Result<(), Error> {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    let (mut seen, mut since) = (0, Instant::now());
    loop {
        tokio::select! {
            ended = clients.join_next() => match ended {
                None => return Ok(()),
                Some(Ok(())) => {}
                Some(Err(error)) => return Err(Error::Failed(format!("a connection's task failed: {error}"))),
            },
            _ = ticks.tick() => {
                if run.ended() != seen {
                    (seen, since) = (run.ended(), Instant::now());
                }
                if let Some(all) = progress && seen > 0 {
                    eprintln!("{}: {seen} of {all} records ({} %)", target.name, seen * 100 / all.max(1));
                }
                if since.elapsed() > Driver::STALL {
                    return Err(Error::Failed(format!(
                        "{}: no reply for {} s; is it stalled? Look at its log and status",
                        target.name,
                        Driver::STALL.as_secs()
                    )));
                }
            }
        }
    }
}
