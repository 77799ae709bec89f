"""Two servers on one PostgreSQL database, each of which can be cut off from it."""

import shutil

from . import stores
from .database_proxy import DatabaseProxy


class SeparatedServers:
    """Two servers, each with its own connection to one database."""

    def __init__(self, start, folders, postgres, lease: float = 10, silence: float = 25, **more):
        self.store = stores.Postgres(postgres)
        self.folders = [folders.mktemp("one"), folders.mktemp("other")]
        url = self.store.environment(self.folders[0])["VISAVIS_SERVER_DATABASE_URL"]
        self.proxies = [DatabaseProxy(url), DatabaseProxy(url)]
        self.servers = []
        for name, folder, proxy in zip(("one", "other"), self.folders, self.proxies, strict=True):
            for file in ("secrets.key", "tokens.key") if self.servers else ():
                shutil.copy(self.folders[0] / file, folder / file)
            environment = {
                "VISAVIS_SERVER_DATABASE_URL": proxy.url,
                "VISAVIS_TIMEOUTS_LEASE": str(lease),
                "VISAVIS_TIMEOUTS_SILENCE": str(silence),
                **more,
            }
            server = start(f"outage-{name}", data=folder, env=environment)
            if self.servers:
                server.key = self.servers[0].key
            else:
                server.read_first_start()
            self.servers.append(server.wait_ready())

    def close(self):
        for proxy in self.proxies:
            proxy.resume()
        for server in self.servers:
            server.stop()
        for proxy in self.proxies:
            proxy.close()
