"""Guardrails in live calls: checked in parallel with the reply, spoken verbatim or given to the
model, reported once, and without cost while none triggers."""

import json

import pytest

from kit import typed_call
from kit.receivers import MockServer, ScriptedLlm

RULE = "The user wants legal advice"
REFUSAL_TEXT = "I am a museum guide, please ask a lawyer."
#: More than twenty seconds at the pace of the test's voice. A check that a busy machine delays
#: still interrupts it.
LONG_REPLY = (
    "You surely should do that, and at once, because nothing else helps. " * 30
    + "Everybody does it."
)


class ModerationModel(ScriptedLlm):
    """A model with a moderation endpoint. Rules match texts about suing."""

    def __init__(self):
        super().__init__(self.complete)
        self.checks = []
        self.moderated = []
        self.verdict = {"results": [{"flagged": True, "categories": {"legal": True}}]}

    def handle(self, request, body):
        if request.path == "/v1/moderations":
            with self.changed:
                self.moderated.append(json.loads(body)["input"])
            self.reply(request, 200, json.dumps(self.verdict).encode())
        else:
            super().handle(request, body)

    def complete(self, llm_request):
        last, tools = (
            llm_request["messages"][-1],
            [tool["function"] for tool in llm_request.get("tools") or []],
        )
        rule = next((tool["name"] for tool in tools if RULE in tool["description"]), None)
        called = [
            {
                "tool_calls": [
                    {
                        "index": 0,
                        "id": f"call_{len(llm_request['messages'])}",
                        "type": "function",
                        "function": {"name": rule, "arguments": "{}"},
                    }
                ]
            }
        ]
        if llm_request["messages"][0]["content"].startswith("You check"):
            self.checks.append(last["content"])
            # A reply that waits for this check would never come.
            return called if "sue" in last["content"] else ["!stall"]
        if last["role"] == "tool":
            return [f"The result was {json.loads(last['content'])['results'][0]['flagged']}."]
        if "sue" in last["content"] and rule:
            return called
        return [
            LONG_REPLY if "sue" in last["content"] else "You surely may, and everybody does it."
        ]


class GuardrailReceiver(MockServer):
    """A guardrail's receiver. It rejects the request, which is not sent again."""

    def __init__(self):
        super().__init__()
        self.callbacks = []

    def handle(self, request, body):
        with self.changed:
            self.callbacks.append((json.loads(body), dict(request.headers)))
            self.changed.notify_all()
        self.reply(request, 500)


@pytest.fixture
def moderation():
    created = ModerationModel()
    yield created
    created.close()


@pytest.fixture
def receiver():
    created = GuardrailReceiver()
    yield created
    created.close()


def create_guardrail(server, receiver, say=REFUSAL_TEXT, prompt=RULE):
    created = server.request(
        "POST",
        "/v1/ext/guardrail",
        {
            "name": "Legal advice!",
            "category": "law",
            "prompt": prompt,
            "response_message": say,
            "callback_url": receiver.url,
        },
    )
    assert created.status == 201, created
    found = server.request("GET", f"/v1/ext/guardrail/{created.json()['id']}").json()
    return found["id"], found["key"]


def create_guarded_agent(server, moderation, guardrails):
    return typed_call.create_typed_agent(
        server, llm_server=moderation, name="Guide", extra={"guardrail": guardrails}
    )


def test_guardrail_words_replace_the_reply_and_its_receiver_is_called_once(
    server, moderation, receiver
):
    id, key = create_guardrail(server, receiver)

    async def work(client):
        await client.ask("May I sue my neighbour?", REFUSAL_TEXT)
        utterances = client.utterances()
        assert utterances[-1] == REFUSAL_TEXT and not any(
            "Everybody does it" in text for text in utterances
        ), utterances
        receiver.wait_until(lambda: receiver.callbacks, typed_call.TEST_TIMEOUT, "the notice")
        # A guardrail that does not trigger delays nothing, even if its check never ends.
        await client.ask("May I take pictures?", "everybody does it.")

    record = typed_call.run_call(server, create_guarded_agent(server, moderation, [id]), work)
    ((callback, headers),) = receiver.callbacks
    assert set(callback) == {
        "event",
        "guardrail",
        "content",
        "response_message",
        "verdict",
        "conversation_id",
        "speech_id",
        "agent_id",
        "timestamp",
    }
    assert callback["event"] == "guardrail_triggered" and callback["guardrail"] == {
        "name": key,
        "category": "law",
    }
    assert (callback["content"], callback["response_message"], callback["verdict"]) == (
        "May I sue my neighbour?",
        REFUSAL_TEXT,
        None,
    )
    assert (
        callback["conversation_id"] == record["id"]
        and callback["agent_id"] == "Guide"
        and callback["timestamp"].endswith("Z")
    )
    assert callback["speech_id"].startswith("speech_")
    assert {name.lower() for name in headers} >= {
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
    }
    assert moderation.checks == ["May I sue my neighbour?", "May I take pictures?"]
    words = [(entry["role"], entry["content"]) for entry in record["transcript"]]
    assert ("assistant", REFUSAL_TEXT) in words
    assert [
        m["speech_id"] for m in record["chat_history"]["messages"] if m["content"] == REFUSAL_TEXT
    ] == [callback["speech_id"]]


def test_without_words_of_its_own_the_moderation_s_result_is_given_to_the_model(
    server, moderation, receiver
):
    id, key = create_guardrail(server, receiver, say="")

    async def work(client):
        await client.ask("May I sue my neighbour?", "The result was True.")
        receiver.wait_until(lambda: receiver.callbacks, typed_call.TEST_TIMEOUT, "the notice")

    typed_call.run_call(server, create_guarded_agent(server, moderation, [id]), work)
    ((callback, _),) = receiver.callbacks
    assert (callback["guardrail"]["name"], callback["response_message"], callback["verdict"]) == (
        key,
        None,
        moderation.verdict,
    )
    assert callback["content"] == "May I sue my neighbour?" and moderation.moderated == [
        "May I sue my neighbour?"
    ]
    result = next(
        m
        for llm_request in moderation.requests
        for m in llm_request["messages"]
        if m["role"] == "tool"
    )
    assert json.loads(result["content"]) == moderation.verdict


def test_the_built_in_model_applies_guardrails_and_skips_deleted_ones(server, receiver):
    id, _ = create_guardrail(server, receiver, prompt="The user asks about bombs")
    gone, _ = create_guardrail(
        server, receiver, say="Never spoken.", prompt="The user asks about the first room"
    )
    known = "The museum has an old clock in the first room. Bombs from the war lie in the cellar."
    agent = typed_call.create_typed_agent(server, knowledge=known, extra={"guardrail": [gone, id]})
    assert server.request("DELETE", f"/v1/ext/guardrail/{gone}").status == 200

    async def work(client):
        await client.ask("What is in the first room?", "old clock")
        await client.ask("How do I build bombs?", REFUSAL_TEXT)
        assert "Never spoken." not in client.utterances()

    typed_call.run_call(server, agent, work)
    receiver.wait_until(lambda: receiver.callbacks, typed_call.TEST_TIMEOUT, "the notice")
    assert len(receiver.callbacks) == 1
