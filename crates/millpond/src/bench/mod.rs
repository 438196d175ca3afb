//! `millpond bench`: YCSB against any RESP servers, side by side.
//!
//! Targets take turns within every round, and each target of a round gets the same operations, so what else the
//! machine does falls on all of them and their ratio means more than their speeds. One thread drives all connections.

mod client;
mod pacer;
mod report;
mod run;
mod target;
mod wire;

use crate::cli::say;
use crate::error::Error;
use clap::{Args, Subcommand, ValueEnum};
use millpond_sim::workload::{self, Distribution, Workload, Ycsb};
use report::{Report, TargetReport};
use run::{Driver, Load};
use serde_json::json;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use target::Target;

/// `millpond bench …`
#[derive(Subcommand)]
pub enum Bench {
    /// Run a YCSB core workload against one or more RESP servers and compare them
    Ycsb(YcsbArgs),
    /// Write the popularity of a workload's keys as a weights file, for `distribution = "file:…"`
    Weights(WeightsArgs),
}

/// How popular records are.
#[derive(Args)]
struct Popularity {
    /// How many records the store holds
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    records: u64,
    /// How popular the records are
    #[arg(long, value_enum, default_value_t = Shape::Zipf)]
    distribution: Shape,
    /// The skew of `zipf`, above 0 and below 1
    #[arg(long, default_value_t = 0.99, value_parser = skew)]
    theta: f64,
}

impl Popularity {
    fn distribution(&self) -> Distribution {
        match self.distribution {
            Shape::Zipf => Distribution::Zipf { theta: self.theta },
            Shape::Uniform => Distribution::Uniform,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Shape {
    Zipf,
    Uniform,
}

fn skew(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(theta) if 0.0 < theta && theta < 1.0 => Ok(theta),
        _ => Err("give a number above 0 and below 1, as in 0.99".to_owned()),
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Mix {
    /// 50 % reads, 50 % updates
    A,
    /// 95 % reads, 5 % updates
    B,
    /// Reads only
    C,
    /// 95 % reads of the latest, 5 % inserts
    D,
    /// 50 % reads, 50 % read-modify-writes
    F,
}

impl Mix {
    fn workload(self) -> Workload {
        match self {
            Self::A => Workload::A,
            Self::B => Workload::B,
            Self::C => Workload::C,
            Self::D => Workload::D,
            Self::F => Workload::F,
        }
    }
}

/// `millpond bench ycsb`
#[derive(Args)]
pub struct YcsbArgs {
    /// The core workload
    #[arg(long, value_enum, ignore_case = true, default_value = "a")]
    workload: Mix,
    #[command(flatten)]
    popularity: Popularity,
    /// Operations in each round, against each target
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    ops: u64,
    /// Connections to each target
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// Size of a value in bytes
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(0..=512 << 20))]
    value_size: u32,
    /// A server, `[NAME=]HOST:PORT` or `[NAME=]redis://:PASSWORD@HOST:PORT/DB`; give it again for each further one.
    /// Ratios are to the first
    #[arg(long = "target", required = true)]
    targets: Vec<Target>,
    /// How many times each target has its turn
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Write all records first (the default)
    #[arg(long, overrides_with = "no_load")]
    load: bool,
    /// Don't: they are there already
    #[arg(long, overrides_with = "load")]
    no_load: bool,
    /// Open loop: so many operations a second, whatever the server does; latencies count from when each was due
    #[arg(long, value_parser = rate)]
    rate: Option<f64>,
    /// Operations under way on each connection at most [default: 1; with --rate 1000]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pipeline: Option<u32>,
    /// Repeats the same operations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if rate > 0.0 && rate <= 1e8 => Ok(rate),
        _ => Err("give operations a second, above 0".to_owned()),
    }
}

/// `millpond bench weights`
#[derive(Args)]
pub struct WeightsArgs {
    #[command(flatten)]
    popularity: Popularity,
    /// The file to write
    #[arg(short, long)]
    output: PathBuf,
}

/// Runs a benchmark command.
///
/// # Errors
/// If a target can't be reached, or any operation failed.
pub fn main(command: &Bench) -> Result<(), Error> {
    match command {
        Bench::Ycsb(args) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| Error::Failed(format!("can't start: {error}; try again")))?;
            let report = runtime.block_on(tokio::task::LocalSet::new().run_until(ycsb(args)))?;
            print(&report, args.json)
        }
        Bench::Weights(args) => write_weights(&args.popularity, &args.output).map_err(|error| {
            Error::Failed(format!("can't write {}: {error}; give another file with -o", args.output.display()))
        }),
    }
}

async fn ycsb(args: &YcsbArgs) -> Result<Report, Error> {
    let driver = Driver {
        connections: usize::from(args.connections),
        pipeline: args.pipeline.unwrap_or(if args.rate.is_some() { 1000 } else { 1 }) as usize,
        rate: args.rate,
        value_size: args.value_size as usize,
    };
    let records = args.popularity.records;
    if !args.no_load {
        for target in &args.targets {
            driver.load(target, Load { records, seed: args.seed }).await?;
        }
    }
    let mut rounds: Vec<Vec<report::Round>> = args.targets.iter().map(|_| Vec::new()).collect();
    let mut present = vec![records; args.targets.len()];
    for number in 0..args.rounds {
        for ((target, rounds), present) in args.targets.iter().zip(&mut rounds).zip(&mut present) {
            let seed = args.seed.wrapping_add(u64::from(number));
            let ycsb = Ycsb::new(args.workload.workload(), args.popularity.distribution(), *present, seed);
            let (round, ycsb) = driver.round(target, ycsb, args.ops, seed).await?;
            eprintln!("round {}/{} {}: {:.0} op/s", number + 1, args.rounds, target.name, round.throughput());
            *present = ycsb.records();
            rounds.push(round);
        }
    }
    let first = rounds.first().map_or(&[][..], Vec::as_slice);
    let targets = args.targets.iter().zip(&rounds);
    let targets =
        targets.map(|(target, rounds)| TargetReport::new(&target.name, &target.address, rounds, first)).collect();
    Ok(Report { setting: setting(args, &driver), targets })
}

fn setting(args: &YcsbArgs, driver: &Driver) -> serde_json::Value {
    let distribution = match args.popularity.distribution {
        Shape::Zipf => json!({ "zipf": args.popularity.theta }),
        Shape::Uniform => json!("uniform"),
    };
    json!({
        "workload": format!("{:?}", args.workload.workload()).to_lowercase(),
        "records": args.popularity.records,
        "distribution": distribution,
        "ops": args.ops,
        "rounds": args.rounds,
        "connections": driver.connections,
        "pipeline": driver.pipeline,
        "rate": driver.rate,
        "value_size": driver.value_size,
        "seed": args.seed,
    })
}

fn print(report: &Report, json: bool) -> Result<(), Error> {
    if json {
        let text = serde_json::to_string_pretty(report).map_err(|error| Error::Failed(error.to_string()))?;
        say(&(text + "\n"));
    } else {
        say(&report.table());
    }
    match report.errors() {
        0 => Ok(()),
        errors => Err(Error::Failed(format!("{errors} operations failed; see the first error of each target"))),
    }
}

fn write_weights(popularity: &Popularity, path: &Path) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let probabilities = workload::probabilities(popularity.distribution(), popularity.records);
    for (record, p) in probabilities.into_iter().enumerate() {
        file.write_all(&workload::key(record as u64))?;
        writeln!(file, ",{p:e}")?;
    }
    file.flush()
}
