#!/usr/bin/env python3
"""Writes the image of a container from the root folder of a Debian system and the files of the
packages.

scripts/dist/image.py SYSTEM STAGE VERSION OUT

The archive has the layout of the OCI, and the list that `docker load` of older versions reads. Its
layers are the system, the models and the programs, so that an upgrade transfers the last one.
deploy/image/Dockerfile builds the same server from a base image.
"""

import gzip
import hashlib
import io
import json
import os
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path

UID = 10001
TIME = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
#: Folders of the system that a running server never reads.
LEFT_OUT = (
    "usr/share/man",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/lintian",
    "var/lib/apt/lists",
    "var/cache",
    "var/log",
    "tmp",
    "dev",
    "proc",
    "sys",
    "run",
    ".created",
)
ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "VISAVIS_SERVER_LISTEN": "0.0.0.0:8080",
    "VISAVIS_SERVER_DATA": "/data",
    "VISAVIS_SERVER_LOG_FORMAT": "json",
    "VISAVIS_SERVER_PRINT_KEY": "false",
    "VISAVIS_MODELS_DIR": "/usr/lib/visavis/models",
    "VISAVIS_MEDIA_UDP_PORTS": "50000-50015",
    "VISAVIS_MEDIA_TCP_PORT": "50000",
}


class Layer:
    """A compressed archive of files, in the order in which they are added."""

    def __init__(self):
        self.buffer = io.BytesIO()
        self.tar = tarfile.open(fileobj=self.buffer, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115

    def add(self, path, name, owner=None):
        info = self.tar.gettarinfo(path, name)
        if info is None:  # a socket
            return
        info.mtime, info.uname, info.gname = TIME, "", ""
        if owner is not None:
            info.uid = info.gid = owner
        if info.isreg():
            with path.open("rb") as stream:
                self.tar.addfile(info, stream)
        else:
            self.tar.addfile(info)

    def add_text(self, name, text, mode=0o644):
        info = tarfile.TarInfo(name)
        info.size, info.mtime, info.mode = len(text), TIME, mode
        self.tar.addfile(info, io.BytesIO(text.encode()))

    def add_folder(self, name, owner=0, mode=0o755):
        info = tarfile.TarInfo(name)
        info.type, info.mtime, info.mode, info.uid, info.gid = (
            tarfile.DIRTYPE,
            TIME,
            mode,
            owner,
            owner,
        )
        self.tar.addfile(info)

    def add_tree(self, root, left_out=(), owner=None, below="."):
        folders = [root / parent for parent in Path(below, "x").parents][::-1]
        for path in [*folders[1:], *sorted((root / below).rglob("*"))]:
            name = path.relative_to(root).as_posix()
            if not any(name == out or name.startswith(f"{out}/") for out in left_out):
                self.add(path, name, owner)

    def finish(self):
        """The compressed bytes, and the digest of what they contain."""
        self.tar.close()
        content = self.buffer.getvalue()
        return gzip.compress(content, 6, mtime=0), digest(content)


def digest(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def system_layer(system):
    layer = Layer()
    changed = ("etc/passwd", "etc/group", "etc/resolv.conf", "etc/hostname")
    layer.add_tree(system, (*LEFT_OUT, *changed))
    user = f"visavis:x:{UID}:{UID}::/data:/usr/sbin/nologin\n"
    layer.add_text("etc/passwd", (system / "etc/passwd").read_text() + user)
    layer.add_text("etc/group", (system / "etc/group").read_text() + f"visavis:x:{UID}:\n")
    for folder in ("dev", "proc", "sys", "run"):
        layer.add_folder(folder)
    layer.add_folder("tmp", mode=0o1777)
    layer.add_folder("data", owner=UID, mode=0o700)
    return layer.finish()


def files_layer(stage, below, left_out=()):
    layer = Layer()
    layer.add_tree(stage, left_out, owner=0, below=below)
    return layer.finish()


def image_config(version, diff_ids):
    created = datetime.fromtimestamp(TIME, UTC).isoformat().replace("+00:00", "Z")
    return {
        "created": created,
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "User": f"{UID}:{UID}",
            "ExposedPorts": {
                "8080/tcp": {},
                "50000/tcp": {},
                **{f"{port}/udp": {} for port in range(50000, 50016)},
            },
            "Env": [f"{name}={value}" for name, value in ENVIRONMENT.items()],
            "Entrypoint": ["/usr/bin/visavis"],
            "Cmd": ["serve"],
            "Volumes": {"/data": {}},
            "WorkingDir": "/data",
            "StopSignal": "SIGTERM",
            # Not part of the OCI's specification; Docker reads it. Times are in ns.
            "Healthcheck": {
                "Test": ["CMD", "/usr/bin/visavis", "health"],
                "Interval": 30_000_000_000,
                "Timeout": 5_000_000_000,
                "StartPeriod": 30_000_000_000,
                "Retries": 3,
            },
            "Labels": {
                "org.opencontainers.image.title": "Visavis",
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": [
            {"created": created, "created_by": f"scripts/dist/image.py: {part}"}
            for part in ("Debian", "models", "programs")
        ],
    }


def write_image(out, version, layers):
    blobs = {}

    def blob(content, media_type):
        blobs[digest(content)] = content
        return {"mediaType": media_type, "digest": digest(content), "size": len(content)}

    oci = "application/vnd.oci.image"
    layer_type = f"{oci}.layer.v1.tar+gzip"
    descriptors = [blob(content, layer_type) for content, _ in layers]
    config = json.dumps(image_config(version, [diff_id for _, diff_id in layers])).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{oci}.manifest.v1+json",
        "config": blob(config, f"{oci}.config.v1+json"),
        "layers": descriptors,
    }
    entry = blob(json.dumps(manifest).encode(), f"{oci}.manifest.v1+json")
    tag = f"visavis:{version}"
    entry["platform"] = {"architecture": "amd64", "os": "linux"}
    entry["annotations"] = {
        "io.containerd.image.name": f"docker.io/library/{tag}",
        "org.opencontainers.image.ref.name": version,
    }
    path = "blobs/sha256/{}".format

    def blob_path(descriptor):
        return path(descriptor["digest"].removeprefix("sha256:"))

    docker = [
        {
            "Config": blob_path(manifest["config"]),
            "RepoTags": [tag],
            "Layers": [blob_path(layer) for layer in descriptors],
        }
    ]
    index = {
        "schemaVersion": 2,
        "mediaType": f"{oci}.index.v1+json",
        "manifests": [entry],
    }
    files = {
        "oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}).encode(),
        "index.json": json.dumps(index).encode(),
        "manifest.json": json.dumps(docker).encode(),
        **{path(name.removeprefix("sha256:")): content for name, content in sorted(blobs.items())},
    }
    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), TIME
            archive.addfile(info, io.BytesIO(content))


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    system, stage, version, out = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    models = "usr/lib/visavis/models"
    # The image has its settings in the environment, and no service manager.
    left_out = (models, "usr/lib/systemd", "etc")
    layers = [
        system_layer(system),
        files_layer(stage, models),
        files_layer(stage, ".", left_out),
    ]
    write_image(out, version, layers)


if __name__ == "__main__":
    main()
