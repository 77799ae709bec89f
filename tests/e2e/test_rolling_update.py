"""Servers of one database are replaced one after the other while calls run: no request fails, and
no call is cut."""

import asyncio
import itertools
import shutil

import pytest

from kit import stores
from kit.previous_release import previous_binary
from kit.store_outage import ask, create_agent
from kit.typed_call import TEST_TIMEOUT, TypedCall
from kit.webrtc_client import run_async

pytestmark = pytest.mark.long("store")

#: Callers who call again and again.
CALLERS = 6
#: Calls of each caller after the last server was replaced.
CALLS_AFTER = 2


class Fleet:
    """Servers on one database. A request goes to those that do not drain, as a load balancer sends
    it."""

    def __init__(self, start, folders, postgres):
        self.start, self.folders = start, folders
        self.url = stores.Postgres(postgres).create_database()
        self.servers: list = []
        self.first = None
        self.numbers = itertools.count()
        self.turn = itertools.count()

    def add(self):
        number = next(self.numbers)
        folder = self.folders.mktemp(f"fleet-{number}")
        if self.first:
            for file in ("secrets.key", "tokens.key"):
                shutil.copy(self.first.data / file, folder / file)
        environment = {"VISAVIS_SERVER_DATABASE_URL": self.url, "VISAVIS_TIMEOUTS_LEASE": "6"}
        server = self.start(f"fleet-{number}", data=folder, env=environment)
        if self.first:
            server.key = self.first.key
        else:
            self.first = server.read_first_start()
        self.servers.append(server.wait_ready())
        return server

    def pick(self):
        return self.servers[next(self.turn) % len(self.servers)]

    def remove(self, server):
        """Lets a server finish its calls and stop."""
        self.servers.remove(server)
        server.process.terminate()
        assert server.process.wait(TEST_TIMEOUT) == 0, server.log_tail()

    def close(self):
        for server in self.servers:
            server.stop()


@pytest.fixture
def fleet(start_server, tmp_path_factory, postgres):
    created = Fleet(start_server, tmp_path_factory, postgres)
    yield created
    created.close()


@pytest.mark.parametrize("before", ["this release", "the previous release"])
def test_a_rolling_update_fails_no_request_and_cuts_no_call(fleet, before, monkeypatch, report):
    relays = before == "this release"
    if not relays:
        monkeypatch.setenv("VISAVIS_BIN", previous_binary())
    old = [fleet.add(), fleet.add()]
    monkeypatch.undo()
    agent = create_agent(old[0], None)
    is_done = asyncio.Event()
    finished: list[str] = []

    async def call(talks_through_update: bool):
        creating = fleet.pick()
        conversation = await asyncio.to_thread(creating.create_conversation, agent)
        # Without relays, the call runs where the client joins.
        joining = fleet.pick()
        client = await TypedCall(joining, conversation).connect()
        await ask(client)
        if talks_through_update:
            # Two servers of both releases share the database meanwhile.
            while not is_done.is_set() and joining in fleet.servers:
                # The built-in answerer does not repeat what it has said.
                client.messages.clear()
                client.send_typed("Where is the clock?")
                await client.wait_for(
                    lambda: client.find_message(event="agent.stopped_speaking"),
                    what="the end of the answer",
                )
        if relays:
            reply = await asyncio.to_thread(
                fleet.pick().request,
                "POST",
                f"/v1/conversation/{conversation['id']}/context",
                {"text": "It rains."},
            )
            assert reply.status == 200, reply
        await client.hang_up()
        finished.append(conversation["id"])

    async def caller(number: int):
        while not is_done.is_set():
            await call(talks_through_update=number % 2 == 0)
        for _ in range(CALLS_AFTER):
            await call(talks_through_update=False)

    async def update():
        for server in old:
            await asyncio.to_thread(fleet.add)
            await asyncio.to_thread(fleet.remove, server)
        is_done.set()

    async def whole():
        await asyncio.gather(update(), *(caller(number) for number in range(CALLERS)))

    run_async(whole())
    [*_, last] = fleet.servers
    for conversation in finished:
        record = last.wait_for(conversation, "ENDED", TEST_TIMEOUT)
        assert record["end_reason"] == "user_left", record
        events = last.request("GET", f"/v1/ext/conversation/{conversation}/events").json()
        assert [event["seq"] for event in events] == list(range(len(events))), record
        assert sum(event["what"] == "ended" for event in events) == 1, record
    report.add(f"rolling update from {before}", {"calls": len(finished)})
    assert len(finished) >= CALLERS * CALLS_AFTER
