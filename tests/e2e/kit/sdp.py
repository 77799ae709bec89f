"""An offer of a client that is not ours, as text."""

import asyncio
import concurrent.futures

from aiortc import RTCPeerConnection


def offer() -> str:
    """Sound both ways, a face to receive, a data channel. Nobody will answer its checks."""

    async def make():
        peer = RTCPeerConnection()
        peer.addTransceiver("audio", direction="sendrecv")
        peer.addTransceiver("video", direction="recvonly")
        peer.createDataChannel("chat")
        await peer.setLocalDescription(await peer.createOffer())
        made = peer.localDescription.sdp
        await peer.close()
        return made

    # Beside Playwright, whose own loop may hold this thread.
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, make()).result()
