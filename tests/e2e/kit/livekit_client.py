"""A participant of a LiveKit room with the official Python SDK. It runs on the event loop of one
thread, so that tests call it as ordinary functions. Times are those of `time.monotonic()`."""

import asyncio
import atexit
import contextlib
import dataclasses
import functools
import json
import pathlib
import time

import numpy as np
from livekit import rtc

from . import speech
from .call import UserSpeech
from .livekit_server import LiveKitServer, as_dict, create_token, run
from .polling import wait_until

#: Rate of the microphone and of the recordings.
SAMPLE_RATE = 48_000
PART = SAMPLE_RATE // 50
#: RMS from which on 10 ms count as sound, about -48 dBFS, as in page/instrument.js.
MIN_LOUD_RMS = 0.004
#: Topics, attributes and RPC methods.
CAPTIONS, CHAT, EVENTS = "lk.transcription", "lk.chat", "visavis"
STATE, FINAL = "lk.agent.state", "lk.transcription_final"
SEGMENT, CAPTION_TRACK = "lk.segment_id", "lk.transcribed_track_id"
ON_BEHALF = "lk.publish_on_behalf"
INTERRUPT, END = "visavis.interrupt", "visavis.end"


#: Participants that have not left. The SDK aborts the process if it ends before they have.
present: set["LiveKitCaller"] = set()


@functools.cache
def leave_at_exit():
    """Is called once the SDK is loaded, which ends itself at the exit: the last registered function
    runs first."""

    def leave_all():
        for caller in list(present):
            with contextlib.suppress(Exception):
                caller.leave()

    atexit.register(leave_all)


# --- What a participant has received --------------------------------------------------------------


@dataclasses.dataclass
class TextStream:
    """A text stream, as far as it has arrived. `attributes` contains those of its end as well."""

    topic: str
    sender: str
    id: str
    attributes: dict[str, str]
    opened_at: float
    chunks: list[tuple[float, str]] = dataclasses.field(default_factory=list)
    closed_at: float | None = None
    #: Why it was cut off.
    error: str | None = None

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.chunks)

    @property
    def is_final(self) -> bool:
        return self.closed_at is not None and self.attributes.get(FINAL) == "true"

    @property
    def segment(self) -> str | None:
        return self.attributes.get(SEGMENT)


@dataclasses.dataclass
class Recording:
    """The sound of a track as it was played: 16-bit samples at `SAMPLE_RATE`. The SDK fills gaps
    between packets, so that only `LiveKitCaller.inbound_rtp` shows what was lost."""

    identity: str
    track: str
    parts: list[tuple[float, np.ndarray]] = dataclasses.field(default_factory=list)

    def samples(self, after: float = 0, before: float = float("inf")) -> np.ndarray:
        parts = [samples for at, samples in list(self.parts) if after <= at < before]
        return np.concatenate([np.zeros(0, np.int16), *parts])

    def loud_times(self, after: float = 0, threshold: float = MIN_LOUD_RMS) -> list[float]:
        """When sound was played."""
        return [
            at
            for at, samples in list(self.parts)
            if at >= after and np.sqrt(np.mean((samples / 32768) ** 2)) >= threshold
        ]

    def until(self) -> float:
        """The time up to which it reaches."""
        return self.parts[-1][0] if self.parts else 0.0


@dataclasses.dataclass
class Received:
    """What arrived, in its order; the first element is its time."""

    #: (time, identity, changed attributes). The first attributes of a participant count as changed.
    attributes: list[tuple[float, str, dict[str, str]]] = dataclasses.field(default_factory=list)
    #: (time, identity, "joined" or the reason of the leave)
    participants: list[tuple[float, str, str]] = dataclasses.field(default_factory=list)
    #: (time, sender, topic, payload). The sender is "" if it is a server.
    data: list[tuple[float, str, str, bytes]] = dataclasses.field(default_factory=list)
    #: The older packets of captions: (time, identity of the speaker, track, segments)
    transcriptions: list[tuple[float, str, str, list[rtc.TranscriptionSegment]]] = (
        dataclasses.field(default_factory=list)
    )
    texts: list[TextStream] = dataclasses.field(default_factory=list)
    #: Recordings by the track's id.
    audio: dict[str, Recording] = dataclasses.field(default_factory=dict)
    #: (time, identity, width, height)
    video: list[tuple[float, str, int, int]] = dataclasses.field(default_factory=list)
    #: (time, "connected", "reconnecting", "reconnected" or the reason of the end)
    connection: list[tuple[float, str]] = dataclasses.field(default_factory=list)
    #: (time, identities of the active speakers)
    speakers: list[tuple[float, list[str]]] = dataclasses.field(default_factory=list)


# --- The participant ------------------------------------------------------------------------------


class LiveKitCaller:
    """Joins at once. `token`: of another origin, such as the server under test; otherwise
    `options` are those of `create_token`. `microphone`: whether it publishes one, which is silent
    until `play` or `speak`."""

    #: Milliseconds of sound that the SDK holds before it sends them. It takes 20 ms at a time.
    microphone_queue = 40

    def __init__(
        self,
        server: LiveKitServer,
        room: str = "",
        identity: str = "caller",
        *,
        token: str | None = None,
        microphone: bool = True,
        auto_subscribe: bool = True,
        **options,
    ):
        self.received = Received()
        self.is_leaving = False
        # The event loop holds tasks weakly.
        self.recorders: list[asyncio.Task] = []
        self.tasks: list[asyncio.Task] = []
        self.queue = np.zeros(0, np.int16)
        self.source: rtc.AudioSource | None = None
        self.token = token or create_token(server, room, identity, **options)
        try:
            run(self._join(server.url, microphone, auto_subscribe))
        finally:
            present.add(self)
            leave_at_exit()

    async def _join(self, url: str, microphone: bool, auto_subscribe: bool):
        # A room belongs to the event loop in which it is created.
        self.room = rtc.Room()
        for name in [name for name in dir(self) if name.startswith("_on_")]:
            self.room.on(name.removeprefix("_on_"), getattr(self, name))
        for topic in (CAPTIONS, CHAT):
            self.room.register_text_stream_handler(topic, self._read_text)
        await self.room.connect(url, self.token, rtc.RoomOptions(auto_subscribe=auto_subscribe))
        self.received.connection.append((time.monotonic(), "connected"))
        known = {identity for _, identity, _ in self.received.participants}
        for participant in self.room.remote_participants.values():
            if participant.identity not in known:
                self._on_participant_connected(participant)
        if microphone:
            await self._publish_microphone()

    async def _publish_microphone(self):
        self.source = rtc.AudioSource(SAMPLE_RATE, 1, self.microphone_queue)
        track = rtc.LocalAudioTrack.create_audio_track("microphone", self.source)
        options = rtc.TrackPublishOptions(source=rtc.TrackSource.SOURCE_MICROPHONE)
        self.microphone = await self.room.local_participant.publish_track(track, options)
        self.tasks.append(asyncio.create_task(self._send_microphone()))

    async def _send_microphone(self):
        while not self.is_leaving:
            part, self.queue = self.queue[:PART], self.queue[PART:]
            part = np.pad(part, (0, PART - len(part)))
            # Returns when the queue has room, which sets the pace.
            await self.source.capture_frame(rtc.AudioFrame(part.tobytes(), SAMPLE_RATE, 1, PART))

    # --- Events of the room ---

    def _on_participant_connected(self, participant: rtc.RemoteParticipant):
        now = time.monotonic()
        self.received.participants.append((now, participant.identity, "joined"))
        if participant.attributes:
            self.received.attributes.append(
                (now, participant.identity, dict(participant.attributes))
            )

    def _on_participant_disconnected(self, participant: rtc.RemoteParticipant):
        reason = rtc.DisconnectReason.Name(participant.disconnect_reason or 0)
        self.received.participants.append((time.monotonic(), participant.identity, reason))

    def _on_participant_attributes_changed(self, changed: dict, participant: rtc.Participant):
        self.received.attributes.append((time.monotonic(), participant.identity, dict(changed)))

    def _on_active_speakers_changed(self, speakers: list[rtc.Participant]):
        self.received.speakers.append((time.monotonic(), [one.identity for one in speakers]))

    def _on_data_received(self, packet: rtc.DataPacket):
        sender = packet.participant.identity if packet.participant else ""
        self.received.data.append((time.monotonic(), sender, packet.topic or "", packet.data))

    def _on_transcription_received(self, segments, participant, publication):
        speaker, track = participant and participant.identity, publication and publication.sid
        self.received.transcriptions.append(
            (time.monotonic(), speaker or "", track or "", segments)
        )

    def _on_reconnecting(self):
        self.received.connection.append((time.monotonic(), "reconnecting"))

    def _on_reconnected(self):
        self.received.connection.append((time.monotonic(), "reconnected"))

    def _on_disconnected(self, reason):
        self.received.connection.append((time.monotonic(), rtc.DisconnectReason.Name(reason)))

    def _on_track_subscribed(self, track: rtc.Track, _publication, participant: rtc.Participant):
        if track.kind == rtc.TrackKind.KIND_AUDIO:
            recording = Recording(participant.identity, track.sid)
            self.received.audio[track.sid] = recording
            handler = self._record(rtc.AudioStream(track, sample_rate=SAMPLE_RATE), recording)
        else:
            handler = self._count_frames(rtc.VideoStream(track), participant.identity)
        self.recorders.append(asyncio.create_task(handler))

    async def _record(self, stream: rtc.AudioStream, recording: Recording):
        try:
            async for event in stream:
                recording.parts.append((time.monotonic(), np.array(event.frame.data, np.int16)))
        finally:
            await stream.aclose()

    async def _count_frames(self, stream: rtc.VideoStream, identity: str):
        try:
            async for event in stream:
                size = event.frame.width, event.frame.height
                self.received.video.append((time.monotonic(), identity, *size))
        finally:
            await stream.aclose()

    def _read_text(self, reader: rtc.TextStreamReader, sender: str):
        info = reader.info
        text = TextStream(
            info.topic, sender, info.stream_id, dict(info.attributes or {}), time.monotonic()
        )
        self.received.texts.append(text)
        self.tasks.append(asyncio.create_task(self._read_chunks(reader, text)))

    async def _read_chunks(self, reader: rtc.TextStreamReader, text: TextStream):
        try:
            async for chunk in reader:
                text.chunks.append((time.monotonic(), chunk))
        except rtc.StreamError as error:
            text.error = str(error)
        text.attributes.update(reader.info.attributes or {})
        text.closed_at = time.monotonic()

    # --- What the caller does ---

    @property
    def identity(self) -> str:
        return self.room.local_participant.identity

    def play(self, sound: pathlib.Path | np.ndarray, text: str = "") -> UserSpeech:
        """Plays a WAV (16-bit, mono) or samples at `SAMPLE_RATE` into the microphone, after what is
        still to be played. Returns when the sound leaves this process."""
        assert self.source, "this caller has no microphone"
        if not isinstance(sound, np.ndarray):
            sound = resample(*speech.read_wav(sound.read_bytes()))

        async def enqueue():
            start = time.monotonic() + len(self.queue) / SAMPLE_RATE + self.source.queued_duration
            self.queue = np.concatenate([self.queue, sound])
            return UserSpeech(text, start, start + len(sound) / SAMPLE_RATE)

        return run(enqueue())

    def speak(self, text: str, voice: str = "slt") -> UserSpeech:
        samples, rate = speech.flite(text, voice)
        return self.play(resample(speech.trim_silence(samples), rate), text)

    def send_chat(self, text: str, topic: str = CHAT, **options) -> str:
        """Sends a text stream. Returns its id."""
        sent = self.room.local_participant.send_text(text, topic=topic, **options)
        return run(sent).stream_id

    def send_data(self, payload: bytes | str, topic: str = EVENTS, **options):
        run(self.room.local_participant.publish_data(payload, topic=topic, **options))

    def rpc(self, method: str, payload: str = "", to: str | None = None, timeout: float = 10):
        """The answer of the agent, or of the participant `to`. Raises `rtc.RpcError`."""
        return run(
            self.room.local_participant.perform_rpc(
                destination_identity=to or self.agent().identity,
                method=method,
                payload=payload,
                response_timeout=timeout,
            )
        )

    def interrupt(self) -> str:
        return self.rpc(INTERRUPT)

    def end(self) -> str:
        return self.rpc(END)

    def inbound_rtp(self, kind: str = "audio") -> list[dict]:
        """The statistics of the received tracks of a kind, as in a browser's `inbound-rtp`."""
        stats = run(self.room.get_rtc_stats())
        found = [as_dict(one) for one in (*stats.subscriber_stats, *stats.publisher_stats)]
        inbound = [one["inbound_rtp"] for one in found if "inbound_rtp" in one]
        tracks = [{**one["received"], **one["inbound"], **one["stream"]} for one in inbound]
        # Integers of 64 bits are texts in JSON.
        return [
            {name: int(v) if str(v).isdigit() else v for name, v in track.items()}
            for track in tracks
            if track["kind"] == kind
        ]

    def subscribe_to_video(self):
        """Subscribes to the agent's video, for a caller that does not by itself."""
        for publication in self.agent().track_publications.values():
            if publication.kind == rtc.TrackKind.KIND_VIDEO:
                run(self._subscribe(publication))

    async def _subscribe(self, publication: rtc.RemoteTrackPublication):
        publication.set_subscribed(True)

    def leave(self):
        """May be called again."""
        present.discard(self)
        run(self._leave())

    async def _leave(self):
        self.is_leaving = True
        for task in self.recorders:
            task.cancel()
        await asyncio.gather(*self.recorders, return_exceptions=True)
        await self.room.disconnect()
        # These end by themselves.
        await asyncio.gather(*self.tasks)
        if self.source:
            await self.source.aclose()

    close = leave

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.leave()

    # --- What the caller has received ---

    def agents(self) -> list[rtc.RemoteParticipant]:
        """The agents that are in the room, without those that publish for another one."""
        return [
            one
            for one in list(self.room.remote_participants.values())
            if one.kind == rtc.ParticipantKind.PARTICIPANT_KIND_AGENT
            and ON_BEHALF not in one.attributes
        ]

    def agent(self) -> rtc.RemoteParticipant:
        found = self.agents()
        assert len(found) == 1, f"agents: {[one.identity for one in found]}\n{self.describe()}"
        return found[0]

    def audio_of(self, identity: str | None = None) -> Recording:
        """The last track of the agent or of another participant."""
        found = self._recordings(identity)
        assert found, f"no sound of {identity or 'the agent'}\n{self.describe()}"
        return found[-1]

    def _recordings(self, identity: str | None) -> list[Recording]:
        identities = [identity] if identity else [one.identity for one in self.agents()]
        return [one for one in list(self.received.audio.values()) if one.identity in identities]

    def states(self, identity: str | None = None) -> list[tuple[float, str]]:
        """The values of the attribute `lk.agent.state` with their times."""
        return [
            (at, changed[STATE])
            for at, who, changed in list(self.received.attributes)
            if STATE in changed and identity in (None, who)
        ]

    def captions(self, sender: str | None = None) -> list[TextStream]:
        return self._texts(CAPTIONS, sender)

    def chat(self, sender: str | None = None) -> list[TextStream]:
        return self._texts(CHAT, sender)

    def _texts(self, topic: str, sender: str | None) -> list[TextStream]:
        return [
            text
            for text in list(self.received.texts)
            if text.topic == topic and sender in (None, text.sender)
        ]

    def messages(self) -> list[tuple[float, dict]]:
        """The data packets of the topic `visavis` with their times."""
        packets = list(self.received.data)
        return [(at, json.loads(payload)) for at, _, topic, payload in packets if topic == EVENTS]

    def events(self, name: str | None = None) -> list[tuple[float, dict]]:
        """The events of the conversation with their times: `{name, payload}`."""
        found = []
        for at, message in self.messages():
            event = (message.get("data") or {}).get("event") or {}
            event = event.get("event", event)
            if event.get("name") and name in (None, event["name"]):
                found.append((at, event))
        return found

    # --- Waiting ---

    def wait(self, found, what: str, timeout: float = 60):
        """The first true value of `found()`."""
        return wait_until(found, lambda: f"{what}\n{self.describe()}", timeout)

    def wait_for_agent(self, timeout: float = 60) -> rtc.RemoteParticipant:
        self.wait(self.agents, "an agent", timeout)
        return self.agent()

    def wait_for_state(self, state: str, after: float = 0, timeout: float = 60) -> float:
        """The time at which the agent gets into this state, or of the last such time before."""

        def found():
            times = [at for at, value in self.states() if value == state and at >= after]
            return times and times[0]

        return self.wait(found, f"the state {state} after {after}", timeout)

    def wait_for_caption(
        self, sender: str | None = None, *, text: str = "", final=True, timeout: float = 60
    ) -> TextStream:
        """The first caption of a speaker that contains `text`. `final`: once it is final."""

        def found():
            for caption in self.captions(sender):
                if text in caption.text and caption.text and (caption.is_final or not final):
                    return caption
            return None

        return self.wait(found, f"a caption of {sender} with {text!r}", timeout)

    def wait_for_chat(
        self, sender: str | None = None, *, text: str = "", timeout: float = 60
    ) -> TextStream:
        def found():
            complete = [one for one in self.chat(sender) if one.closed_at is not None]
            return next((one for one in complete if text in one.text), None)

        return self.wait(found, f"a message of {sender} with {text!r}", timeout)

    def wait_for_event(self, name: str, after: float = 0, timeout: float = 60):
        """The first event of this name: its time and `{name, payload}`."""
        return self.wait(
            lambda: next((one for one in self.events(name) if one[0] >= after), None),
            f"the event {name} after {after}",
            timeout,
        )

    def wait_for_sound(
        self, identity: str | None = None, *, after: float = 0, timeout: float = 60
    ) -> float:
        """The time of the first sound of the agent or of another participant."""

        def found():
            times = [at for one in self._recordings(identity) for at in one.loud_times(after)]
            return min(times, default=None)

        return self.wait(found, f"sound after {after}", timeout)

    def wait_for_silence(
        self,
        identity: str | None = None,
        *,
        lasting: float = 0.6,
        after: float = 0,
        timeout: float = 60,
    ) -> float:
        """Waits until the agent or another participant has been silent for `lasting` seconds,
        counted from `after` at the earliest. Returns when the silence began."""

        def found():
            if not (recordings := self._recordings(identity)):
                return None
            begin = max([after, *recordings[-1].loud_times(after)[-1:]])
            return begin if recordings[-1].until() >= begin + lasting else None

        return self.wait(found, f"silence after {after}", timeout)

    def wait_for_frames(self, more: int = 1, timeout: float = 60) -> float:
        """Waits for further video frames. Returns the time of the last one."""
        count = len(self.received.video) + more
        self.wait(lambda: len(self.received.video) >= count, f"{more} frames", timeout)
        return self.received.video[count - 1][0]

    def wait_for_leave(self, identity: str, timeout: float = 60) -> tuple[float, str]:
        """When and why another participant left."""

        def found():
            events = list(self.received.participants)
            left = [(at, how) for at, who, how in events if who == identity and how != "joined"]
            return left and left[-1]

        return self.wait(found, f"{identity} to leave", timeout)

    def wait_for_end(self, timeout: float = 60) -> tuple[float, str]:
        """When and why this participant was disconnected."""
        ongoing = ("connected", "reconnecting", "reconnected")

        def found():
            last = self.received.connection[-1]
            return None if last[1] in ongoing else last

        return self.wait(found, "the end of the connection", timeout)

    def describe(self) -> str:
        received = self.received
        data = [(round(at, 2), who, topic, raw[:200]) for at, who, topic, raw in received.data]
        texts = [
            f"{one.topic} {one.sender}: {one.text!r} {one.attributes} {one.error or ''}"
            for one in received.texts
        ]
        sounds = [(one.identity, len(one.parts)) for one in received.audio.values()]
        return "\n".join(
            [
                f"connection: {received.connection}",
                f"participants: {received.participants}",
                f"attributes: {received.attributes}",
                f"data: {data[-20:]}",
                f"audio in parts of 10 ms: {sounds}, video frames: {len(received.video)}",
                *texts[-20:],
            ]
        )


def resample(samples: np.ndarray, rate: int) -> np.ndarray:
    """16-bit samples at `SAMPLE_RATE`."""
    if rate == SAMPLE_RATE:
        return samples
    resampler = rtc.AudioResampler(rate, SAMPLE_RATE, quality=rtc.AudioResamplerQuality.HIGH)
    frame = rtc.AudioFrame(samples.astype(np.int16).tobytes(), rate, 1, len(samples))
    frames = [*resampler.push(frame), *resampler.flush()]
    return np.concatenate([np.array(frame.data, np.int16) for frame in frames])
