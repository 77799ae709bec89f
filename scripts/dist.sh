#!/usr/bin/env bash
# Builds everything that a release contains, for Linux on x86-64, into the folder dist:
#
#   visavis-VERSION-linux-amd64.tar.zst        programs, models, unit, configuration, licenses
#   visavis-VERSION-linux-amd64-debug.tar.zst  debug symbols of the programs
#   visavis_VERSION-1_amd64.deb                the same for Debian and its derivatives
#   visavis-VERSION-image.tar                  image of a container (OCI archive)
#   visavis-VERSION.cdx.json                   list of the components (CycloneDX)
#   SHA256SUMS
#
#   scripts/dist.sh [STEP ...]   only these steps: build models stage archive deb image sbom sums
#
# Everything is compiled in a Debian 12 system (scripts/debian-root.sh), so the result runs with its
# libc and with newer ones, whatever this system is. Needs root, debootstrap and the Rust toolchain.
# Downloads happen once: packages, crates, models, and the tools below. The compilation, the list of
# licenses, the package and the list of components are then made without a network.
# $CARGO_TARGET_DIR/dist (target/dist) keeps the system, the tools and what is compiled.
# shellcheck disable=SC2016  # the scripts in quotes run in the system
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
all_steps=(build models stage archive deb image sbom sums)
suite=bookworm
cargo_about=0.9.3 cargo_deb=3.8.0 cargo_cyclonedx=0.5.9

say() { printf 'dist: %s\n' "$*"; }
fail() { printf 'dist: %s\n' "$*" >&2; exit 1; }
usage() { sed -n '2,19s/^# \?//p' "$0" >&2; exit 2; }

steps=("$@")
[ $# -gt 0 ] || steps=("${all_steps[@]}")
for step in "${steps[@]}"; do
  [[ " ${all_steps[*]} " == *" $step "* ]] || usage
done
[ "$(id -u)" = 0 ] || fail "only root can make the Debian system for the compilation; run it as root"
[ "$(uname -m)" = x86_64 ] || fail "releases are built on x86-64 only"

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
name=visavis-$version-linux-amd64
out=$root/dist
work=$(realpath -m "${CARGO_TARGET_DIR:-target}")/dist
system=$work/$suite
# Times in the archives: those of the commit.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
commit=$(git log -1 --abbrev=8 --format=%h) commit_date=$(git log -1 --format=%cs)
[ -z "$(git status --porcelain --untracked-files=no)" ] || say "warning: there are changes without a commit"
mkdir -p "$out" "$work"

# --- The Debian system ----------------------------------------------------------------------------

toolchain=$("${RUSTC:-rustc}" --print sysroot)
cargo_home=${CARGO_HOME:-$HOME/.cargo}

# Runs a command in the system. The checkout is /build/visavis, the folder of this script's results
# /build/work; options of debian-root.sh come before `--`.
in_system() {
  local options=()
  # cargo-deb looks for the files of [package.metadata.deb] in target/dist of the checkout.
  mkdir -p "$cargo_home/registry" "$work/pip" target/dist
  [ ! -e "$cargo_home/config.toml" ] ||
    options+=(--read "$cargo_home/config.toml:/root/.cargo/config.toml")
  scripts/debian-root.sh run "$system" --read "$toolchain:/opt/rust" --read "$root:/build/visavis" \
    --bind "$work:/build/visavis/target/dist" --bind "$work:/build/work" \
    --bind "$cargo_home/registry:/root/.cargo/registry" \
    --env PATH=/opt/rust/bin:/build/work/tools/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    --env CARGO_TARGET_DIR=/build/work/target --env CARGO_INCREMENTAL=0 \
    --env PIP_CACHE_DIR=/build/work/pip --at /build/visavis "${options[@]}" "$@"
}
# Without network, to prove that the step needs none.
offline() { in_system --no-network --env CARGO_NET_OFFLINE=true -- "$@"; }

make_system() {
  scripts/debian-root.sh create "$suite" "$system" cmake make pkg-config g++ python3 python3-pip \
    libflite1 libvpx-dev dpkg-dev zstd xz-utils
}

# Installs a tool of cargo: TOOL VERSION [OPTIONS]. Its own release profile may use link-time optimization, which would take
# longer than all uses of it.
install_tool() {
  local tool=$1 version=$2
  shift 2
  [ ! -x "$work/tools/$tool-$version" ] || return 0
  say "installing $tool $version"
  in_system --env CARGO_PROFILE_RELEASE_LTO=off --env CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
    --env CARGO_PROFILE_RELEASE_OPT_LEVEL=2 --env CARGO_TARGET_DIR=/build/work/tools/target -- \
    cargo install --quiet --locked --root /build/work/tools --version "$version" "$@" "$tool"
  touch "$work/tools/$tool-$version"
  chmod +x "$work/tools/$tool-$version"
}

# --- Steps ----------------------------------------------------------------------------------------

build() {
  "${CARGO:-cargo}" fetch --locked --offline --quiet 2>/dev/null ||
    "${CARGO:-cargo}" fetch --locked
  say "compiling the programs (about 30 minutes of CPU time the first time)"
  # Line numbers of this workspace's own code for the debug symbols; the generated code is that of
  # the tested profile.
  # SOURCE_DATE_EPOCH would compile the C libraries again after each commit.
  offline env VISAVIS_COMMIT="$commit" VISAVIS_COMMIT_DATE="$commit_date" \
    cargo build --release --locked --package visavis --package visavis-load --bins \
    --config 'profile.release.debug="line-tables-only"' \
    --config 'profile.release.package."*".debug=false'
  rm -rf "$work/programs"
  mkdir -p "$work/programs/debug"
  offline sh -ceu '
    cd /build/work/programs
    for program in visavis visavis-load; do
      objcopy --only-keep-debug --compress-debug-sections ../target/release/$program debug/$program.debug
      strip -o $program ../target/release/$program
      (cd debug && objcopy --add-gnu-debuglink=$program.debug ../$program)
      echo "$program needs:" $(objdump -p $program | sed -n "s/^ *NEEDED *//p")
    done'
  ! grep -q libvpx <(objdump -p "$work/programs/visavis") || fail "the program is not linked with libvpx.a"
}

models() {
  # Files of this checkout whose SHA-256 is known; what is compiled is compiled here.
  local folder=${VISAVIS_MODELS_DIR:-$root/.cache/models}
  if [ ! -e "$work/models" ] && [ -d "$folder" ]; then
    mkdir "$work/models"
    cp -a "$folder"/. "$work/models"
    rm -rf "$work/models/pocketsphinx"
  fi
  in_system -- scripts/install-models.py /build/work/models
}

stage() {
  install_tool cargo-about "$cargo_about" --features cli
  say "gathering the licenses"
  rm -rf "$work/stage"
  local usr=$work/stage/usr doc=$work/stage/usr/share/doc/visavis
  mkdir -p "$usr/bin" "$usr/lib/visavis" "$usr/lib/systemd/system" "$doc" "$work/stage/etc/visavis"
  # Of the two programs, not of the workspace, which contains tests with other licenses.
  local manifest list
  for manifest in Cargo.toml benches/load/Cargo.toml; do
    list=THIRD-PARTY.txt
    [ "$manifest" = Cargo.toml ] || list=THIRD-PARTY-load.txt
    offline cargo about generate --offline --locked --fail --manifest-path "$manifest" \
      --config deploy/licenses/about.toml \
      --output-file "/build/work/stage/usr/share/doc/visavis/$list" deploy/licenses/about.hbs
  done
  scripts/dist/licenses.py "$system" "$work/models" "$cargo_home/registry" "$doc"
  install -m 755 "$work/programs/visavis" "$work/programs/visavis-load" "$usr/bin"
  cp -rL "$work/models" "$usr/lib/visavis/models"
  rm -f "$usr"/lib/visavis/models/.[!.]*
  install -m 644 deploy/systemd/visavis.service "$usr/lib/systemd/system"
  # In the folders of the repository, so that links between the documents work.
  git ls-files -z ':(glob)*.md' LICENSE-MIT LICENSE-APACHE NOTICE models.toml \
    rust-toolchain.toml config deploy docs | tar --null -T - -cf - | tar -C "$doc" -xf -
  scripts/dist/configuration.py config/example.toml >"$work/stage/etc/visavis/visavis.toml"
  # `visavis completions` and `visavis man` write these.
  offline sh -ceu '
    share=/build/work/stage/usr/share visavis=/build/work/programs/visavis
    write() {
      mkdir -p "$share/$1"
      if $visavis $3 >"$share/$1/$2" 2>/dev/null; then return; fi
      echo "dist: warning: the program has no command $3"
      rm "$share/$1/$2"
    }
    write bash-completion/completions visavis "completions bash"
    write zsh/vendor-completions _visavis "completions zsh"
    write fish/vendor_completions.d visavis.fish "completions fish"
    write man/man1 visavis.1 man
    [ ! -e $share/man/man1/visavis.1 ] || gzip -9n $share/man/man1/visavis.1
    find $share -type d -empty -delete'
  find "$work/stage" -type d -exec chmod 755 {} +
  find "$work/stage" -type f ! -path '*/bin/*' -exec chmod 644 {} +
}

# Writes a folder as an archive; its bytes depend on nothing but its content.
pack() {
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
    -C "$work/pack" -cf - "$1" | zstd -q -f -15 -T0 -o "$out/$1.tar.zst"
}

archive() {
  rm -rf "$work/pack"
  mkdir -p "$work/pack/$name" "$work/pack/$name-debug/bin"
  cp -al "$work"/stage/usr/. "$work/pack/$name"
  cp -al "$work/stage/etc" "$work/pack/$name/etc"
  pack "$name"
  # A debugger looks for them beside the programs.
  cp "$work"/programs/debug/*.debug "$work/pack/$name-debug/bin"
  pack "$name-debug"
  rm -rf "$work/pack"
}

deb() {
  install_tool cargo-deb "$cargo_deb"
  rm -f "$out"/visavis_*.deb
  say "writing the package"
  offline env SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH" \
    cargo deb --manifest-path /build/visavis/Cargo.toml --no-build --no-strip --offline \
    --locked --output /build/work/visavis.deb
  mv "$work/visavis.deb" "$out/visavis_$version-1_amd64.deb"
}

image() {
  say "writing the image"
  local image=$work/image
  rm -rf "$image"
  scripts/debian-root.sh create "$suite" "$image" libflite1 libstdc++6 libgcc-s1 ca-certificates
  # For the list of components.
  dpkg-query --admindir="$image/var/lib/dpkg" -W -f '${Package} ${Version} ${Architecture}\n' \
    >"$work/image-packages"
  scripts/dist/image.py "$image" "$work/stage" "$version" "$out/visavis-$version-image.tar"
  rm -rf "$image"
}

sbom() {
  install_tool cargo-cyclonedx "$cargo_cyclonedx"
  say "listing the components"
  # cargo-cyclonedx writes beside the manifests, and the checkout is read-only here.
  offline sh -ceu '
    rm -rf /build/work/sbom && mkdir /build/work/sbom
    cd /build/visavis
    tar --exclude=./target --exclude=./dist --exclude=./.git --exclude=./.cache -cf - . |
      tar -C /build/work/sbom -xf -
    cd /build/work/sbom
    cargo cyclonedx --quiet --format json --spec-version 1.5 --target x86_64-unknown-linux-gnu \
      --no-build-deps --override-filename components
    cargo tree --locked --package visavis --package visavis-load --edges normal --prefix none \
      --target x86_64-unknown-linux-gnu >crates'
  [ -e "$work/image-packages" ] || fail "the step sbom needs the result of the step image"
  scripts/dist/sbom.py "$work/sbom" "$system" "$version" "$work/image-packages" \
    >"$out/visavis-$version.cdx.json"
  rm -rf "$work/sbom"
}

sums() {
  (cd "$out" && rm -f SHA256SUMS && sha256sum -- *.tar.zst *.deb *.tar *.json >"$work/sums" &&
    mv "$work/sums" SHA256SUMS)
  ls -l "$out"
}

make_system
for step in "${steps[@]}"; do
  "$step"
done
