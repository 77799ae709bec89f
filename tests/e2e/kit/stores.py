"""Where a server under test stores its data: SQLite in its folder, or its own database in
PostgreSQL."""

import contextlib
import itertools
import os
import sqlite3
import subprocess
import uuid

from kit.server import ROOT


@contextlib.contextmanager
def postgres_server():
    """The URL of a PostgreSQL server without a database: the server of the whole run if there is
    one, else a new one."""
    if given := os.environ.get("VISAVIS_TEST_POSTGRES"):
        yield given
        return
    script = [
        str(ROOT / "scripts" / "with-postgres.sh"),
        "sh",
        "-c",
        'echo "$VISAVIS_TEST_POSTGRES"; exec cat',
    ]
    process = subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    url = process.stdout.readline().strip()
    assert url.startswith("postgres://"), url
    yield url
    process.stdin.close()
    process.wait(20)


class Sqlite:
    name = "sqlite"

    def environment(self, _folder) -> dict:
        """The environment with which a server with this folder finds its database."""
        return {}

    def execute(self, server, statements):
        with contextlib.closing(
            sqlite3.connect(server.data / "visavis.db", timeout=10)
        ) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    def dump(self, server) -> bytes:
        """Everything that is stored."""
        return b"".join(file.read_bytes() for file in server.data.glob("visavis.db*"))


class Postgres:
    name = "postgres"

    def __init__(self, url):
        self.url, self.databases = url, {}

    def create_database(self) -> str:
        """The URL of a new database."""
        database = f"visavis_{uuid.uuid4().hex}"
        self._psql("postgres", [f"CREATE DATABASE {database}"])
        return f"{self.url}/{database}"

    def environment(self, folder) -> dict:
        url = self.create_database()
        self.databases[folder] = url.rpartition("/")[2]
        return {"VISAVIS_SERVER_DATABASE_URL": url}

    def execute(self, server, statements):
        self._psql(self.databases[server.data], statements)

    def dump(self, server) -> bytes:
        command = ["pg_dump", "--data-only", f"{self.url}/{self.databases[server.data]}"]
        return subprocess.run(command, check=True, capture_output=True, timeout=30).stdout

    def _psql(self, database, statements):
        command = ["psql", "-q", "-v", "ON_ERROR_STOP=1", f"{self.url}/{database}"]
        subprocess.run(
            [*command, *itertools.chain.from_iterable(("-c", s) for s in statements)],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
