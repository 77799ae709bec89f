"""A call whose servers lose their database: what it says, and what its record must contain."""

import asyncio
import json

from . import sdp, typed_call
from .polling import wait_until
from .server_metrics import metric
from .typed_call import TEST_TIMEOUT, TypedCall
from .webrtc_client import run_async

KNOWLEDGE = "The museum has an old clock in the first room. The garden opens at noon."

#: Maximum time of a request during an outage. The server answers within 2 s.
REQUEST_TIMEOUT = 8


def create_agent(server, webhook_log):
    return typed_call.create_typed_agent(server, knowledge=KNOWLEDGE, hooks=webhook_log)["id"]


async def ask(client):
    client.messages.clear()
    await client.ask("Where is the clock?", "first room")


async def join(server, conversation):
    """A client that has asked once, with the answer on record."""
    client = await TypedCall(server, conversation).connect()
    await ask(client)
    await client.wait_for_record_value(
        lambda record: "first room" in json.dumps(record["transcript"]),
        "the first answer on record",
    )
    return client


def offer(server, conversation):
    """The reply to another offer of a client, which never connects."""
    return server.request(
        "POST",
        f"/rtc/{conversation['id']}",
        key=None,
        raw=sdp.make_offer().encode(),
        headers={
            "content-type": "application/sdp",
            "authorization": f"Bearer {conversation['token']}",
        },
        timeout=REQUEST_TIMEOUT,
    )


def check_record(server, conversation, webhook_log, questions: int):
    """All of a call is stored once: its events without a gap, and one end."""
    path = f"/v1/ext/conversation/{conversation['id']}"
    record = server.wait_for(conversation["id"], "ENDED", timeout=TEST_TIMEOUT)
    asked = [entry for entry in record["transcript"] if entry["role"] == "user"]
    assert len(asked) == questions, record["transcript"]
    events = server.request("GET", f"{path}/events").json()
    assert [event["seq"] for event in events] == list(range(len(events)))
    received = webhook_log.wait_for_end(conversation["id"])
    assert [number for number, _ in received] == list(range(1, len(received) + 1)), received
    assert [name for _, name in received].count("call_ended") == 1, received
    return record


def run_long_separation(pair, webhook_log, separate, rejoin):
    """A call of the first server, which is cut off from the database until the other one has ended
    the call: the server then hangs it up, and the record ends once."""
    one, other = pair.servers
    conversation = one.create_conversation(create_agent(one, webhook_log))

    async def call():
        client = await join(one, conversation)
        separate()
        await ask(client)
        await asyncio.to_thread(other.wait_for, conversation["id"], "ENDED", TEST_TIMEOUT)
        assert one.is_alive()
        await ask(client)
        rejoin()
        await client.wait_for(
            lambda: client.find_message(event="call_ended"), what="the end of the call"
        )
        await client.peer.close()

    run_async(call())
    record = check_record(other, conversation, webhook_log, questions=1)
    assert record["end_reason"] == "error"
    wait_until(
        lambda: metric(one, "visavis_events_fenced_total") > 0,
        lambda: f"a fenced event\n{one.log_tail()}",
        TEST_TIMEOUT,
    )
