#!/usr/bin/env bash
# The control plane's tests on PostgreSQL. The whole workspace is named because cargo chooses the features of the dependencies by it:
# `make test` has built exactly this already.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec scripts/with-postgres.sh ${CARGO:-cargo} test --release --locked --workspace --features visavis/load --test api "$@"
