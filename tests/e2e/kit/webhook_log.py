"""A webhook receiver that stores what arrived, by conversation."""

import json

from .receivers import MockServer
from .typed_call import TEST_TIMEOUT


class WebhookLog(MockServer):
    """Stores every webhook as it arrived: conversation, number, id, name and text."""

    def __init__(self):
        super().__init__()
        self.received = []

    def handle(self, request, body):
        value = json.loads(body)
        with self.changed:
            event = value["event"]
            self.received.append(
                (
                    value["conversation_id"],
                    int(request.headers["visavis-sequence"]),
                    request.headers["webhook-id"],
                    event["name"],
                    event["payload"].get("text"),
                )
            )
            self.changed.notify_all()
        self.reply(request, 204)

    def events_of(self, conversation):
        return [one[1:] for one in self.received if one[0] == conversation]

    def wait_for_end(self, conversation):
        """A conversation's webhooks (number, name) in the order of their first arrival, once its
        end has arrived. An attempt may arrive twice."""
        self.wait_until(
            lambda: any(name == "call_ended" for _, _, name, _ in self.events_of(conversation)),
            TEST_TIMEOUT,
            "call_ended",
        )
        return list(
            {
                id: (number, name) for number, id, name, _ in reversed(self.events_of(conversation))
            }.values()
        )[::-1]

    def describe(self):
        return self.received[-20:]
