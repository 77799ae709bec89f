"""Guardrails in live calls: checked beside the reply, spoken verbatim or handed to the model, told once, and free while none fires."""

import json

import pytest

from kit import talk
from kit.receivers import Model, Receiver

RULE = "The user wants legal advice"
SORRY = "I am a museum guide, please ask a lawyer."
#: More than twenty seconds at the pace of the test's voice: a check that a busy machine delays still cuts it.
LONG = "You surely should do that, and at once, because nothing else helps. " * 30 + "Everybody does it."


class Judge(Model):
    """A model with a moderation endpoint: rules fit what speaks of suing."""

    def __init__(self):
        super().__init__(self.think)
        self.checks = []
        self.moderated = []
        self.verdict = {"results": [{"flagged": True, "categories": {"legal": True}}]}

    def answer(self, request, body):
        if request.path == "/v1/moderations":
            with self.changed:
                self.moderated.append(json.loads(body)["input"])
            self.reply(request, 200, json.dumps(self.verdict).encode())
        else:
            super().answer(request, body)

    def think(self, asked):
        last, tools = asked["messages"][-1], [tool["function"] for tool in asked.get("tools") or []]
        rule = next((tool["name"] for tool in tools if RULE in tool["description"]), None)
        called = [{"tool_calls": [{"index": 0, "id": f"call_{len(asked['messages'])}", "type": "function", "function": {"name": rule, "arguments": "{}"}}]}]
        if asked["messages"][0]["content"].startswith("You check"):
            self.checks.append(last["content"])
            # Whoever waited for this check would never answer.
            return called if "sue" in last["content"] else ["!stall"]
        if last["role"] == "tool":
            return [f"The result was {json.loads(last['content'])['results'][0]['flagged']}."]
        if "sue" in last["content"] and rule:
            return called
        return [LONG if "sue" in last["content"] else "You surely may, and everybody does it."]


class Told(Receiver):
    """A guardrail's receiver. It refuses: nothing is sent twice."""

    def __init__(self):
        super().__init__()
        self.notices = []

    def answer(self, request, body):
        with self.changed:
            self.notices.append((json.loads(body), dict(request.headers)))
            self.changed.notify_all()
        self.reply(request, 500)


@pytest.fixture
def judge():
    made = Judge()
    yield made
    made.close()


@pytest.fixture
def told():
    made = Told()
    yield made
    made.close()


def guardrail(server, told, say=SORRY, prompt=RULE):
    made = server.call("POST", "/v1/ext/guardrail", {"name": "Legal advice!", "category": "law", "prompt": prompt, "response_message": say, "callback_url": told.url})
    assert made.status == 201, made
    found = server.call("GET", f"/v1/ext/guardrail/{made.json()['id']}").json()
    return found["id"], found["key"]


def guarded(server, judge, guardrails):
    return talk.agent(server, brain=judge, name="Guide", extra={"guardrail": guardrails})


def test_its_words_take_the_place_of_the_reply_and_its_receiver_is_told_once(server, judge, told):
    id, key = guardrail(server, told)

    async def work(client):
        await client.ask("May I sue my neighbour?", SORRY)
        said = client.spoken()
        assert said[-1] == SORRY and not any("Everybody does it" in text for text in said), said
        told.wait(lambda: told.notices, talk.PATIENCE, "the notice")
        # One that has not fired holds nothing up, even where its check never ends.
        await client.ask("May I take pictures?", "everybody does it.")

    record = talk.talk(server, guarded(server, judge, [id]), work)
    ((notice, headers),) = told.notices
    assert set(notice) == {"event", "guardrail", "content", "response_message", "verdict", "conversation_id", "speech_id", "agent_id", "timestamp"}
    assert notice["event"] == "guardrail_triggered" and notice["guardrail"] == {"name": key, "category": "law"}
    assert (notice["content"], notice["response_message"], notice["verdict"]) == ("May I sue my neighbour?", SORRY, None)
    assert notice["conversation_id"] == record["id"] and notice["agent_id"] == "Guide" and notice["timestamp"].endswith("Z")
    assert notice["speech_id"].startswith("speech_")
    assert {name.lower() for name in headers} >= {"webhook-id", "webhook-timestamp", "webhook-signature"}
    assert judge.checks == ["May I sue my neighbour?", "May I take pictures?"]
    words = [(entry["role"], entry["content"]) for entry in record["transcript"]]
    assert ("assistant", SORRY) in words
    assert [m["speech_id"] for m in record["chat_history"]["messages"] if m["content"] == SORRY] == [notice["speech_id"]]


def test_without_words_of_its_own_the_moderation_s_result_is_given_to_the_model(server, judge, told):
    id, key = guardrail(server, told, say="")

    async def work(client):
        await client.ask("May I sue my neighbour?", "The result was True.")
        told.wait(lambda: told.notices, talk.PATIENCE, "the notice")

    talk.talk(server, guarded(server, judge, [id]), work)
    ((notice, _),) = told.notices
    assert (notice["guardrail"]["name"], notice["response_message"], notice["verdict"]) == (key, None, judge.verdict)
    assert notice["content"] == "May I sue my neighbour?" and judge.moderated == ["May I sue my neighbour?"]
    result = next(m for asked in judge.requests for m in asked["messages"] if m["role"] == "tool")
    assert json.loads(result["content"]) == judge.verdict


def test_the_built_in_model_keeps_rules_too_and_a_deleted_one_is_skipped(server, told):
    id, _ = guardrail(server, told, prompt="The user asks about bombs")
    gone, _ = guardrail(server, told, say="Never spoken.", prompt="The user asks about the first room")
    known = "The museum has an old clock in the first room. Bombs from the war lie in the cellar."
    agent = talk.agent(server, knowledge=known, extra={"guardrail": [gone, id]})
    assert server.call("DELETE", f"/v1/ext/guardrail/{gone}").status == 200

    async def work(client):
        await client.ask("What is in the first room?", "old clock")
        await client.ask("How do I build bombs?", SORRY)
        assert "Never spoken." not in client.spoken()

    talk.talk(server, agent, work)
    told.wait(lambda: told.notices, talk.PATIENCE, "the notice")
    assert len(told.notices) == 1
