"""Webhooks of the real server: signatures by the official library, and deliveries that a stopped
server left behind.

`make test` delivers some hundreds, all due at once. The long tier delivers ten thousand on a
schedule beside a call.
"""

import contextlib
import itertools
import json
import pathlib
import sqlite3
import subprocess
import sys
import time

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from kit import sample_knowledge
from kit.polling import wait_until
from kit.receivers import MockServer
from kit.report import percentiles
from kit.webrtc_client import WhipClient, run_async


class RawReceiver(MockServer):
    """Stores the requests it receives."""

    def __init__(self):
        super().__init__()
        self.received = []

    def handle(self, request, body):
        with self.changed:
            self.received.append((body, dict(request.headers.items())))
            self.changed.notify_all()
        self.reply(request, 204)

    def first_requests(self, n):
        return self.wait_until(
            lambda: self.received[n - 1] if len(self.received) >= n else None, 60, f"webhook {n}"
        )


def test_the_official_library_verifies_signatures(server):
    """Without a call: the receiver gets the end of a conversation that no user joined."""
    receiver = RawReceiver()
    agent = server.create_agent(hooks=receiver, events=["call_ended"])

    def end_conversation(n):
        conversation = server.create_conversation(agent["id"])
        assert server.request("DELETE", f"/v1/conversation/{conversation['id']}").status == 200
        return conversation, *receiver.first_requests(n)

    conversation, body, headers = end_conversation(1)
    value = Webhook(agent["webhook_secret"]).verify(body, headers)
    assert value["conversation_id"] == conversation["id"] and value["event"] == {
        "name": "call_ended",
        "payload": {},
    }
    for secret, changed in [
        ("whsec_" + "A" * 32, body),
        (agent["webhook_secret"], body.replace(b"call_ended", b"call_begun")),
    ]:
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(changed, headers)
    renewed = server.request("POST", f"/v1/ext/agent/{agent['id']}/webhook-secret").json()[
        "webhook_secret"
    ]
    _, body, headers = end_conversation(2)
    Webhook(renewed).verify(body, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(agent["webhook_secret"]).verify(body, headers)
    receiver.close()


#: The shortest waits before a webhook's second attempt, third attempt, and so on.
SHORT_SCHEDULE = {"VISAVIS_WEBHOOKS_SCHEDULE": "[0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2]"}
#: The share of attempts that the receiver rejects.
REJECTED_SHARE = 0.3


@contextlib.contextmanager
def failing_receiver(share):
    program = pathlib.Path(__file__).parent / "kit" / "webhook_receiver.py"
    process = subprocess.Popen(
        [sys.executable, str(program), str(share)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process, f"http://127.0.0.1:{process.stdout.readline().strip()}/"
    finally:
        process.kill()
        process.wait()


def fill_outbox(data, agent, url, count, conversations, due):
    """Writes the events of several conversations, as a stopped server leaves them. `due(n)` is the
    earliest time of the n-th, in Unix seconds."""
    with contextlib.closing(sqlite3.connect(data / "visavis.db")) as store, store:
        (workspace,) = store.execute(
            "SELECT workspace FROM agent WHERE id = ?", (agent,)
        ).fetchone()
        own = (data / "server.id").read_text().strip()
        for n in range(count):
            conversation, sequence, at = (
                n % conversations,
                n // conversations + 1,
                int(due(n) * 1e6),
            )
            body = json.dumps(
                {
                    "timestamp": at / 1e6,
                    "conversation_id": f"lane-{conversation}",
                    "type": "pipeline",
                    "event": {"name": "utterance_committed", "payload": {"text": f"Event {n}"}},
                }
            )
            store.execute(
                (
                    "INSERT INTO delivery (id, workspace, conversation, agent, sequence, event, "
                    "url, body, state, next_try, created_at, server) VALUES "
                    "(?,?,?,?,?,?,?,?,'pending',?,?,?)"
                ),
                (
                    f"msg_{n}",
                    workspace,
                    f"lane-{conversation}",
                    agent,
                    sequence,
                    "utterance_committed",
                    url,
                    body,
                    at,
                    at,
                    own,
                ),
            )


def delivery_states(server):
    text = server.request("GET", "/metrics", key=None).body.decode()
    return {
        line.split('"')[1]: int(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if line.startswith("visavis_webhooks{")
    }


def wait_delivered(server, process, timeout):
    """Waits until nothing is pending. Returns the states, and what the receiver got."""
    wait_until(
        lambda: not delivery_states(server)["pending"],
        lambda: f"no pending delivery: {delivery_states(server)}",
        timeout,
    )
    found = delivery_states(server)
    process.stdin.close()
    return found, json.loads(process.stdout.read())


def check_deliveries(found, received, count, conversations):
    """Nothing was lost. Exactly the deliveries that the receiver accepted are done. The first
    attempts arrived in order within each conversation."""
    assert found["done"] + found["dead"] == count and found["dropped"] == 0, found
    assert len({mark for _, mark, _, fine in received if fine}) == found["done"], found
    tried, order = set(), {}
    for sequence, mark, _, _ in received:
        if mark not in tried:
            tried.add(mark)
            order.setdefault(int(mark.removeprefix("msg_")) % conversations, []).append(sequence)
    assert len(tried) == count
    for conversation, sequences in order.items():
        assert sequences == sorted(sequences), f"first tries of conversation {conversation}"


def test_what_a_stopped_server_left_is_delivered_in_order(start_server, tmp_path):
    """A receiver that rejects three attempts in ten: nothing is lost."""
    count, conversations = 400, 20
    env = SHORT_SCHEDULE | {"VISAVIS_MODELS_DIR": str(tmp_path / "none")}
    first = start_server("outbox", data=tmp_path, env=env).read_first_start()
    agent, key = first.create_agent()["id"], first.key
    first.stop()
    with failing_receiver(REJECTED_SHARE) as (process, url):
        now = time.time()
        fill_outbox(tmp_path, agent, url, count, conversations, lambda _: now)
        server = start_server("outbox", data=tmp_path, env=env)
        server.key = key
        found, received = wait_delivered(server, process, 120)
    check_deliveries(found, received, count, conversations)
    assert len(received) > 1.2 * count, "refused tries were tried again"


def arrival_gaps(times):
    """Seconds between the arrivals of consecutive audio packets."""
    return [later - earlier for earlier, later in itertools.pairwise(times)]


async def record_arrivals(server, conversation, begin, end):
    """Joins and records when each audio packet arrives, until `end`. Returns the gaps before and
    after `begin`, and the number of lost packets."""
    client = WhipClient(server, conversation, video=False)
    arrived = []
    await client.join()
    receiver = client.peer.getReceivers()[0]
    handle = receiver._handle_rtp_packet

    async def record_arrival(packet, arrival_time_ms):
        arrived.append(time.time())
        await handle(packet, arrival_time_ms=arrival_time_ms)

    receiver._handle_rtp_packet = record_arrival
    await client.wait_for(lambda: client.find_message("bot-ready"), what="bot-ready")
    await client.wait_for(lambda: time.time() >= end, timeout=60, what="the last webhook")
    lost = [
        stat.packetsLost
        for stat in (await receiver.getStats()).values()
        if stat.type == "inbound-rtp"
    ]
    await client.hang_up()
    return [t for t in arrived if t < begin], [t for t in arrived if begin <= t <= end], sum(lost)


@pytest.mark.long("store")
def test_ten_thousand_webhooks_beside_a_call(start_server, tmp_path, report):
    """500 per second to a receiver that fails three in ten: none is lost, first attempts are in
    order, and the call beside does not notice."""
    count, rate, conversations = 10_000, 500, 100
    first = start_server("outbox", data=tmp_path, env=SHORT_SCHEDULE).read_first_start()
    agent, key = first.create_agent(knowledge=sample_knowledge.LONG_TEXT)["id"], first.key
    first.stop()
    begin = time.time() + 9
    end = begin + count / rate
    with failing_receiver(REJECTED_SHARE) as (process, url):
        fill_outbox(tmp_path, agent, url, count, conversations, lambda n: begin + n / rate)
        server = start_server("outbox", data=tmp_path, env=SHORT_SCHEDULE)
        server.key = key
        server.wait_ready()
        others = {"done": 0, "dead": 0, "dropped": 0, "unreadable": 0}
        assert (
            delivery_states(server) == {"pending": count, **others} and time.time() < begin - 3
        ), "the call begins before the first of them"
        before, during, lost = run_async(
            record_arrivals(server, server.create_conversation(agent), begin, end)
        )
        found, received = wait_delivered(server, process, 60)
    check_deliveries(found, received, count, conversations)
    quiet, busy = percentiles(arrival_gaps(before)), percentiles(arrival_gaps(during))
    report.add(
        "ten thousand webhooks beside a call",
        {
            "states": found,
            "tries": len(received),
            "last after": round(received[-1][2] - begin, 1),
            "packets": len(during),
            "lost": lost,
            "gaps before": quiet,
            "gaps during": busy,
        },
    )
    # 50 packets per second, none lost. A shared machine adds delays before, too.
    assert len(during) >= 0.98 * 50 * count / rate and lost == 0, (len(during), lost)
    assert busy["p95"] <= max(0.030, 1.5 * quiet["p95"]), (quiet, busy)
