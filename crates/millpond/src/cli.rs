//! The command line.

use crate::bench::{self, Bench};
use crate::config::{self, Config};
use crate::error::Error;
use crate::{keys, serve, status};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::io::Write;
use std::path::PathBuf;

/// A trusted proxy that speaks the Redis protocol and hides access patterns from an untrusted store
#[derive(Parser)]
#[command(version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve clients. Without a configuration: one embedded store, with its data and key under ./millpond-data
    Serve(ConfigArgs),
    /// Make a master key file
    Keygen {
        /// The file to make; an existing one is never overwritten
        #[arg(short, long)]
        output: PathBuf,
    },
    /// Show how a running proxy is doing
    Status {
        #[command(flatten)]
        config: ConfigArgs,
        /// Its admin address [default: the configuration's]
        #[arg(long, value_name = "HOST:PORT")]
        admin: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure RESP servers side by side
    #[command(subcommand)]
    Bench(Bench),
    /// Print a page of the reference, as Markdown
    #[command(hide = true)]
    Reference { page: Page },
}

#[derive(Args)]
struct ConfigArgs {
    /// The configuration file (TOML)
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Override a key, as in server.listen=127.0.0.1:6380 or store.default.capacity=1000
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl ConfigArgs {
    fn load(&self) -> Result<Config, Error> {
        Ok(Config::load(self.config.as_deref(), &self.set)?)
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Page {
    Commands,
    Config,
}

/// Runs the command that was given. Wrong arguments end the process here, with exit code 2.
///
/// # Errors
/// If the command fails.
pub fn main() -> Result<(), Error> {
    match Cli::parse().command {
        Command::Serve(config) => serve::main(&config.load()?),
        Command::Keygen { output } => {
            keys::generate(&output)?;
            say(&format!("made {}; keep a copy of it: without it the data is lost\n", output.display()));
            Ok(())
        }
        Command::Status { config, admin, json } => {
            let address = match admin {
                Some(address) => address,
                None => config.load()?.server.admin.ok_or_else(|| {
                    Error::Usage("the configuration turns the admin endpoint off; set server.admin".to_owned())
                })?,
            };
            status::print(&address, json)
        }
        Command::Bench(bench) => bench::main(&bench),
        Command::Reference { page } => {
            say(&match page {
                Page::Commands => millpond_resp::reference_markdown(),
                Page::Config => config::reference_markdown(),
            });
            Ok(())
        }
    }
}

/// Prints to stdout; that nobody reads it is no failure.
pub fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).ok();
}
