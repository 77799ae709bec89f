"""A start with a database that starts later: what the server tells meanwhile."""

import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request

from kit import stores
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
