"""A call in a headless Chromium, on an instrumented page (see page/instrument.js)."""

import base64
import dataclasses
import json
import pathlib
import re

import numpy as np
from playwright.sync_api import Error

from . import lips, rtp, speech
from .server import OUT

PAGE = pathlib.Path(__file__).resolve().parents[1] / "page"
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--autoplay-policy=no-user-gesture-required",
    "--use-fake-ui-for-media-stream",
]
FAKE_DEVICE = "--use-fake-device-for-media-stream"


@dataclasses.dataclass
class UserSpeech:
    """What the user said, and when (seconds on the page's audio clock)."""

    text: str
    start: float
    end: float


class BrowserCall:
    """One page with a call. All measurements use the page's audio clock."""

    def __init__(
        self,
        browser,
        *,
        width=1280,
        height=800,
        scheme="light",
        options: dict | None = None,
        **context,
    ):
        self.context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            permissions=["microphone"],
            **context,
        )
        self.context.add_init_script(f"window.e2eOptions = {json.dumps(options or {})};")
        recorder = (PAGE / "recorder.js").read_text()
        self.context.add_init_script(f"window.e2eRecorder = {json.dumps(recorder)};")
        self.context.add_init_script(path=str(PAGE / "instrument.js"))
        # A pattern, which the driver matches itself. With a function, every request of the page
        # would wait until this thread talks to the browser.
        self.context.route(re.compile("/(join|embed|meet)/"), self._allow_recorder)
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.browser_errors: list[str] = []
        self.page.on(
            "console",
            lambda message: message.type == "error" and self.browser_errors.append(message.text),
        )
        self.page.on("pageerror", lambda error: self.browser_errors.append(str(error)))

    @staticmethod
    def _allow_recorder(route):
        """Adds `blob:` to the page's script policy, because the recorder's module comes from a
        blob. The rest of the policy stays as it is."""
        if route.request.method != "GET":
            route.continue_()
            return
        answer = route.fetch()
        headers = dict(answer.headers)
        if policy := headers.get("content-security-policy"):
            headers["content-security-policy"] = policy.replace(
                "script-src 'self'", "script-src 'self' blob:"
            )
        route.fulfill(response=answer, headers=headers)

    def open(self, url: str):
        self.page.goto(url)
        self.page.evaluate("e2e.ready")
        return self

    def join(self):
        """Clicks "join" and returns the seconds until the first picture."""
        self.page.click("#join")
        self.wait_for("frames", {"more": 1})
        self.page.wait_for_selector("#veil.gone", state="attached")
        return self.page.evaluate("(e2e.marks.firstFrame - e2e.marks.click) / 1000")

    def wait_for(self, kind: str, about: dict | None = None, timeout: float = 60) -> dict:
        return self.page.evaluate(
            "([kind, about, timeout]) => e2e.until(kind, about, timeout)",
            [kind, about or {}, timeout * 1000],
        )

    def message_count(self) -> int:
        """The number of the next message."""
        return self.page.evaluate("e2e.messages.length")

    def wait_for_event(self, name: str, after: int = 0, timeout: float = 60) -> dict:
        """The next event of this name among the messages from `after` on:
        `{n, t, name, payload}`."""
        message = self.wait_for(
            "message", {"type": "server-message", "event": name, "after": after}, timeout
        )
        event = message["data"]["event"].get("event", message["data"]["event"])
        return {"n": message["n"], "t": message["t"], **event}

    def event_texts(self, name: str) -> list[str]:
        """The texts of all events of this name so far."""
        found = self.page.evaluate(
            (
                "(name) => e2e.messages.map((m) => m.data?.event?.event ?? "
                "m.data?.event).filter((e) => e?.name === name)"
            ),
            name,
        )
        return [event["payload"]["text"] for event in found]

    def wait_for_message(self, type: str, after: int = 0, timeout: float = 60) -> dict:
        return self.wait_for("message", {"type": type, "after": after}, timeout)

    def speak(self, text: str, voice_name: str = "slt") -> UserSpeech:
        sound, _ = speech.speak_wav(text, voice_name)
        return UserSpeech(text, **self.page.evaluate("(wav) => e2e.speak(wav)", sound))

    def play_wav(self, wav: str) -> UserSpeech:
        """Plays a sound (a WAV, base64) into the microphone."""
        return UserSpeech("", **self.page.evaluate("(wav) => e2e.speak(wav)", wav))

    def barge_in(
        self, text: str, into: float, voice_name: str = "slt", timeout: float = 60
    ) -> UserSpeech:
        """Speaks once the agent has spoken for `into` seconds."""
        sound, _ = speech.speak_wav(text, voice_name)
        return UserSpeech(
            text,
            **self.page.evaluate(
                "([wav, into, timeout]) => e2e.speakOver(wav, into, timeout)",
                [sound, into, timeout * 1000],
            ),
        )

    def wait_for_silence(
        self, lasting: float = 0.6, after: float = 0.0, timeout: float = 60
    ) -> float:
        """Waits until the agent has been silent for `lasting` seconds, counted from `after` at the
        earliest."""
        return self.wait_for("quiet", {"lasting": lasting, "after": after}, timeout)["at"]

    def wait_for_sound(self, after: float, timeout: float = 60) -> dict:
        return self.wait_for("sound", {"after": after}, timeout)

    def audio_clock(self) -> float:
        return self.page.evaluate("e2e.context.currentTime")

    def wait_until_time(self, at: float, timeout: float = 60):
        """Waits until everything up to `at` on the page's clock is recorded."""
        self.wait_for("clock", {"at": at}, timeout)

    def recording(self, start: float, end: float) -> tuple[np.ndarray, np.ndarray]:
        """The samples of the user and of the agent (16 bit, 48 kHz)."""
        self.wait_until_time(end)
        parts: list[list[np.ndarray]] = [[], []]
        at = start
        while at < end:  # in parts: the browser's debugger limits the size of an answer
            to = min(end, at + 20)
            for side, text in enumerate(
                self.page.evaluate("([from, to]) => e2e.recording(from, to)", [at, to])
            ):
                parts[side].append(np.frombuffer(base64.b64decode(text), np.int16))
            at = to
        return np.concatenate(parts[0]), np.concatenate(parts[1])

    def rtp_audio(self, start: float, end: float) -> tuple[np.ndarray, np.ndarray]:
        """The samples of the user and of the agent (16 bit, 48 kHz), decoded from the packets that
        the page sent and received. The page must be opened with `options={"packets": True}`. Unlike
        a recording, the result does not depend on whether the browser had time to play the audio.
        """
        self.wait_until_time(end)
        sides = self.page.evaluate("([from, to]) => e2e.passed(from, to)", [start, end])
        user, agent = (
            rtp.decode_opus([(stamp, base64.b64decode(payload)) for stamp, payload in side])
            for side in sides
        )
        return user, agent

    def first_sound(self, after: float, before: float, threshold: float = 0.004) -> float:
        """The exact time at which the agent's first sound after `after` began."""
        _, agent = self.recording(after, before)
        loud = np.flatnonzero(speech.loudness(agent, step=0.005) > threshold)
        assert len(loud), f"the agent was silent from {after} to {before}"
        return after + loud[0] * 0.005

    def silence_after(
        self, onset: float, before: float, lasting: float = 0.3, threshold: float = 0.004
    ) -> float:
        """The first moment after `onset` from which the agent was silent for `lasting` seconds."""
        _, agent = self.recording(onset, before + lasting)
        loud = speech.loudness(agent, step=0.005) > threshold
        need = int(lasting / 0.005)
        for at in range(len(loud) - need):
            if not loud[at : at + need].any():
                return onset + at * 0.005
        raise AssertionError(
            f"the agent was never silent for {lasting} s between {onset} and {before}"
        )

    def capture_video(self, on: bool = True, delay_ms: int = 0):
        self.page.evaluate(
            "([on, delay]) => { e2e.watching = on; e2e.delay = delay; if (on) e2e.frames = []; }",
            [on, delay_ms],
        )

    def displayed_frames(self, start: float, end: float) -> list[tuple[float, float]]:
        """The pictures that were displayed in this time: when, and the time that the server gave
        them, in seconds."""
        every = self.page.evaluate("e2e.shown")
        return [(one["at"], one["media"]) for one in every if start <= one["at"] <= end]

    def video_stats(self) -> dict:
        """The browser's statistics of the incoming video."""
        return self._inbound_stats("video")

    def audio_stats(self) -> dict:
        """The browser's statistics of the incoming audio."""
        return self._inbound_stats("audio")

    def _inbound_stats(self, kind: str) -> dict:
        return self.page.evaluate(
            (
                "async (kind) => [...(await e2e.peer.getStats()).values()].find((s) => s.type === "
                "'inbound-rtp' && s.kind === kind)"
            ),
            kind,
        )

    def captured_frames(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Times, numbers, and pictures (n × 96 × 96 luma)."""
        frames = self.page.evaluate("e2e.pictures()")
        luma = np.stack(
            [
                np.frombuffer(base64.b64decode(frame["luma"]), np.uint8).reshape(96, 96)
                for frame in frames
            ]
        )
        return (
            np.array([frame["t"] for frame in frames]),
            np.array([frame["presented"] for frame in frames]),
            luma,
        )

    def measurement_offset(self, seconds: float = 14) -> float:
        """The offset that this browser adds to the lip-sync measurement: sound reaches the recorder
        later than the loudspeaker. See e2e.pulses."""
        played = self.page.evaluate("(seconds) => e2e.pulses(seconds)", seconds)
        start = played["from"] + seconds / 2  # the two streams need time to synchronize
        _, sound = self.recording(start, played["to"])
        times, _, luma = self.captured_frames()
        shift, fit = lips.best_offset(
            times,
            1 - luma.mean(axis=(1, 2)) / 255,
            *lips.loudness_envelope(sound, start),
            reach=0.22,
        )
        assert fit > 0.5, f"light and sound of the loop do not fit: {fit}"
        return shift

    def captions(self) -> list[dict]:
        return self.page.evaluate(
            """[...document.querySelectorAll('#captions li')].map((item) => ({
                 who: item.dataset.who,
                 open: item.dataset.open === 'true',
                 spoken: item.querySelector('.spoken')?.textContent ?? '',
                 cut: item.querySelector('.cut')?.textContent ?? '' }))"""
        )

    def final_captions(self) -> list[dict]:
        """The captions once no line is open. The page draws an event's text with its next
        picture."""
        self.page.wait_for_selector("#captions li[data-open=true]", state="detached")
        return self.captions()

    def save_screenshot(self, name: str):
        OUT.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(OUT / f"{name}.png"))

    def close(self):
        """Hangs up if a call still runs. An abandoned call would hold its decoder for seconds."""
        try:
            if self.page.is_visible("#hang-up"):
                with self.page.expect_response(
                    lambda answer: answer.request.method == "DELETE", timeout=5000
                ):
                    self.page.click("#hang-up", timeout=5000)
        except Error:
            pass  # the test may have broken the page, its browser or its server
        self.context.close()
