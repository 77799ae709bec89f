"""A start with a database that starts later: what the server tells meanwhile. Who reaches the media
of a server for this machine."""

import json
import pathlib
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request

from kit import stores
from kit.network_link import NetworkLink
from kit.polling import wait_until
from kit.server import binary
from kit.tcp_relay import TcpRelay


def get(url: str) -> tuple[int, dict]:
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_database_that_starts_later_is_awaited(postgres, tmp_path):
    database = urllib.parse.urlsplit(stores.Postgres(postgres).create_database())
    log = tmp_path / "log"

    def entries(start: str):
        lines = log.read_text().rpartition("\n")[0].splitlines()
        return [entry for entry in map(json.loads, lines) if entry["message"].startswith(start)]

    with TcpRelay(database.hostname, database.port or 5432) as relay, log.open("wb") as stderr:
        relay.refuse()
        user = f"{database.username}@" if database.username else ""
        address = f"127.0.0.1:{relay.port}{database.path}"
        process = subprocess.Popen(
            [binary(), "serve", "--listen", "0", "--data", str(tmp_path / "data")],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=tmp_path,
            env={
                "VISAVIS_SERVER_DATABASE_URL": f"postgres://{user}{address}",
                "VISAVIS_SERVER_LOG_FORMAT": "json",
                "VISAVIS_MODELS_DIR": str(tmp_path / "no-models"),
            },
        )
        try:
            wait_until(lambda: entries("cannot connect to the database"), log.read_text)
            (connecting,) = entries("connecting to the database")
            assert connecting["database"] == address
            url = f"http://{connecting['listen']}"
            assert get(f"{url}/healthz") == (200, {"status": "ok"})
            status, body = get(f"{url}/readyz")
            waiting = f"waiting for the database at {address}"
            assert (status, body["reason"]) == (503, waiting)
            relay.resume()
            assert process.stdout.readline() == f"Visavis is listening on {url}\n"
            assert process.stdout.readline().startswith("API key: ")
            status, body = get(f"{url}/readyz")
            assert status == 503 and "waiting" not in body["reason"], body
        finally:
            process.terminate()
            process.wait(60)
        assert process.returncode == 0, log.read_text()


def dropped(port: int) -> int:
    """How many datagrams the kernel dropped at a UDP port of this machine."""
    for line in pathlib.Path("/proc/net/udp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(f":{port:04X}"):
            return int(fields[-1])
    raise AssertionError(f"nothing has UDP port {port}")


def test_only_this_machine_reaches_the_media_of_a_local_server(start_server):
    with NetworkLink() as link:
        server = start_server("local", env={"VISAVIS_SERVER_LOG_FORMAT": "json"})
        server.read_first_start()
        lines = server.log.read_text().splitlines()
        (started,) = [line for line in lines if '"the server has started"' in line]
        started = json.loads(started)
        assert started["this_machine_only"] is True
        # Firefox does not use 127.0.0.1 for calls.
        assert {"127.0.0.1", link.host} <= set(started["media_addresses"].split(", ")), started
        port = int(started["udp_ports"].split(", ")[0])
        before = dropped(port)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
            own.bind((link.host, 0))
            own.sendto(b"from this machine", (link.host, port))
        assert dropped(port) == before
        send = f"import socket; s = socket.socket(type=2); s.sendto(b'x', ('{link.host}', {port}))"
        link.run_inside("python3", "-c", send)
        wait_until(lambda: dropped(port) == before + 1, lambda: f"{dropped(port)}")
