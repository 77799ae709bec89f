"""The program of the release before this one, built from the history of the repository."""

import os
import pathlib
import subprocess
import tempfile

from .server import ROOT

#: The last commit whose servers neither relay requests nor have epochs. With the next release, this
#: becomes the commit of the present one.
COMMIT = "23a26b8a"


def previous_binary() -> str:
    """Builds the program once, which takes minutes."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "previous"
    program = target / "release" / f"visavis-{COMMIT}"
    if program.exists():
        return str(program)
    archive = subprocess.run(["git", "archive", COMMIT], cwd=ROOT, capture_output=True, check=True)
    with tempfile.TemporaryDirectory() as sources:
        subprocess.run(["tar", "-x"], cwd=sources, input=archive.stdout, check=True)
        subprocess.run(
            ["cargo", "build", "--release", "--locked", "-p", "visavis"],
            cwd=sources,
            env={**os.environ, "CARGO_TARGET_DIR": str(target), "CARGO_INCREMENTAL": "0"},
            check=True,
        )
    (target / "release" / "visavis").rename(program)
    return str(program)
