"""A recorded conversation for the console: its record, events, turns and file. The browser gets
them in place of the server's answers, so no call is made."""

import fractions
import io
import re

import av
import numpy as np

SECONDS = 12.0
#: The text of the agent that the caller cut, after what was heard of it.
CUT = "dollars, and we wash your hair."


def webm(*, picture: bool = True, seconds: float = SECONDS) -> bytes:
    """A WebM file with a tone (Opus) and a picture that becomes lighter (VP8)."""
    file = io.BytesIO()
    with av.open(file, "w", format="webm") as container:
        streams = []
        if picture:
            video = container.add_stream("libvpx", rate=10, options={"deadline": "realtime"})
            video.width, video.height, video.pix_fmt = 64, 64, "yuv420p"
            video.gop_size = 10
            streams.append((video, _pictures(int(seconds * 10))))
        audio = container.add_stream("libopus", rate=48_000, layout="mono")
        streams.append((audio, _tones(int(seconds * 50))))
        packets = [
            packet
            for stream, frames in streams
            for frame in [*frames, None]
            for packet in stream.encode(frame)
        ]
        for packet in sorted(packets, key=lambda packet: packet.dts * packet.time_base):
            container.mux(packet)
    return file.getvalue()


def _pictures(count: int):
    for i in range(count):
        frame = av.VideoFrame.from_ndarray(
            np.full((64, 64, 3), 40 + 200 * i // count, np.uint8), "rgb24"
        )
        frame.pts, frame.time_base = i, fractions.Fraction(1, 10)
        yield frame


def _tones(count: int):
    wave = 3000 * np.sin(np.arange(960) * 2 * np.pi * 250 / 48_000)
    for i in range(count):
        frame = av.AudioFrame.from_ndarray(wave.astype(np.int16)[None], "s16", "mono")
        frame.rate, frame.pts, frame.time_base = 48_000, i * 960, fractions.Fraction(1, 48_000)
        yield frame


def _words(start: float, text: str) -> list[dict]:
    """The words of a text, each 300 ms long."""
    times = [round(start + 0.3 * i, 3) for i in range(len(text.split()) + 1)]
    return [
        {"text": word, "start": begin, "end": end}
        for word, begin, end in zip(text.split(), times, times[1:], strict=False)
    ]


def _message(role: str, start: float, duration: float, text: str, **more) -> dict:
    return {
        "role": role,
        "content": text,
        "timestamp": "2026-01-02T03:04:05.000Z",
        "seconds_from_start": start,
        "duration": duration,
        "speech_id": None,
        "interrupted": False,
        **more,
    }


def _agent_message(start: float, text: str) -> dict:
    words = _words(start, text)
    return _message("assistant", start, round(words[-1]["end"] - start, 3), text, words=words)


MESSAGES = [
    _agent_message(0.5, "Hello, what may I do?"),
    _message("user", 2.5, 1.2, "How much is a haircut?"),
    {**_agent_message(4.3, "A haircut costs thirty"), "interrupted": True},
    _message("user", 5.3, 1.4, "Stop. When do you open?"),
    _agent_message(7.8, "We open at nine."),
]


def _events() -> list[dict]:
    found = []

    def add(at: float, what: str, **fields):
        timestamp = "2026-01-02T03:04:05.000Z"
        found.append({"seq": len(found), "at": at, "timestamp": timestamp, "what": what, **fields})

    for message in MESSAGES:
        start, text = message["seconds_from_start"], message["content"]
        end = start + message["duration"]
        if message["role"] == "user":
            add(end, "utterance_committed", text=text)
            continue
        cut = message["interrupted"]
        add(start, "llm.started")
        add(start, "llm.text", text=f"{text} {CUT}" if cut else text)
        add(start, "agent.started_speaking", text="")
        add(end, "agent.stopped_speaking", text=text)
        add(end, "history", role="assistant", text=text, interrupted=cut)
    return sorted(found, key=lambda event: event["at"])


def _turn(number: int, speech_end: float, first_sample: float, **more) -> dict:
    timeline = {"speech_end": speech_end, "committed": speech_end + 0.3, "interrupted": None}
    timeline = {**timeline, "first_sample": first_sample, **more.pop("timeline", {})}
    return {
        "turn": number,
        "voice_to_voice": round(first_sample - speech_end, 3),
        "endpointing": 0.3,
        "stt": None,
        "llm_ttft": 0.12,
        "tts_ttfb": 0.08,
        "playout": 0.02,
        "barge_in": None,
        **more,
        "timeline": timeline,
    }


TURNS = [
    _turn(0, 3.7, 4.3, barge_in=0.18, timeline={"interrupted": 5.3}),
    _turn(1, 6.7, 7.8),
    # After the end of the file.
    _turn(2, 14.0, 15.0),
]


class RecordedConversation:
    """Answers a console's requests about one conversation, and for the file. The other fields of
    the record are the server's."""

    def __init__(self, page, conversation: str, *, file: bytes, stored: bool = True):
        self.path = f"conversations/{conversation}"
        self.file = file
        #: Whether the file is there, so that the record has a link.
        self.is_stored = stored
        self.is_deleted = False
        #: Why there is no file.
        self.error: str | None = None
        #: Each record has a new link. Those that expired get 403.
        self.links: list[str] = []
        self.expired: set[str] = set()
        #: How often the record was read.
        self.reads = 0
        route = f"/v1/ext/conversation/{conversation}"
        page.route(re.compile(rf"{route}$"), self._record)
        page.route(re.compile(rf"{route}/events$"), lambda r: r.fulfill(json=_events()))
        page.route(re.compile(rf"{route}/turns$"), lambda r: r.fulfill(json=TURNS))
        page.route(re.compile(rf"{route}/recording$"), self._delete)
        page.route("**/media/recordings/*", self._media)

    def _record(self, route):
        answer = route.fetch()
        self.reads += 1
        url = ""
        if self.is_stored and not self.is_deleted:
            self.links.append(f"/media/recordings/call.webm?signature={len(self.links)}")
            url = self.links[-1]
        record = {
            **answer.json(),
            "status": "ENDED",
            "is_recorded": not self.is_deleted,
            "recording_url": url,
            "chat_history": {"messages": MESSAGES},
            "usage_json": f'{{"duration_seconds": {SECONDS}}}',
        }
        if self.error is not None:
            record["recording_error"] = self.error
        route.fulfill(response=answer, json=record)

    def _delete(self, route):
        assert route.request.method == "DELETE", route.request.method
        self.is_deleted = True
        route.fulfill(status=204)

    def _media(self, route):
        url = route.request.url
        link = url[url.index("/media/") :]
        if link not in self.links or link in self.expired:
            return route.fulfill(status=403, json={"error": "The link has expired"})
        headers = {"content-type": "video/webm", "accept-ranges": "bytes"}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", route.request.headers.get("range", ""))
        if not asked:
            return route.fulfill(status=200, headers=headers, body=self.file)
        first = int(asked[1])
        last = min(int(asked[2] or len(self.file) - 1), len(self.file) - 1)
        headers["content-range"] = f"bytes {first}-{last}/{len(self.file)}"
        return route.fulfill(status=206, headers=headers, body=self.file[first : last + 1])
