"""Callers of many LiveKit rooms who have a socket and no media: they cost next to nothing."""

import asyncio
import time

import aiohttp
from livekit.protocol import models, rtc

from .livekit_server import LiveKitServer, run

Info = models.ParticipantInfo


class SignalCallers:
    """Each token's caller joins its room at once, and stays until `close`. LiveKit removes callers
    without media after a while, which is long enough to count on them for some seconds."""

    def __init__(self, livekit: LiveKitServer, tokens: list[str]):
        #: The time at which the first agent of each caller's room was connected.
        self.agents_at: dict[int, float] = {}
        run(self._join(livekit, tokens), 60)

    async def _join(self, livekit: LiveKitServer, tokens: list[str]):
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        url = f"{livekit.url}/rtc?auto_subscribe=0&protocol=15&access_token="
        sockets = [self.session.ws_connect(url + token) for token in tokens]
        self.sockets = await asyncio.gather(*sockets)
        # The first message is that of the join.
        for socket in self.sockets:
            answer = rtc.SignalResponse.FromString(await socket.receive_bytes())
            assert answer.HasField("join"), answer
        readers = [self._read(number, socket) for number, socket in enumerate(self.sockets)]
        self.readers = [asyncio.create_task(reader) for reader in readers]

    async def _read(self, number: int, socket: aiohttp.ClientWebSocketResponse):
        async for frame in socket:
            message = rtc.SignalResponse.FromString(frame.data)
            for one in message.update.participants:
                if (one.kind, one.state) == (Info.Kind.AGENT, Info.State.ACTIVE):
                    self.agents_at.setdefault(number, time.monotonic())

    def close(self):
        run(self._close())

    async def _close(self):
        for socket in self.sockets:
            await socket.close()
        await self.session.close()
        await asyncio.gather(*self.readers)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
