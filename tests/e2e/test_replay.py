"""A bad turn is reported with its trace. The replay of a whole call gives the same call as the
record."""

import json
import stat
import subprocess

from kit import sample_knowledge, speech, typed_call
from kit.polling import wait_until
from kit.server import binary
from kit.typed_call import TEST_TIMEOUT, TypedCall
from kit.webrtc_client import run_async


def run_replay(trace, *options):
    """The printed lines, the summary, and the exit status."""
    done = subprocess.run(
        [binary(), "replay", str(trace), *options],
        capture_output=True,
        text=True,
        timeout=TEST_TIMEOUT,
        check=False,
    )
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr, done.returncode


def wait_until_written(trace, timeout=TEST_TIMEOUT):
    """Waits until the call's last line is in the file. The record ends a moment before the last
    audio has left."""

    def is_written():
        text = trace.read_text() if trace.exists() else ""
        return '{"End":' in text and text.endswith("\n")

    wait_until(is_written, f"the end of {trace}", timeout)


QUESTION, INTERRUPTION = (
    "Please tell me about the garden behind the house.",
    "Stop please. I have another question.",
)


def test_a_call_replays_from_its_trace(server):
    """Spoken, with an interruption: the trace also has the decisions of the VAD."""
    agent = server.create_agent(
        knowledge=sample_knowledge.LONG_TEXT,
        greeting="Welcome.",
        transcripts=[QUESTION, INTERRUPTION],
        turn={"min_interruption_duration": 0.25},
        config={"record_trace": True},
    )
    conversation = server.create_conversation(agent["id"])

    async def whole():
        client = await TypedCall(server, conversation).connect()
        await client.wait_for(client.utterances, what="the greeting")
        client.microphone.queue = speech.concatenate([(QUESTION, "slt")])
        await client.wait_for(
            lambda: len(client.events("agent.started_speaking")) >= 2, what="the answer"
        )
        # The scripted speech-to-text treats speech right after an utterance as its rest.
        received_before = len(client.received_audio)
        await client.wait_for(
            lambda: len(client.received_audio) > received_before + 50, what="a second of the answer"
        )
        client.microphone.queue = speech.concatenate([(INTERRUPTION, "slt")])
        await client.wait_for(lambda: client.events("agent.interrupted"), what="the interruption")
        await client.wait_for(
            lambda: len(client.events("utterance_committed")) >= 2, what="the turn that cut in"
        )
        await client.wait_for(lambda: len(client.utterances()) >= 3, what="the answer to it")
        await client.hang_up()

    run_async(whole())
    record = server.wait_for(conversation["id"], "ENDED", timeout=TEST_TIMEOUT)
    turns = server.request("GET", f"/v1/ext/conversation/{conversation['id']}/turns").json()

    trace = server.data / "traces" / f"{conversation['id']}.jsonl"
    wait_until_written(trace)
    assert stat.S_IMODE(trace.stat().st_mode) == 0o600
    lines, sentence, status = run_replay(trace)
    assert status == 0 and sentence.startswith("identical: ") and sentence.count("\n") == 1, (
        sentence
    )

    # What was said and heard, letter by letter, and the latencies of each turn.
    spoken_texts = [
        (item["role"], item["text"])
        for item in lines[-1]["history"]
        if item["role"] in ("user", "assistant")
    ]
    assert spoken_texts == [(entry["role"], entry["content"]) for entry in record["transcript"]], (
        spoken_texts,
        record["transcript"],
    )
    cut = [item["text"] for item in lines[-1]["history"] if item.get("interrupted")]
    assert (
        cut == [m["content"] for m in record["chat_history"]["messages"] if m["interrupted"]]
        and cut
    ), cut
    assert len(turns) == len(lines[-1]["turns"]) >= 2, turns
    for recorded, replayed in zip(turns, lines[-1]["turns"], strict=True):
        for name in ("endpointing", "llm_ttft", "tts_ttfb", "voice_to_voice"):
            assert (recorded[name] is None and replayed[name] is None) or abs(
                recorded[name] - replayed[name]
            ) <= 0.0005, (name, recorded, replayed)

    # The reason of each decision.
    explained, sentence, status = run_replay(trace, "--explain")
    assert status == 0 and sentence.startswith("identical: "), sentence
    why = [line["why"] for line in explained if line["what"] == "explain"]
    assert any(reason.startswith("held: ") for reason in why) and sum(
        reason.startswith("committed: ") for reason in why
    ) == len(turns), why
    assert [line for line in explained if line["what"] != "explain"] == lines

    # Erasing the record erases the trace.
    assert server.request("DELETE", f"/v1/ext/conversation/{conversation['id']}").status == 204
    assert not trace.exists()


def test_a_trace_holds_no_secret(server, webhooks, scripted_llm, tool):
    """No line of the trace has credentials, or anything that only the operator may know."""
    counter = tool({"free": 12})

    def scripted_reply(llm_request):
        if llm_request["messages"][-1]["role"] == "tool":
            return ["Twelve are free."]
        return [
            {
                "tool_calls": [
                    {
                        "index": 0,
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "tickets", "arguments": '{"day": "Sunday"}'},
                    }
                ]
            }
        ]

    request = {
        "method": "GET",
        "url": counter.url + "/sesame-path?key=sesame-query",
        "headers": {"Authorization": "Bearer sesame-header"},
    }
    created = server.request(
        "POST",
        "/v1/ext/tool",
        {
            "type": "tool.api",
            "schema": {
                "name": "tickets",
                "parameters": {"properties": {"day": {"type": "string"}}},
            },
            "request_config": request,
        },
    )
    mcp = server.request(
        "POST",
        "/v1/ext/mcp",
        {
            "name": "Box",
            "request_config": {
                "url": "http://127.0.0.1:1/sesame-mcp",
                "headers": {"X-Key": "sesame-mcp-header"},
            },
        },
    )
    llm = {
        "provider": "custom",
        "url": scripted_llm(scripted_reply).base_url,
        "model": "m",
        "token": "sesame-token",
    }
    agent = typed_call.create_typed_agent(
        server,
        prompt="You are a guide. The password of the staff is sesame-prompt.",
        hooks=webhooks,
        llm=llm,
        tools=[created.json()["id"]],
        config={"record_trace": True},
        extra={"mcp": [mcp.json()["id"]], "webhook_secret": "sesame-webhook"},
    )

    secrets = [
        "sesame",
        server.key,
        agent["webhook_secret"],
        agent["webhook_secret"].removeprefix("whsec_"),
        webhooks.url,
    ]

    async def work(client):
        secrets.append(client.conversation["token"])
        await client.ask("How many tickets are left?", "Twelve are free.")

    conversation = typed_call.run_call(server, agent, work, context="sesame-context")
    trace = server.data / "traces" / f"{conversation['id']}.jsonl"
    wait_until_written(trace)
    text = trace.read_text()
    assert "How many tickets are left?" in text and '"Sunday"' in text, (
        "it is the trace of this call"
    )
    for secret in secrets:
        assert secret not in text, secret
    sent = {name.lower(): value for name, value in counter.calls[0]["headers"].items()}
    assert (
        sent["authorization"] == "Bearer sesame-header"
        and "sesame-query" in counter.calls[0]["path"]
    ), "the secrets were used"
