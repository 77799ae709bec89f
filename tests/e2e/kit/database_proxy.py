"""A proxy between a server and its database, whose connections a test interrupts."""

import asyncio
import threading
import urllib.parse


class DatabaseProxy:
    """Forwards connections to PostgreSQL. `url`: that of the database."""

    def __init__(self, url: str):
        self._target = urllib.parse.urlsplit(url)
        self._is_open, self._is_frozen = True, False
        self._writers: set[asyncio.StreamWriter] = set()
        self._resumed = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()
        self._started.wait()

    @property
    def url(self) -> str:
        """The URL of the database through the proxy."""
        user = self._target.username
        return self._target._replace(netloc=f"{user}@127.0.0.1:{self._port}").geturl()

    def refuse(self):
        """Closes all connections and refuses new ones, as a database that is stopped."""
        self._call(self._refuse)

    def freeze(self):
        """Lets connections hang without an answer, as a network that is cut."""
        self._call(self._freeze)

    def resume(self):
        """Forwards again. Connections that hung continue."""
        self._call(self._resume)

    def close(self):
        self._call(self._refuse)
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._resumed.set()
        serving = asyncio.start_server(self._forward, "127.0.0.1", 0)
        self._server = self._loop.run_until_complete(serving)
        self._port = self._server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()

    def _call(self, change):
        done = threading.Event()

        def run():
            change()
            done.set()

        self._loop.call_soon_threadsafe(run)
        done.wait()

    def _refuse(self):
        self._is_open = False
        for writer in self._writers:
            writer.transport.abort()

    def _freeze(self):
        self._resumed.clear()

    def _resume(self):
        self._is_open = True
        self._resumed.set()

    async def _forward(self, reader, writer):
        await self._resumed.wait()
        if not self._is_open:
            writer.transport.abort()
            return
        target = (self._target.hostname, self._target.port)
        try:
            far_reader, far_writer = await asyncio.open_connection(*target)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, far_writer}
        self._writers |= ends
        await asyncio.gather(self._copy(reader, far_writer), self._copy(far_reader, writer))
        self._writers -= ends

    async def _copy(self, reader, writer):
        try:
            while data := await reader.read(1 << 16):
                await self._resumed.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()
