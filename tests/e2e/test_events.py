"""What calls tell their receivers, a row for each statement (`conformance/events.py`), on SQLite, and in the
long tier on PostgreSQL."""

import asyncio
import dataclasses
import json
import time

import pytest

from conformance import events
from kit import stores, voice
from kit.peer import Call, run
from kit.receivers import Hooks, Model, Tool
from kit.server import ALL_EVENTS
from test_guardrails import SORRY, Judge, Told, guardrail

QUESTION, GREETING = ("How many places are free?", "rms"), ("Hello.", "rms")
ANSWER = "I have found nine free places, and now you shall hear a long story of the old museum, of its many rooms, and of all the people who came to see the clocks."
TYPED = "Thank you, that is enough."
INPUTS = {"what": "places"}
RESULT = {"free": 9}


@dataclasses.dataclass
class Outcome:
    """What became of a call."""

    id: str
    begun: float
    events: list = dataclasses.field(default_factory=list)
    faults: list = dataclasses.field(default_factory=list)
    notices: list = dataclasses.field(default_factory=list)
    door: dict = dataclasses.field(default_factory=dict)
    record: dict = dataclasses.field(default_factory=dict)
    ended: float = 0.0
    typed: str = TYPED
    answer: str = ANSWER
    tool: dict = dataclasses.field(default_factory=lambda: {"tool_name": "look_up", "parameters": INPUTS, "result": RESULT})


def thinker(asked):
    """Asks the tool first, tells what it found, and is brief from then on."""
    roles = [message["role"] for message in asked["messages"]]
    if "tool" not in roles:
        call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": json.dumps(INPUTS)}}
        return [{"tool_calls": [call]}]
    return [ANSWER] if roles[-1] == "tool" else ["All right."]


async def whole(client):
    client.mouth.queue = voice.script([QUESTION])
    await client.until(lambda: client.events("agent.started_speaking"), 60, "the answer")
    heard = len(client.heard)
    await client.until(lambda: len(client.heard) > heard + 75, 60, "a second and a half of it")
    client.type(TYPED)
    await client.until(lambda: client.says(event="call_ended"), 90, "the end")


async def brief(client):
    client.mouth.queue = voice.script([GREETING])
    await client.until(lambda: client.events("user.stopped_speaking"), 60, "the end of speech")


async def left(client):
    headers = {"authorization": f"Bearer {client.conversation['token']}", "content-type": "application/trickle-ice-sdpfrag"}
    reply = await asyncio.to_thread(client.server.call, "PATCH", client.resource, key=None, raw=b"a=end-of-candidates\r\n", headers=headers)
    return {"PATCH": reply.status}


async def guarded(client):
    await client.ask("May I sue my neighbour?", SORRY)


async def silent(client):
    client.type("Hello.")
    await client.until(client.spoken, 60, "an answer")


def play(server, agent, work, hooks=None, **more):
    conversation = server.conversation(agent["id"], **more)
    told = Outcome(conversation["id"], time.time())

    async def talk():
        client = await Call(server, conversation).begin()
        told.door = await work(client) or {}
        if client.says(event="call_ended"):
            await client.peer.close()
        else:
            told.door["DELETE"] = (await client.leave()).status

    run(talk())
    told.record = server.until(conversation["id"], "ENDED", timeout=60)
    if hooks:
        hooks.until(conversation["id"], "call_ended", timeout=60)
        told.events, told.faults = hooks.of(conversation["id"]), hooks.faults
    told.ended = time.time()
    return told


@pytest.fixture(scope="session", params=["sqlite", pytest.param("postgres", marks=pytest.mark.long("store"))])
def calls(request, start, tmp_path_factory):
    """The calls of the table, each played once on each store when the first of its rows is asked."""
    store = stores.Sqlite() if request.param == "sqlite" else stores.Postgres(request.getfixturevalue("postgres"))
    folder = tmp_path_factory.mktemp(f"events-{store.name}")
    server = start(f"events-{store.name}", data=folder, env=store.environment(folder)).first_start().ready()
    receivers, played = [], {}

    def receiver(kind, *given):
        receivers.append(kind(*given))
        return receivers[-1]

    def of(name):
        if name in played:
            return played[name]
        hooks, brain = receiver(Hooks), receiver(Model, thinker)
        scripted = {"llm": {"provider": "custom", "url": brain.base, "model": "scripted"}, "turn": {"preemptive_generation": False}}
        if name == "whole":
            schema = {"type": "function", "name": "look_up", "description": "Looks something up.", "parameters": {"type": "object", "properties": {"what": {"type": "string"}}}}
            made = server.call("POST", "/v1/ext/tool", {"type": "tool.api", "schema": schema, "request_config": {"method": "GET", "url": receiver(Tool, RESULT).url}})
            assert made.status == 201, made
            warned = {"exit_heads_up_message": {"callout_before": 3, "messages": []}}
            agent = server.agent(
                hooks=hooks, tools=[made.json()["id"]], config={"maxCallDuration": events.LIMIT},
                avatar=warned, hears=[QUESTION], **scripted,
            )  # fmt: skip
            played[name] = play(server, agent, whole, hooks)
        elif name == "brief":
            played[name] = play(
                server,
                server.agent(hooks=hooks, events=["user.stopped_speaking", "call_ended"], hears=[GREETING]),
                brief,
                hooks,
            )
        elif name == "left":
            played[name] = play(
                server, server.agent(hooks=hooks, events=ALL_EVENTS, hears=[]), left, hooks, user_id="ada-1"
            )
        elif name == "guarded":
            judge, notice = receiver(Judge), receiver(Told)
            ruled = {"llm": {"provider": "custom", "url": judge.base, "model": "scripted"}, "turn": {"preemptive_generation": False}}
            told = play(server, server.agent(hooks=hooks, extra={"guardrail": [guardrail(server, notice)[0]]}, **ruled), guarded, hooks)
            notice.wait(lambda: notice.notices, 60, "the notice")
            told.notices = [one for one, _ in notice.notices]
            played[name] = told
        else:
            played[name] = play(server, server.agent(), silent)
        return played[name]

    yield of
    for one in receivers:
        one.close()


@pytest.mark.parametrize(("says", "name", "holds"), [pytest.param(*row, id=row[0]) for row in events.ROWS])
def test_event(calls, says, name, holds):
    call = calls(name)
    assert holds(call), (says, call)


def test_every_event_of_the_interface_has_a_row():
    told = " ".join(says for says, _, _ in events.ROWS)
    assert [event for event in events.interface.EVENTS if event not in told] == []
