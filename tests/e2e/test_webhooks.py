"""Webhooks of the real server: signatures by the official library, and many of them beside a call."""

import asyncio
import contextlib
import json
import pathlib
import sqlite3
import subprocess
import sys
import time

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from kit import facts
from kit.peer import Client, run
from kit.receivers import Receiver
from kit.report import spread


class Raw(Receiver):
    """Keeps what came."""

    def __init__(self):
        super().__init__()
        self.came = []

    def answer(self, request, body):
        with self.changed:
            self.came.append((body, dict(request.headers.items())))
            self.changed.notify_all()
        self.reply(request, 204)

    def first(self, n):
        return self.wait(lambda: self.came[n - 1] if len(self.came) >= n else None, 15, f"webhook {n}")


def test_the_official_library_verifies_signatures(server):
    """Without a call: a conversation that nobody joined is told its end."""
    receiver = Raw()
    agent = server.agent(hooks=receiver, events=["call_ended"])

    def told(n):
        conversation = server.conversation(agent["id"])
        assert server.call("DELETE", f"/v1/conversation/{conversation['id']}").status == 200
        return conversation, *receiver.first(n)

    conversation, body, headers = told(1)
    value = Webhook(agent["webhook_secret"]).verify(body, headers)
    assert value["conversation_id"] == conversation["id"] and value["event"] == {"name": "call_ended", "payload": {}}
    for secret, changed in [("whsec_" + "A" * 32, body), (agent["webhook_secret"], body.replace(b"call_ended", b"call_begun"))]:
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(changed, headers)
    renewed = server.call("POST", f"/v1/ext/agent/{agent['id']}/webhook-secret").json()["webhook_secret"]
    _, body, headers = told(2)
    Webhook(renewed).verify(body, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(agent["webhook_secret"]).verify(body, headers)
    receiver.close()


MANY, RATE, LANES = 10_000, 500, 100


@contextlib.contextmanager
def failing_receiver(share):
    program = pathlib.Path(__file__).parent / "kit" / "hook_receiver.py"
    process = subprocess.Popen([sys.executable, str(program), str(share)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process, f"http://127.0.0.1:{process.stdout.readline().strip()}/"
    finally:
        process.kill()
        process.wait()


def fill_outbox(data, agent, url, begin):
    """Ten thousand events that are due one after the other, five hundred a second, as a server left them that stopped."""
    with contextlib.closing(sqlite3.connect(data / "visavis.db")) as store, store:
        (workspace,) = store.execute("SELECT workspace FROM agent WHERE id = ?", (agent,)).fetchone()
        own = (data / "server.id").read_text().strip()
        for n in range(MANY):
            lane, sequence, at = n % LANES, n // LANES + 1, int((begin + n / RATE) * 1e6)
            body = json.dumps({"timestamp": at / 1e6, "conversation_id": f"lane-{lane}", "type": "pipeline", "event": {"name": "utterance_committed", "payload": {"text": f"Event {n}"}}})
            store.execute(
                "INSERT INTO delivery (id, workspace, conversation, agent, sequence, event, url, body, state, next_try, created_at, server) VALUES (?,?,?,?,?,?,?,?,'pending',?,?,?)",
                (f"msg_{n}", workspace, f"lane-{lane}", agent, sequence, "utterance_committed", url, body, at, at, own),
            )  # fmt: skip


def states(server):
    text = server.call("GET", "/metrics", key=None).body.decode()
    return {line.split('"')[1]: int(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith("visavis_webhooks{")}


def gaps(times):
    """Seconds between the arrivals of one packet of sound and the next."""
    return [later - earlier for earlier, later in zip(times, times[1:])]


async def listen(server, conversation, begin, end):
    """Joins and notes when each packet of sound arrives, until `end`; the gaps before and from `begin` on, and packets lost."""
    client = Client(server, conversation, video=False)
    arrived = []
    await client.join()
    receiver = client.peer.getReceivers()[0]
    handle = receiver._handle_rtp_packet

    async def noting(packet, arrival_time_ms):
        arrived.append(time.time())
        await handle(packet, arrival_time_ms=arrival_time_ms)

    receiver._handle_rtp_packet = noting
    await client.until(lambda: client.says("bot-ready"), what="bot-ready")
    await client.until(lambda: time.time() >= end, timeout=60, what="the last webhook")
    lost = [stat.packetsLost for stat in (await receiver.getStats()).values() if stat.type == "inbound-rtp"]
    await client.leave()
    return [t for t in arrived if t < begin], [t for t in arrived if begin <= t <= end], sum(lost)


def test_ten_thousand_webhooks_beside_a_call(start, tmp_path, report):
    """500 a second to a receiver that fails three of ten: none lost, first tries in order, and the call beside does not notice."""
    env = {"VISAVIS_WEBHOOKS_SCHEDULE": "[0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2]"}
    first = start("outbox", data=tmp_path, env=env).first_start()
    agent, key = first.agent(knowledge=facts.LONG)["id"], first.key
    first.stop()
    begin = time.time() + 9
    end = begin + MANY / RATE
    with failing_receiver(0.3) as (process, url):
        fill_outbox(tmp_path, agent, url, begin)
        server = start("outbox", data=tmp_path, env=env)
        server.key = key
        server.ready()
        assert states(server) == {"pending": MANY, "done": 0, "dead": 0, "dropped": 0} and time.time() < begin - 3, "the call begins before the first of them"
        before, during, lost = run(listen(server, server.conversation(agent), begin, end))
        while states(server)["pending"]:
            assert time.time() < end + 30, states(server)
            time.sleep(0.1)
        found = states(server)
        process.stdin.close()
        came = json.loads(process.stdout.read())
    assert found["done"] + found["dead"] == MANY, found
    assert len({mark for _, mark, _, fine in came if fine}) == found["done"], "what the receiver took is done, and nothing else"
    tried, lanes = set(), {}
    for sequence, mark, _, _ in came:
        if mark not in tried:
            tried.add(mark)
            lanes.setdefault(int(mark.removeprefix("msg_")) % LANES, []).append(sequence)
    assert len(tried) == MANY
    for lane, sequences in lanes.items():
        assert sequences == sorted(sequences), f"first tries of conversation {lane}"
    quiet, busy = spread(gaps(before)), spread(gaps(during))
    report.add("ten thousand webhooks beside a call", {"states": found, "tries": len(came), "last after": round(came[-1][2] - begin, 1), "packets": len(during), "lost": lost, "gaps before": quiet, "gaps during": busy})
    # 50 packets a second, none lost; what a shared machine adds it adds before, too.
    assert len(during) >= 0.98 * 50 * MANY / RATE and lost == 0, (len(during), lost)
    assert busy["p95"] <= max(0.030, 1.5 * quiet["p95"]), (quiet, busy)
