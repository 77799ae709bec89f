"""A server that sends agents into meetings through the stand-ins of meeting services."""

import base64
import contextlib
import json
import threading
import urllib.request

from .meeting_services import Attendee, MeetingBaas, Recall
from .polling import wait_until

#: The public address of the server, which the stand-ins map to its loopback address.
PUBLIC_URL = "https://visavis.test"
MEET = "https://meet.google.com/abc-defg-hij"
ZOOM = "https://us05web.zoom.us/j/1234567890?pwd=secret"
KEY = "meeting-key"
METRICS_TOKEN = "metrics"
#: Attendee's secrets are base64, those of the others begin with `whsec_`.
SECRET = base64.b64encode(b"the secret of the project").decode()
STANDARD_SECRET = "whsec_" + base64.b64encode(b"the secret of the account").decode()
SERVICES = {
    "attendee": (Attendee, SECRET),
    "recall": (Recall, STANDARD_SECRET),
    "meetingbaas": (MeetingBaas, STANDARD_SECRET),
}


class MeetingServer:
    """A workspace of the server with an account at one service. `settings`: keys of `[meetings]`,
    without the account, which belongs to the operator."""

    def __init__(self, start_server, name, provider="attendee", *, webhooks=True, **settings):
        kind, secret = SERVICES[provider]
        self.service = kind(KEY, webhook_secret=secret if webhooks else None)
        env = {
            "VISAVIS_SERVER_PUBLIC_URL": PUBLIC_URL,
            "VISAVIS_SERVER_ALLOW_PRIVATE_TARGETS": "true",
            "VISAVIS_SERVER_METRICS_TOKEN": METRICS_TOKEN,
            "VISAVIS_MEETINGS_PROVIDER": provider,
            "VISAVIS_MEETINGS_URL": self.service.url,
            "VISAVIS_MEETINGS_KEY": KEY,
        }
        if webhooks:
            env["VISAVIS_MEETINGS_WEBHOOK_SECRET"] = secret
        env |= {f"VISAVIS_MEETINGS_{key.upper()}": str(value) for key, value in settings.items()}
        self.start_server, self.name, self.env = start_server, name, env
        self.server = start_server(name, env=env).read_first_start().wait_ready()
        self.service.resolve[PUBLIC_URL] = self.server.url

    def restart(self, *, kill: bool):
        """Starts the server again on the same data."""
        key, data = self.server.key, self.server.data
        self.server.kill() if kill else self.server.stop()
        self.server = self.start_server(self.name, data=data, env=self.env).wait_ready()
        self.server.key = key
        self.service.resolve[PUBLIC_URL] = self.server.url

    def send(self, agent: dict, **more):
        """The answer to a request that sends the agent into a meeting."""
        body = {"agent_id": agent["id"], "meeting_url": MEET, "user_name": "Monica", "user_id": "u"}
        return self.server.request("POST", "/v1/ext/externalmeeting", {**body, **more})

    def join(self, agent: dict, **more) -> "Visit":
        """Sends the agent, and waits for its bot."""
        answer = self.send(agent, **more)
        assert answer.status == 200, answer
        assert answer.body == b"Agent request successfully created."
        return Visit(self, answer.headers["location"].rsplit("/", 1)[1])

    def close(self):
        self.service.close()


class Visit:
    """One agent in one meeting."""

    def __init__(self, meetings: MeetingServer, conversation: str):
        self.meetings, self.id = meetings, conversation
        self.bot = meetings.service.wait_for_bot()

    def record(self) -> dict:
        return self.meetings.server.get_conversation(self.id)

    def wait(self, **expected) -> dict:
        """The record once it has these values."""

        def found():
            record = self.record()
            return record if all(record.get(k) == v for k, v in expected.items()) else None

        return wait_until(found, lambda: f"{expected}: {self.describe()}", 60)

    def wait_for_release(self):
        """Until the service has no bot and no data any more."""
        wait_until(
            lambda: self.bot.is_over and self.bot.is_data_deleted,
            lambda: f"the bot was not removed: {self.meetings.service.describe()}",
            60,
        )

    def describe(self) -> str:
        names = "status", "end_reason", "meeting_status", "meeting_detail", "warnings"
        record = self.record()
        return f"{ {name: record.get(name) for name in names} }"

    def delete(self):
        return self.meetings.server.request("DELETE", f"/v1/conversation/{self.id}")


class EventStream:
    """The server-sent events of a conversation, read as they arrive."""

    def __init__(self, server, conversation: str):
        url = f"{server.url}/v1/ext/conversation/{conversation}/events"
        headers = {"x-api-key": server.key, "accept": "text/event-stream"}
        self.answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers))
        self.found: list[dict] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.answer:
            if line.startswith(b"data:"):
                self.found.append(json.loads(line[5:]))

    def events(self) -> list[dict]:
        """All events, once the stream has ended."""
        self.reader.join(60)
        assert not self.reader.is_alive(), self.found
        return self.found


@contextlib.contextmanager
def credential(server, provider: str, url: str, secret: str | None = None):
    """Stores a key of the workspace at a service, for a while."""
    path = f"/v1/ext/credentials/{provider}"
    body = {"token": KEY, "url": url, "webhook_secret": secret}
    answer = server.request("PUT", path, body)
    assert answer.status == 200, answer
    try:
        yield
    finally:
        assert server.request("DELETE", path).status == 200
