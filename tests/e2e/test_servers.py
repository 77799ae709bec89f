"""Two servers, each a process with its own data folder, on one PostgreSQL database: real calls,
restarts and crashes."""

import asyncio
import concurrent.futures
import json
import shutil

import pytest

from kit import sdp, stores, typed_call
from kit.polling import wait_until
from kit.typed_call import TEST_TIMEOUT, TypedCall
from kit.webhook_log import WebhookLog
from kit.webrtc_client import run_async

#: Long enough for a busy machine to renew it in time. A test that kills a server ends its lease
#: itself.
LEASE_SECONDS = 18
KNOWLEDGE = "The museum has an old clock in the first room. The garden opens at noon."


class ServerPair:
    def __init__(self, start, folders, store):
        folder = folders.mktemp("one")
        self.store = store
        self.env = {**store.environment(folder), "VISAVIS_TIMEOUTS_LEASE": str(LEASE_SECONDS)}
        self.start, self.folders = start, [folder, folders.mktemp("other")]
        self.servers = [start("one", data=folder, env=self.env).read_first_start()]
        for file in ("secrets.key", "tokens.key"):
            shutil.copy(folder / file, self.folders[1] / file)
        self.servers.append(None)
        self.restart(1)
        for server in self.servers:
            server.wait_ready()

    def restart(self, number):
        """Starts one of the servers (again)."""
        server = self.start(["one", "other"][number], data=self.folders[number], env=self.env)
        server.key = self.servers[0].key
        self.servers[number] = server
        return server.wait_ready()

    def kill(self, number, conversation):
        """Kills the server that holds this call, and ends its lease, as time would."""
        self.servers[number].kill()
        row = (
            "UPDATE server SET lease_until = 0 WHERE id = (SELECT server FROM conversation WHERE "
            f"id = '{conversation}')"
        )
        self.store.execute(self.servers[0], [row])


@pytest.fixture(scope="module")
def server_pair(start_server, tmp_path_factory, postgres):
    """Both servers, for all tests: a start costs more than any of them."""
    both = ServerPair(start_server, tmp_path_factory, stores.Postgres(postgres))
    yield both
    for server in both.servers:
        server.stop()


@pytest.fixture
def live_pair(server_pair):
    """Both servers, running whatever the test before did."""
    for number, server in enumerate(server_pair.servers):
        if not server.is_alive():
            server_pair.restart(number)
    return server_pair


def command_replies(server, conversation):
    """How a server answers each of the commands, as (status, Retry-After)."""
    path = f"/v1/conversation/{conversation}"
    replies = [
        server.request("PUT", f"{path}/speak", {"text": "Hello from elsewhere."}),
        server.request("POST", f"{path}/respond", {"text": "Where is the clock?"}),
        server.request("POST", f"{path}/context", {"text": "It rains."}),
        server.request("POST", f"{path}/interrupt"),
        server.request("DELETE", path),
    ]
    return [(reply.status, reply.headers["retry-after"]) for reply in replies]


async def check_call(client):
    client.messages.clear()
    await client.ask("Where is the clock?", "first room")


def test_calls_on_both_lose_and_double_nothing(live_pair, webhook_log):
    one, other = live_pair.servers
    agent = typed_call.create_typed_agent(one, knowledge=KNOWLEDGE, hooks=webhook_log)["id"]
    held = [one.create_conversation(agent), other.create_conversation(agent)]

    async def calling(server, conversation):
        client = await TypedCall(server, conversation).connect()
        for _ in range(3):
            await check_call(client)
        await client.hang_up()

    async def both():
        # Each call is held by the server that did not create it.
        await asyncio.gather(calling(other, held[0]), calling(one, held[1]))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        names = [
            pool.submit(
                server.request, "POST", "/v1/ext/guardrail", {"name": "Same name", "prompt": "p"}
            )
            for _ in range(20)
            for server in live_pair.servers
        ]
        run_async(both())
        assert all(item.result().status == 201 for item in names)
    keys = [guardrail["key"] for guardrail in one.request("GET", "/v1/ext/guardrail").json()]
    assert sorted(keys) == sorted(["same_name", *[f"same_name_{n}" for n in range(2, 41)]])

    for conversation in (item["id"] for item in held):
        records = [
            server.wait_for(conversation, "ENDED", timeout=TEST_TIMEOUT)
            for server in live_pair.servers
        ]
        assert (
            records[0] == records[1]
            and sum(entry["role"] == "user" for entry in records[0]["transcript"]) == 3
        )
        events = [
            server.request("GET", f"/v1/ext/conversation/{conversation}/events").json()
            for server in live_pair.servers
        ]
        assert events[0] == events[1] and [event["seq"] for event in events[0]] == list(
            range(len(events[0]))
        )
        received = webhook_log.wait_for_end(conversation)
        assert [number for number, _ in received] == list(range(1, len(received) + 1)), (
            "in order, without a gap"
        )
        assert (
            sum(name == "utterance_committed" for _, name in received) == 3
            and received[-1][1] == "call_ended"
        )


def create_traced_agent(server, webhook_log):
    """The id of an agent whose calls are traced and send two kinds of webhooks."""
    return typed_call.create_typed_agent(
        server,
        knowledge=KNOWLEDGE,
        hooks=webhook_log,
        events=["utterance_committed", "call_ended"],
        config={"record_trace": True},
    )["id"]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_the_end_of_one_server_does_not_affect_calls_of_the_other(live_pair, webhook_log, how):
    one, other = live_pair.servers
    agent = create_traced_agent(one, webhook_log)
    held, left = one.create_conversation(agent), one.create_conversation(agent)
    waiting = one.create_conversation(agent)
    offer = sdp.make_offer().encode()
    assert (
        other.request(
            "PUT",
            f"/v1/conversation/{waiting['id']}/speak",
            {"text": "Welcome from the other server."},
        ).status
        == 200
    )

    async def calling():
        client, ending_client = (
            await TypedCall(one, held).connect(),
            await TypedCall(other, left).connect(),
        )
        await client.ask("Where is the clock?", "first room")
        await ending_client.ask("When does the garden open?", "noon")
        # The other server relays commands for this call, and signaling, too.
        path = f"/v1/conversation/{held['id']}"
        client.messages.clear()
        said = other.request("PUT", f"{path}/speak", {"text": "Hello from elsewhere."})
        assert said.status == 200, said
        await client.wait_for_utterance("Hello from elsewhere.")
        added = other.request("POST", f"{path}/context", {"text": "It rains."})
        assert added.status == 200, added
        relayed = other.request(
            "POST",
            f"/rtc/{held['id']}",
            key=None,
            raw=offer,
            headers={"content-type": "application/sdp", "authorization": f"Bearer {held['token']}"},
        )
        # It does not connect, so the call goes on.
        assert relayed.status == 201 and b"a=candidate" in relayed.body, relayed
        await asyncio.to_thread(getattr(other, how))
        await check_call(client)
        await asyncio.to_thread(live_pair.restart, 1)
        await check_call(client)
        # What was sent before the join takes effect at the join, on whichever server that is.
        late = await TypedCall(live_pair.servers[1], waiting).connect()
        await late.wait_for_utterance("Welcome from the other server.")
        await late.hang_up()
        await client.hang_up()
        await ending_client.peer.close()

    run_async(calling())
    one, other = live_pair.servers
    assert one.wait_for(held["id"], "ENDED", timeout=TEST_TIMEOUT)["end_reason"] == "user_left"
    # A restart ends the server's own calls, and reports their end once.
    assert one.wait_for(left["id"], "ENDED", timeout=TEST_TIMEOUT)["end_reason"] == (
        "error" if how == "kill" else "ended_by_api"
    )
    for conversation in (held["id"], left["id"]):
        received = webhook_log.wait_for_end(conversation)
        assert [number for number, _ in received] == list(range(1, len(received) + 1)) and received[
            -1
        ][1] == "call_ended", received


def test_a_dead_server_s_calls_are_ended_by_the_other_and_its_traces_go_when_it_is_back(
    live_pair, webhook_log
):
    one, other = live_pair.servers
    agent = create_traced_agent(one, webhook_log)
    dead, ended = one.create_conversation(agent), one.create_conversation(agent)

    async def calling():
        client = await TypedCall(one, ended).connect()
        await client.hang_up()
        await asyncio.to_thread(one.wait_for, ended["id"], "ENDED", TEST_TIMEOUT)
        ending_client = await TypedCall(one, dead).connect()
        await ending_client.ask("Where is the clock?", "first room")
        await ending_client.wait_for_record_value(
            lambda record: "old clock" in json.dumps(record["transcript"]), "the answer on record"
        )
        await asyncio.to_thread(live_pair.kill, 0, dead["id"])
        await ending_client.peer.close()

    run_async(calling())
    record = other.wait_for(dead["id"], "ENDED", timeout=TEST_TIMEOUT)
    # What was recorded stays. lifecycle.rs and crash.rs of control-api/tests/api test what survives
    # a crash.
    assert record["end_reason"] == "error" and "old clock" in json.dumps(record["transcript"])
    assert [name for _, name in webhook_log.wait_for_end(dead["id"])] == [
        "utterance_committed",
        "call_ended",
    ]
    assert command_replies(other, dead["id"]) == [(409, None)] * 5
    traces = [
        live_pair.folders[0] / "traces" / f"{conversation['id']}.jsonl"
        for conversation in (dead, ended)
    ]
    assert all(trace.exists() for trace in traces)
    for conversation in (dead, ended):
        assert other.request("DELETE", f"/v1/ext/conversation/{conversation['id']}").status == 204
    assert all(trace.exists() for trace in traces), "only their own server can reach them"
    live_pair.restart(0)
    assert not any(trace.exists() for trace in traces)


def test_erasing_reaches_the_trace_on_the_other_server_s_disk(live_pair):
    one, other = live_pair.servers
    conversation = one.create_conversation(
        typed_call.create_typed_agent(one, config={"record_trace": True})["id"]
    )

    async def calling():
        client = await TypedCall(one, conversation).connect()
        await client.hang_up()

    run_async(calling())
    other.wait_for(conversation["id"], "ENDED", timeout=TEST_TIMEOUT)
    trace = live_pair.folders[0] / "traces" / f"{conversation['id']}.jsonl"
    assert trace.exists()
    assert other.request("DELETE", f"/v1/ext/conversation/{conversation['id']}").status == 204
    wait_until(lambda: not trace.exists(), "the deletion of the trace", TEST_TIMEOUT)


class GoneReceiver(WebhookLog):
    """Answers 410 until it recovers."""

    def __init__(self):
        super().__init__()
        self.recovered, self.rejected = False, 0

    def handle(self, request, body):
        if self.recovered:
            super().handle(request, body)
            return
        with self.changed:
            self.rejected += 1
            self.changed.notify_all()
        self.reply(request, 410)


def test_an_update_at_one_server_counts_at_the_other_at_once(live_pair):
    """After a 410 nothing is sent. After an update of the agent on either server, nothing is
    lost."""
    one, other = live_pair.servers
    inbox = GoneReceiver()
    try:
        agent = typed_call.create_typed_agent(
            one, extra={"callback_url": inbox.url, "callback_events": ["call_ended"]}
        )

        def ended(server):
            conversation = server.create_conversation(agent["id"])
            assert server.request("DELETE", f"/v1/conversation/{conversation['id']}").status == 200
            return conversation["id"]

        first = ended(one)
        inbox.wait_until(lambda: inbox.rejected, TEST_TIMEOUT, "the 410")

        # Later events must happen after the 410 is stored.
        def dead_letters():
            return one.request("GET", "/v1/ext/deadletters").json()

        wait_until(
            lambda: first in [dead_letter["conversation_id"] for dead_letter in dead_letters()],
            lambda: f"the dead letter\n{one.log_tail()}",
            TEST_TIMEOUT,
        )
        ended(other)
        inbox.recovered = True
        assert (
            other.request("PATCH", f"/v1/ext/agent/{agent['id']}", {"agent_name": "Mended"}).status
            == 200
        )
        last = ended(one)
        inbox.wait_until(
            lambda: inbox.events_of(last), TEST_TIMEOUT, "the first event behind the update"
        )
        assert inbox.rejected == 1 and {event[0] for event in inbox.received} == {last}, (
            inbox.received
        )
    finally:
        inbox.close()


def test_a_hang_up_at_the_other_server_ends_the_call(live_pair):
    one, other = live_pair.servers
    conversation = one.create_conversation(typed_call.create_typed_agent(one)["id"])

    async def work():
        client = await TypedCall(one, conversation).connect()
        headers = {"authorization": f"Bearer {conversation['token']}"}
        await asyncio.to_thread(one.wait_for, conversation["id"], "IN_PROGRESS", TEST_TIMEOUT)

        def hang_up(server, resource):
            return server.request("DELETE", resource, key=None, headers=headers)

        place = f"/rtc/{conversation['id']}/whatever"
        for server in (one, other):
            missing = await asyncio.to_thread(hang_up, server, place)
            assert missing.status == 404, missing
        reply = await asyncio.to_thread(hang_up, other, client.resource)
        assert reply.status == 200, reply
        await client.peer.close()

    run_async(work())
    ended = one.wait_for(conversation["id"], "ENDED", timeout=TEST_TIMEOUT)
    assert ended["end_reason"] == "user_left"
