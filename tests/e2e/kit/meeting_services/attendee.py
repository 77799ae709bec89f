"""A stand-in of Attendee (`attendee-labs/attendee`): pages, sockets, and webhooks for each bot."""

import base64
import binascii
import hashlib
import hmac
import json
import re
import time
import uuid

import aiohttp
import numpy as np

from ..providers.synthesis import resample
from .base import (
    MeetingService,
    Refused,
    closed_object,
    find_errors,
    timestamp,
)
from .meetingbaas import SocketBot

TRIGGERS = """bot.state_change transcript.update chat_messages.update participant_events.join_leave
participant_events.speech_start_stop calendar.events_update calendar.state_change
async_transcription.state_change bot_logs.update""".split()
#: The type of the event that leads to a state.
EVENT_TYPES = {
    "joining": "join_requested",
    "waiting_room": "put_in_waiting_room",
    "joined_not_recording": "bot_joined_meeting",
    "joined_recording": "bot_recording_permission_granted",
    "joined_recording_paused": "recording_paused",
    "joined_recording_permission_denied": "bot_recording_permission_denied",
    "joining_breakout_room": "bot_began_joining_breakout_room",
    "leaving_breakout_room": "bot_began_leaving_breakout_room",
    "leaving": "leave_requested",
    "post_processing": "bot_left_meeting",
    "ended": "post_processing_completed",
    "fatal_error": "fatal_error",
    "data_deleted": "data_deleted",
}
#: Seconds until speech that began or ended is reported.
SPEECH_DELAYS = {"speech_start": 0.25, "speech_stop": 1.0}
OUTPUT_RATES = (8000, 16_000, 24_000)


TEXT = {"type": "string", "minLength": 1}
ADDRESS = {"type": "string"}
FLAG = {"type": "boolean"}
SECONDS = {"type": "integer", "minimum": 1}
LOGIN = closed_object({"use_login": FLAG, "login_mode": TEXT, "login_group_name": TEXT})
LEAVE_SETTINGS = """waiting_room_timeout_seconds only_participant_in_meeting_timeout_seconds
wait_for_host_to_start_meeting_timeout_seconds silence_timeout_seconds
silence_activate_after_seconds max_uptime_seconds""".split()


def _socket(rates: tuple[int, ...]) -> dict:
    return closed_object({"url": ADDRESS, "sample_rate": {"enum": list(rates)}}, ("url",))


WEBHOOK = closed_object(
    {
        "url": {"type": "string", "pattern": "^https://.*"},
        "triggers": {"type": "array", "items": {"enum": TRIGGERS}, "minItems": 1},
    },
    ("url", "triggers"),
)
CREATE_SCHEMA = closed_object(
    {
        "meeting_url": {"type": "string", "pattern": "^https://"},
        "bot_name": TEXT,
        "metadata": {"type": "object", "minProperties": 1, "additionalProperties": ADDRESS},
        "deduplication_key": TEXT,
        "voice_agent_settings": closed_object(
            {"url": ADDRESS, "screenshare_url": ADDRESS, "reserve_resources": FLAG}
        ),
        "websocket_settings": closed_object(
            {"audio": _socket(OUTPUT_RATES), "per_participant_audio": _socket((8000, 16_000))}
        ),
        "zoom_settings": closed_object({"sdk": {"enum": ["web", "native"]}}),
        "google_meet_settings": LOGIN,
        "teams_settings": LOGIN,
        "recording_settings": closed_object(
            {
                "format": {"enum": ["mp4", "mp3", "webm", "none"]},
                "view": TEXT,
                "resolution": TEXT,
                "record_participant_speech_start_stop_events": FLAG,
            }
        ),
        "automatic_leave_settings": closed_object(dict.fromkeys(LEAVE_SETTINGS, SECONDS)),
        "bot_chat_message": closed_object({"to": TEXT, "message": TEXT}, ("message",)),
        "webhooks": {"type": "array", "maxItems": 2, "items": WEBHOOK},
    },
    ("meeting_url", "bot_name"),
)
CHAT_SCHEMA = closed_object(
    {"to": {"enum": ["everyone", "everyone_but_host"]}, "message": TEXT}, ("message",)
)
PAGE_SCHEMA = closed_object({"url": {"type": "string", "pattern": "^https://"}}, ("url",))
DUPLICATE = (
    "Deduplication key already in use. A bot in a non-terminal state with this deduplication key "
    "already exists. Please use a different deduplication key or wait for that bot to terminate."
)


def sign(payload: dict, secret: str) -> str:
    """The signature of a webhook: over its JSON in canonical form, which is not the form sent."""
    canonical = json.dumps(payload, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    digest = hmac.new(base64.b64decode(secret), canonical.encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


class AttendeeBot(SocketBot):
    over_states = frozenset({"ended", "fatal_error", "data_deleted"})
    cuts_again = True

    def __init__(self, service, id: str, request: dict):
        super().__init__(service, id, request)
        #: Whether frames of silence of a participant are left out.
        self.omits_silence = False
        self.page_urls = [u for u in [request.get("voice_agent_settings", {}).get("url")] if u]
        #: Type, sub type and time of the events.
        self.events: list[tuple] = []
        sockets = request.get("websocket_settings", {})
        self.rate = max((one.get("sample_rate", 16_000) for one in sockets.values()), default=0)
        if message := request.get("bot_chat_message"):
            self.chat_messages.append(message["message"])

    # --- what happens to the bot ---

    def enter_lobby(self):
        self.set_state("waiting_room")

    def admit(self, *, records: bool = True):
        """The bot enters. Without `records` the host has not permitted it yet (Zoom)."""
        self.set_state("joined_not_recording")
        if records:
            self.set_state("joined_recording")

    def fail_to_join(self, sub_type: str):
        """For example meeting_not_found, login_required, blocked_by_captcha."""
        self.set_state("fatal_error", event_type="could_not_join_meeting", event_sub_type=sub_type)

    def deny(self):
        self.fail_to_join("request_to_join_denied")

    def time_out_in_lobby(self):
        self.fail_to_join("waiting_room_timeout_exceeded")

    def fail(self, sub_type: str = "process_terminated"):
        self.set_state("fatal_error", event_type="fatal_error", event_sub_type=sub_type)

    def remove(self, remover: str | None = None):
        """The bot is removed from the meeting. Only Teams tells by whom."""
        metadata = {"remover_name": remover} if remover else {}
        self.set_state("post_processing", event_type="meeting_ended", event_metadata=metadata)
        self.set_states(("ended", {}))

    def end_meeting(self):
        self.remove()

    def leave_automatically(self, sub_type: str = "auto_leave_only_participant_in_meeting"):
        """The bot leaves by itself: `auto_leave_…`."""
        self.set_state("leaving", event_sub_type=sub_type)
        self.set_states(("post_processing", {}), ("ended", {}))

    # --- webhooks ---

    def webhooks(self, trigger: str) -> list[str]:
        """The addresses for a trigger. Those of the bot replace those of the project."""
        if own := self.request.get("webhooks"):
            return [one["url"] for one in own if trigger in one["triggers"]]
        return [self.service.webhook_url] if self.service.webhook_url else []

    def make_webhook(self, trigger: str, data: dict, id: str) -> dict:
        return {
            "idempotency_key": id,
            "bot_id": self.id,
            "bot_metadata": self.request.get("metadata"),
            "trigger": trigger,
            "data": data,
        }

    def sign_webhook(self, secret: str, id: str, content: bytes) -> dict[str, str]:
        return {"X-Webhook-Signature": sign(json.loads(content), secret)}

    def state_change(self, state: str, old_state: str | None = None, **details) -> dict:
        """The data of a `bot.state_change`."""
        return {
            "new_state": state,
            "old_state": old_state or self.state,
            "created_at": timestamp(),
            "event_type": EVENT_TYPES.get(state),
            "event_sub_type": None,
            "event_metadata": {},
            **details,
        }

    def announce_state(self, state: str, details: dict):
        old = self.states[-2][1] if len(self.states) > 1 else "ready"
        change = self.state_change(state, old, **details)
        names = ("event_type", "event_sub_type", "created_at")
        self.events.append(tuple(change[name] for name in names))
        self.send("bot.state_change", change)

    def announce_participant(self, person, kind: str, at: float):
        trigger = "participant_events.join_leave"
        if kind in SPEECH_DELAYS:
            trigger = "participant_events.speech_start_stop"
            settings = self.request.get("recording_settings", {})
            if not settings.get("record_participant_speech_start_stop_events"):
                return
        data = {
            "id": f"evt_{uuid.uuid4().hex[:16]}",
            "participant_name": person.name,
            "participant_uuid": person.uuid,
            "participant_user_uuid": None,
            "participant_is_host": person.is_host,
            "event_type": kind,
            "event_data": {},
            "timestamp_ms": round(at * 1000),
        }
        self.send(trigger, data, SPEECH_DELAYS.get(kind, 0.0))

    # --- sockets ---

    def retry_delays(self, is_first: bool):
        return (0, *[10] * 29)

    def socket_urls(self) -> list[str]:
        return [one["url"] for one in self.request.get("websocket_settings", {}).values()]

    def send_frame(self, voices: dict[str | None, np.ndarray], mix: np.ndarray):
        sockets = self.request["websocket_settings"]
        frames = []
        if "audio" in sockets:
            frames.append(("audio", "mixed", mix, {}))
        if "per_participant_audio" in sockets:
            for person in self.participants.values():
                samples = voices.get(person.name, np.zeros(len(mix), np.int16))
                if person.is_present and (samples.any() or not self.omits_silence):
                    more = {"participant_uuid": person.uuid}
                    frames.append(("per_participant_audio", "per_participant", samples, more))
        for name, trigger, samples, more in frames:
            rate = sockets[name].get("sample_rate", 16_000)
            chunk = resample(samples, self.rate, rate).tobytes()
            data = {
                **more,
                "chunk": base64.b64encode(chunk).decode(),
                "timestamp_ms": round(time.time() * 1000),
                "sample_rate": rate,
            }
            message = {"trigger": f"realtime_audio.{trigger}", "bot_id": self.id, "data": data}
            for connection in self.connections:
                if connection.url == sockets[name]["url"]:
                    connection.send(message)

    def on_message(self, connection, message):
        try:
            if message.type != aiohttp.WSMsgType.TEXT:
                raise ValueError("no text frame")
            content = json.loads(message.data)
            if content["trigger"] != "realtime_audio.bot_output":
                raise ValueError(f"trigger {content['trigger']}")
            rate = content["data"]["sample_rate"]
            if rate not in OUTPUT_RATES:
                raise ValueError(f"sample rate {rate}")
            pcm = base64.b64decode(content["data"]["chunk"], validate=True)
        except (ValueError, KeyError, TypeError, binascii.Error) as error:
            # The service says nothing about it.
            self.service.violate(f"message to the socket: {error!r}")
            return
        self.take_voice(pcm, rate)


class Attendee(MeetingService):
    """The instance: `{url}/api/v1/bots`."""

    webhook_timeout = 10
    wrong_secret = base64.b64encode(b"the secret of another project").decode()
    #: Whether the instance permits pages (`ENABLE_VOICE_AGENTS`).
    has_voice_agents = True

    def add_routes(self, router):
        bot = "/api/v1/bots/{bot}"
        self.route(router, "POST", "/api/v1/bots", "create", self._create)
        self.route(router, "GET", bot, "get", lambda bot, _: (200, self._describe(bot)))
        self.route(router, "POST", f"{bot}/leave", "leave", self._leave)
        self.route(router, "POST", f"{bot}/delete_data", "delete_data", self._delete_data)
        self.route(router, "POST", f"{bot}/send_chat_message", "chat", self._chat)
        self.route(router, "GET", f"{bot}/participants", "participants", self._participants)
        self.route(router, "PATCH", f"{bot}/voice_agent_settings", "page", self._change_page)

    def error_body(self, status: int, message: str = "") -> dict:
        if status == 400:
            return {"error": message or "An error occurred while creating the bot."}
        words = {401: "Invalid API key", 404: "Not found.", 429: "Request was throttled."}
        return {"detail": words.get(status, "Server Error")}

    def _require(self, schema: dict, body):
        if errors := find_errors(schema, body):
            raise Refused(400, errors)

    def _create(self, _, body) -> tuple[int, dict]:
        self._require(CREATE_SCHEMA, body)
        if any(ord(character) > 0xFFFF for character in body["bot_name"]):
            words = "Bot name cannot contain emojis or rare script characters."
            raise Refused(400, {"bot_name": [words]})
        for name, socket in body.get("websocket_settings", {}).items():
            if not socket["url"].lower().startswith("wss://"):
                error = {"url": "URL must start with wss://"}
                raise Refused(400, {"websocket_settings": {name: error}})
        self._check_page(body)
        key = body.get("deduplication_key")
        if key and any(key == bot.request.get("deduplication_key") for bot in self.live_bots()):
            raise Refused(400, {"error": DUPLICATE})
        bot = AttendeeBot(self, f"bot_{uuid.uuid4().hex[:16]}", body)
        self.add_bot(bot)
        bot.set_state("joining")
        return 201, self._describe(bot)

    def _check_page(self, body: dict):
        settings = body.get("voice_agent_settings")
        if settings is None:
            return

        def refuse(error):
            raise Refused(400, {"voice_agent_settings": error})

        if not self.has_voice_agents:
            refuse(["Voice agents are not enabled."])
        if len(settings.keys() & {"url", "screenshare_url"}) == 2:
            refuse({"url": "You cannot provide both url and screenshare_url."})
        for name in settings.keys() & {"url", "screenshare_url"}:
            if not settings[name].lower().startswith("https://"):
                refuse({name: "URL must start with https://"})
        is_zoom = re.match(r"https://([\w-]+\.)*zoom\.(us|com)(/|$)", body["meeting_url"])
        if is_zoom and body.get("zoom_settings", {}).get("sdk") != "web":
            refuse(["Voice agent is not supported for Zoom when using the native SDK."])

    def _describe(self, bot: AttendeeBot) -> dict:
        is_recording = bot.state == "joined_recording"
        return {
            "id": bot.id,
            "metadata": bot.request.get("metadata"),
            "meeting_url": bot.request["meeting_url"],
            "state": bot.state,
            "events": [
                {"type": type, "sub_type": sub_type, "created_at": at}
                for type, sub_type, at in bot.events
            ],
            "transcription_state": "not_started",
            "recording_state": "in_progress" if is_recording else "not_started",
            "join_at": None,
            "deduplication_key": bot.request.get("deduplication_key"),
        }

    def _leave(self, bot: AttendeeBot, _) -> tuple[int, dict]:
        if bot.is_over or bot.state in ("leaving", "post_processing"):
            words = f"Bot is in state {bot.state} and cannot leave the meeting"
            raise Refused(400, {"error": words})
        bot.left_by_request = True
        bot.set_state("leaving", event_sub_type="user_requested")
        bot.set_states(("post_processing", {}), ("ended", {}))
        return 200, self._describe(bot)

    def _delete_data(self, bot: AttendeeBot, _) -> tuple[int, dict]:
        if bot.state not in ("ended", "fatal_error"):
            raise Refused(400, {"error": f"Bot is in state {bot.state}, its data are in use"})
        bot.is_data_deleted = True
        bot.set_state("data_deleted")
        return 200, self._describe(bot)

    def _chat(self, bot: AttendeeBot, body) -> tuple[int, dict]:
        self._require(CHAT_SCHEMA, body)
        if not bot.state.startswith("joined_"):
            raise Refused(400, {"error": f"Bot is in state {bot.state} and cannot send messages"})
        bot.chat_messages.append(body["message"])
        return 200, {}

    def _participants(self, bot: AttendeeBot, _) -> tuple[int, dict]:
        people = [
            {"id": f"par_{p.number}", "name": p.name, "uuid": p.uuid, "is_host": p.is_host}
            for p in bot.participants.values()
        ]
        return 200, {"next": None, "previous": None, "results": people}

    def _change_page(self, bot: AttendeeBot, body) -> tuple[int, dict]:
        self._require(PAGE_SCHEMA, body)
        if bot.is_over or not bot.page_urls:
            raise Refused(400, {"error": "Voice agent resources were not reserved."})
        bot.page_urls.append(body["url"])
        return 200, self._describe(bot)
