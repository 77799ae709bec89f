"""Tools in live calls: a real HTTP server's, with what the agent says meanwhile, and the client's own."""

import json
import threading
import urllib.parse

import pytest

from kit import talk
from kit.receivers import Receiver


class Counter(Receiver):
    """A ticket counter. `hold` makes it late, until it is set."""

    def __init__(self):
        super().__init__()
        self.calls = []
        self.hold = None
        self.status, self.body = 200, {"free": 12}

    def answer(self, request, body):
        with self.changed:
            self.calls.append({"method": request.command, "path": request.path, "body": body, "headers": dict(request.headers)})
            self.changed.notify_all()
        if self.hold:
            self.hold.wait(60)
        try:
            self.reply(request, self.status, json.dumps(self.body).encode())
        except OSError:
            pass  # whoever asked has given up

    def seen(self):
        return self.calls


@pytest.fixture
def counter():
    made = Counter()
    yield made
    if made.hold:
        made.hold.set()
    made.close()


MESSAGES = {
    "on_start": {"message": "Let me look."},
    "on_delay": {"delay": 60, "message": "It takes a little longer."},
    "on_success": {"message": "I have found it."},
    "on_error": {"message": "That did not work."},
}
LATE = {**MESSAGES, "on_delay": {**MESSAGES["on_delay"], "delay": 0.3}}
PARAMETERS = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("room", "day", "note")},
    "required": ["room"],
}
ARGUMENTS = {"room": "blue room/2", "day": "Sun & Mon", "note": "für zwei"}


def tool(server, counter, method="GET", path="/rooms/{room}/tickets?day={day}", messages=MESSAGES, type="tool.api"):
    request = {"method": method, "url": counter.url + path, "headers": {"X-Counter-Key": "sesame-sesame"}} if counter else {}
    schema = {"type": "function", "name": "tickets_left", "description": "How many tickets are left.", "parameters": PARAMETERS}
    made = server.call("POST", "/v1/ext/tool", {"type": type, "schema": schema, "request_config": request, "event_messages": messages})
    assert made.status == 201, made
    return made.json()["id"]


def thinker(asked):
    """Calls the tool for a question about tickets; tells what came of it."""
    last = asked["messages"][-1]
    if last["role"] == "tool":
        return [f"There are {json.loads(last['content'])['free']} left."] if '"free"' in last["content"] else ["Nobody can tell."]
    if "tickets" not in last["content"]:
        return ["I am still here."]
    call = {"index": 0, "id": f"call_{len(asked['messages'])}", "type": "function", "function": {"name": "tickets_left", "arguments": json.dumps(ARGUMENTS)}}
    return [{"tool_calls": [call]}]


def with_tools(server, brain, *tools):
    return talk.agent(server, brain=brain, config={"expose_tools": True}, tools=tools)


def test_a_get_fills_the_address_and_success_is_told(server, model, counter):
    brain = model(thinker)

    async def work(client):
        await client.ask("How many tickets are left?", "There are 12 left.")
        assert client.events("tool_call") == [{"tool_name": "tickets_left", "parameters": ARGUMENTS, "result": {"free": 12}}]
        said = " ".join(client.spoken())
        assert said.index("Let me look.") < said.index("I have found it.") < said.index("There are 12 left."), said
        assert "longer" not in said and "did not work" not in said

    talk.talk(server, with_tools(server, brain, tool(server, counter)), work)
    (asked,) = counter.calls
    path, query = asked["path"].split("?")
    assert asked["method"] == "GET" and path == "/rooms/blue%20room%2F2/tickets"
    assert urllib.parse.parse_qs(query) == {"day": ["Sun & Mon"], "note": ["für zwei"]}
    assert asked["headers"]["x-counter-key" if "x-counter-key" in asked["headers"] else "X-Counter-Key"] == "sesame-sesame"
    assert "sesame-sesame" not in json.dumps(brain.requests), "the model is told no secrets"


def test_a_post_sends_the_rest_as_json_and_a_refusal_is_told(server, model, counter):
    counter.status, counter.body = 503, {"error": "closed on Mondays, and sesame-sesame is the key"}
    brain = model(thinker)

    async def work(client):
        await client.ask("How many tickets are left?", "Nobody can tell.")
        said = " ".join(client.spoken())
        assert "That did not work." in said and "I have found it." not in said, said
        result = json.dumps(client.events("tool_call")[0]["result"])
        assert "503" in result and "closed on Mondays" in result and "sesame-sesame" not in result, result
        await client.ask("Are you still here?", "I am still here.")

    talk.talk(server, with_tools(server, brain, tool(server, counter, "POST", "/rooms/{room}/tickets")), work)
    (asked,) = counter.calls
    assert asked["method"] == "POST" and asked["path"] == "/rooms/blue%20room%2F2/tickets"
    assert json.loads(asked["body"]) == {"day": ARGUMENTS["day"], "note": ARGUMENTS["note"]}


def test_a_late_tool_is_apologised_for(server, model, counter):
    counter.hold = threading.Event()
    brain = model(thinker)

    async def work(client):
        client.type("How many tickets are left?")
        await client.until_spoken("It takes a little longer.")
        assert not client.events("tool_call"), "it is still out"
        counter.hold.set()
        await client.until_spoken("There are 12 left.")
        said = " ".join(client.spoken())
        messages = ("Let me look.", "It takes a little longer.", "I have found it.", "There are 12 left.")
        order = [said.index(words) for words in messages]
        assert order == sorted(order) and said.count("longer") == 1, said

    talk.talk(server, with_tools(server, brain, tool(server, counter, messages=LATE)), work)


@pytest.mark.long("providers")
def test_a_tool_that_never_answers_fails(server, model, counter):
    """The product's own time-out of twenty seconds, which is no setting."""
    counter.hold = threading.Event()
    brain = model(thinker)

    async def work(client):
        client.type("How many tickets are left?")
        await client.until_spoken("Nobody can tell.")
        said = " ".join(client.spoken())
        messages = ("Let me look.", "It takes a little longer.", "That did not work.", "Nobody can tell.")
        order = [said.index(words) for words in messages]
        assert order == sorted(order), said
        assert "time" in json.dumps(client.events("tool_call")[0]["result"])
        await client.ask("Are you still here?", "I am still here.")

    talk.talk(server, with_tools(server, brain, tool(server, counter, messages=LATE)), work)
    assert len(counter.calls) == 1


def test_a_tool_of_the_client_runs_there(server, model):
    brain = model(thinker)

    async def work(client):
        client.type("How many tickets are left?")
        asked = await client.until(lambda: client.says("llm-function-call-in-progress"), what="the call of the tool")
        asked = asked["data"]
        assert (asked["function_name"], asked["arguments"]) == ("tickets_left", ARGUMENTS)
        answer = {"function_name": asked["function_name"], "tool_call_id": asked["tool_call_id"], "arguments": asked["arguments"], "result": {"free": 3}}
        client.send("llm-function-call-result", answer)
        await client.until_spoken("There are 3 left.")
        assert client.events("tool_call") == [{"tool_name": "tickets_left", "parameters": ARGUMENTS, "result": {"free": 3}}]
        assert client.says("llm-function-call-stopped")
        # A call that is not open any more takes no result.
        client.send("llm-function-call-result", answer)
        await client.until(lambda: client.says("error-response"), what="the refusal")

    talk.talk(server, with_tools(server, brain, tool(server, None, type="tool.client")), work)


def test_a_tool_that_was_deleted_is_skipped(server, model, counter):
    brain = model(thinker)
    gone = tool(server, counter)
    agent = with_tools(server, brain, gone)
    assert server.call("DELETE", f"/v1/ext/tool/{gone}").status == 200

    async def work(client):
        await client.ask("Are you there?", "I am still here.")

    assert talk.talk(server, agent, work)["warnings"] == []
    assert all(not asked.get("tools") for asked in brain.requests)
