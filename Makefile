# Everything a newcomer needs: `make run` and `make test`.
SHELL := /bin/bash
# Rust compiles slowly: the build folder outlives the checkout.
export CARGO_TARGET_DIR ?= $(HOME)/.cache/millpond-target

.PHONY: run test lint tools

run:
	cargo build --release -p millpond
	$(CARGO_TARGET_DIR)/release/millpond serve

test: tools
	cargo test --workspace

lint:
	rustup component add rustfmt clippy >/dev/null 2>&1 || true
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

tools:
	@command -v redis-server >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq redis-server >/dev/null; }
