"""MCP servers in live calls: the official Python SDK's, over both transports; and servers that are
down, do not answer, or die."""

import asyncio
import json
import socket

import pytest

from kit import typed_call
from kit.mcp_server import McpServer

GREETING = "Good day, I am the guide of the museum."
APOLOGY = "I could not look that up."
HOURS = "It closes at seventeen."
READY = "The tools are there."
PARAMETERS = {"type": "object", "properties": {}}


@pytest.fixture(scope="module")
def shared_mcp_server():
    """A process that every test may use and none may kill."""
    mcp_server = McpServer()
    yield mcp_server
    mcp_server.close()


@pytest.fixture
def mcp_server(shared_mcp_server):
    shared_mcp_server.discard_lines()
    return shared_mcp_server


@pytest.fixture
def disposable_mcp_server():
    """A process for a test to kill."""
    mcp_server = McpServer()
    yield mcp_server
    mcp_server.close()


def create_mcp_config(server, kind, url):
    created = server.request(
        "POST",
        "/v1/ext/mcp",
        {
            "name": f"Toolbox {kind}",
            "type": kind,
            "request_config": {"url": url, "headers": {"Authorization": "Bearer sesame"}},
        },
    )
    assert created.status == 200, created
    return created.json()["id"]


def scripted_reply(llm_request):
    """Calls the tool that the user names; says what it returned."""
    last = llm_request["messages"][-1]
    if last["role"] == "tool":
        found = last["content"]
        return [
            HOURS
            if '"seventeen"' in found
            else "Twelve are free."
            if '"Twelve"' in found
            else APOLOGY
        ]
    offered = [tool["function"]["name"] for tool in llm_request.get("tools") or []]
    if "tools" in last["content"]:
        return [READY if "never" in offered else "They are not there yet."]
    wanted = next(
        (
            name
            for name in ("opening_hours", "never", "broken", "tickets")
            if name in last["content"]
        ),
        None,
    )
    if wanted is None:
        return ["Nothing to do."]
    if wanted not in offered:
        return ["There is no such tool."]
    arguments = json.dumps({"day": "Sunday"} if wanted == "opening_hours" else {})
    call = {
        "index": 0,
        "id": f"call_{len(llm_request['messages'])}",
        "type": "function",
        "function": {"name": wanted, "arguments": arguments},
    }
    return [{"tool_calls": [call]}]


def create_agent_with(server, llm_server, mcp, tools=()):
    return typed_call.create_typed_agent(
        server,
        llm_server=llm_server,
        config={"expose_tools": True},
        avatar={"welcome_message": {"wait_time": 0, "messages": [GREETING]}},
        tools=tools,
        extra={"mcp": mcp},
    )


def after_greeting(mcp_server, work):
    """Runs `work` once the greeting is over and the model is offered the tools of `mcp_server`."""

    async def whole(client):
        await client.wait_for_utterance(GREETING)
        await asyncio.to_thread(mcp_server.wait_until_listed)
        # The list of tools may still be in transit.
        while READY not in client.utterances():
            client.messages.clear()
            await client.ask("Are the tools there?", "there")
        await work(client)

    return whole


@pytest.mark.parametrize(
    ("kind", "transport"),
    [("shttp", "shttp"), ("sse", "sse"), ("shttp/sse", "shttp"), ("shttp/sse", "sse")],
)
def test_a_tool_of_a_server_is_called_in_a_call(server, scripted_llm, mcp_server, kind, transport):
    llm_server = scripted_llm(scripted_reply)
    agent = create_agent_with(
        server, llm_server, [create_mcp_config(server, kind, mcp_server.urls[transport])]
    )

    async def work(client):
        await client.ask("Ask opening_hours please.", HOURS)
        done = client.events("tool_call")[-1]
        assert done == {
            "tool_name": "opening_hours",
            "parameters": {"day": "Sunday"},
            "result": {"day": "Sunday", "opens": "nine", "closes": "seventeen"},
            "status": "completed",
        }
        # A tool that fails says why.
        await client.ask("Ask broken please.", APOLOGY)
        failed = client.events("tool_call")[-1]
        assert failed["status"] == "failed" and "the drawer is stuck" in failed["result"]["error"]

    record = typed_call.run_call(server, agent, after_greeting(mcp_server, work))
    assert mcp_server.next_line() == "opening_hours Sunday Bearer sesame"
    assert record["warnings"] == [], record["warnings"]
    offered = {
        tool["function"]["name"]: tool["function"] for tool in llm_server.requests[-1]["tools"]
    }
    assert offered.keys() == {"opening_hours", "never", "broken", "end_call"}
    assert (
        offered["opening_hours"]["description"] == "When the museum is open on a day of the week."
    )
    assert offered["opening_hours"]["parameters"]["required"] == ["day"]


def test_the_first_of_two_servers_with_the_same_tools_offers_them(server, scripted_llm, mcp_server):
    llm_server = scripted_llm(scripted_reply)
    ids = [create_mcp_config(server, kind, mcp_server.urls[kind]) for kind in ("sse", "shttp")]
    agent = create_agent_with(server, llm_server, ids)

    async def work(client):
        await client.wait_for_record_value(lambda record: record["warnings"], "a warning")
        await client.ask("Ask opening_hours please.", HOURS)

    record = typed_call.run_call(server, agent, after_greeting(mcp_server, work))
    [warning] = record["warnings"]
    assert warning.startswith('The MCP servers "Toolbox sse" and "Toolbox shttp" have tools'), (
        warning
    )
    assert 'those of "Toolbox sse" are used' in warning, warning
    names = [tool["function"]["name"] for tool in llm_server.requests[-1]["tools"]]
    assert sorted(names) == ["broken", "end_call", "never", "opening_hours"]


def test_a_tool_of_the_agent_hides_one_of_a_server(server, scripted_llm, mcp_server):
    llm_server = scripted_llm(scripted_reply)
    own = server.request(
        "POST",
        "/v1/ext/tool",
        {
            "type": "tool.client",
            "schema": {
                "type": "function",
                "name": "broken",
                "description": "The agent's own.",
                "parameters": {"type": "object", "properties": {}},
            },
        },
    )
    assert own.status == 201, own
    ids = [create_mcp_config(server, "shttp", mcp_server.urls["shttp"])]
    agent = create_agent_with(server, llm_server, ids, tools=[own.json()["id"]])

    async def work(client):
        await client.wait_for_record_value(lambda record: record["warnings"], "a warning")

    record = typed_call.run_call(server, agent, after_greeting(mcp_server, work))
    [warning] = record["warnings"]
    assert warning == (
        'The agent and the MCP server "Toolbox shttp" have tools with the same name (broken): the '
        "agent's own are used."
    )
    offered = [tool["function"] for tool in llm_server.requests[-1]["tools"]]
    assert [tool["description"] for tool in offered if tool["name"] == "broken"] == [
        "The agent's own."
    ]


@pytest.mark.parametrize("transport", ["shttp", "sse"])
def test_an_mcp_server_that_stops_during_a_call_loses_only_its_tools(
    server, scripted_llm, tool, disposable_mcp_server, transport
):
    llm_server = scripted_llm(scripted_reply)
    request = {"method": "GET", "url": tool({"free": "Twelve"}).url}
    schema = {
        "type": "function",
        "name": "tickets",
        "description": "How many tickets are left.",
        "parameters": PARAMETERS,
    }
    created = server.request(
        "POST", "/v1/ext/tool", {"type": "tool.api", "schema": schema, "request_config": request}
    )
    assert created.status == 201, created
    agent = create_agent_with(
        server,
        llm_server,
        [create_mcp_config(server, transport, disposable_mcp_server.urls[transport])],
        [created.json()["id"]],
    )

    async def work(client):
        client.send_typed("Ask never please.")
        assert await asyncio.to_thread(disposable_mcp_server.next_line) == "never"
        disposable_mcp_server.kill()
        await client.wait_for_utterance(APOLOGY)
        failed = json.dumps(client.events("tool_call")[-1]["result"])
        assert "took too long" not in failed, "a dead server is noticed, not waited for"
        await client.ask("Ask for tickets please.", "Twelve are free.")
        client.messages.clear()
        await client.ask("Ask opening_hours please.", APOLOGY)
        await client.ask("Just say something.", "Nothing to do.")

    with server.without_errors():
        record = typed_call.run_call(server, agent, after_greeting(disposable_mcp_server, work))
    assert record["end_reason"] == "user_left"


def test_unreachable_mcp_servers_lose_only_their_tools(server, scripted_llm, mcp_server):
    llm_server = scripted_llm(scripted_reply)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        socket.create_server(("127.0.0.1", 0)) as closed,
    ):
        urls = [f"http://127.0.0.1:{place.getsockname()[1]}/mcp" for place in (silent, closed)]
        closed.close()
        silent.settimeout(typed_call.TEST_TIMEOUT)
        ids = [create_mcp_config(server, "shttp", url) for url in urls] + [
            create_mcp_config(server, "shttp", mcp_server.urls["shttp"])
        ]
        # A deleted server stays attached, and is skipped without a warning.
        deleted = create_mcp_config(server, "shttp", mcp_server.urls["shttp"])
        agent = create_agent_with(server, llm_server, [*ids, deleted])
        assert server.request("DELETE", f"/v1/ext/mcp/{deleted}").status == 204

        async def warnings(client, count):
            return await client.wait_for_record_value(
                lambda record: len(record["warnings"]) >= count and record["warnings"],
                f"{count} warnings",
            )

        async def work(client):
            # The greeting is over and another server's tools are there. The silent server was asked
            # and has not answered yet.
            connection, _ = await asyncio.to_thread(silent.accept)
            await client.ask("Ask opening_hours please.", HOURS)
            warning = (await warnings(client, 1))[0]
            # The silent server hangs up. Now its tools are left out, too, without waiting for its
            # timeout.
            connection.close()
            assert (await warnings(client, 2))[0] == warning

        with server.without_errors():
            record = typed_call.run_call(server, agent, after_greeting(mcp_server, work))
    assert all("not available" in warning for warning in record["warnings"]), record["warnings"]
