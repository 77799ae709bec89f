"""A server whose database is behind PgBouncer."""

import pathlib
import shutil
import socket
import subprocess
import tempfile
import urllib.parse

import pytest

from kit import stores
from kit.polling import wait_until
from kit.server import binary
from kit.store_outage import ask, create_agent
from kit.typed_call import TEST_TIMEOUT, run_call

pytestmark = pytest.mark.long("store")


@pytest.fixture
def pooler(postgres):
    """Starts PgBouncer in a mode and returns the URL of a new database through it."""
    created = []

    def start(mode: str) -> str:
        assert shutil.which("pgbouncer"), "PgBouncer is not installed: run scripts/setup.sh tests"
        target = urllib.parse.urlsplit(stores.Postgres(postgres).create_database())
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        folder = pathlib.Path(tempfile.mkdtemp())
        (folder / "users").write_text('"postgres" ""\n')
        (folder / "pgbouncer.ini").write_text(
            f"[databases]\n* = host={target.hostname} port={target.port}\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {folder}/users\npool_mode = {mode}\n"
            "default_pool_size = 40\n"
            "ignore_startup_parameters = extra_float_digits,options\n"
        )
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, "postgres", "postgres")
        process = subprocess.Popen(
            ["pgbouncer", "-u", "postgres", str(folder / "pgbouncer.ini")],
            stderr=(folder / "log").open("w"),
            stdout=subprocess.DEVNULL,
        )
        created.append((process, folder))

        def is_open():
            assert process.poll() is None, (folder / "log").read_text()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        wait_until(is_open, (folder / "log").read_text, TEST_TIMEOUT)
        return target._replace(netloc=f"postgres@127.0.0.1:{port}").geturl()

    yield start
    for process, folder in created:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_serve_does_not_start_behind_a_pooler_that_shares_sessions(pooler, mode, tmp_path):
    environment = {"VISAVIS_SERVER_DATABASE_URL": pooler(mode)}
    run = subprocess.run(
        [binary(), "serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TEST_TIMEOUT,
        check=False,
    )
    assert run.returncode not in (0, 101), run
    lines = [line for line in run.stderr.splitlines() if "pooler" in line]
    assert len(lines) == 1 and "session" in lines[0], run.stderr


def test_calls_run_behind_a_pooler_in_session_mode(pooler, start_server, tmp_path):
    environment = {"VISAVIS_SERVER_DATABASE_URL": pooler("session")}
    server = start_server("pooler", data=tmp_path, env=environment)
    server.read_first_start().wait_ready()
    record = run_call(server, {"id": create_agent(server, None)}, ask)
    assert record["end_reason"] == "user_left"
