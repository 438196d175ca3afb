//! One connection of the generator: sends operations, checks replies, takes times.
//!
//! All connections of a run share one [`Run`] on one thread. In a closed loop each keeps up to `pipeline` operations
//! under way; in an open loop operations come from a pacer with the time they were meant for, and latency counts from
//! then, so a server that stalls can't hide it by holding the generator up.

use super::report;
use super::wire::{self, Kind, Requests};
use hdrhistogram::Histogram;
use millpond_sim::workload::{Op, Values, Ycsb};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;

/// Where operations come from.
pub enum Source {
    /// A workload.
    Ycsb(Box<Ycsb>),
    /// Writes every record once.
    Load(Range<u64>),
}

impl Source {
    fn draw(&mut self) -> Option<(Op, u64)> {
        match self {
            Self::Ycsb(ycsb) => ycsb.next(),
            Self::Load(records) => records.next().map(|record| (Op::Update, record)),
        }
    }
}

/// What the connections of a run share.
pub struct Run {
    source: RefCell<Source>,
    values: RefCell<Values>,
    requests: Requests,
    /// Operations not yet begun.
    left: Cell<u64>,
    histogram: RefCell<Histogram<u64>>,
    done: Cell<u64>,
    errors: Cell<u64>,
    first_error: RefCell<Option<String>>,
}

impl Run {
    /// A run of `operations`.
    pub fn new(source: Source, operations: u64, value_size: usize, seed: u64) -> Self {
        Self {
            source: RefCell::new(source),
            values: RefCell::new(Values::new(value_size, seed)),
            requests: Requests::new(value_size),
            left: Cell::new(operations),
            histogram: RefCell::new(report::histogram()),
            done: Cell::new(0),
            errors: Cell::new(0),
            first_error: RefCell::new(None),
        }
    }

    /// Operations that have ended so far, well or not.
    pub fn ended(&self) -> u64 {
        self.done.get() + self.errors.get()
    }

    /// Counts `count` failed operations.
    pub fn fail(&self, count: u64, message: impl FnOnce() -> String) {
        if count == 0 {
            return;
        }
        self.errors.set(self.errors.get() + count);
        self.first_error.borrow_mut().get_or_insert_with(message);
    }

    /// Ends the run: the source, latencies in nanoseconds, failures, and the first failure's text.
    pub fn finish(self) -> (Source, Histogram<u64>, u64, Option<String>) {
        (self.source.into_inner(), self.histogram.into_inner(), self.errors.get(), self.first_error.into_inner())
    }

    fn succeed(&self, started: Instant) {
        let nanoseconds = started.elapsed().as_nanos() as u64;
        self.histogram.borrow_mut().saturating_record(nanoseconds.max(1));
        self.done.set(self.done.get() + 1);
    }

    fn settle(&self, record: u64) {
        if let Source::Ycsb(ycsb) = &mut *self.source.borrow_mut() {
            ycsb.settle(record);
        }
    }

    /// Takes one of the operations that are left.
    fn draw(&self) -> Option<(Op, u64)> {
        let left = self.left.get().checked_sub(1)?;
        self.left.set(left);
        self.source.borrow_mut().draw()
    }
}

/// When operations begin.
pub enum Pace {
    /// As soon as there is room in the pipeline.
    Closed,
    /// At these times, or as soon after as there is room.
    Open(UnboundedReceiver<Instant>),
    /// No more.
    Never,
}

/// A request under way.
#[derive(Clone, Copy)]
struct Pending {
    started: Instant,
    op: Op,
    record: u64,
}

/// A connection and what is under way on it.
pub struct Client {
    run: Rc<Run>,
    pipeline: usize,
    pending: VecDeque<Pending>,
    output: Vec<u8>,
    /// How much of `output` has been sent.
    sent: usize,
    input: Vec<u8>,
}

impl Client {
    /// A connection that keeps at most `pipeline` operations under way.
    pub fn new(run: Rc<Run>, pipeline: usize) -> Self {
        Self {
            run,
            pipeline,
            pending: VecDeque::new(),
            output: Vec::new(),
            sent: 0,
            input: Vec::with_capacity(64 << 10),
        }
    }

    /// Works until the run has no operations left and all replies have come. Operations whose replies never come count
    /// as failed.
    pub async fn work(mut self, stream: TcpStream, pace: Pace) {
        if let Err(message) = self.exchange(stream, pace).await {
            let lost = self.pending.len() as u64;
            self.run.fail(lost, || message);
        }
    }

    async fn exchange(&mut self, mut stream: TcpStream, mut pace: Pace) -> Result<(), String> {
        let (mut reader, mut writer) = stream.split();
        loop {
            if let Pace::Closed = pace {
                self.fill();
            }
            let open = matches!(pace, Pace::Open(_));
            if self.pending.is_empty() && !open {
                return Ok(());
            }
            let room = self.pending.len() < self.pipeline;
            tokio::select! {
                biased;
                written = writer.write(self.output.get(self.sent..).unwrap_or_default()), if self.sent < self.output.len() => {
                    self.sent += written.map_err(|error| format!("sending: {error}"))?;
                    if self.sent == self.output.len() {
                        self.output.clear();
                        self.sent = 0;
                    }
                }
                read = reader.read_buf(&mut self.input) => {
                    if read.map_err(|error| format!("receiving: {error}"))? == 0 {
                        return Err("the server closed the connection".to_owned());
                    }
                    self.take_replies()?;
                }
                intended = next(&mut pace), if open && room => match intended {
                    Some(intended) => self.begin(intended),
                    None => pace = Pace::Never,
                },
            }
        }
    }

    /// Begins operations until the pipeline is full or none are left.
    fn fill(&mut self) {
        let now = Instant::now();
        while self.pending.len() < self.pipeline {
            let before = self.pending.len();
            self.begin(now);
            if self.pending.len() == before {
                break;
            }
        }
    }

    fn begin(&mut self, started: Instant) {
        let Some((op, record)) = self.run.draw() else { return };
        match op {
            Op::Read | Op::ReadModifyWrite => self.run.requests.get(record, &mut self.output),
            Op::Update | Op::Insert => self.set(record),
        }
        self.pending.push_back(Pending { started, op, record });
    }

    fn set(&mut self, record: u64) {
        self.run.requests.set(record, self.run.values.borrow_mut().draw(), &mut self.output);
    }

    fn take_replies(&mut self) -> Result<(), String> {
        let mut start = 0;
        while let Some((kind, length)) = wire::scan(self.input.get(start..).unwrap_or_default())? {
            let reply = start..start + length;
            start = reply.end;
            let Some(pending) = self.pending.pop_front() else {
                return Err("the server sent a reply nobody asked for".to_owned());
            };
            self.take_reply(kind, reply, pending);
        }
        self.input.drain(..start);
        Ok(())
    }

    fn take_reply(&mut self, kind: Kind, reply: Range<usize>, pending: Pending) {
        match (pending.op, kind) {
            (_, Kind::Error) => {
                let reply = self.input.get(reply).unwrap_or_default();
                self.run.fail(1, || wire::error_line(reply));
            }
            (Op::Read, Kind::Bulk) | (Op::Update, Kind::Plain) => self.run.succeed(pending.started),
            (Op::Insert, Kind::Plain) => {
                self.run.settle(pending.record);
                self.run.succeed(pending.started);
            }
            (Op::ReadModifyWrite, Kind::Bulk) => {
                self.set(pending.record);
                self.pending.push_back(Pending { op: Op::Update, ..pending });
            }
            (Op::Read | Op::ReadModifyWrite, Kind::Null) => {
                self.run.fail(1, || "a loaded record is missing; load it again, or raise the capacity".to_owned());
            }
            _ => self.run.fail(1, || "a reply of the wrong kind".to_owned()),
        }
    }
}

async fn next(pace: &mut Pace) -> Option<Instant> {
    match pace {
        Pace::Closed | Pace::Never => None,
        Pace::Open(times) => times.recv().await,
    }
}
