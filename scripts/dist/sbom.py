#!/usr/bin/env python3
"""Prints the components of a release in the format CycloneDX.

scripts/dist/sbom.py SBOM SYSTEM VERSION IMAGE_PACKAGES

SBOM is a checkout in which cargo-cyclonedx wrote a file components.json beside the manifests of the
programs, and cargo-tree the file crates: the crates that are compiled, one `NAME vVERSION` in a line.
cargo-cyclonedx also lists crates of features that are off; they are removed. Added are the models of
models.toml, the C library of the Debian SYSTEM that the programs contain, and the packages of the
image, which the file IMAGE_PACKAGES lists as `NAME VERSION ARCHITECTURE`. libflite1, which the
programs load, is one of them.
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

#: Folders of the packages that are shipped.
PROGRAMS = (".", "benches/load")
#: Entries of models.toml that are programs, not models.
LIBRARIES = ("ONNX Runtime", "PocketSphinx")


def license_of(identifier):
    return [{"license": {"id": identifier}}]


def model_component(model):
    purl = f"pkg:pypi/{model['package']}@{model['version']}"
    hashes = [
        {"alg": "SHA-256", "content": file["sha256"]}
        for file in model["file"]
        if isinstance(file.get("sha256"), str)
    ]
    return {
        "type": "library" if model["name"] in LIBRARIES else "machine-learning-model",
        "bom-ref": purl,
        "name": model["name"],
        "version": model["version"],
        "purl": purl,
        "licenses": license_of(model["license"]),
        "copyright": model["copyright"],
        # A model of several files has no single hash.
        **({"hashes": hashes} if len(hashes) == 1 else {}),
    }


def compiled_components(document, compiled):
    """The components and dependencies of the crates that are compiled. Returns two dictionaries."""
    components = {
        component["bom-ref"]: component
        for component in document["components"]
        if (component["name"], component["version"]) in compiled
    }
    program = document["metadata"]["component"]["bom-ref"]
    listed = {*components, program}
    dependencies = {
        entry["ref"]: {**entry, "dependsOn": [r for r in entry.get("dependsOn", []) if r in listed]}
        for entry in document.get("dependencies", [])
        if entry["ref"] in listed
    }
    return components, dependencies


def image_component(line):
    """A package of the image. Its licenses are in its folder of usr/share/doc."""
    name, version, architecture = line.split()
    purl = f"pkg:deb/debian/{name}@{version}?arch={architecture}&distro=debian-12"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "properties": [{"name": "visavis:artifact", "value": "image"}],
    }


def package_component(system, package, identifier):
    version = subprocess.run(
        ["dpkg-query", f"--admindir={system}/var/lib/dpkg", "-W", "-f=${Version}", package],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    purl = f"pkg:deb/debian/{package}@{version}?arch=amd64&distro=debian-12"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": package,
        "version": version,
        "purl": purl,
        "licenses": license_of(identifier),
    }


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    folder, system, version = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    image_packages = Path(sys.argv[4]).read_text().splitlines()
    # `v1.0.0 (/path)` for a crate of the workspace, `v1.0.0 (proc-macro)` for a macro.
    lines = [line.split() for line in (folder / "crates").read_text().splitlines() if line.strip()]
    compiled = {(name, crate_version.removeprefix("v")) for name, crate_version, *_ in lines}
    documents = [
        json.loads((folder / program / "components.json").read_text()) for program in PROGRAMS
    ]
    document = documents[0]
    components, dependencies = {}, {}
    for part in documents:
        part_components, part_dependencies = compiled_components(part, compiled)
        components |= part_components
        dependencies |= part_dependencies
    # The second program is a component of the release.
    load = documents[1]["metadata"]["component"]
    components[load["bom-ref"]] = load
    models = tomllib.loads((folder / "models.toml").read_text())["model"]
    added = [model_component(model) for model in models]
    added.append(package_component(system, "libvpx-dev", "BSD-3-Clause"))
    added.extend(image_component(line) for line in image_packages)
    components |= {component["bom-ref"]: component for component in added}
    document["components"] = list(components.values())
    document["dependencies"] = list(dependencies.values())
    document["metadata"]["component"]["version"] = version
    # Paths of the machine that built it identify nothing.
    text = json.dumps(document, indent=1).replace(folder.resolve().as_uri(), "file:///visavis")
    print(text.replace("file:///build/work/sbom", "file:///visavis"))


if __name__ == "__main__":
    main()
