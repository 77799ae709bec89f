"""Tools in live calls: those of a real HTTP server, with the agent's words meanwhile, and those of
the client."""

import contextlib
import json
import threading
import urllib.parse

import pytest

from kit import typed_call
from kit.receivers import MockServer


class TicketServer(MockServer):
    """A ticket counter. `release` delays its answer until it is set."""

    def __init__(self):
        super().__init__()
        self.calls = []
        self.release = None
        self.status, self.body = 200, {"free": 12}

    def handle(self, request, body):
        with self.changed:
            self.calls.append(
                {
                    "method": request.command,
                    "path": request.path,
                    "body": body,
                    "headers": dict(request.headers),
                }
            )
            self.changed.notify_all()
        if self.release:
            self.release.wait(60)
        # The client may have given up.
        with contextlib.suppress(OSError):
            self.reply(request, self.status, json.dumps(self.body).encode())

    def describe(self):
        return self.calls


@pytest.fixture
def ticket_server():
    created = TicketServer()
    yield created
    if created.release:
        created.release.set()
    created.close()


MESSAGES = {
    "on_start": {"message": "Let me look."},
    "on_delay": {"delay": 60, "message": "It takes a little longer."},
    "on_success": {"message": "I have found it."},
    "on_error": {"message": "That did not work."},
}
DELAYED_MESSAGES = {**MESSAGES, "on_delay": {**MESSAGES["on_delay"], "delay": 0.3}}
PARAMETERS = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("room", "day", "note")},
    "required": ["room"],
}
ARGUMENTS = {"room": "blue room/2", "day": "Sun & Mon", "note": "für zwei"}


def create_tool(
    server,
    ticket_server,
    method="GET",
    path="/rooms/{room}/tickets?day={day}",
    messages=MESSAGES,
    type="tool.api",
):
    request = (
        {
            "method": method,
            "url": ticket_server.url + path,
            "headers": {"X-Counter-Key": "sesame-sesame"},
        }
        if ticket_server
        else {}
    )
    schema = {
        "type": "function",
        "name": "tickets_left",
        "description": "How many tickets are left.",
        "parameters": PARAMETERS,
    }
    created = server.request(
        "POST",
        "/v1/ext/tool",
        {"type": type, "schema": schema, "request_config": request, "event_messages": messages},
    )
    assert created.status == 201, created
    return created.json()["id"]


def scripted_reply(llm_request):
    """Calls the tool for a question about tickets; says what it returned."""
    last = llm_request["messages"][-1]
    if last["role"] == "tool":
        return (
            [f"There are {json.loads(last['content'])['free']} left."]
            if '"free"' in last["content"]
            else ["Nobody can tell."]
        )
    if "tickets" not in last["content"]:
        return ["I am still here."]
    call = {
        "index": 0,
        "id": f"call_{len(llm_request['messages'])}",
        "type": "function",
        "function": {"name": "tickets_left", "arguments": json.dumps(ARGUMENTS)},
    }
    return [{"tool_calls": [call]}]


def create_agent_with_tools(server, llm_server, *tools):
    return typed_call.create_typed_agent(
        server, llm_server=llm_server, config={"expose_tools": True}, tools=tools
    )


def test_a_get_tool_fills_the_url_and_reports_success(server, scripted_llm, ticket_server):
    llm_server = scripted_llm(scripted_reply)

    async def work(client):
        await client.ask("How many tickets are left?", "There are 12 left.")
        assert client.events("tool_call") == [
            {
                "tool_name": "tickets_left",
                "parameters": ARGUMENTS,
                "result": {"free": 12},
                "status": "completed",
            }
        ]
        spoken_text = " ".join(client.utterances())
        assert (
            spoken_text.index("Let me look.")
            < spoken_text.index("I have found it.")
            < spoken_text.index("There are 12 left.")
        ), spoken_text
        assert "longer" not in spoken_text and "did not work" not in spoken_text

    typed_call.run_call(
        server,
        create_agent_with_tools(server, llm_server, create_tool(server, ticket_server)),
        work,
    )
    (request,) = ticket_server.calls
    path, query = request["path"].split("?")
    assert request["method"] == "GET" and path == "/rooms/blue%20room%2F2/tickets"
    assert urllib.parse.parse_qs(query) == {"day": ["Sun & Mon"], "note": ["für zwei"]}
    assert (
        request["headers"][
            "x-counter-key" if "x-counter-key" in request["headers"] else "X-Counter-Key"
        ]
        == "sesame-sesame"
    )
    assert "sesame-sesame" not in json.dumps(llm_server.requests), "the model gets no secrets"


def test_a_post_tool_sends_json_and_reports_a_failure(server, scripted_llm, ticket_server):
    ticket_server.status, ticket_server.body = (
        503,
        {"error": "closed on Mondays, and sesame-sesame is the key"},
    )
    llm_server = scripted_llm(scripted_reply)

    async def work(client):
        await client.ask("How many tickets are left?", "Nobody can tell.")
        spoken_text = " ".join(client.utterances())
        assert "That did not work." in spoken_text and "I have found it." not in spoken_text, (
            spoken_text
        )
        tool_call = client.events("tool_call")[0]
        assert tool_call["status"] == "failed" and list(tool_call["result"]) == ["error"], tool_call
        result = json.dumps(tool_call["result"])
        assert (
            "503" in result and "closed on Mondays" in result and "sesame-sesame" not in result
        ), result
        await client.ask("Are you still here?", "I am still here.")

    with server.without_errors():
        typed_call.run_call(
            server,
            create_agent_with_tools(
                server,
                llm_server,
                create_tool(server, ticket_server, "POST", "/rooms/{room}/tickets"),
            ),
            work,
        )
    (request,) = ticket_server.calls
    assert request["method"] == "POST" and request["path"] == "/rooms/blue%20room%2F2/tickets"
    assert json.loads(request["body"]) == {"day": ARGUMENTS["day"], "note": ARGUMENTS["note"]}


def test_the_agent_apologizes_for_a_late_tool(server, scripted_llm, ticket_server):
    ticket_server.release = threading.Event()
    llm_server = scripted_llm(scripted_reply)

    async def work(client):
        client.send_typed("How many tickets are left?")
        await client.wait_for_utterance("It takes a little longer.")
        assert not client.events("tool_call"), "it is still out"
        ticket_server.release.set()
        await client.wait_for_utterance("There are 12 left.")
        spoken_text = " ".join(client.utterances())
        messages = (
            "Let me look.",
            "It takes a little longer.",
            "I have found it.",
            "There are 12 left.",
        )
        order = [spoken_text.index(words) for words in messages]
        assert order == sorted(order) and spoken_text.count("longer") == 1, spoken_text

    typed_call.run_call(
        server,
        create_agent_with_tools(
            server, llm_server, create_tool(server, ticket_server, messages=DELAYED_MESSAGES)
        ),
        work,
    )


@pytest.mark.long("providers")
def test_a_tool_that_never_answers_fails(server, scripted_llm, ticket_server):
    """The product's own timeout of twenty seconds, which is not configurable."""
    ticket_server.release = threading.Event()
    llm_server = scripted_llm(scripted_reply)

    async def work(client):
        client.send_typed("How many tickets are left?")
        await client.wait_for_utterance("Nobody can tell.")
        spoken_text = " ".join(client.utterances())
        messages = (
            "Let me look.",
            "It takes a little longer.",
            "That did not work.",
            "Nobody can tell.",
        )
        order = [spoken_text.index(words) for words in messages]
        assert order == sorted(order), spoken_text
        assert "time" in json.dumps(client.events("tool_call")[0]["result"])
        await client.ask("Are you still here?", "I am still here.")

    typed_call.run_call(
        server,
        create_agent_with_tools(
            server, llm_server, create_tool(server, ticket_server, messages=DELAYED_MESSAGES)
        ),
        work,
    )
    assert len(ticket_server.calls) == 1


def test_a_client_tool_runs_in_the_client(server, scripted_llm):
    llm_server = scripted_llm(scripted_reply)

    async def work(client):
        client.send_typed("How many tickets are left?")
        call_message = await client.wait_for(
            lambda: client.find_message("llm-function-call-in-progress"),
            what="the call of the tool",
        )
        call_message = call_message["data"]
        assert (call_message["function_name"], call_message["arguments"]) == (
            "tickets_left",
            ARGUMENTS,
        )
        answer = {
            "function_name": call_message["function_name"],
            "tool_call_id": call_message["tool_call_id"],
            "arguments": call_message["arguments"],
            "result": {"free": 3},
        }
        client.send("llm-function-call-result", answer)
        await client.wait_for_utterance("There are 3 left.")
        assert client.events("tool_call") == [
            {
                "tool_name": "tickets_left",
                "parameters": ARGUMENTS,
                "result": {"free": 3},
                "status": "completed",
            }
        ]
        assert client.find_message("llm-function-call-stopped")
        # A finished call accepts no result.
        client.send("llm-function-call-result", answer)
        await client.wait_for(lambda: client.find_message("error-response"), what="the refusal")

    typed_call.run_call(
        server,
        create_agent_with_tools(server, llm_server, create_tool(server, None, type="tool.client")),
        work,
    )


def test_a_tool_that_was_deleted_is_skipped(server, scripted_llm, ticket_server):
    llm_server = scripted_llm(scripted_reply)
    gone = create_tool(server, ticket_server)
    agent = create_agent_with_tools(server, llm_server, gone)
    assert server.request("DELETE", f"/v1/ext/tool/{gone}").status == 200

    async def work(client):
        await client.ask("Are you there?", "I am still here.")

    assert typed_call.run_call(server, agent, work)["warnings"] == []
    for llm_request in llm_server.requests:
        names = [tool["function"]["name"] for tool in llm_request.get("tools") or []]
        assert names == ["end_call"]
