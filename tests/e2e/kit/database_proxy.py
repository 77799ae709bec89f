"""A proxy between a server and its database, whose connections a test interrupts."""

import asyncio
import urllib.parse

from .tcp_relay import TcpRelay


class DatabaseProxy(TcpRelay):
    """Forwards connections to PostgreSQL. `url`: that of the database."""

    def __init__(self, url: str):
        self._database = urllib.parse.urlsplit(url)
        super().__init__(self._database.hostname, self._database.port)

    @property
    def url(self) -> str:
        """The URL of the database through the proxy."""
        user = self._database.username
        return self._database._replace(netloc=f"{user}@127.0.0.1:{self.port}").geturl()

    def _end(self, writer: asyncio.StreamWriter):
        """Closes a connection, as a database that is stopped."""
        writer.transport.abort()
