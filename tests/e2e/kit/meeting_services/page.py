"""How a bot reaches the server under test: the bot and its life, its WebSockets, and its page in
Chromium."""

import asyncio
import contextlib
import json
import re
import time
import uuid

import aiohttp
import numpy as np
from playwright.sync_api import Error
from yarl import URL

from .. import speech
from ..call import BrowserCall
from ..meeting_audio import Participant
from .base import VALID


class Bot:
    """A bot of a service. The states are the service's own words."""

    #: States after which nothing follows.
    over_states: frozenset[str] = frozenset()
    first_state = "ready"
    #: Whether the bot connects again after the server closed the connection.
    reconnects_when_closed = True

    def __init__(self, service, id: str, request: dict):
        self.service, self.id, self.request = service, id, request
        #: Monotonic seconds, state, and details of each state.
        self.states: list[tuple[float, str, dict]] = [(time.monotonic(), self.first_state, {})]
        #: Whether the server under test asked the bot to leave.
        self.left_by_request = False
        self.is_data_deleted = False
        #: Messages for the meeting's chat, also the one of the create.
        self.chat_messages: list[str] = []
        #: The people by name, and how often anybody joined.
        self.participants: dict[str, Participant] = {}
        self.joins = 0
        self.page_urls: list[str] = []
        self.connections: list[Connection] = []
        #: Monotonic seconds of each attempt to connect.
        self.socket_attempts: list[float] = []
        #: Refused upgrades: monotonic seconds and status.
        self.socket_refusals: list[tuple[float, int]] = []

    @property
    def page_url(self) -> str:
        """The loopback address of the page that the bot shows."""
        return self.service.resolve_url(self.page_urls[-1])

    @property
    def state(self) -> str:
        return self.states[-1][1]

    @property
    def is_over(self) -> bool:
        return self.state in self.over_states

    def set_state(self, state: str, **details):
        """The state is visible to `get` at once. A webhook tells it."""
        with self.service.noting():
            self.states.append((time.monotonic(), state, details))
        self.announce_state(state, details)
        if self.is_over:
            self.service.spawn(self.close_connections())

    def set_states(self, *steps: tuple[str, dict]):
        """The states follow each other by themselves."""

        async def run():
            for state, details in steps:
                await asyncio.sleep(self.service.leave_seconds)
                self.set_state(state, **details)

        self.service.spawn(run())

    def wait_for_state(self, state: str, timeout: float = 60):
        self.service.wait_for(lambda: self.state == state, f"the state {state}", timeout)

    def announce_state(self, state: str, details: dict):
        """Sends the webhooks of a state."""
        raise NotImplementedError

    def webhooks(self, trigger: str) -> list[str]:
        """The addresses for a trigger."""
        return [self.service.webhook_url] if self.service.webhook_url else []

    def make_webhook(self, trigger: str, data: dict, id: str) -> dict:
        """The body of a webhook."""
        raise NotImplementedError

    def sign_webhook(self, secret: str, id: str, content: bytes) -> dict[str, str]:
        """The headers that sign a webhook."""
        raise NotImplementedError

    def _deliver(self, url: str, trigger: str, data: dict, secret, id: str, **options):
        def headers(content: bytes) -> dict[str, str]:
            return {} if secret is None else self.sign_webhook(secret, id, content)

        body = self.make_webhook(trigger, data, id)
        return self.service.deliver(url, trigger, body, headers, **options)

    def send(self, trigger: str, data: dict, delay: float = 0.0, to: list[str] | None = None):
        """Sends a webhook by itself, and again until it is accepted."""
        service = self.service
        if service.sends_webhooks and (service.webhook_secret or service.sends_unsigned):
            options = {"delay": delay + service.webhook_delay, "retry_delays": service.retry_delays}
            for url in self.webhooks(trigger) if to is None else to:
                secret, id = service.webhook_secret, str(uuid.uuid4())
                service.spawn(self._deliver(url, trigger, data, secret, id, **options))

    def send_webhook(
        self, trigger: str, data: dict, signature: str | None = VALID, repeat: int = 1
    ) -> list[int | None]:
        """Sends a webhook now, `repeat` times with the same id, and returns the statuses."""
        secret, id = self.service.signing_secret(signature), str(uuid.uuid4())
        return [
            self.service.run(self._deliver(url, trigger, data, secret, id))
            for _ in range(repeat)
            for url in self.webhooks(trigger)
        ]

    def participant_joins(self, name: str, is_host: bool = False):
        with self.service.noting():
            self.joins += 1
            person = self.participants[name] = Participant(self.joins, name, is_host)
        self.announce_participant(person, "join", time.time())

    def participant_leaves(self, name: str):
        self.participants[name].is_present = False
        self.announce_participant(self.participants[name], "leave", time.time())

    def speech(self, name: str, is_speaking: bool):
        """The service reports that a person begins or stops to speak now."""
        kind = "speech_start" if is_speaking else "speech_stop"
        self.announce_participant(self.participants[name], kind, time.time())

    def report_speech(self, lines, start: float):
        """Reports the lines (name, begin, end) of a recording that begins at `start`."""
        events = [(begin, who, True) for who, begin, _ in lines]
        events += [(end, who, False) for who, _, end in lines]

        async def run():
            for at, who, is_speaking in sorted(events):
                await asyncio.sleep(start + at - time.monotonic())
                self.speech(who, is_speaking)

        self.service.spawn(run())

    def announce_participant(self, person: Participant, kind: str, at: float):
        """Tells an event of a participant: join, leave, speech_start or speech_stop."""
        raise NotImplementedError

    def retry_delays(self, is_first: bool):
        """Seconds before each attempt to connect."""
        raise NotImplementedError

    def upgrade_headers(self) -> dict[str, str]:
        return {}

    def on_connected(self, connection: "Connection"):
        pass

    def on_message(self, connection: "Connection", message: aiohttp.WSMessage):
        pass

    @property
    def is_connected(self) -> bool:
        return bool(self.connections) and all(one.is_open for one in self.connections)

    def connect(self, urls: list[str], timeout: float) -> bool:
        """Opens a connection to each URL. Returns whether all are open; False after a refusal."""
        refused = len(self.socket_refusals)
        if not self.connections:
            self.connections = [Connection(self, url) for url in dict.fromkeys(urls)]
        self.service.wait_for(
            lambda: self.is_connected or len(self.socket_refusals) > refused, "the socket", timeout
        )
        return self.is_connected

    def wait_for_socket(self, timeout: float = 60):
        self.service.wait_for(lambda: self.is_connected, "the socket", timeout)

    def drop_socket(self, seconds: float = 0.0):
        """Loses the connections without a close frame. No attempt succeeds for `seconds`."""
        for connection in self.connections:
            connection.blocked_until = time.monotonic() + seconds
            connection.drop()

    async def close_connections(self):
        for connection in self.connections:
            await connection.close()


class Connection:
    """A WebSocket that a bot opens, and opens again when it is lost."""

    def __init__(self, bot: Bot, url: str):
        self.bot, self.url = bot, url
        self.blocked_until = 0.0
        self.is_closed = False
        self.socket: aiohttp.ClientWebSocketResponse | None = None
        self.outgoing: asyncio.Queue | None = None
        self.task = bot.service.spawn(self._run())

    @property
    def is_open(self) -> bool:
        return self.outgoing is not None

    async def _run(self):
        is_first = True
        while not self.is_closed:
            for delay in self.bot.retry_delays(is_first):
                await asyncio.sleep(delay)
                if self.is_closed or await self._connect():
                    break
            else:
                return
            is_first = False
            if self.socket is not None and not self.is_closed:
                await self._serve()

    async def _connect(self) -> bool:
        bot, now = self.bot, time.monotonic()
        bot.socket_attempts.append(now)
        if now < self.blocked_until:
            return False
        target = URL(bot.service.resolve_url(self.url), encoded=True)
        try:
            self.socket = await bot.service.client.ws_connect(
                target, headers=bot.upgrade_headers(), max_msg_size=1 << 24
            )
        except aiohttp.WSServerHandshakeError as error:
            with bot.service.noting():
                bot.socket_refusals.append((now, error.status))
            return False
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False
        return True

    async def _serve(self):
        """Sends and receives until the connection is lost."""
        with self.bot.service.noting():
            self.outgoing = asyncio.Queue()
        self.bot.on_connected(self)
        sender = asyncio.create_task(self._send(self.outgoing))
        try:
            with contextlib.suppress(aiohttp.ClientError, OSError):
                async for message in self.socket:
                    self.bot.on_message(self, message)
        finally:
            sender.cancel()
            with self.bot.service.noting():
                self.outgoing = None
            was_closed = self.socket.close_code not in (None, 1006)
            self.is_closed |= was_closed and not self.bot.reconnects_when_closed
            await self.socket.close()
            self.socket = None

    async def _send(self, outgoing: asyncio.Queue):
        with contextlib.suppress(aiohttp.ClientError, OSError):
            while True:
                message = await outgoing.get()
                if isinstance(message, bytes):
                    await self.socket.send_bytes(message)
                else:
                    await self.socket.send_str(json.dumps(message))

    def send(self, message):
        """Sends bytes, or JSON as text. What comes while there is no connection is lost."""
        if (outgoing := self.outgoing) is not None:
            outgoing.put_nowait(message)

    def drop(self):
        self.outgoing = None
        if (socket := self.socket) is not None:
            socket.get_extra_info("socket").shutdown(2)

    async def close(self):
        self.is_closed = True
        if self.socket is not None:
            await self.socket.close()


#: The page's microphone, as each service makes it. It builds on page/instrument.js.
MICROPHONE_SCRIPT = """(() => {
  if (!window.e2e || window.bot) return;
  const options = OPTIONS;
  const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  const bot = (window.bot = { requests: [], rejections: options.rejections });
  let source = null, begin = () => {};
  bot.play = (wav) => {
    bot.times = new Promise((resolve) => {
      begin = () => { resolve(e2e.speak(wav)); begin = () => {}; };
    });
    if (source) begin();
  };
  const showError = (text) => {
    const banner = document.createElement("div");
    banner.id = "attendee-audio-error";
    banner.textContent = text;
    banner.style.cssText = "position: fixed; top: 20px; left: 50%; z-index: 999999; " +
      "padding: 16px 24px; background: #f44336; color: #fff";
    document.body.appendChild(banner);
  };
  navigator.mediaDevices.getUserMedia = async (constraints = { audio: true }) => {
    bot.requests.push({ at: performance.now(), constraints: JSON.stringify(constraints) });
    if (!constraints.audio) throw new DOMException("Permission denied", "NotAllowedError");
    if (bot.rejections > 0) {
      bot.rejections -= 1;
      const text = "Upstream audio error: 409 No meeting audio has been published";
      showError(text);
      throw new Error(text);
    }
    source ??= open({ audio: true });
    const [track] = (await source).getAudioTracks();
    begin();
    return new MediaStream([track.clone()]);
  };
  if (!options.injects) return;
  document.addEventListener("DOMContentLoaded", () => setTimeout(async () => {
    const audio = document.createElement("audio");
    audio.id = "microphoneAudioInjectedByAttendeeWebsiteStreamer";
    audio.autoplay = audio.muted = true;
    document.body.appendChild(audio);
    const microphone = navigator.mediaDevices.getUserMedia({ audio: true });
    audio.srcObject = await microphone.catch(() => null);
  }, 1000));
})();"""


class BotPage(BrowserCall):
    """The page of a bot. The recording of the meeting begins when the page gets the microphone.
    Times are those of the page's audio clock."""

    def __init__(self, browser, *, rejections: int, injects: bool, options: dict):
        super().__init__(browser, width=1280, height=720, options=options)
        script = {"rejections": rejections, "injects": injects}
        self.context.add_init_script(MICROPHONE_SCRIPT.replace("OPTIONS", json.dumps(script)))
        self.context.route(re.compile("/meet/"), self._allow_recorder)

    def play(self, pcm: bytes, rate: int = 16_000):
        """Plays the meeting once, from the moment at which the page has the microphone."""
        wav = speech.wav_base64(np.frombuffer(pcm, np.int16), rate)
        self.page.evaluate("(wav) => { bot.play(wav); }", wav)

    def meeting_times(self, timeout: float = 60) -> tuple[float, float]:
        """When the meeting that was played last begins and ends."""
        late = "new Promise((_, reject) => setTimeout(() => reject('no microphone'), ms))"
        found = self.page.evaluate(f"(ms) => Promise.race([bot.times, {late}])", timeout * 1000)
        return found["start"], found["end"]

    def microphone_requests(self) -> list[dict]:
        return self.page.evaluate("bot.requests")

    def allow_microphone(self):
        """Rejects no further request."""
        self.page.evaluate("bot.rejections = 0")

    def has_banner(self) -> bool:
        return self.page.evaluate("document.getElementById('attendee-audio-error') !== null")

    def is_audible(self) -> bool:
        """Whether an element of the page plays sound that the service captures."""
        return self.page.evaluate(
            """[...document.querySelectorAll("audio, video")].some((e) => !e.muted && !e.paused &&
                 e.volume > 0 && (e.srcObject?.getAudioTracks().length ?? 0) > 0)"""
        )

    def crash(self):
        """The page's process ends. The service does not load the page again."""
        with self.page.expect_event("crash"), contextlib.suppress(Error):
            self.page.goto("chrome://crash")


def open_bot_page(
    browser,
    url: str,
    meeting_pcm: bytes | None = None,
    *,
    rate: int = 16_000,
    service: str = "attendee",
    rejections: int | None = None,
    options: dict | None = None,
) -> BotPage:
    """Opens the page of a bot at 1280×720. `rejections`: requests for the microphone that are
    rejected at first; by default the service's own. `options` are those of instrument.js."""
    is_attendee = service == "attendee"
    if rejections is None:
        rejections = 1 if is_attendee else 0
    page = BotPage(browser, rejections=rejections, injects=is_attendee, options=options or {})
    page.open(url)
    if meeting_pcm is not None:
        page.play(meeting_pcm, rate)
    return page
