"""A caller without a browser: aiortc at the WHIP endpoint. It starts quickly and contains none of
our code."""

import asyncio
import concurrent.futures
import fractions
import json

import numpy as np
from aiortc import MediaStreamTrack, RTCPeerConnection, RTCSessionDescription
from av import AudioFrame, AudioResampler

#: Seconds by which a part of the microphone's sound may leave late.
MAX_PACING_ERROR = 0.01


class MicrophoneTrack(MediaStreamTrack):
    """Sends 48 kHz samples in real time, then silence."""

    kind = "audio"

    def __init__(self):
        super().__init__()
        self.queue = np.zeros(0, np.int16)
        self.sent = 0
        self.started_at = None
        #: Parts that left late, because this process had to wait: the number of samples before, and
        #: by how many seconds.
        self.late_parts: list[tuple[int, float]] = []

    async def recv(self):
        clock = asyncio.get_running_loop().time
        self.started_at = self.started_at or clock()
        due = self.started_at + self.sent / 48_000
        await asyncio.sleep(
            max(0, due - clock())
        )  # paces the audio; this does not wait for another party
        if (late := clock() - due) > MAX_PACING_ERROR:
            self.late_parts.append((self.sent, late))
        part, self.queue = self.queue[:960], self.queue[960:]
        frame = AudioFrame.from_ndarray(
            np.pad(part, (0, 960 - len(part))).reshape(1, -1), format="s16", layout="mono"
        )
        frame.sample_rate, frame.pts, frame.time_base = (
            48_000,
            self.sent,
            fractions.Fraction(1, 48_000),
        )
        self.sent += 960
        return frame


class WhipClient:
    """aiortc at the WHIP endpoint."""

    def __init__(self, server, conversation, video=True, channel=True):
        self.server, self.conversation = server, conversation
        self.peer = RTCPeerConnection()
        self.microphone = MicrophoneTrack()
        self.received_audio: list[np.ndarray] = []
        self.video_frames = []
        self.messages = []
        self.changed = asyncio.Condition()
        # The event loop holds tasks weakly.
        self.tasks = set()
        self.peer.addTrack(self.microphone)
        if video:
            self.peer.addTransceiver("video", direction="recvonly")
        self.channel = self.peer.createDataChannel("anything") if channel else None
        if self.channel:
            self.channel.on(
                "open", lambda: self.send("client-ready", {"version": "2.1.0", "about": {}})
            )
            self.channel.on("message", self._on_message)
        self.peer.on(
            "track",
            lambda track: self._start(
                self._receive_audio(track) if track.kind == "audio" else self._receive_video(track)
            ),
        )

    def send(self, type, data):
        self.channel.send(json.dumps({"label": "rtvi-ai", "type": type, "id": "1", "data": data}))

    def _on_message(self, text):
        self.messages.append(json.loads(text))
        self._start(self._notify())

    def _start(self, coroutine):
        task = asyncio.ensure_future(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _notify(self):
        async with self.changed:
            self.changed.notify_all()

    async def _receive_audio(self, track):
        resampler = AudioResampler(format="s16", layout="mono", rate=48_000)
        while True:
            try:
                frame = await track.recv()
            except Exception:
                return
            for part in resampler.resample(frame):
                self.received_audio.append(part.to_ndarray().reshape(-1).copy())
            await self._notify()

    async def _receive_video(self, track):
        while True:
            try:
                frame = await track.recv()
            except Exception:
                return
            self.video_frames.append((frame.width, frame.height))
            await self._notify()

    async def join(self):
        await self.peer.setLocalDescription(await self.peer.createOffer())
        reply = await asyncio.to_thread(
            self.server.request,
            "POST",
            f"/rtc/{self.conversation['id']}",
            key=None,
            raw=self.peer.localDescription.sdp.encode(),
            headers={
                "content-type": "application/sdp",
                "authorization": f"Bearer {self.conversation['token']}",
            },
        )
        assert reply.status == 201 and reply.headers["content-type"].startswith(
            "application/sdp"
        ), reply
        self.resource = reply.headers["location"]
        assert self.resource.startswith(f"/rtc/{self.conversation['id']}/"), self.resource
        assert "a=candidate:" in reply.body.decode()
        await self.peer.setRemoteDescription(RTCSessionDescription(reply.body.decode(), "answer"))
        return self

    async def wait_for(self, found, timeout=60, what=""):
        async def wait():
            async with self.changed:
                while not (value := found()):
                    await self.changed.wait()
                return value

        try:
            return await asyncio.wait_for(wait(), timeout)
        except TimeoutError:
            raise AssertionError(
                f"waited {timeout} s for {what}; {len(self.received_audio)} sounds, "
                f"{len(self.video_frames)} pictures, {self.messages[-5:]}"
            ) from None

    def find_message(self, type=None, event=None):
        for message in self.messages:
            server_event = (message.get("data") or {}).get("event") or {}
            if (not type or message.get("type") == type) and (
                not event or server_event.get("event", server_event).get("name") == event
            ):
                return message
        return None

    async def hang_up(self):
        reply = await asyncio.to_thread(
            self.server.request,
            "DELETE",
            self.resource,
            key=None,
            headers={"authorization": f"Bearer {self.conversation['token']}"},
        )
        await self.peer.close()
        return reply


def run_async(work):
    """Runs a coroutine in another thread, because Playwright's own loop occupies this one."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


class DataChannelCall(WhipClient):
    """A call with data channel and audio. Typed text counts as speech, so a test need not wait for
    speech."""

    def __init__(self, server, conversation):
        super().__init__(server, conversation, video=False)

    async def connect(self):
        await self.join()
        await self.wait_for(lambda: self.find_message("bot-ready"), what="bot-ready")
        return self

    def events(self, name=None):
        """The conversation's events so far: all of them, or the payloads of one kind."""
        found = [
            m["data"]["event"]
            for m in self.messages
            if m.get("type") == "server-message" and "event" in (m.get("data") or {})
        ]
        found = [event.get("event", event) for event in found]
        return [event["payload"] for event in found if event["name"] == name] if name else found

    def utterances(self):
        """What the agent has said, one text for each utterance."""
        return [payload["text"] for payload in self.events("agent.stopped_speaking")]

    def send_typed(self, text):
        self.send("send-text", {"content": text, "options": {}})

    async def wait_for_utterance(self, words, timeout=60):
        """Waits until an utterance contains `words`."""
        return await self.wait_for(
            lambda: next((text for text in self.utterances() if words in text), None),
            timeout,
            f"{words!r} in {self.utterances()}",
        )

    async def ask(self, text, words, timeout=60):
        self.send_typed(text)
        return await self.wait_for_utterance(words, timeout)
