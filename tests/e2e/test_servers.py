"""Two servers, each a process with a data folder of its own, on one PostgreSQL database: with real calls, restarts and deaths."""

import asyncio
import concurrent.futures
import json
import shutil
import threading
import time

import pytest

from kit import sdp, stores, talk
from kit.peer import run
from kit.receivers import Receiver
from kit.talk import PATIENCE, Talk

#: Long enough for a busy machine to renew it in time. A test that kills a server ends its lease itself.
LEASE = 18
KNOWN = "The museum has an old clock in the first room. The garden opens at noon."


class Inbox(Receiver):
    """Keeps every webhook as it came: conversation, number, id, name and words."""

    def __init__(self):
        super().__init__()
        self.came = []

    def answer(self, request, body):
        value = json.loads(body)
        with self.changed:
            event = value["event"]
            self.came.append((value["conversation_id"], int(request.headers["visavis-sequence"]), request.headers["webhook-id"], event["name"], event["payload"].get("text")))
            self.changed.notify_all()
        self.reply(request, 204)

    def of(self, conversation):
        return [one[1:] for one in self.came if one[0] == conversation]

    def seen(self):
        return self.came[-20:]


class Pair:
    def __init__(self, start, folders, store):
        folder = folders.mktemp("one")
        self.store = store
        self.env = {**store.environment(folder), "VISAVIS_TIMEOUTS_LEASE": str(LEASE)}
        self.start, self.folders = start, [folder, folders.mktemp("other")]
        self.servers = [start("one", data=folder, env=self.env).first_start()]
        for file in ("secrets.key", "tokens.key"):
            shutil.copy(folder / file, self.folders[1] / file)
        self.servers.append(None)
        self.again(1)
        for server in self.servers:
            server.ready()

    def again(self, number):
        """Starts one of them (again)."""
        server = self.start(["one", "other"][number], data=self.folders[number], env=self.env)
        server.key = self.servers[0].key
        self.servers[number] = server
        return server.ready()


    def kill(self, number, conversation):
        """Kills the one that holds this call, and ends its lease, as time would."""
        self.servers[number].kill()
        row = f"UPDATE server SET lease_until = 0 WHERE id = (SELECT server FROM conversation WHERE id = '{conversation}')"
        self.store.run(self.servers[0], [row])


@pytest.fixture(scope="module")
def two(start, tmp_path_factory, postgres):
    """Both servers, for all tests: a start costs more than any of them."""
    both = Pair(start, tmp_path_factory, stores.Postgres(postgres))
    yield both
    for server in both.servers:
        server.stop()


@pytest.fixture
def pair(two):
    """Both servers alive, whatever the test before did."""
    for number, server in enumerate(two.servers):
        if not server.alive():
            two.again(number)
    return two


@pytest.fixture
def inbox():
    made = Inbox()
    yield made
    made.close()


def asked(server, conversation):
    """What each of the commands is answered by a server, as (status, Retry-After)."""
    path = f"/v1/conversation/{conversation}"
    replies = [
        server.call("PUT", f"{path}/speak", {"text": "Hello from elsewhere."}),
        server.call("POST", f"{path}/respond", {"text": "Where is the clock?"}),
        server.call("POST", f"{path}/context", {"text": "It rains."}),
        server.call("POST", f"{path}/interrupt"),
        server.call("DELETE", path),
    ]
    return [(reply.status, reply.headers["retry-after"]) for reply in replies]


async def goes_on(client):
    client.messages.clear()
    await client.ask("Where is the clock?", "first room")


def told(inbox, conversation):
    """A conversation's webhooks in the order in which they first came, once its end was told; a try may have come twice."""
    inbox.wait(lambda: any(name == "call_ended" for _, _, name, _ in inbox.of(conversation)), PATIENCE, "call_ended")
    return list({id: (number, name) for number, id, name, _ in reversed(inbox.of(conversation))}.values())[::-1]


def test_calls_on_both_lose_and_double_nothing(pair, inbox):
    one, other = pair.servers
    agent = talk.agent(one, knowledge=KNOWN, hooks=inbox)["id"]
    held = [one.conversation(agent), other.conversation(agent)]

    async def calling(server, conversation):
        client = await Talk(server, conversation).begin()
        for _ in range(3):
            await goes_on(client)
        await client.leave()

    async def both():
        # Each call is held by the server that did not make it.
        await asyncio.gather(calling(other, held[0]), calling(one, held[1]))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        names = [pool.submit(server.call, "POST", "/v1/ext/guardrail", {"name": "Same name", "prompt": "p"}) for _ in range(20) for server in pair.servers]
        run(both())
        assert all(made.result().status == 201 for made in names)
    keys = [guardrail["key"] for guardrail in one.call("GET", "/v1/ext/guardrail").json()]
    assert sorted(keys) == sorted(["same_name", *[f"same_name_{n}" for n in range(2, 41)]])

    for conversation in (made["id"] for made in held):
        records = [server.until(conversation, "ENDED", timeout=PATIENCE) for server in pair.servers]
        assert records[0] == records[1] and sum(entry["role"] == "user" for entry in records[0]["transcript"]) == 3
        events = [server.call("GET", f"/v1/ext/conversation/{conversation}/events").json() for server in pair.servers]
        assert events[0] == events[1] and [event["seq"] for event in events[0]] == list(range(len(events[0])))
        came = told(inbox, conversation)
        assert [number for number, _ in came] == list(range(1, len(came) + 1)), "in order, without a gap"
        assert sum(name == "utterance_committed" for _, name in came) == 3 and came[-1][1] == "call_ended"


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_the_end_of_one_leaves_the_other_s_calls_alone(pair, inbox, how):
    one, other = pair.servers
    agent = talk.agent(one, knowledge=KNOWN, hooks=inbox, events=["utterance_committed", "call_ended"], config={"record_trace": True})["id"]
    held, left = one.conversation(agent), one.conversation(agent)
    waiting = one.conversation(agent)
    offer = sdp.offer().encode()
    assert other.call("PUT", f"/v1/conversation/{waiting['id']}/speak", {"text": "Welcome from the other server."}).status == 200

    async def calling():
        client, dying = await Talk(one, held).begin(), await Talk(other, left).begin()
        await client.ask("Where is the clock?", "first room")
        await dying.ask("When does the garden open?", "noon")
        # What is held elsewhere is told so: by its door too.
        assert asked(other, held["id"]) == [(503, "2")] * 5
        refused = other.call("POST", f"/rtc/{held['id']}", key=None, raw=offer, headers={"content-type": "application/sdp", "authorization": f"Bearer {held['token']}"})
        assert (refused.status, refused.headers["retry-after"]) == (503, "2")
        await asyncio.to_thread(getattr(other, how))
        await goes_on(client)
        await asyncio.to_thread(pair.again, 1)
        await goes_on(client)
        # What was given in STARTED takes effect at the join, on whichever server that is.
        late = await Talk(pair.servers[1], waiting).begin()
        await late.until_spoken("Welcome from the other server.")
        await late.leave()
        await client.leave()
        await dying.peer.close()

    run(calling())
    one, other = pair.servers
    assert one.until(held["id"], "ENDED", timeout=PATIENCE)["end_reason"] == "user_left"
    # Its own calls a restart ends, and they are told once.
    assert one.until(left["id"], "ENDED", timeout=PATIENCE)["end_reason"] == ("error" if how == "kill" else "ended_by_api")
    for conversation in (held["id"], left["id"]):
        came = told(inbox, conversation)
        assert [number for number, _ in came] == list(range(1, len(came) + 1)) and came[-1][1] == "call_ended", came


def test_a_dead_server_s_calls_are_ended_by_the_other_and_its_traces_go_when_it_is_back(pair, inbox):
    one, other = pair.servers
    agent = talk.agent(one, knowledge=KNOWN, hooks=inbox, events=["utterance_committed", "call_ended"], config={"record_trace": True})["id"]
    dead, ended = one.conversation(agent), one.conversation(agent)

    async def calling():
        client = await Talk(one, ended).begin()
        await client.leave()
        await asyncio.to_thread(one.until, ended["id"], "ENDED", PATIENCE)
        dying = await Talk(one, dead).begin()
        await dying.ask("Where is the clock?", "first room")
        await dying.recorded(lambda record: "old clock" in json.dumps(record["transcript"]), "the answer on record")
        await asyncio.to_thread(pair.kill, 0, dead["id"])
        await dying.peer.close()

    run(calling())
    record = other.until(dead["id"], "ENDED", timeout=PATIENCE)
    # What was on record stays there; lifecycle.rs and crash.rs of control-api/tests/api hold what a crash keeps.
    assert record["end_reason"] == "error" and "old clock" in json.dumps(record["transcript"])
    assert [name for _, name in told(inbox, dead["id"])] == ["utterance_committed", "call_ended"]
    assert asked(other, dead["id"]) == [(409, None)] * 5
    traces = [pair.folders[0] / "traces" / f"{conversation['id']}.jsonl" for conversation in (dead, ended)]
    assert all(trace.exists() for trace in traces)
    for conversation in (dead, ended):
        assert other.call("DELETE", f"/v1/ext/conversation/{conversation['id']}").status == 204
    assert all(trace.exists() for trace in traces), "nobody else can reach them"
    pair.again(0)
    assert not any(trace.exists() for trace in traces)


def test_erasing_reaches_the_trace_on_the_other_server_s_disk(pair):
    one, other = pair.servers
    conversation = one.conversation(talk.agent(one, config={"record_trace": True})["id"])

    async def calling():
        client = await Talk(one, conversation).begin()
        await client.leave()

    run(calling())
    other.until(conversation["id"], "ENDED", timeout=PATIENCE)
    trace = pair.folders[0] / "traces" / f"{conversation['id']}.jsonl"
    assert trace.exists()
    assert other.call("DELETE", f"/v1/ext/conversation/{conversation['id']}").status == 204
    end = time.monotonic() + PATIENCE
    while trace.exists():
        assert time.monotonic() < end, "the trace outlives its record"
        threading.Event().wait(0.05)


class Tired(Inbox):
    """Wants no more until it is mended."""

    def __init__(self):
        super().__init__()
        self.mended, self.refused = False, 0

    def answer(self, request, body):
        if self.mended:
            return super().answer(request, body)
        with self.changed:
            self.refused += 1
            self.changed.notify_all()
        self.reply(request, 410)


def test_an_update_at_one_server_counts_at_the_other_at_once(pair):
    """After a 410 nothing is sent; after the agent's update, wherever it was taken, nothing is lost."""
    one, other = pair.servers
    inbox = Tired()
    try:
        agent = talk.agent(one, extra={"callback_url": inbox.url, "callback_events": ["call_ended"]})

        def ended(server):
            conversation = server.conversation(agent["id"])
            assert server.call("DELETE", f"/v1/conversation/{conversation['id']}").status == 200
            return conversation["id"]

        first = ended(one)
        inbox.wait(lambda: inbox.refused, PATIENCE, "the 410")
        # What is told next is of a time behind the 410's being kept.
        end = time.monotonic() + PATIENCE
        while first not in [letter["conversation_id"] for letter in one.call("GET", "/v1/ext/deadletters").json()]:
            assert time.monotonic() < end, one.tail()
            threading.Event().wait(0.05)
        ended(other)
        inbox.mended = True
        assert other.call("PATCH", f"/v1/ext/agent/{agent['id']}", {"agent_name": "Mended"}).status == 200
        last = ended(one)
        inbox.wait(lambda: inbox.of(last), PATIENCE, "the first event behind the update")
        assert inbox.refused == 1 and {event[0] for event in inbox.came} == {last}, inbox.came
    finally:
        inbox.close()


def test_a_hang_up_at_the_wrong_server_is_told_to_come_again(pair):
    one, other = pair.servers
    conversation = one.conversation(talk.agent(one)["id"])

    async def work():
        client = await Talk(one, conversation).begin()
        headers = {"authorization": f"Bearer {conversation['token']}"}
        place = f"/rtc/{conversation['id']}/whatever"
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, lambda: one.until(conversation["id"], "IN_PROGRESS", timeout=PATIENCE))
        refused = await loop.run_in_executor(None, lambda: other.call("DELETE", place, key=None, headers=headers))
        assert (refused.status, refused.json()["reason"]) == (503, "the call is held by another server"), refused
        missing = await loop.run_in_executor(None, lambda: one.call("DELETE", place, key=None, headers=headers))
        assert missing.status == 404, missing
        await client.leave()

    run(work())
    one.until(conversation["id"], "ENDED", timeout=PATIENCE)
