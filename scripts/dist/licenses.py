#!/usr/bin/env python3
"""Writes the licenses of everything in the packages that is no Rust crate: the models, and the C
library that is linked into the programs.

scripts/dist/licenses.py SYSTEM MODELS FOLDER

SYSTEM is the Debian system that compiled the programs, MODELS the folder of the models. The files
are written into FOLDER.
"""

import shutil
import sys
import tomllib
from pathlib import Path

MANIFEST = Path(__file__).resolve().parent.parent.parent / "models.toml"
RULE = "-" * 78


def model_text(model, folder):
    """The entry of a model: name, version, license, origin, and the texts of its package."""
    texts = [path for path in sorted(folder.iterdir()) if path.name in ("LICENSE", "NOTICE")]
    if not any(path.name == "LICENSE" for path in texts):
        sys.exit(f"licenses: {folder} has no file LICENSE")
    head = f"{model['name']} ({model['package']} {model['version']}), {model['license']}"
    parts = [RULE, head, model["copyright"], model.get("origin", "").strip()]
    parts += [path.read_text(errors="replace").strip() for path in texts]
    return "\n\n".join(part for part in parts if part)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    system, models, folder = map(Path, sys.argv[1:])
    manifest = tomllib.loads(MANIFEST.read_text())["model"]
    title = "Licenses of the models and of the libraries beside them\n"
    entries = [model_text(model, models / model["folder"]) for model in manifest]
    (folder / "MODELS.txt").write_text("\n\n".join([title, *entries]) + "\n")
    # The programs contain libvpx (models/build.rs).
    shutil.copy(system / "usr/share/doc/libvpx-dev/copyright", folder / "LIBVPX.txt")


if __name__ == "__main__":
    main()
