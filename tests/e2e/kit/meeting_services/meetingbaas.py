"""Bots with the sound of the meeting on a WebSocket, and a stand-in of MeetingBaaS v2, whose bots
have nothing else."""

import asyncio
import time
import uuid

import aiohttp
import numpy as np

from ..meeting_audio import FRAME_SECONDS, BotVoice, MeetingSound
from .base import (
    MeetingService,
    Refused,
    closed_object,
    find_errors,
    timestamp,
)
from .page import Bot
from .recall import standard_headers


class SocketBot(Bot):
    """A bot with the sound of the meeting on a WebSocket."""

    #: Whether the service cuts the bot's sound again (`BotVoice`).
    cuts_again = False

    def __init__(self, service, id: str, request: dict):
        super().__init__(service, id, request)
        #: Samples per second of the sound that the bot sends.
        self.rate = 16_000
        self.sound = MeetingSound()
        self.voice = BotVoice(cuts_again=self.cuts_again)
        self.pacer = None
        self.next_frame_at = 0.0

    @property
    def received(self) -> list[tuple[float, bytes]]:
        """What came back: monotonic seconds, and s16le samples."""
        return self.voice.received

    def socket_urls(self) -> list[str]:
        raise NotImplementedError

    def send_frame(self, voices: dict[str | None, np.ndarray], mix: np.ndarray):
        """Sends 100 ms of the meeting."""
        raise NotImplementedError

    def open_socket(self, timeout: float = 20) -> bool:
        """Connects, and sends the meeting in real time from then on. Returns False if the server
        refuses; then the service tries again by itself."""
        is_open = self.connect(self.socket_urls(), timeout)
        if self.pacer is None:
            self.next_frame_at = time.monotonic()
            self.pacer = self.service.spawn(self._pace())
        return is_open

    async def _pace(self):
        while not self.is_over:
            await asyncio.sleep(self.next_frame_at - time.monotonic())
            with self.service.noting():
                voices, mix = self.sound.take(self.rate)
            self.send_frame(voices, mix)
            self.next_frame_at += FRAME_SECONDS

    def play(self, pcm: bytes | np.ndarray | dict, rate: int = 16_000) -> float:
        """Appends sound to the meeting: one voice, or one for each person. Returns when it begins,
        in monotonic seconds. A frame is sent at its end."""
        voices = pcm if isinstance(pcm, dict) else {None: pcm}
        unknown = voices.keys() - {None} - self.participants.keys()
        assert not unknown, f"{unknown} did not join"
        before = self.sound.add(voices, rate, self.rate)
        return self.next_frame_at - FRAME_SECONDS + before

    def stop_playing(self):
        """Discards the sound that was not yet sent."""
        self.sound.clear()

    def wait_until_played(self, timeout: float = 600):
        self.service.wait_for(self.sound.is_empty, "the end of the sound", timeout)

    def take_voice(self, pcm: bytes, rate: int):
        """Takes sound that the server under test sent."""
        if len(pcm) % 2:
            self.service.violate(f"{len(pcm)} bytes are no whole samples")
        with self.service.noting():
            self.voice.add(time.monotonic(), pcm, rate)


#: States in which the bot is in the meeting.
IN_CALL = ("in_call_not_recording", "in_call_recording", "recording_paused", "recording_resumed")
#: Seconds in which the same meeting is refused with `allow_multiple_bots: false`.
SAME_MEETING_SECONDS = 300
#: Seconds of the shortest and of the longest frame of the bot's sound.
FRAME_RANGE = (0.02, 0.1)
#: Seconds before the attempts to deliver a callback.
CALLBACK_DELAYS = (1, 5, 15)

TEXT = {"type": "string", "minLength": 1, "maxLength": 255}
FLAG = {"type": "boolean"}
ADDRESS = {"type": "string", "pattern": "^https://"}
SOCKET = {"type": ["string", "null"], "pattern": "^wss://"}


def _seconds(shortest: int) -> dict:
    return {"type": "integer", "minimum": shortest, "maximum": 1800}


CREATE_SCHEMA = closed_object(
    {
        "meeting_url": ADDRESS,
        "bot_name": TEXT,
        "bot_image": ADDRESS,
        "recording_mode": {"enum": ["speaker_view", "gallery_view", "audio_only"]},
        "streaming_enabled": FLAG,
        "streaming_config": closed_object(
            {
                "output_url": SOCKET,
                "input_url": SOCKET,
                "audio_frequency": {"enum": [24_000, 32_000, 48_000]},
            }
        ),
        "transcription_enabled": FLAG,
        "allow_multiple_bots": FLAG,
        "entry_message": {"type": "string", "maxLength": 500},
        "extra": {"type": "object"},
        "timeout_config": closed_object(
            {
                "waiting_room_timeout": _seconds(120),
                "no_one_joined_timeout": _seconds(120),
                "silence_timeout": _seconds(300),
                "grace_period": _seconds(0),
            }
        ),
        "callback_enabled": FLAG,
        "callback_config": closed_object(
            {"url": ADDRESS, "method": {"enum": ["POST"]}, "secret": TEXT}, ("url",)
        ),
    },
    ("meeting_url", "bot_name"),
)
CHAT_SCHEMA = closed_object(
    {"message": {"type": "string", "pattern": r"\S", "maxLength": 500}}, ("message",)
)


class MeetingBaasBot(SocketBot):
    first_state = "queued"
    over_states = frozenset({"completed", "failed"})

    def __init__(self, service, id: str, request: dict):
        super().__init__(service, id, request)
        self.streaming = request.get("streaming_config", {})
        self.rate = self.streaming.get("audio_frequency", 24_000)
        self.speaking: set[str] = set()
        if message := request.get("entry_message"):
            self.chat_messages.append(message)

    # --- what happens to the bot ---

    def enter_lobby(self):
        self.set_state("in_waiting_room")

    def admit(self):
        self.set_state("in_call_not_recording")
        self.set_state("in_call_recording")

    def tell_cause(self, cause: str | None):
        """The cause of an end precedes it as a state of its own."""
        if cause and self.service.tells_causes:
            self.set_state(cause)

    def fail(
        self,
        code: str = "INTERNAL_ERROR",
        message: str = "The bot failed.",
        cause: str | None = None,
    ):
        """The bot fails: BOT_NOT_ACCEPTED, CANNOT_JOIN_MEETING, LOGIN_REQUIRED, …"""
        self.tell_cause(cause)
        self.set_state("failed", error_code=code, error_message=message)

    fail_to_join = fail

    def deny(self):
        self.fail("BOT_NOT_ACCEPTED", "Bot was not accepted into the meeting.", "bot_rejected")

    def time_out_in_lobby(self):
        words = "Timeout waiting to start recording."
        self.fail("TIMEOUT_WAITING_TO_START", words, "waiting_room_timeout")

    def end(self, reason: str, cause: str | None = None):
        """The call ends normally: BOT_REMOVED, NO_ATTENDEES, NO_SPEAKER, API_REQUEST."""
        self.tell_cause(cause)
        self.set_state("call_ended", end_reason=reason)
        self.set_states(("recording_succeeded", {}), ("completed", {"end_reason": reason}))

    def remove(self):
        self.end("BOT_REMOVED", "bot_removed")

    end_meeting = remove

    def leave_automatically(self):
        self.end("NO_ATTENDEES")

    # --- webhooks ---

    def make_webhook(self, trigger: str, data: dict, id: str) -> dict:
        return {
            "event": trigger,
            "data": {
                "bot_id": self.id,
                "event_id": None,
                **data,
                "extra": self.request.get("extra"),
            },
        }

    def sign_webhook(self, secret: str, id: str, content: bytes) -> dict[str, str]:
        return standard_headers(secret, id, content, "svix")

    @staticmethod
    def state_change(state: str, **more) -> dict:
        """The data of a `bot.status_change`."""
        return {"status": {"code": state, "created_at": timestamp(), **more}}

    def announce_state(self, state: str, details: dict):
        error = {k: details[k] for k in ("error_message",) if k in details}
        self.send("bot.status_change", self.state_change(state, **error))
        if self.is_over:
            trigger = f"bot.{state}"
            self.send(trigger, details)
            self._call_back(trigger, details)

    def _call_back(self, trigger: str, data: dict):
        """Sends the bot's own callback. It is not signed: a header holds the secret."""
        target = self.request.get("callback_config")
        if not self.request.get("callback_enabled") or not target:
            return
        body = self.make_webhook(trigger, data, "")
        headers = {"x-mb-secret": target["secret"]} if "secret" in target else {}
        work = self.service.deliver(
            target["url"],
            f"callback {trigger}",
            body,
            lambda _: headers,
            retry_delays=CALLBACK_DELAYS,
            again=lambda status: status is not None and status >= 500,
        )
        self.service.spawn(work)

    # --- sockets ---

    def retry_delays(self, is_first: bool):
        """Seconds before the attempts: 1, 2, 4 … 60."""
        if is_first:
            yield 0
        delay = 1
        while True:
            yield delay
            delay = min(60, 2 * delay)

    def socket_urls(self) -> list[str]:
        return [url for name in ("output_url", "input_url") if (url := self.streaming.get(name))]

    def _send_output(self, message):
        for connection in self.connections:
            if connection.url == self.streaming.get("output_url"):
                connection.send(message)

    def on_connected(self, connection):
        if connection.url == self.streaming.get("output_url"):
            about = {"protocol_version": 2, "bot_id": self.id, "offset": 0.0}
            connection.send({**about, "sample_rate": self.rate})

    def send_frame(self, voices: dict[str | None, np.ndarray], mix: np.ndarray):
        self._send_output(mix.tobytes())

    def announce_participant(self, person, kind: str, at: float):
        """The service tells only who speaks, on the socket."""
        if kind in ("speech_start", "speech_stop"):
            (self.speaking.add if kind == "speech_start" else self.speaking.discard)(person.name)
            states = [
                {"name": p.name, "id": p.number, "timestamp": at, "isSpeaking": speaks}
                for p in self.participants.values()
                if (speaks := p.name in self.speaking) or p is person
            ]
            self.service.call(self._send_output, states)

    def on_message(self, connection, message):
        if message.type != aiohttp.WSMsgType.BINARY:
            self.service.violate(f"no binary frame: {message.data!r}")
        elif connection.url != self.streaming.get("input_url"):
            self.service.violate("sound on the output connection")
        else:
            seconds = len(message.data) / 2 / self.rate
            if not FRAME_RANGE[0] <= seconds <= FRAME_RANGE[1]:
                self.service.violate(f"a frame of {seconds:.3f} s")
            self.take_voice(message.data, self.rate)


class MeetingBaas(MeetingService):
    """`{url}/v2/bots`. `webhook_url` is the account's; without it only polling and callbacks tell
    the states."""

    key_header = ("x-meeting-baas-api-key", "")
    webhook_timeout = 30
    #: Whether causes such as `bot_rejected` are states; the documentation is not clear.
    tells_causes = True
    #: The beginning of three hours.
    retry_delays = (5, 300, 1800, 7200)

    def add_routes(self, router):
        bot = "/v2/bots/{bot}"
        self.route(router, "POST", "/v2/bots", "create", self._create)
        self.route(router, "GET", f"{bot}/status", "get", self._status)
        self.route(router, "POST", f"{bot}/leave", "leave", self._leave)
        self.route(router, "POST", f"{bot}/delete-data", "delete_data", self._delete_data)
        self.route(router, "POST", f"{bot}/send-chat-message", "chat", self._chat)

    def error_body(self, status: int, message: str = "", code: str = "") -> dict:
        names = {
            400: ("Bad Request", "FST_ERR_VALIDATION"),
            401: ("Unauthorized", "FST_ERR_UNAUTHORIZED"),
            402: ("Payment Required", "INSUFFICIENT_TOKENS"),
            404: ("Not Found", "FST_ERR_BOT_NOT_FOUND"),
            409: ("Conflict", "FST_ERR_BOT_STATUS"),
            429: ("Rate Limited", "FST_ERR_TOO_MANY_REQUESTS"),
        }
        error, usual = names.get(status, ("Internal Server Error", "FST_ERR_INTERNAL"))
        return {
            "success": False,
            "error": error,
            "code": code or usual,
            "statusCode": status,
            "message": message or error,
        }

    def _require(self, schema: dict, body):
        if errors := find_errors(schema, body):
            raise Refused(400, self.error_body(400, str(errors)))

    def _create(self, _, body) -> tuple[int, dict]:
        self._require(CREATE_SCHEMA, body)
        urls = [body.get("streaming_config", {}).get(name) for name in ("output_url", "input_url")]
        if body.get("streaming_enabled") and not any(urls):
            raise Refused(400, self.error_body(400, "streaming_config is required"))
        if not body.get("allow_multiple_bots", True):
            since = time.monotonic() - SAME_MEETING_SECONDS
            for bot in self.bots.values():
                if bot.request["meeting_url"] == body["meeting_url"] and bot.states[0][0] > since:
                    words = "A bot is already running for this meeting URL."
                    raise Refused(409, self.error_body(409, words, "BOT_ALREADY_EXISTS"))
        bot = MeetingBaasBot(self, str(uuid.uuid4()), body)
        self.add_bot(bot)
        bot.set_state("joining_call")
        return 201, {"success": True, "data": {"bot_id": bot.id}}

    def _status(self, bot: MeetingBaasBot, _) -> tuple[int, dict]:
        data = {"bot_id": bot.id, "status": bot.state, "updated_at": timestamp()}
        return 200, {"success": True, "data": data}

    def _done(self, message: str) -> tuple[int, dict]:
        return 200, {"success": True, "data": {"message": message}}

    def _conflict(self, bot: MeetingBaasBot) -> Refused:
        return Refused(409, self.error_body(409, f"The bot is in status {bot.state}"))

    def _leave(self, bot: MeetingBaasBot, _) -> tuple[int, dict]:
        if bot.is_over or any(state == "call_ended" for _, state, _ in bot.states):
            raise self._conflict(bot)
        bot.left_by_request = True
        bot.end("API_REQUEST", "api_request_stop")
        return self._done("Bot leave request accepted")

    def _delete_data(self, bot: MeetingBaasBot, _) -> tuple[int, dict]:
        if not bot.is_over:
            raise self._conflict(bot)
        bot.is_data_deleted = True
        return self._done("Bot data deleted")

    def _chat(self, bot: MeetingBaasBot, body) -> tuple[int, dict]:
        self._require(CHAT_SCHEMA, body)
        if bot.state not in IN_CALL:
            raise self._conflict(bot)
        bot.chat_messages.append(body["message"])
        return self._done("Message sent")
