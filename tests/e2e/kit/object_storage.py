"""MinIO, an S3 server, and a relay in front of it."""

import contextlib
import pathlib
import socket
import subprocess
import threading
import urllib.error
import urllib.request

from .polling import wait_until
from .server import ROOT

#: Key of the server, and its bucket.
ACCESS_KEY, SECRET, BUCKET = "recorder", "a-secret-of-the-test", "bucket"
#: Bytes that the relay passes on at once.
CHUNK_BYTES = 16_384


class Minio:
    """A MinIO server with one bucket. It keeps its port when it is started again."""

    def __init__(self, folder: pathlib.Path):
        script = ROOT / "scripts" / "install-minio.sh"
        self.binary = subprocess.run(
            [script], check=True, stdout=subprocess.PIPE, text=True
        ).stdout.strip()
        self.folder = folder
        # A folder is a bucket.
        (folder / BUCKET).mkdir(parents=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.start()

    def start(self):
        command = [self.binary, "server", "--quiet", self.folder]
        self.process = subprocess.Popen(
            [*command, "--address", f"127.0.0.1:{self.port}"],
            env={
                "HOME": str(self.folder.parent),
                "MINIO_ROOT_USER": ACCESS_KEY,
                "MINIO_ROOT_PASSWORD": SECRET,
                "MINIO_BROWSER": "off",
            },
            stdout=subprocess.DEVNULL,
        )
        wait_until(self._is_ready, "MinIO to be ready")

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, "MinIO stopped"
        try:
            url = f"http://127.0.0.1:{self.port}/minio/health/ready"
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def kill(self):
        self.process.kill()
        self.process.wait()

    def objects(self) -> list[str]:
        """The keys of all objects. Each is a folder with a file `xl.meta`."""
        bucket = self.folder / BUCKET
        return sorted(str(one.parent.relative_to(bucket)) for one in bucket.rglob("xl.meta"))


def environment(port: int, secret: str = SECRET) -> dict:
    """The environment of a server that stores recordings at this port."""
    return {
        "VISAVIS_STORAGE_URL": f"s3://{BUCKET}/calls",
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
    }


class TcpRelay:
    """Passes connections on to a port of this machine. With `hold_after`, it passes on only so many
    further bytes to that port, and then sets `held`, until `release`."""

    def __init__(self, target: int):
        self.target = target
        self.held, self.released = threading.Event(), threading.Event()
        self.released.set()
        self.remaining = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def hold_after(self, count: int):
        self.remaining = count
        self.held.clear()
        self.released.clear()

    def release(self):
        self.released.set()

    def close(self):
        self.release()
        self.listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            for source, sink, is_request in ((client, server, True), (server, client, False)):
                arguments = (source, sink, is_request)
                threading.Thread(target=self._pass_on, args=arguments, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, is_request: bool):
        try:
            while data := source.recv(CHUNK_BYTES):
                if is_request and not self.released.is_set():
                    self.remaining -= len(data)
                    if self.remaining < 0:
                        self.held.set()
                        self.released.wait()
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            # The other direction ends, too.
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
