# Two commands: `make run` serves, `make test` proves. Both install what is missing first.
CARGO ?= cargo
export CARGO
BIN := $(or $(CARGO_TARGET_DIR),target)/release/visavis

.PHONY: run setup setup-tests build build-load test-fast test compile test-long bench perf-table load soak soak-faces mutants fuzz features lint audit check

run: build
	$(BIN) serve $(ARGS)

setup:
	scripts/setup.sh

# Also what tests need: PostgreSQL, Valgrind.
setup-tests:
	scripts/setup.sh tests

build: setup
	$(CARGO) build --release --locked --bin visavis

check: build
	$(BIN) check

# Three tiers (CONTRIBUTING.md): `make test-fast P=engine` after an edit, `make test` before a push and in CI, `make test-long PART=faces` before
# a release and after a change of that area. Without P or PART: all of them.
test-fast: setup-tests
	scripts/test.py fast $(P)

test: setup-tests
	scripts/test.py all

# The first step of `make test` alone.
compile: setup-tests
	scripts/test.py all --only compile

test-long: setup-tests
	scripts/test.py long $(PART)

# In CPU time and in instructions, one after the other, held against benches/budgets.toml.
bench: setup-tests
	scripts/budgets.py run $(ARGS)

# The tables of measured runs in docs/performance.md, from docs/results/*.json.
perf-table:
	scripts/perf-table.py

build-load: build
	$(CARGO) build --release --locked --package visavis-load

# Callers against a server of their own: `make load ARGS="--calls 50 --out found.json"`.
load: build-load
	scripts/load.sh $(ARGS)

# Short calls with hang-ups at random moments: what stays behind.
soak: build-load
	scripts/load.sh soak $(or $(CALLS),500) --require "failed == 0" --require "soak.calls >= $(or $(CALLS),500)" --require "soak.rss_growth <= 5%" --require "soak.threads_grown <= 8" --require "soak.files_grown <= 64" --require "soak.decoders_left == 0" --require "soak.calls_left == 0" $(ARGS)

# Ten minutes of a face on a line that loses nothing, 5 and 10 % of its packets, and 10 % while sound comes late and in bursts, in a browser; what was found is kept.
soak-faces: build
	FACES_SECONDS=600 FACES_OUT=docs/faces/loss.json scripts/test-e2e.sh --part faces -k test_the_picture_goes_on

# Whether the tests of turn-taking notice when its rules are broken one by one. Needs `cargo install cargo-mutants`.
mutants:
	scripts/mutants.py

# Every parser that reads from the network, and the pure conversation, under libFuzzer: `make fuzz MINUTES=10 TARGET=sdp`, without TARGET each in turn.
# Needs the nightly toolchain and cargo-fuzz; ARGS=--stable needs neither, and learns nothing from what it reached (tests/fuzz/README.md).
fuzz:
	scripts/fuzz.py --minutes $(or $(MINUTES),10) $(TARGET) $(ARGS)

# Writes the union of features anew, after a change of dependencies (docs/decisions/0002).
features:
	scripts/workspace-hack/generate.py

# Dependencies against deny.toml, before a release: installs cargo-deny, and needs the advisory database for one part, so it is no part of lint.
audit:
	scripts/audit.sh

lint:
	$(CARGO) fmt --all --check
	scripts/workspace-hack/generate.py --check
	$(CARGO) clippy --release --locked --workspace --lib --bins --examples --tests --bench '*' -- -D warnings
