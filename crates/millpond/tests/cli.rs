//! The binary from outside: exit codes, and errors that say what to do.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::PathBuf;
use std::process::{Command, Output};

fn millpond(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_millpond")).args(args).output().unwrap()
}

/// Runs it, and checks the exit code and a part of what it says.
fn expect(args: &[&str], code: i32, says: &str) {
    let output = millpond(args);
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    assert!(said.contains(says), "{args:?}: {said}");
}

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("millpond-cli-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn wrong_usage_is_2() {
    expect(&[], 2, "Usage:");
    expect(&["surf"], 2, "unrecognized subcommand");
    expect(&["serve", "--set", "server.lisen=x"], 2, "unknown key \"lisen\"; [server] allows: listen,");
    expect(&["serve", "--config", "/no/such/file"], 2, "--config");
    expect(&["serve", "--set", "store.0.scheme=path-oram"], 2, "isn't built yet; use pancake");
    expect(&["bench", "ycsb"], 2, "--target");
    expect(&["bench", "ycsb", "--target", "nowhere"], 2, "HOST:PORT");
    expect(&["bench", "ycsb", "--target", "a:1", "--theta", "1.5"], 2, "below 1");
    expect(&["status", "--set", "server.admin=off"], 2, "server.admin");
}

#[test]
fn failures_are_1() {
    expect(&["status", "--admin", "127.0.0.1:1"], 1, "is millpond serving");
    expect(&["bench", "ycsb", "--target", "127.0.0.1:1"], 1, "is a server running there?");
}

#[test]
fn success_is_0() {
    expect(&["--help"], 0, "serve");
    expect(&["--version"], 0, "millpond");
    expect(&["reference", "config"], 0, "| `durability` |");
    expect(&["reference", "commands"], 0, "");
}

#[test]
fn a_key_file_is_made_once() {
    let dir = scratch("keygen");
    let file = dir.join("master.key");
    let path = file.to_str().unwrap();
    expect(&["keygen", "-o", path], 0, "made");
    expect(&["keygen", "-o", path], 1, "never overwritten");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn weights_can_be_written() {
    let dir = scratch("weights");
    let file = dir.join("weights.csv");
    expect(&["bench", "weights", "--records", "1000", "-o", file.to_str().unwrap()], 0, "");
    let text = std::fs::read_to_string(&file).unwrap();
    let sum: f64 = text.lines().map(|line| line.split_once(',').unwrap().1.parse::<f64>().unwrap()).sum();
    assert_eq!(text.lines().count(), 1000);
    assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    std::fs::remove_dir_all(&dir).unwrap();
}
