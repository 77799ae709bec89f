#!/usr/bin/env bash
# Builds MinIO, an S3 server, for the long tests of recordings, and prints its path. It is built
# once into .cache/minio, by the installed Go from the Go module proxy. That takes five minutes of
# CPU time and 3 GB of disk space, which are free again afterwards.
set -euo pipefail

# The tags of MinIO are no versions of Go modules, so this names a commit.
version=v0.0.0-20260212201848-7aac2a2c5b7c

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=$root/.cache/minio
binary=$folder/minio-$version
if [ ! -x "$binary" ]; then
  command -v go >/dev/null || {
    echo "install-minio: Go is missing; install Go 1.24 or newer" >&2
    exit 1
  }
  echo "install-minio: building MinIO $version" >&2
  mkdir -p "$folder"
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  # Without -modcacherw, the files of modules cannot be removed.
  GOPATH=$scratch GOCACHE=$scratch/cache GOBIN=$scratch/bin GOFLAGS=-modcacherw \
    go install "github.com/minio/minio@$version" >&2
  mv "$scratch/bin/minio" "$binary"
fi
echo "$binary"
