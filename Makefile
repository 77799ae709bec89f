# Two commands: `make run` serves, `make test` proves. Both install what is missing first.
CARGO ?= cargo
export CARGO_INCREMENTAL ?= 1
BIN := $(or $(CARGO_TARGET_DIR),target)/release/visavis

.PHONY: run setup build test lint check

run: build
	$(BIN) serve $(ARGS)

setup:
	scripts/setup.sh

build: setup
	$(CARGO) build --release --locked --bin visavis

check: build
	$(BIN) check

# The release profile for all tests: one build of the dependencies, and the binary under test is the one that ships.
test: build
	$(CARGO) test --release --locked --workspace
	scripts/test-e2e.sh

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --locked --workspace --all-targets -- -D warnings
