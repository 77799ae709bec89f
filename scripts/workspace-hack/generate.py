#!/usr/bin/env python3
"""Writes the dependencies of the package workspace-hack, so that every selection of packages is
built with the same features.

The features of each dependency are read from cargo's build plan (`--unit-graph`) for the binary,
the whole workspace and each package alone. A dependency whose features differ between these builds
is written to Cargo.toml with the union of its features.

    scripts/workspace-hack/generate.py            writes Cargo.toml
    scripts/workspace-hack/generate.py --check    exits with 1 if Cargo.toml is outdated
"""

import json
import os
import pathlib
import re
import subprocess
import sys

PACKAGE_FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = PACKAGE_FOLDER.parent.parent
MANIFEST = PACKAGE_FOLDER / "Cargo.toml"
CARGO = os.environ.get("CARGO", "cargo")
CHECK = "--check" in sys.argv[1:]
#: The unit graph is an unstable feature. This variable enables unstable features in a stable cargo.
UNSTABLE_ENV = {**os.environ, "RUSTC_BOOTSTRAP": "1"}
#: Name, version, and whether the package runs in the compiler's process (on the host).
Dependency = tuple[str, str, bool]
#: The features of each dependency.
Features = dict[Dependency, set[str]]


def cargo_json(*arguments: str) -> dict:
    """Runs cargo and parses its output."""
    command = [CARGO, *arguments]
    process = subprocess.run(
        command, cwd=ROOT, env=UNSTABLE_ENV, check=True, stdout=subprocess.PIPE
    )
    return json.loads(process.stdout)


def unit_graph(*command: str) -> dict:
    """The build plan of a cargo command."""
    locked = ["--locked"] if CHECK else []
    return cargo_json(*command, "--release", *locked, "--unit-graph", "-Zunstable-options")


def collect_features(plan: dict) -> Features:
    """The features of each dependency in a build plan."""
    units = plan["units"]
    host = set()
    # The dependencies of build scripts and procedural macros run on the host.
    stack = [
        i
        for i, unit in enumerate(units)
        if {"custom-build", "proc-macro"} & set(unit["target"]["kind"])
    ]
    while stack:
        index = stack.pop()
        if index in host:
            continue
        host.add(index)
        if units[index]["mode"] == "build":
            stack += [dependency["index"] for dependency in units[index]["dependencies"]]
    features: Features = {}
    for index, unit in enumerate(units):
        package, kind = unit["pkg_id"], unit["target"]["kind"]
        if "registry+" not in package or unit["mode"] != "build" or "custom-build" in kind:
            continue
        name, version = re.search(r"#(?:([^@]+)@)?([^@]+)$", package).groups()
        name = name or package.split("#")[0].rsplit("/", 1)[1]
        dependency = (name, version, index in host and "proc-macro" not in kind)
        features.setdefault(dependency, set()).update(unit["features"])
    return features


def workspace_packages() -> list[str]:
    """The packages of the workspace, without workspace-hack."""
    packages = cargo_json("metadata", "--no-deps", "--format-version=1")["packages"]
    return [package["name"] for package in packages if package["name"] != "workspace-hack"]


def differing_features() -> Features:
    """The union of the features of each dependency that some build uses with fewer features."""
    commands = [("test", "--no-run", "--workspace"), ("build", "--bin", "visavis")]
    for package in workspace_packages():
        commands += [("test", "--no-run", "-p", package), ("build", "-p", package)]
    plans = [collect_features(unit_graph(*command)) for command in commands]
    union: Features = {}
    for plan in plans:
        for dependency, features in plan.items():
            union.setdefault(dependency, set()).update(features)
    return {
        dependency: features
        for dependency, features in union.items()
        if any(dependency in plan and plan[dependency] != features for plan in plans)
    }


def dependency_lines(dependencies: Features, host: bool) -> list[str]:
    """The lines of a section of Cargo.toml: the dependencies on the host, or all others."""
    selected = {key: features for key, features in sorted(dependencies.items()) if key[2] == host}
    names = [name for name, _, _ in selected]
    lines = []
    for (name, version, _), features in selected.items():
        feature_list = ", ".join(f'"{feature}"' for feature in sorted(features))
        major, minor = version.split(".")[:2]
        series = major if version[0] != "0" else f"0-{minor}"
        # Two versions of one package need different keys.
        key = name if names.count(name) == 1 else f"{name}-{series}"
        package = f'package = "{name}", ' if key != name else ""
        requirement = version if version[0] == "0" else major
        lines.append(
            f'{key} = {{ {package}version = "{requirement}", default-features = false, '
            f"features = [{feature_list}] }}"
        )
    return lines


def replace_section(text: str, section: str, lines: list[str]) -> str:
    """Replaces the lines of a section of Cargo.toml."""
    new_text = "\n".join([f"[{section}]", *lines, "", ""])
    return re.sub(rf"(?ms)^\[{section}\]\n.*?(?=^\[)", lambda _: new_text, text)


def main() -> int:
    if CHECK:
        outdated = differing_features()
        for name, version, host in sorted(outdated):
            print(
                f"{name} {version}{' (host)' if host else ''} is built with different features by "
                "different commands",
                file=sys.stderr,
            )
        if outdated:
            print("run scripts/workspace-hack/generate.py", file=sys.stderr)
        return 1 if outdated else 0
    # The sections are emptied first: their entries could be the only cause of a difference.
    text = replace_section(MANIFEST.read_text(), "dependencies", [])
    MANIFEST.write_text(replace_section(text, "build-dependencies", []))
    dependencies: Features = {}
    for _ in range(6):
        found = differing_features()
        if not found:
            break
        for dependency, features in found.items():
            dependencies.setdefault(dependency, set()).update(features)
        text = replace_section(
            MANIFEST.read_text(), "dependencies", dependency_lines(dependencies, False)
        )
        MANIFEST.write_text(
            replace_section(text, "build-dependencies", dependency_lines(dependencies, True))
        )
    else:
        print("features still differ after six rounds", file=sys.stderr)
        return 1
    print(f"{len(dependencies)} dependencies")
    return 0


if __name__ == "__main__":
    sys.exit(main())
