#!/usr/bin/env python3
"""Writes the licenses of everything in the packages that is no Rust crate: the models, and the C
libraries that are linked into the programs.

scripts/dist/licenses.py SYSTEM MODELS CRATES FOLDER

SYSTEM is the Debian system that compiled the programs, MODELS the folder of the models, CRATES
cargo's folder `registry`. The files are written into FOLDER.
"""

import shutil
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MANIFEST = ROOT / "models.toml"
RULE = "-" * 78
#: The texts of the C and C++ libraries inside of crates. That of a crate is about its Rust code.
#: SQLite, in libsqlite3-sys, is in the public domain.
LIBRARIES = {
    "aws-lc-sys": ("aws-lc/LICENSE", "aws-lc/third_party/fiat/LICENSE"),
    "opusic-sys": ("opus/COPYING",),
    "webm-sys": ("libwebm/LICENSE.TXT", "libwebm/PATENTS.TXT"),
}


def model_text(model, folder):
    """The entry of a model: name, version, license, origin, and the texts of its package."""
    texts = [path for path in sorted(folder.iterdir()) if path.name in ("LICENSE", "NOTICE")]
    if not any(path.name == "LICENSE" for path in texts):
        sys.exit(f"licenses: {folder} has no file LICENSE")
    head = f"{model['name']} ({model['package']} {model['version']}), {model['license']}"
    parts = [RULE, head, model["copyright"], model.get("origin", "").strip()]
    parts += [path.read_text(errors="replace").strip() for path in texts]
    return "\n\n".join(part for part in parts if part)


def library_texts(crates):
    """The texts of the libraries inside of crates, each under its path."""
    packages = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    for name, files in LIBRARIES.items():
        (version,) = {package["version"] for package in packages if package["name"] == name}
        for file in files:
            found = list(crates.glob(f"src/*/{name}-{version}/{file}"))
            if not found:
                sys.exit(f"licenses: {name} {version} has no file {file}")
            title = f"{name} {version}, {file}"
            yield "\n\n".join([RULE, title, found[0].read_text(errors="replace").strip()])


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    system, models, crates, folder = map(Path, sys.argv[1:])
    manifest = tomllib.loads(MANIFEST.read_text())["model"]
    title = "Licenses of the models and of the libraries beside them\n"
    entries = [model_text(model, models / model["folder"]) for model in manifest]
    (folder / "MODELS.txt").write_text("\n\n".join([title, *entries]) + "\n")
    title = "Licenses of the C libraries inside of Rust crates\n"
    libraries = "\n\n".join([title, *library_texts(crates)])
    (folder / "LIBRARIES.txt").write_text(libraries + "\n")
    # The programs contain libvpx (models/build.rs).
    shutil.copy(system / "usr/share/doc/libvpx-dev/copyright", folder / "LIBVPX.txt")


if __name__ == "__main__":
    main()
