"""What calls send to their receivers, one row for each statement (`conformance/events.py`), on
SQLite, and in the long tier on PostgreSQL."""

import asyncio
import dataclasses
import json
import time

import pytest

from conformance import events
from kit import speech, stores
from kit.receivers import MockTool, ScriptedLlm, WebhookReceiver
from kit.server import ALL_EVENTS
from kit.webrtc_client import DataChannelCall, run_async
from test_guardrails import REFUSAL_TEXT, GuardrailReceiver, ModerationModel, create_guardrail

QUESTION, GREETING = ("How many places are free?", "rms"), ("Hello.", "rms")
ANSWER = (
    "I have found nine free places, and now you shall hear a long story of the old museum, of its "
    "many rooms, and of all the people who came to see the clocks."
)
TYPED = "Thank you, that is enough."
INPUTS = {"what": "places"}
RESULT = {"free": 9}


@dataclasses.dataclass
class Outcome:
    """The outcome of a call."""

    id: str
    started_at: float
    events: list = dataclasses.field(default_factory=list)
    errors: list = dataclasses.field(default_factory=list)
    callbacks: list = dataclasses.field(default_factory=list)
    signaling: dict = dataclasses.field(default_factory=dict)
    record: dict = dataclasses.field(default_factory=dict)
    ended: float = 0.0
    typed: str = TYPED
    answer: str = ANSWER
    tool: dict = dataclasses.field(
        default_factory=lambda: {
            "tool_name": "look_up",
            "parameters": INPUTS,
            "result": RESULT,
            "status": "completed",
        }
    )


def scripted_reply(llm_request):
    """Calls the tool first, says what it found, and answers briefly from then on."""
    roles = [message["role"] for message in llm_request["messages"]]
    if "tool" not in roles:
        call = {
            "index": 0,
            "id": "call_1",
            "type": "function",
            "function": {"name": "look_up", "arguments": json.dumps(INPUTS)},
        }
        return [{"tool_calls": [call]}]
    return [ANSWER] if roles[-1] == "tool" else ["All right."]


async def full_call(client):
    client.microphone.queue = speech.concatenate([QUESTION])
    await client.wait_for(lambda: client.events("agent.started_speaking"), 60, "the answer")
    received_before = len(client.received_audio)
    await client.wait_for(
        lambda: len(client.received_audio) > received_before + 75, 60, "a second and a half of it"
    )
    client.send_typed(TYPED)
    await client.wait_for(lambda: client.find_message(event="call_ended"), 90, "the end")


async def filtered_events_call(client):
    client.microphone.queue = speech.concatenate([GREETING])
    await client.wait_for(lambda: client.events("user.stopped_speaking"), 60, "the end of speech")


async def user_leaves_call(client):
    headers = {
        "authorization": f"Bearer {client.conversation['token']}",
        "content-type": "application/trickle-ice-sdpfrag",
    }
    reply = await asyncio.to_thread(
        client.server.request,
        "PATCH",
        client.resource,
        key=None,
        raw=b"a=end-of-candidates\r\n",
        headers=headers,
    )
    return {"PATCH": reply.status}


async def guardrail_call(client):
    await client.ask("May I sue my neighbour?", REFUSAL_TEXT)


async def no_callback_call(client):
    client.send_typed("Hello.")
    await client.wait_for(client.utterances, 60, "an answer")


def run_call(server, agent, work, hooks=None, **more):
    conversation = server.create_conversation(agent["id"], **more)
    outcome = Outcome(conversation["id"], time.time())

    async def talk():
        client = await DataChannelCall(server, conversation).connect()
        outcome.signaling = await work(client) or {}
        if client.find_message(event="call_ended"):
            await client.peer.close()
        else:
            outcome.signaling["DELETE"] = (await client.hang_up()).status

    run_async(talk())
    outcome.record = server.wait_for(conversation["id"], "ENDED", timeout=60)
    if hooks:
        hooks.wait_for(conversation["id"], "call_ended", timeout=60)
        outcome.events, outcome.errors = hooks.events_of(conversation["id"]), hooks.errors
    outcome.ended = time.time()
    return outcome


@pytest.fixture(
    scope="session", params=["sqlite", pytest.param("postgres", marks=pytest.mark.long("store"))]
)
def played_calls(request, start_server, tmp_path_factory):
    """The calls of the table. Each runs once on each store, when the first of its rows needs it."""
    store = (
        stores.Sqlite()
        if request.param == "sqlite"
        else stores.Postgres(request.getfixturevalue("postgres"))
    )
    folder = tmp_path_factory.mktemp(f"events-{store.name}")
    server = (
        start_server(f"events-{store.name}", data=folder, env=store.environment(folder))
        .read_first_start()
        .wait_ready()
    )
    receivers, played = [], {}

    def receiver(kind, *given):
        receivers.append(kind(*given))
        return receivers[-1]

    def of(name):
        if name in played:
            return played[name]
        hooks, llm_server = receiver(WebhookReceiver), receiver(ScriptedLlm, scripted_reply)
        scripted = {
            "llm": {"provider": "custom", "url": llm_server.base_url, "model": "scripted"},
            "turn": {"preemptive_generation": False},
        }
        if name == "whole":
            schema = {
                "type": "function",
                "name": "look_up",
                "description": "Looks something up.",
                "parameters": {"type": "object", "properties": {"what": {"type": "string"}}},
            }
            created = server.request(
                "POST",
                "/v1/ext/tool",
                {
                    "type": "tool.api",
                    "schema": schema,
                    "request_config": {"method": "GET", "url": receiver(MockTool, RESULT).url},
                },
            )
            assert created.status == 201, created
            warned = {"exit_heads_up_message": {"callout_before": 3, "messages": []}}
            agent = server.create_agent(
                hooks=hooks,
                tools=[created.json()["id"]],
                config={"maxCallDuration": events.MAX_CALL_DURATION},
                avatar=warned,
                transcripts=[QUESTION],
                **scripted,
            )
            played[name] = run_call(server, agent, full_call, hooks)
        elif name == "brief":
            played[name] = run_call(
                server,
                server.create_agent(
                    hooks=hooks,
                    events=["user.stopped_speaking", "call_ended"],
                    transcripts=[GREETING],
                ),
                filtered_events_call,
                hooks,
            )
        elif name == "left":
            played[name] = run_call(
                server,
                server.create_agent(hooks=hooks, events=ALL_EVENTS, transcripts=[]),
                user_leaves_call,
                hooks,
                user_id="ada-1",
            )
        elif name == "guarded":
            moderation, guardrail_receiver = receiver(ModerationModel), receiver(GuardrailReceiver)
            ruled = {
                "llm": {"provider": "custom", "url": moderation.base_url, "model": "scripted"},
                "turn": {"preemptive_generation": False},
            }
            outcome = run_call(
                server,
                server.create_agent(
                    hooks=hooks,
                    extra={"guardrail": [create_guardrail(server, guardrail_receiver)[0]]},
                    **ruled,
                ),
                guardrail_call,
                hooks,
            )
            guardrail_receiver.wait_until(lambda: guardrail_receiver.callbacks, 60, "the notice")
            outcome.callbacks = [one for one, _ in guardrail_receiver.callbacks]
            played[name] = outcome
        else:
            played[name] = run_call(server, server.create_agent(), no_callback_call)
        return played[name]

    yield of
    for one in receivers:
        one.close()


@pytest.mark.parametrize(
    ("says", "name", "holds"), [pytest.param(*row, id=row[0]) for row in events.ROWS]
)
def test_event(played_calls, says, name, holds):
    call = played_calls(name)
    assert holds(call), (says, call)


def test_every_event_of_the_interface_has_a_row():
    outcome = " ".join(says for says, _, _ in events.ROWS)
    assert [event for event in events.interface.EVENTS if event not in outcome] == []
