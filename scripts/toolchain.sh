#!/usr/bin/env bash
# Prints the name for RUSTUP_TOOLCHAIN if rustup lacks the toolchain that rust-toolchain.toml names
# and `stable` is the same compiler: a machine without network may have it under that name only.
# Otherwise prints nothing, and rustup installs the toolchain.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v rustup >/dev/null || exit 0
channel=$(sed -n 's/^channel = "\(.*\)"$/\1/p' rust-toolchain.toml)
if ! rustup toolchain list | grep -q "^$channel\b" &&
  [ "$(RUSTUP_TOOLCHAIN=stable rustc --version 2>/dev/null | cut -d ' ' -f 2)" = "$channel" ]; then
  echo stable
fi
