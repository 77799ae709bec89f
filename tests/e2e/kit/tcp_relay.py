"""A relay on loopback in front of a server, whose connections a test interrupts."""

import asyncio
import contextlib
import socket
import struct
import threading

#: SO_LINGER with a time of 0: the end of a connection is a reset.
RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class TcpRelay:
    """Forwards connections to an address."""

    def __init__(self, host: str, port: int):
        self._target = (host, port)
        self._is_open = True
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        threading.Thread(target=self._run, name="tcp relay", daemon=True).start()
        self._started.wait()

    def cut(self):
        """Resets all connections, at both ends. New ones are forwarded."""
        self._call(self._cut)

    def refuse(self):
        """Resets all connections, and new ones."""
        self._call(self._refuse)

    def freeze(self):
        """Lets connections hang without an answer, as a network that is cut."""
        self._call(self._flowing.clear)

    def resume(self):
        """Forwards again. Connections that hung continue."""
        self._call(self._resume)

    def close(self):
        self._call(self._refuse)
        self._loop.call_soon_threadsafe(self._loop.stop)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._flowing.set()
        serving = asyncio.start_server(self._forward, "127.0.0.1", 0)
        self._server = self._loop.run_until_complete(serving)
        self.port = self._server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()

    def _call(self, change):
        done = threading.Event()

        def run():
            change()
            done.set()

        self._loop.call_soon_threadsafe(run)
        done.wait()

    def _cut(self):
        for writer in self._writers:
            self._end(writer)

    def _refuse(self):
        self._is_open = False
        self._cut()

    def _resume(self):
        self._is_open = True
        self._flowing.set()

    async def _read_first(self, _reader: asyncio.StreamReader) -> bytes:
        """What is read of a connection before it is forwarded or refused."""
        return b""

    def _note(self, first: bytes, is_forwarded: bool):
        """Called for each connection with what `_read_first` has read."""

    def _end(self, writer: asyncio.StreamWriter):
        """Ends a connection without a handshake: a reset."""
        with contextlib.suppress(OSError):
            writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE
            )
        writer.transport.abort()

    async def _forward(self, reader, writer):
        first = await self._read_first(reader)
        await self._flowing.wait()
        if not self._is_open:
            self._note(first, False)
            self._end(writer)
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            self._end(writer)
            return
        self._note(first, True)
        ends = {writer, far_writer}
        self._writers |= ends
        far_writer.write(first)
        await asyncio.gather(self._copy(reader, far_writer), self._copy(far_reader, writer))
        self._writers -= ends

    async def _copy(self, reader, writer):
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


class HttpRelay(TcpRelay):
    """In front of an HTTP server on this machine. `forwarded` and `refused` have the path that each
    connection asked for first."""

    def __init__(self, port: int):
        self.forwarded: list[str] = []
        self.refused: list[str] = []
        super().__init__("127.0.0.1", port)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    async def _read_first(self, reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.readline()
        except OSError:
            return b""

    def _note(self, first: bytes, is_forwarded: bool):
        # "GET /path?query HTTP/1.1"
        path = [*first.decode().split(" "), ""][1].split("?")[0]
        (self.forwarded if is_forwarded else self.refused).append(path)
