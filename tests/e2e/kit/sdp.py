"""The offer of a third-party client, as text."""

import asyncio
import concurrent.futures

from aiortc import RTCPeerConnection


def make_offer() -> str:
    """Audio in both directions, video to receive, a data channel. The ICE checks of this offer are
    never answered."""

    async def make():
        peer = RTCPeerConnection()
        peer.addTransceiver("audio", direction="sendrecv")
        peer.addTransceiver("video", direction="recvonly")
        peer.createDataChannel("chat")
        await peer.setLocalDescription(await peer.createOffer())
        sdp = peer.localDescription.sdp
        await peer.close()
        return sdp

    # In another thread, because Playwright's own loop may occupy this one.
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, make()).result()
