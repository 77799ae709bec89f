#!/usr/bin/env python3
"""Writes the dependencies of the package workspace-hack, so that every selection of packages is built with the same features.

Which features a command builds a dependency with is read from cargo's own plan of the build (`--unit-graph`), for the binary, the
whole workspace and each package alone. Dependencies whose features differ are written into Cargo.toml with the union.

    scripts/workspace-hack/generate.py            write Cargo.toml
    scripts/workspace-hack/generate.py --check    exit 1 if it must be written anew
"""

import json
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MANIFEST = HERE / "Cargo.toml"
CARGO = os.environ.get("CARGO", "cargo")
CHECK = "--check" in sys.argv[1:]
#: The plan of a build is an unstable output; this makes a stable cargo print it.
UNSTABLE = {**os.environ, "RUSTC_BOOTSTRAP": "1"}


def graph(*selection: str) -> dict:
    command = [CARGO, *selection, "--release", *(["--locked"] if CHECK else []), "--unit-graph", "-Zunstable-options"]
    return json.loads(subprocess.run(command, cwd=ROOT, env=UNSTABLE, check=True, stdout=subprocess.PIPE).stdout)


def features(plan: dict) -> dict[tuple[str, str, bool], set[str]]:
    """(name, version, for the compiler's own process) → features."""
    units = plan["units"]
    host = set()
    # What a build script or a procedural macro stands on runs on the host.
    stack = [i for i, unit in enumerate(units) if {"custom-build", "proc-macro"} & set(unit["target"]["kind"])]
    while stack:
        at = stack.pop()
        if at in host:
            continue
        host.add(at)
        if units[at]["mode"] == "build":
            stack += [dependency["index"] for dependency in units[at]["dependencies"]]
    found: dict[tuple[str, str, bool], set[str]] = {}
    for i, unit in enumerate(units):
        if "registry+" not in unit["pkg_id"] or unit["mode"] != "build" or "custom-build" in unit["target"]["kind"]:
            continue
        name, version = re.search(r"#(?:([^@]+)@)?([^@]+)$", unit["pkg_id"]).groups()
        name = name or unit["pkg_id"].split("#")[0].rsplit("/", 1)[1]
        found.setdefault((name, version, i in host and "proc-macro" not in unit["target"]["kind"]), set()).update(unit["features"])
    return found


def members() -> list[str]:
    found = subprocess.run([CARGO, "metadata", "--no-deps", "--format-version=1"], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return [package["name"] for package in json.loads(found.stdout)["packages"] if package["name"] != "workspace-hack"]


def differing() -> dict[tuple[str, str, bool], set[str]]:
    """The union of features of each dependency that some selection builds with less."""
    plans = [features(graph("test", "--no-run", "--workspace")), features(graph("build", "--bin", "visavis"))]
    for member in members():
        plans += [features(graph("test", "--no-run", "-p", member)), features(graph("build", "-p", member))]
    union: dict[tuple[str, str, bool], set[str]] = {}
    for plan in plans:
        for key, asked in plan.items():
            union.setdefault(key, set()).update(asked)
    return {key: union[key] for key in union if any(key in plan and plan[key] != union[key] for plan in plans)}


def lines(wanted: dict[tuple[str, str, bool], set[str]], host: bool) -> list[str]:
    of_host = {key: asked for key, asked in sorted(wanted.items()) if key[2] == host}
    names = [name for name, _, _ in of_host]
    written = []
    for (name, version, _), asked in of_host.items():
        listed = ", ".join(f'"{feature}"' for feature in sorted(asked))
        # Two versions of one package have a name each.
        key = name if names.count(name) == 1 else f"{name}-{version.split('.')[0] if version[0] != '0' else '0-' + version.split('.')[1]}"
        package = f'package = "{name}", ' if key != name else ""
        series = version if version[0] == "0" else version.split(".")[0]
        written.append(f'{key} = {{ {package}version = "{series}", default-features = false, features = [{listed}] }}')
    return written


def replace(text: str, section: str, written: list[str]) -> str:
    return re.sub(rf"(?ms)^\[{section}\]\n.*?(?=^\[)", lambda _: "\n".join([f"[{section}]", *written, "", ""]), text)


def main() -> int:
    if CHECK:
        wanted = differing()
        for name, version, host in sorted(wanted):
            print(f"{name} {version}{' (host)' if host else ''} is built with different features by different commands", file=sys.stderr)
        if wanted:
            print("run scripts/workspace-hack/generate.py", file=sys.stderr)
        return 1 if wanted else 0
    # What the sections ask for already stays: a selection may differ only because of it.
    MANIFEST.write_text(replace(replace(MANIFEST.read_text(), "dependencies", []), "build-dependencies", []))
    wanted: dict[tuple[str, str, bool], set[str]] = {}
    for _ in range(6):
        found = differing()
        if not found:
            break
        for key, asked in found.items():
            wanted.setdefault(key, set()).update(asked)
        text = replace(MANIFEST.read_text(), "dependencies", lines(wanted, False))
        MANIFEST.write_text(replace(text, "build-dependencies", lines(wanted, True)))
    else:
        print("features still differ after six rounds", file=sys.stderr)
        return 1
    print(f"{len(wanted)} dependencies")
    return 0


if __name__ == "__main__":
    sys.exit(main())
