#!/usr/bin/env python3
"""Unpacks the layers of an image (OCI archive) into a folder, checks every digest, and prints the
image's user and environment as lines NAME=VALUE.

scripts/test-install/unpack-image.py IMAGE FOLDER
"""

import hashlib
import io
import json
import sys
import tarfile

#: All modes as they are. Python 3.11.2 of Debian 12 has no filters.
EXTRACTION = {"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with tarfile.open(sys.argv[1]) as archive:

        def blob(descriptor):
            algorithm, digest = descriptor["digest"].split(":")
            content = archive.extractfile(f"blobs/{algorithm}/{digest}").read()
            found = hashlib.new(algorithm, content).hexdigest()
            if (found, len(content)) != (digest, descriptor["size"]):
                sys.exit(f"unpack-image: the digest of {digest} is {found}")
            return content

        index = json.load(archive.extractfile("index.json"))
        manifest = json.loads(blob(index["manifests"][0]))
        config = json.loads(blob(manifest["config"]))
        for layer, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
            with tarfile.open(fileobj=io.BytesIO(blob(layer)), mode="r:gz") as content:
                content.extractall(sys.argv[2], numeric_owner=True, **EXTRACTION)
                content.fileobj.seek(0)
                found = f"sha256:{hashlib.sha256(content.fileobj.read()).hexdigest()}"
            if found != diff_id:
                sys.exit(f"unpack-image: a layer contains {found}, the image names {diff_id}")
        # What `docker load` of older versions reads.
        docker = json.load(archive.extractfile("manifest.json"))[0]
        paths = [f"blobs/{layer['digest'].replace(':', '/')}" for layer in manifest["layers"]]
        if docker["Layers"] != paths:
            sys.exit("unpack-image: manifest.json names other layers")
    settings = config["config"]
    print(f"USER={settings['User']}", *settings["Env"], sep="\n")


if __name__ == "__main__":
    main()
