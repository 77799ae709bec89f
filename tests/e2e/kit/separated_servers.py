"""Servers on one PostgreSQL database, each of which can be cut off from it."""

import shutil

from . import stores
from .database_proxy import DatabaseProxy
from .own_postgres import OwnPostgres


def start_servers(start, folders, urls, lease: float = 10, silence: float = 25, **more) -> list:
    """A ready server for each of these URLs of one database, with the same keys."""
    servers = []
    for number, url in enumerate(urls):
        folder = folders.mktemp(f"server-{number}")
        for file in ("secrets.key", "tokens.key") if servers else ():
            shutil.copy(servers[0].data / file, folder / file)
        environment = {
            "VISAVIS_SERVER_DATABASE_URL": url,
            "VISAVIS_TIMEOUTS_LEASE": str(lease),
            "VISAVIS_TIMEOUTS_SILENCE": str(silence),
            **more,
        }
        server = start(f"outage-{number}", data=folder, env=environment)
        if servers:
            server.key = servers[0].key
        else:
            server.read_first_start()
        servers.append(server.wait_ready())
    return servers


class SeparatedServers:
    """Two servers, each with a proxy before the database."""

    def __init__(self, start, folders, postgres, **more):
        url = stores.Postgres(postgres).create_database()
        self.proxies = [DatabaseProxy(url), DatabaseProxy(url)]
        self.servers = start_servers(start, folders, [proxy.url for proxy in self.proxies], **more)

    def close(self):
        for proxy in self.proxies:
            proxy.resume()
        for server in self.servers:
            server.stop()
        for proxy in self.proxies:
            proxy.close()


class ServersOnOwnPostgres:
    """Servers on a PostgreSQL server of their own (kit/own_postgres.py), each with its own link."""

    def __init__(self, start, folders, links: int = 2, disk_mb: int | None = None, **more):
        self.servers = []
        self.postgres = OwnPostgres(links, disk_mb)
        try:
            name = stores.Postgres(self.postgres.url()).create_database().rpartition("/")[2]
            self.urls = [f"{self.postgres.url(link)}/{name}" for link in range(links)]
            self.servers += start_servers(start, folders, self.urls, **more)
        except BaseException:
            self.close()
            raise

    def close(self):
        for server in self.servers:
            server.kill()
        self.postgres.close()
