#!/usr/bin/env bash
# Builds livekit-server for the tests of calls in LiveKit rooms, and prints its path. It is built
# once into .cache/livekit, by the installed Go from the Go module proxy. That takes three minutes
# of CPU time and 1 GB of disk space, which are free again afterwards.
set -euo pipefail

version=v1.13.5

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=$root/.cache/livekit
binary=$folder/livekit-server-$version
if [ ! -x "$binary" ]; then
  command -v go >/dev/null || {
    echo "install-livekit: Go is missing; install Go 1.26 or newer" >&2
    exit 1
  }
  mkdir -p "$folder"
  # Tests that run in parallel build it once.
  exec 9>"$folder/lock"
  flock 9
fi
if [ ! -x "$binary" ]; then
  echo "install-livekit: building livekit-server $version" >&2
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  # Without -modcacherw, the files of modules cannot be removed.
  GOPATH=$scratch GOCACHE=$scratch/cache GOBIN=$scratch/bin GOFLAGS=-modcacherw \
    go install "github.com/livekit/livekit-server/cmd/server@$version" >&2
  # The temporary folder may be on another file system, where a move is no single step.
  mv "$scratch/bin/server" "$binary.new"
  mv "$binary.new" "$binary"
fi
echo "$binary"
