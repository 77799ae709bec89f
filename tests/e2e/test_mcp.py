"""Servers of tools in live calls: the official Python SDK's, over both transports; and ones that are dead, deaf or die."""

import asyncio
import json
import socket
import time

import pytest

from kit.peer import Call, run
from kit.toolbox import Toolbox

GREETING = "Good day, I am the guide of the museum."
APOLOGY = "I could not look that up."


@pytest.fixture
def toolbox():
    made = []

    def make(transport):
        made.append(Toolbox(transport))
        return made[-1]

    yield make
    for box in made:
        box.close()


def configure(server, kind, url):
    made = server.call("POST", "/v1/ext/mcp", {"name": f"Toolbox {kind}", "type": kind, "request_config": {"url": url, "headers": {"Authorization": "Bearer sesame"}}})
    assert made.status == 200, made
    return made.json()["id"]


def thinker(asked):
    """Calls the tool that the user names; tells what came of it."""
    last = asked["messages"][-1]
    if last["role"] == "tool":
        return [f"It closes at {json.loads(last['content'])['closes']}."] if '"closes"' in last["content"] else [APOLOGY]
    offered = {tool["function"]["name"]: tool["function"] for tool in asked.get("tools") or []}
    wanted = next((name for name in ("opening_hours", "never", "broken") if name in last["content"]), None)
    if wanted is None:
        return ["Nothing to do."]
    if wanted not in offered:
        return ["There is no such tool."]
    arguments = {"day": "Sunday"} if wanted == "opening_hours" else {}
    return [{"tool_calls": [{"index": 0, "id": f"call_{len(asked['messages'])}", "type": "function", "function": {"name": wanted, "arguments": json.dumps(arguments)}}]}]


def agent_with(server, brain, mcp):
    return server.agent(llm={"provider": "custom", "url": brain.base, "model": "scripted"}, turn={"preemptive_generation": False},
                        config={"expose_tools": True}, greeting=GREETING, extra={"mcp": mcp})  # fmt: skip


def talk(server, agent, work, boxes=()):
    """A call. When the greeting is over, the tools of `boxes` are there."""
    conversation = server.conversation(agent["id"])

    async def whole():
        begun = time.monotonic()
        client = await Call(server, conversation).begin()
        client.joined_after = time.monotonic() - begun
        await client.until_spoken(GREETING)
        client.greeted_after = time.monotonic() - begun
        for box in boxes:
            await asyncio.to_thread(box.asked)
        await work(client)
        await client.leave()

    run(whole())
    return server.until(conversation["id"], "ENDED")


@pytest.mark.parametrize(("kind", "transport"), [("shttp", "shttp"), ("sse", "sse"), ("shttp/sse", "shttp"), ("shttp/sse", "sse")])
def test_a_tool_of_a_server_is_called_in_a_call(server, model, toolbox, kind, transport):
    box, brain = toolbox(transport), model(thinker)
    agent = agent_with(server, brain, [configure(server, kind, box.url)])

    async def work(client):
        await client.ask("Ask opening_hours please.", "It closes at seventeen.")
        done = client.events("tool_call")[-1]
        assert done == {"tool_name": "opening_hours", "parameters": {"day": "Sunday"}, "result": {"day": "Sunday", "opens": "nine", "closes": "seventeen"}}
        # A tool that fails says why, and the next one works.
        await client.ask("Ask broken please.", APOLOGY)
        assert "the drawer is stuck" in json.dumps(client.events("tool_call")[-1]["result"])

    record = talk(server, agent, work, [box])
    assert box.line() == "opening_hours Sunday Bearer sesame"
    assert record["warnings"] == [], record["warnings"]
    offered = {tool["function"]["name"]: tool["function"] for tool in brain.requests[0]["tools"]}
    assert offered.keys() == {"opening_hours", "never", "broken"}
    assert offered["opening_hours"]["description"] == "When the museum is open on a day of the week."
    assert offered["opening_hours"]["parameters"]["required"] == ["day"]


@pytest.mark.parametrize("transport", ["shttp", "sse"])
def test_a_server_that_dies_in_mid_call_costs_its_tools_only(server, model, toolbox, transport):
    box, other, brain = toolbox(transport), toolbox("shttp"), model(thinker)
    agent = agent_with(server, brain, [configure(server, transport, box.url), configure(server, "shttp", other.url)])

    async def work(client):
        client.type("Ask never please.")
        # Both have tools of these names: that of the first to tell of them counts.
        called = await client.until(lambda: next((one for one in (box, other) if not one.lines.empty()), None), what="the tool's beginning")
        assert called.line() == "never"
        called.kill()
        begun = time.monotonic()
        await client.until_spoken(APOLOGY)
        assert time.monotonic() - begun < 10, "a dead server is noticed, not waited for"
        await client.ask("Just say something.", "Nothing to do.")
        await client.ask("Ask opening_hours please.", APOLOGY)
        await client.ask("And again, say something.", "Nothing to do.")

    record = talk(server, agent, work, [box, other])
    assert record["end_reason"] == "user_left"


def test_servers_that_are_dead_or_deaf_cost_their_tools_only(server, model, toolbox):
    box, brain = toolbox("shttp"), model(thinker)
    with socket.create_server(("127.0.0.1", 0)) as deaf, socket.create_server(("127.0.0.1", 0)) as gone:
        urls = [f"http://127.0.0.1:{place.getsockname()[1]}/mcp" for place in (deaf, gone)]
        gone.close()
        ids = [configure(server, "shttp/sse", url) for url in urls] + [configure(server, "shttp", box.url)]
        # One that is deleted stays attached, and is skipped without a word.
        deleted = configure(server, "shttp", box.url)
        agent = agent_with(server, brain, [*ids, deleted])
        assert server.call("DELETE", f"/v1/ext/mcp/{deleted}").status == 204

        times = []

        async def listen(client):
            times.append((client.joined_after, client.greeted_after))

        async def work(client):
            await listen(client)
            await client.ask("Ask opening_hours please.", "It closes at seventeen.")
            # The deaf one is given up much later.
            await client.until(lambda: len(server.record(client.conversation["id"])["warnings"]) == 2, what="both warnings")

        talk(server, agent_with(server, brain, []), listen)
        record = talk(server, agent, work, [box])
    assert all("left out" in warning for warning in record["warnings"]), record["warnings"]
    (joined, greeted), (beside, greeted_beside) = times
    assert beside < joined + 2 and greeted_beside < greeted + 2, f"nobody waits for a deaf server: {times}"
