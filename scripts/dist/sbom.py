#!/usr/bin/env python3
"""Prints the components of a release in the format CycloneDX.

scripts/dist/sbom.py SBOM SYSTEM VERSION

SBOM is a checkout in which cargo-cyclonedx wrote a file components.json beside the manifests of the
programs. The models of models.toml and the C library of the Debian SYSTEM are added.
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

#: Folders of the packages that are shipped.
PROGRAMS = (".", "benches/load")


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
        "type": "machine-learning-model",
        "bom-ref": purl,
        "name": model["name"],
        "version": model["version"],
        "purl": purl,
        "licenses": license_of(model["license"]),
        "copyright": model["copyright"],
        # A model of several files has no single hash.
        **({"hashes": hashes} if len(hashes) == 1 else {}),
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
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    folder, system, version = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    documents = [
        json.loads((folder / program / "components.json").read_text()) for program in PROGRAMS
    ]
    document = documents[0]
    components, dependencies = {}, {}
    for part in documents:
        components |= {component["bom-ref"]: component for component in part["components"]}
        dependencies |= {entry["ref"]: entry for entry in part.get("dependencies", [])}
    # The second program is a component of the release.
    load = documents[1]["metadata"]["component"]
    components[load["bom-ref"]] = load
    models = tomllib.loads((folder / "models.toml").read_text())["model"]
    added = [model_component(model) for model in models]
    added.append(package_component(system, "libvpx-dev", "BSD-3-Clause"))
    components |= {component["bom-ref"]: component for component in added}
    document["components"] = list(components.values())
    document["dependencies"] = list(dependencies.values())
    document["metadata"]["component"]["version"] = version
    # Paths of the machine that built it identify nothing.
    text = json.dumps(document, indent=1).replace(folder.resolve().as_uri(), "file:///visavis")
    print(text.replace("file:///build/work/sbom", "file:///visavis"))


if __name__ == "__main__":
    main()
