//! The `millpond` binary: configuration, server, admin endpoint and command line. Wiring only: what is hidden and how is
//! the schemes' and the engine's business.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod admin;
mod bench;
mod cli;
mod config;
mod connection;
mod error;
mod info;
mod keys;
mod metrics;
mod proxy;
mod replies;
mod serve;
mod server;
mod status;
mod stores;
mod weights;

use std::io::IsTerminal;
use std::process::ExitCode;

fn main() -> ExitCode {
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(colours).with_target(false).init();
    match cli::main() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
