"""A bad turn is reported by its trace: a whole call is replayed, and is the call that the record tells of."""

import json
import stat
import subprocess
import threading
import time

from kit import facts, talk, voice
from kit.peer import run
from kit.server import binary
from kit.talk import PATIENCE, Talk


def replay(trace, *options):
    """The lines that are printed, the sentence, and the exit status."""
    done = subprocess.run([binary(), "replay", str(trace), *options], capture_output=True, text=True, timeout=PATIENCE)
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr, done.returncode


def written(trace, timeout=PATIENCE):
    """Waits until the call's last line is in the file: the record is ended a moment before the last sound has left."""
    end = time.monotonic() + timeout
    while not trace.exists() or not ('{"End":' in (text := trace.read_text()) and text.endswith("\n")):
        assert time.monotonic() < end, f"no end in {trace} after {timeout} s"
        threading.Event().wait(0.05)


QUESTION, CUT_IN = "Please tell me about the garden behind the house.", "Stop please. I have another question."


def test_a_call_replays_from_its_trace(server):
    """Spoken, with an interruption: what the detector of speech told is in the trace too."""
    agent = server.agent(knowledge=facts.LONG, greeting="Welcome.", hears=[QUESTION, CUT_IN],
                         turn={"min_interruption_duration": 0.25}, config={"record_trace": True})  # fmt: skip
    conversation = server.conversation(agent["id"])

    async def whole():
        client = await Talk(server, conversation).begin()
        await client.until(client.spoken, what="the greeting")
        client.mouth.queue = voice.script([(QUESTION, "slt")])
        await client.until(lambda: len(client.events("agent.started_speaking")) >= 2, what="the answer")
        # Scripted hearing takes what follows an utterance at once for its rest.
        heard = len(client.heard)
        await client.until(lambda: len(client.heard) > heard + 50, what="a second of the answer")
        client.mouth.queue = voice.script([(CUT_IN, "slt")])
        await client.until(lambda: client.events("agent.interrupted"), what="the interruption")
        await client.until(lambda: len(client.events("utterance_committed")) >= 2, what="the turn that cut in")
        await client.until(lambda: len(client.spoken()) >= 3, what="the answer to it")
        await client.leave()

    run(whole())
    record = server.until(conversation["id"], "ENDED", timeout=PATIENCE)
    turns = server.call("GET", f"/v1/ext/conversation/{conversation['id']}/turns").json()

    trace = server.data / "traces" / f"{conversation['id']}.jsonl"
    written(trace)
    assert stat.S_IMODE(trace.stat().st_mode) == 0o600
    lines, sentence, status = replay(trace)
    assert status == 0 and sentence.startswith("identical: ") and sentence.count("\n") == 1, sentence

    # What was said and heard, to the letter, and where each turn's time went.
    said = [(item["role"], item["text"]) for item in lines[-1]["history"] if item["role"] in ("user", "assistant")]
    assert said == [(entry["role"], entry["content"]) for entry in record["transcript"]], (said, record["transcript"])
    cut = [item["text"] for item in lines[-1]["history"] if item.get("interrupted")]
    assert cut == [m["content"] for m in record["chat_history"]["messages"] if m["interrupted"]] and cut, cut
    assert len(turns) == len(lines[-1]["turns"]) >= 2, turns
    for told, replayed in zip(turns, lines[-1]["turns"], strict=True):
        for name in ("endpointing", "llm_ttft", "tts_ttfb", "voice_to_voice"):
            assert told[name] is None and replayed[name] is None or abs(told[name] - replayed[name]) <= 0.0005, (name, told, replayed)

    # Why each decision was taken.
    explained, sentence, status = replay(trace, "--explain")
    assert status == 0 and sentence.startswith("identical: "), sentence
    why = [line["why"] for line in explained if line["what"] == "explain"]
    assert any(reason.startswith("held: ") for reason in why) and sum(reason.startswith("committed: ") for reason in why) == len(turns), why
    assert [line for line in explained if line["what"] != "explain"] == lines

    # Erasing the record erases the trace.
    assert server.call("DELETE", f"/v1/ext/conversation/{conversation['id']}").status == 204
    assert not trace.exists()


def test_a_trace_holds_no_secret(server, hooks, model, tool):
    """What opens doors, and what only the operator may know, stands in no line of it."""
    counter = tool({"free": 12})

    def thinker(asked):
        if asked["messages"][-1]["role"] == "tool":
            return ["Twelve are free."]
        return [{"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "tickets", "arguments": '{"day": "Sunday"}'}}]}]

    request = {"method": "GET", "url": counter.url + "/sesame-path?key=sesame-query", "headers": {"Authorization": "Bearer sesame-header"}}
    made = server.call("POST", "/v1/ext/tool", {"schema": {"name": "tickets", "parameters": {"properties": {"day": {"type": "string"}}}}, "request_config": request})
    mcp = server.call("POST", "/v1/ext/mcp", {"name": "Box", "request_config": {"url": "http://127.0.0.1:1/sesame-mcp", "headers": {"X-Key": "sesame-mcp-header"}}})
    llm = {"provider": "custom", "url": model(thinker).base, "model": "m", "token": "sesame-token"}
    agent = talk.agent(
        server, prompt="You are a guide. The password of the staff is sesame-prompt.", hooks=hooks, llm=llm, tools=[made.json()["id"]],
        config={"record_trace": True}, extra={"mcp": [mcp.json()["id"]], "webhook_secret": "sesame-webhook"},
    )  # fmt: skip

    secrets = ["sesame", server.key, agent["webhook_secret"], agent["webhook_secret"].removeprefix("whsec_"), hooks.url]

    async def work(client):
        secrets.append(client.conversation["token"])
        await client.ask("How many tickets are left?", "Twelve are free.")

    conversation = talk.talk(server, agent, work, context="sesame-context")
    trace = server.data / "traces" / f"{conversation['id']}.jsonl"
    written(trace)
    text = trace.read_text()
    assert "How many tickets are left?" in text and '"Sunday"' in text, "it is the trace of this call"
    for secret in secrets:
        assert secret not in text, secret
    sent = {name.lower(): value for name, value in counter.calls[0]["headers"].items()}
    assert sent["authorization"] == "Bearer sesame-header" and "sesame-query" in counter.calls[0]["path"], "the secrets were used"
