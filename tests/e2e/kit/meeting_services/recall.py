"""A stand-in of Recall.ai: pages, and events of participants on a WebSocket or by webhook."""

import base64
import hashlib
import hmac
import time
import uuid

from .base import (
    MeetingService,
    Refused,
    closed_object,
    find_errors,
    timestamp,
)
from .page import Bot

VARIANTS = {"enum": ["web", "web_4_core", "web_gpu", "native"]}
PARTICIPANT_EVENTS = """participant_events.join participant_events.leave participant_events.update
participant_events.speech_on participant_events.speech_off participant_events.webcam_on
participant_events.webcam_off participant_events.screenshare_on participant_events.screenshare_off
participant_events.chat_message transcript.data transcript.partial_data""".split()
#: The service's names of what participants do.
EVENT_NAMES = {
    "join": "join",
    "leave": "leave",
    "speech_start": "speech_on",
    "speech_stop": "speech_off",
}
IN_CALL = """in_call_not_recording recording_permission_allowed recording_permission_denied
in_call_recording""".split()
#: Seconds between the attempts to connect, which the documentation does not tell.
RETRY_SECONDS = 3

TEXT = {"type": "string", "minLength": 1}
FLAG = {"type": "boolean"}
SECONDS = {"type": "integer", "minimum": 1}
PERIOD = closed_object({"timeout": SECONDS, "activate_after": {"type": "integer", "minimum": 0}})
#: A kind of recording: null or an object orders it or switches it off.
MEDIA = {"type": ["object", "null"]}
WEBPAGE = closed_object(
    {
        "kind": {"const": "webpage"},
        "config": closed_object({"url": {"type": "string", "pattern": "^https://"}}, ("url",)),
    },
    ("kind", "config"),
)
OUTPUT_MEDIA = closed_object({"camera": WEBPAGE, "screenshare": WEBPAGE})
ENDPOINT = {
    **closed_object(
        {
            "type": {"enum": ["websocket", "webhook"]},
            "url": TEXT,
            "events": {"type": "array", "items": {"enum": PARTICIPANT_EVENTS}, "minItems": 1},
        },
        ("type", "url", "events"),
    ),
    "if": {"properties": {"type": {"const": "websocket"}}},
    "then": {"properties": {"url": {"pattern": "^wss://"}}},
    "else": {"properties": {"url": {"pattern": "^https://"}}},
}
CREATE_SCHEMA = closed_object(
    {
        "meeting_url": {"type": "string", "pattern": "^https://"},
        "bot_name": {"type": "string", "minLength": 1, "maxLength": 100},
        "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
        "output_media": OUTPUT_MEDIA,
        "automatic_audio_output": {"type": "object"},
        "automatic_video_output": {"type": "object"},
        "variant": closed_object(
            {"zoom": VARIANTS, "google_meet": VARIANTS, "microsoft_teams": VARIANTS}
        ),
        "recording_config": closed_object(
            {
                "realtime_endpoints": {"type": "array", "items": ENDPOINT},
                "video_mixed_mp4": MEDIA,
                "audio_mixed_mp3": MEDIA,
                "participant_events": MEDIA,
                "meeting_metadata": MEDIA,
                "transcript": MEDIA,
                "retention": MEDIA,
                "start_recording_on": TEXT,
            }
        ),
        "automatic_leave": closed_object(
            {
                "waiting_room_timeout": SECONDS,
                "noone_joined_timeout": SECONDS,
                "everyone_left_timeout": PERIOD,
                "in_call_not_recording_timeout": SECONDS,
                "in_call_recording_timeout": SECONDS,
                "recording_permission_denied_timeout": SECONDS,
                "silence_detection": PERIOD,
                "bot_detection": {"type": "object"},
            }
        ),
        "chat": closed_object({"on_bot_join": closed_object({"send_to": TEXT, "message": TEXT})}),
    },
    ("meeting_url",),
)
CHAT_SCHEMA = closed_object({"to": TEXT, "message": TEXT}, ("message",))


def standard_headers(secret: str, id: str, body: bytes, prefix: str = "webhook") -> dict[str, str]:
    """The headers of a signed message (Standard Webhooks; Svix with the prefix `svix`)."""
    stamp = str(int(time.time()))
    signed = f"{id}.{stamp}.".encode() + body
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, signed, hashlib.sha256).digest()
    return {
        f"{prefix}-id": id,
        f"{prefix}-timestamp": stamp,
        f"{prefix}-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


class RecallBot(Bot):
    over_states = frozenset({"done", "fatal"})
    reconnects_when_closed = False

    def __init__(self, service, id: str, request: dict):
        super().__init__(service, id, request)
        self.created_at = time.time()
        self.show(request.get("output_media", {}))
        if message := request.get("chat", {}).get("on_bot_join", {}).get("message"):
            self.chat_messages.append(message)

    def show(self, output_media: dict):
        if camera := output_media.get("camera"):
            self.page_urls.append(camera["config"]["url"])

    # --- what happens to the bot ---

    def enter_lobby(self):
        self.set_state("in_waiting_room")

    def admit(self, *, records: bool = True):
        """The bot enters the meeting. Participants are reported only while it records."""
        self.set_state("in_call_not_recording")
        if records:
            self.set_state("recording_permission_allowed")
            self.set_state("in_call_recording")

    def end(self, sub_code: str):
        """The call ends: bot_kicked_from_call, call_ended_by_host, timeout_exceeded_…"""
        self.set_state("call_ended", sub_code=sub_code)
        self.set_states(("done", {}))

    def deny(self):
        self.end("bot_kicked_from_waiting_room")

    def time_out_in_lobby(self):
        self.end("timeout_exceeded_waiting_room")

    def remove(self):
        self.end("bot_kicked_from_call")

    def end_meeting(self):
        self.end("call_ended_by_host")

    def leave_automatically(self, sub_code: str = "timeout_exceeded_everyone_left"):
        self.end(sub_code)

    def fail(self, sub_code: str = "bot_errored"):
        """For example meeting_not_found, meeting_requires_sign_in."""
        self.set_state("fatal", sub_code=sub_code)

    fail_to_join = fail

    # --- webhooks ---

    def make_webhook(self, trigger: str, data: dict, id: str) -> dict:
        return {"event": trigger, "data": data}

    def sign_webhook(self, secret: str, id: str, content: bytes) -> dict[str, str]:
        return standard_headers(secret, id, content, self.service.header_prefix)

    @property
    def _about(self) -> dict:
        return {"id": self.id, "metadata": self.request.get("metadata", {})}

    def state_change(self, state: str, sub_code: str | None = None) -> tuple[str, dict]:
        """The trigger and the data that tell a state."""
        if self.service.has_old_webhooks:
            status = {"code": state, "sub_code": sub_code, "message": None}
            status["created_at"] = timestamp()
            return "bot.status_change", {"bot_id": self.id, "status": status}
        data = {"code": state, "sub_code": sub_code, "updated_at": timestamp()}
        return f"bot.{state}", {"data": data, "bot": self._about}

    def announce_state(self, state: str, details: dict):
        self.send(*self.state_change(state, **details))

    def announce_participant(self, person, kind: str, at: float):
        if self.state != "in_call_recording":
            return
        event = f"participant_events.{EVENT_NAMES[kind]}"
        content = {
            "participant": {
                "id": person.number,
                "name": person.name,
                "is_host": person.is_host,
                "platform": "desktop",
                "extra_data": {},
                "email": None,
            },
            "timestamp": {"absolute": timestamp(), "relative": at - self.created_at},
            "data": None,
        }
        message = {"event": event, "data": {"data": content, "bot": self._about}}
        for endpoint in self.endpoints():
            if event in endpoint["events"] and endpoint["type"] == "webhook":
                self.send(event, message["data"], to=[endpoint["url"]])
        for connection in self.connections:
            wanted = [e["events"] for e in self.endpoints() if e["url"] == connection.url]
            if any(event in events for events in wanted):
                self.service.call(connection.send, message)

    # --- sockets ---

    def endpoints(self) -> list[dict]:
        return self.request.get("recording_config", {}).get("realtime_endpoints", [])

    def open_socket(self, timeout: float = 20) -> bool:
        """Connects to the sockets for events of participants. The real service does so when the
        recording begins."""
        urls = [one["url"] for one in self.endpoints() if one["type"] == "websocket"]
        return self.connect(urls, timeout)

    def retry_delays(self, is_first: bool):
        return (0, *[RETRY_SECONDS] * 29)

    def upgrade_headers(self) -> dict[str, str]:
        """An upgrade is signed like a webhook with an empty body."""
        secret = self.service.webhook_secret
        return self.sign_webhook(secret, f"msg_{uuid.uuid4().hex}", b"") if secret else {}

    def on_message(self, connection, message):
        """The service does not read what arrives."""


class Recall(MeetingService):
    """`{url}/api/v1/bot/`. `webhook_url` is the workspace's. Without a secret the workspace signs
    nothing. An old workspace has other webhooks and other headers."""

    sends_unsigned = True
    #: The beginning of 24 hours.
    retry_delays = (5, 300, 1800, 7200)

    def __init__(self, *arguments, is_old_workspace: bool = False, **options):
        self.has_old_webhooks = is_old_workspace
        self.header_prefix = "svix" if is_old_workspace else "webhook"
        super().__init__(*arguments, **options)

    def add_routes(self, router):
        bot = "/api/v1/bot/{bot}"
        self.route(router, "POST", "/api/v1/bot/", "create", self._create)
        self.route(router, "GET", f"{bot}/", "get", lambda bot, _: (200, self._describe(bot)))
        self.route(router, "DELETE", f"{bot}/", "delete", self._delete)
        self.route(router, "POST", f"{bot}/leave_call/", "leave", self._leave)
        self.route(router, "POST", f"{bot}/delete_media/", "delete_data", self._delete_media)
        self.route(router, "POST", f"{bot}/send_chat_message/", "chat", self._chat)
        self.route(router, "POST", f"{bot}/output_media/", "page", self._show)
        self.route(router, "DELETE", f"{bot}/output_media/", "page", self._hide)

    def error_body(self, status: int, message: str = "", code: str = "") -> dict:
        names = {
            400: ("invalid_request", "Invalid request."),
            401: ("authentication_failed", "Invalid API token."),
            402: ("insufficient_credit_balance", "Insufficient credit balance."),
            403: ("permission_denied", "The workspace is blocked."),
            404: ("not_found", "Not found."),
            405: ("method_not_allowed", "Only scheduled bots can be deleted."),
            409: ("conflict", "Please retry the request."),
            429: ("throttled", "Request was throttled."),
            507: ("adhoc_pool_depleted", "All ad-hoc bots are in use. Please retry."),
        }
        usual, words = names.get(status, ("internal_server_error", "Internal server error."))
        return {"code": code or usual, "detail": message or words}

    def _require(self, schema: dict, body):
        if errors := find_errors(schema, body):
            raise Refused(400, errors)

    def _create(self, _, body) -> tuple[int, dict]:
        self._require(CREATE_SCHEMA, body)
        if "output_media" in body:
            for name in ("automatic_audio_output", "automatic_video_output"):
                if name in body:
                    raise Refused(400, {name: ["Cannot be used with output_media."]})
        bot = RecallBot(self, str(uuid.uuid4()), body)
        self.add_bot(bot)
        bot.set_state("joining_call")
        return 201, self._describe(bot)

    def _describe(self, bot: RecallBot) -> dict:
        # The first state is not a change.
        changes = [
            {
                "code": code,
                "message": None,
                "sub_code": details.get("sub_code"),
                "created_at": timestamp(at),
            }
            for at, code, details in bot.states[1:]
        ]
        return {
            "id": bot.id,
            "meeting_url": bot.request["meeting_url"],
            "bot_name": bot.request.get("bot_name", "Meeting Notetaker"),
            "join_at": None,
            "metadata": bot.request.get("metadata", {}),
            "status_changes": changes,
            "recordings": [],
        }

    def _require_call(self, bot: RecallBot):
        if bot.is_over or bot.state == "call_ended":
            words = f"The bot is in status {bot.state}."
            raise Refused(400, self.error_body(400, words, "cannot_command_completed_bot"))

    def _delete(self, _, __) -> tuple[int, dict]:
        raise Refused(405, self.error_body(405))

    def _leave(self, bot: RecallBot, _) -> tuple[int, dict]:
        self._require_call(bot)
        bot.left_by_request = True
        bot.end("bot_received_leave_call")
        return 200, self._describe(bot)

    def _delete_media(self, bot: RecallBot, _) -> tuple[int, dict]:
        if not bot.is_over:
            raise Refused(400, self.error_body(400, "The bot has not ended."))
        bot.is_data_deleted = True
        return 200, {}

    def _chat(self, bot: RecallBot, body) -> tuple[int, dict]:
        self._require(CHAT_SCHEMA, body)
        if bot.state not in IN_CALL:
            raise Refused(400, self.error_body(400, "The bot is not in the call."))
        bot.chat_messages.append(body["message"])
        return 200, {}

    def _show(self, bot: RecallBot, body) -> tuple[int, dict]:
        self._require(OUTPUT_MEDIA, body)
        self._require_call(bot)
        bot.show(body)
        return 200, {}

    def _hide(self, bot: RecallBot, _) -> tuple[int, dict]:
        self._require_call(bot)
        return 200, {}
