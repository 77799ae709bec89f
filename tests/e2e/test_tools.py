"""Tools in live calls: a real HTTP server's, with what the agent says meanwhile, and the client's own."""

import json
import threading
import urllib.parse

import pytest

from kit.peer import Call, run
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
    "on_delay": {"delay": 3, "message": "It takes a little longer."},
    "on_success": {"message": "I have found it."},
    "on_error": {"message": "That did not work."},
}
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


def talk(server, brain, tools, work):
    agent = server.agent(llm={"provider": "custom", "url": brain.base, "model": "scripted"}, turn={"preemptive_generation": False},
                         config={"expose_tools": True}, tools=tools)  # fmt: skip
    conversation = server.conversation(agent["id"])

    async def whole():
        client = await Call(server, conversation).begin()
        await work(client)
        await client.leave()

    run(whole())
    return server.until(conversation["id"], "ENDED")


def test_a_get_fills_the_address_and_success_is_told(server, model, counter):
    brain = model(thinker)

    async def work(client):
        await client.ask("How many tickets are left?", "There are 12 left.")
        assert client.events("tool_call") == [{"tool_name": "tickets_left", "parameters": ARGUMENTS, "result": {"free": 12}}]
        said = " ".join(client.spoken())
        assert said.index("Let me look.") < said.index("I have found it.") < said.index("There are 12 left."), said
        assert "longer" not in said and "did not work" not in said

    talk(server, brain, [tool(server, counter)], work)
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

    talk(server, brain, [tool(server, counter, "POST", "/rooms/{room}/tickets")], work)
    (asked,) = counter.calls
    assert asked["method"] == "POST" and asked["path"] == "/rooms/blue%20room%2F2/tickets"
    assert json.loads(asked["body"]) == {"day": ARGUMENTS["day"], "note": ARGUMENTS["note"]}


def test_a_late_tool_is_apologised_for_and_one_that_never_answers_fails(server, model, counter):
    counter.hold = threading.Event()
    brain = model(thinker)

    async def work(client):
        client.type("How many tickets are left?")
        await client.until_spoken("It takes a little longer.")
        assert not client.events("tool_call"), "it is still out"
        await client.until_spoken("Nobody can tell.", timeout=40)
        said = " ".join(client.spoken())
        order = [said.index(words) for words in ("Let me look.", "It takes a little longer.", "That did not work.", "Nobody can tell.")]
        assert order == sorted(order), said
        assert "time" in json.dumps(client.events("tool_call")[0]["result"])
        await client.ask("Are you still here?", "I am still here.")

    talk(server, brain, [tool(server, counter)], work)
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

    talk(server, brain, [tool(server, None, type="tool.client")], work)


def test_a_tool_that_was_deleted_is_skipped(server, model, counter):
    brain = model(thinker)
    gone = tool(server, counter)
    agent = server.agent(llm={"provider": "custom", "url": brain.base, "model": "scripted"}, tools=[gone])
    assert server.call("DELETE", f"/v1/ext/tool/{gone}").status == 200
    conversation = server.conversation(agent["id"])

    async def whole():
        client = await Call(server, conversation).begin()
        await client.ask("Are you there?", "I am still here.")
        await client.leave()

    run(whole())
    assert all(not asked.get("tools") for asked in brain.requests)
    assert server.until(conversation["id"], "ENDED")["warnings"] == []
