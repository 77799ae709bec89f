# The two main commands: `make run` starts the server, `make test` runs the tests. Both install
# missing dependencies first.
CARGO ?= cargo
export CARGO
BIN := $(or $(CARGO_TARGET_DIR),target)/release/visavis

ifndef RUSTUP_TOOLCHAIN
toolchain := $(shell scripts/toolchain.sh)
ifneq ($(toolchain),)
export RUSTUP_TOOLCHAIN := $(toolchain)
endif
endif

.PHONY: run setup setup-tests build build-load test-fast test compile test-long bench perf-table \
	load soak soak-faces mutants fuzz features lint audit check dist test-install

run: build
	@scripts/run.sh $(BIN) $(ARGS)

setup:
	scripts/setup.sh

# Also installs the dependencies of `make test` and of `make lint`: Chromium, Node.js, PostgreSQL…
setup-tests:
	scripts/setup.sh tests

build: setup
	$(CARGO) build --release --locked --bin visavis

check: build
	$(BIN) check

# Three tiers (CONTRIBUTING.md): `make test-fast P=engine` after an edit, `make test` before a push
# and in CI, `make test-long PART=faces` before a release and after a change in that area. Without P
# all crates are tested. Without PART all parts run.
test-fast: setup
	scripts/test.py fast $(P)

test: setup-tests
	scripts/test.py all

# Only the first step of `make test`.
compile: setup-tests
	scripts/test.py all --only compile

test-long: setup-tests
	scripts/test.py long $(PART)

# Measures CPU time, then instructions, and checks them against benches/budgets.toml.
bench: setup-tests
	scripts/budgets.py run $(ARGS)

# Writes the tables of measurements in docs/performance.md from docs/results/*.json.
perf-table:
	scripts/perf-table.py

build-load: build
	$(CARGO) build --release --locked --package visavis-load

# Starts a server and runs a load test against it: `make load ARGS="--calls 50 --out results.json"`.
load: build-load
	scripts/load.sh $(ARGS)

# Short calls that hang up at random times: fails if memory, threads, files or calls leak.
soak: build-load
	scripts/load.sh soak $(or $(CALLS),500) --require "failed == 0" \
		--require "soak.calls >= $(or $(CALLS),500)" --require "soak.rss_growth <= 5%" \
		--require "soak.threads_grown <= 8" --require "soak.files_grown <= 64" \
		--require "soak.decoders_left == 0" --require "soak.calls_left == 0" $(ARGS)

# Ten minutes of avatar video in a browser for each network: without loss, with 5 and 10 % packet
# loss, and with 10 % loss while audio arrives late and in bursts. The results are stored.
soak-faces: build
	FACES_SECONDS=600 FACES_OUT=docs/faces/loss.json \
		scripts/test-e2e.sh --part faces -k test_the_picture_goes_on

# Breaks the turn-taking rules one by one and checks that a test fails. Needs
# `cargo install cargo-mutants`.
mutants:
	scripts/mutants.py

# Fuzzes every parser of what strangers send, and the conversation state machine, with
# libFuzzer: `make fuzz MINUTES=10 TARGET=sdp`. Without TARGET all targets run in turn. Needs the
# nightly toolchain and cargo-fuzz. ARGS=--stable needs neither, but has no coverage feedback
# (tests/fuzz/README.md).
fuzz:
	scripts/fuzz.py --minutes $(or $(MINUTES),10) $(TARGET) $(ARGS)

# Rewrites the union of features after a change of dependencies (docs/decisions/0002).
features:
	scripts/workspace-hack/generate.py

# Checks the dependencies against deny.toml before a release. It is not part of lint, because it
# installs cargo-deny, and one check needs the advisory database.
audit:
	scripts/audit.sh

# Builds the packages, the image and the lists of their content into the folder dist. Needs root.
dist:
	scripts/dist.sh $(STEP)

# Installs from source, and the packages of `make dist`, in bare Debian systems. Needs root; a long
# test. Without PART all parts run.
test-install:
	scripts/test-install.sh $(PART)

lint:
	$(CARGO) fmt --all --check
	scripts/workspace-hack/generate.py --check
	scripts/prose.py
	scripts/lint-scripts.sh
	$(CARGO) clippy --release --locked --workspace --lib --bins --examples --tests --bench '*' \
		-- -D warnings
