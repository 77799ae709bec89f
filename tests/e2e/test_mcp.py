"""Servers of tools in live calls: the official Python SDK's, over both transports; and ones that are dead, deaf or die."""

import asyncio
import json
import socket

import pytest

from kit import talk
from kit.toolbox import Toolbox

GREETING = "Good day, I am the guide of the museum."
APOLOGY = "I could not look that up."
HOURS = "It closes at seventeen."
READY = "The tools are there."
PARAMETERS = {"type": "object", "properties": {}}


@pytest.fixture(scope="module")
def shared():
    """A process that every test may use and none may kill."""
    box = Toolbox()
    yield box
    box.close()


@pytest.fixture
def box(shared):
    shared.forget()
    return shared


@pytest.fixture
def mortal():
    """A process to be killed."""
    box = Toolbox()
    yield box
    box.close()


def configure(server, kind, url):
    made = server.call("POST", "/v1/ext/mcp", {"name": f"Toolbox {kind}", "type": kind, "request_config": {"url": url, "headers": {"Authorization": "Bearer sesame"}}})
    assert made.status == 200, made
    return made.json()["id"]


def thinker(asked):
    """Calls the tool that the user names; tells what came of it."""
    last = asked["messages"][-1]
    if last["role"] == "tool":
        found = last["content"]
        return [HOURS if '"seventeen"' in found else "Twelve are free." if '"Twelve"' in found else APOLOGY]
    offered = [tool["function"]["name"] for tool in asked.get("tools") or []]
    if "tools" in last["content"]:
        return [READY if "never" in offered else "They are not there yet."]
    wanted = next((name for name in ("opening_hours", "never", "broken", "tickets") if name in last["content"]), None)
    if wanted is None:
        return ["Nothing to do."]
    if wanted not in offered:
        return ["There is no such tool."]
    arguments = json.dumps({"day": "Sunday"} if wanted == "opening_hours" else {})
    call = {"index": 0, "id": f"call_{len(asked['messages'])}", "type": "function", "function": {"name": wanted, "arguments": arguments}}
    return [{"tool_calls": [call]}]


def agent_with(server, brain, mcp, tools=()):
    return talk.agent(server, brain=brain, config={"expose_tools": True}, avatar={"welcome_message": {"wait_time": 0, "messages": [GREETING]}},
                      tools=tools, extra={"mcp": mcp})  # fmt: skip


def greeted(box, work):
    """Does `work` once the greeting is over and the model is offered the tools of `box`."""

    async def whole(client):
        await client.until_spoken(GREETING)
        await asyncio.to_thread(box.asked)
        # The list is under way until the model has it.
        while READY not in client.spoken():
            client.messages.clear()
            await client.ask("Are the tools there?", "there")
        await work(client)

    return whole


@pytest.mark.parametrize(("kind", "transport"), [("shttp", "shttp"), ("sse", "sse"), ("shttp/sse", "shttp"), ("shttp/sse", "sse")])
def test_a_tool_of_a_server_is_called_in_a_call(server, model, box, kind, transport):
    brain = model(thinker)
    agent = agent_with(server, brain, [configure(server, kind, box.urls[transport])])

    async def work(client):
        await client.ask("Ask opening_hours please.", HOURS)
        done = client.events("tool_call")[-1]
        assert done == {"tool_name": "opening_hours", "parameters": {"day": "Sunday"}, "result": {"day": "Sunday", "opens": "nine", "closes": "seventeen"}}
        # A tool that fails says why.
        await client.ask("Ask broken please.", APOLOGY)
        assert "the drawer is stuck" in json.dumps(client.events("tool_call")[-1]["result"])

    record = talk.talk(server, agent, greeted(box, work))
    assert box.line() == "opening_hours Sunday Bearer sesame"
    assert record["warnings"] == [], record["warnings"]
    offered = {tool["function"]["name"]: tool["function"] for tool in brain.requests[-1]["tools"]}
    assert offered.keys() == {"opening_hours", "never", "broken"}
    assert offered["opening_hours"]["description"] == "When the museum is open on a day of the week."
    assert offered["opening_hours"]["parameters"]["required"] == ["day"]


@pytest.mark.parametrize("transport", ["shttp", "sse"])
def test_a_server_that_dies_in_mid_call_costs_its_tools_only(server, model, tool, mortal, transport):
    brain = model(thinker)
    request = {"method": "GET", "url": tool({"free": "Twelve"}).url}
    schema = {"type": "function", "name": "tickets", "description": "How many tickets are left.", "parameters": PARAMETERS}
    made = server.call("POST", "/v1/ext/tool", {"type": "tool.api", "schema": schema, "request_config": request})
    assert made.status == 201, made
    agent = agent_with(server, brain, [configure(server, transport, mortal.urls[transport])], [made.json()["id"]])

    async def work(client):
        client.type("Ask never please.")
        assert await asyncio.to_thread(mortal.line) == "never"
        mortal.kill()
        await client.until_spoken(APOLOGY)
        failed = json.dumps(client.events("tool_call")[-1]["result"])
        assert "took too long" not in failed, "a dead server is noticed, not waited for"
        await client.ask("Ask for tickets please.", "Twelve are free.")
        client.messages.clear()
        await client.ask("Ask opening_hours please.", APOLOGY)
        await client.ask("Just say something.", "Nothing to do.")

    record = talk.talk(server, agent, greeted(mortal, work))
    assert record["end_reason"] == "user_left"


def test_servers_that_are_dead_or_deaf_cost_their_tools_only(server, model, box):
    brain = model(thinker)
    with socket.create_server(("127.0.0.1", 0)) as deaf, socket.create_server(("127.0.0.1", 0)) as dead:
        urls = [f"http://127.0.0.1:{place.getsockname()[1]}/mcp" for place in (deaf, dead)]
        dead.close()
        deaf.settimeout(talk.PATIENCE)
        ids = [configure(server, "shttp", url) for url in urls] + [configure(server, "shttp", box.urls["shttp"])]
        # One that is deleted stays attached, and is skipped without a word.
        deleted = configure(server, "shttp", box.urls["shttp"])
        agent = agent_with(server, brain, [*ids, deleted])
        assert server.call("DELETE", f"/v1/ext/mcp/{deleted}").status == 204

        async def warnings(client, count):
            return await client.recorded(lambda record: len(record["warnings"]) >= count and record["warnings"], f"{count} warnings")

        async def work(client):
            # The greeting is over and another server's tools are there, while the deaf one has been asked and is still waited for.
            asked, _ = await asyncio.to_thread(deaf.accept)
            await client.ask("Ask opening_hours please.", HOURS)
            warning = (await warnings(client, 1))[0]
            # It hangs up: now its tools are left out too, and nobody waits for its time to run out.
            asked.close()
            assert (await warnings(client, 2))[0] == warning

        record = talk.talk(server, agent, greeted(box, work))
    assert all("left out" in warning for warning in record["warnings"]), record["warnings"]
