# Two commands: `make run` serves, `make test` proves. Both install what is missing first.
CARGO ?= cargo
export CARGO_INCREMENTAL ?= 1
BIN := $(or $(CARGO_TARGET_DIR),target)/release/visavis

.PHONY: run setup build test bench perf-table load soak soak-faces mutants lint check

run: build
	$(BIN) serve $(ARGS)

setup:
	scripts/setup.sh

build: setup
	$(CARGO) build --release --locked --bin visavis --features load

check: build
	$(BIN) check

# The release profile for all tests: one build of the dependencies, and the binary under test
# is that build's: the same sources and profile as `make build`, with the features that the whole workspace asks of them.
test: setup
	$(CARGO) test --release --locked --workspace --features visavis/load --no-fail-fast
	CARGO=$(CARGO) scripts/budgets.py run --quick --slack 3
	scripts/test-postgres.sh
	scripts/test-e2e.sh

# In CPU time and in instructions, one after the other, held against benches/budgets.toml. `make test` does the same in less time, and with three
# times the budgets of CPU time.
bench: setup
	CARGO=$(CARGO) scripts/budgets.py run $(ARGS)

# The tables of measured runs in docs/performance.md, from docs/results/*.json.
perf-table:
	scripts/perf-table.py

# Callers against a server of their own: `make load ARGS="--calls 50 --out found.json"`.
load: build
	scripts/load.sh $(ARGS)

# Short calls with hang-ups at random moments: what stays behind.
soak: build
	scripts/load.sh soak $(or $(CALLS),500) --require "failed == 0" --require "soak.calls >= $(or $(CALLS),500)" --require "soak.rss_growth <= 5%" --require "soak.threads_grown <= 8" --require "soak.files_grown <= 64" --require "soak.decoders_left == 0" --require "soak.calls_left == 0" $(ARGS)

# Ten minutes of a face on a line that loses nothing, 5 and 10 % of its packets, in a browser; what was found is kept.
soak-faces: build
	FACES_SECONDS=600 FACES_OUT=docs/faces/loss.json scripts/test-e2e.sh -k test_the_picture_goes_on

# Whether the tests of turn-taking notice when its rules are broken one by one. Needs `cargo install cargo-mutants`.
mutants:
	scripts/mutants.py

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --locked --workspace --all-targets --features visavis/load -- -D warnings
