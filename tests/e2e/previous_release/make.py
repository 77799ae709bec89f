#!/usr/bin/env python3
"""Writes the data folder of an older program, for test_upgrade.py.

    VISAVIS_BIN=path/to/visavis tests/e2e/previous_release/make.py

It starts that program on an empty folder, creates one resource of each kind, makes a call, and
stores what GET requests answer. Files: `store.sql` (the SQLite database as text), `keys/` (the key
files), `trace.jsonl` (the trace of the call) and `answers.json` (the API key, the ids and the
answers). Needs the Python environment of the end-to-end tests (`scripts/setup.sh tests`)."""

import contextlib
import json
import pathlib
import shutil
import sqlite3
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from kit import typed_call  # noqa: E402
from kit.polling import wait_until  # noqa: E402
from kit.receivers import WebhookReceiver  # noqa: E402
from kit.server import ROOT, Server  # noqa: E402
from previous_release.answers import read_answers  # noqa: E402

ADDRESS = "http://127.0.0.1:9/"
KEY_FILES = ("secrets.key", "tokens.key", "server.id")


def create_resources(server, hooks) -> dict:
    """One resource of each kind; their ids by the name in the path."""

    def create(path, body):
        reply = server.request("POST", path, body)
        assert reply.status < 300, (path, reply)
        return reply.json()["id"]

    ids = {
        "guardrail": create(
            "/v1/ext/guardrail", {"name": "Prices", "prompt": "The agent names no price."}
        ),
        "mcp": create(
            "/v1/ext/mcp",
            {
                "name": "Files",
                "request_config": {"url": ADDRESS, "headers": {"authorization": "Bearer one"}},
            },
        ),
        "tool": create(
            "/v1/ext/tool",
            {
                "type": "tool.api",
                "schema": {"name": "weather", "parameters": {"type": "object"}},
                "request_config": {"url": ADDRESS, "headers": {"x-key": "two"}},
            },
        ),
        "template": create(
            "/v1/ext/template",
            {"template_name": "Guide", "template_system_prompt": "You guide visitors."},
        ),
        "apikey": create("/v1/ext/apikey", {"name": "second", "scope": "read"}),
        "kb": server.create_knowledge_base(
            "The museum opens at nine. The oldest clock was built in 1676."
        ),
        "custom-avatar": create(
            "/v2/custom-avatar",
            {
                "avatar_name": "Zoe",
                "gender": "female",
                "input_image": "data:image/png;base64,iVBORw0KGgoAAAAN",
            },
        ),
    }
    agent = typed_call.create_typed_agent(
        server,
        name="Guide",
        greeting="Welcome to the museum.",
        hooks=hooks,
        events=["call_ended"],
        config={"record_trace": True},
        turn={"min_endpointing_delay": 0.4, "interruptability": "high"},
        extra={
            "knowledge_base": [ids["kb"]],
            "guardrails": [ids["guardrail"]],
            "tool": [ids["tool"]],
        },
    )
    return ids | {"agent": agent["id"]}


def make_call(server, agent: str) -> str:
    conversation = server.create_conversation(
        agent, user_id="user-7", context="The user is a child."
    )

    async def talk():
        client = await typed_call.TypedCall(server, conversation).connect()
        await client.wait_for_utterance("Welcome to the museum.")
        await client.ask("When does the museum open?", "nine")
        await client.hang_up()

    typed_call.run_async(talk())
    server.wait_for(conversation["id"], "ENDED")
    return conversation["id"]


def main():
    # A receiver that answers 410 makes a dead letter at once.
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(WebhookReceiver()) as hooks:
        hooks.reject_count, hooks.reject_status = 1, 410
        data = pathlib.Path(folder)
        server = Server(data, name="previous-release").read_first_start().wait_ready()
        try:
            ids = create_resources(server, hooks)
            ids["conversation"] = make_call(server, ids["agent"])
            wait_until(
                lambda: server.request("GET", "/v1/ext/deadletters").json(), "the dead letter"
            )
            trace = data / "traces" / f"{ids['conversation']}.jsonl"
            wait_until(
                lambda: trace.exists() and '{"End":' in trace.read_text(), "the end of the trace"
            )
            stored = {"key": server.key, "ids": ids, "answers": read_answers(server, ids)}
        finally:
            server.stop()
        keys = HERE / "keys"
        keys.mkdir(exist_ok=True)
        for name in KEY_FILES:
            shutil.copy(data / name, keys / name)
        shutil.copy(trace, HERE / "trace.jsonl")
        with sqlite3.connect(data / "visavis.db") as store:
            (HERE / "store.sql").write_text("\n".join(store.iterdump()) + "\n")
    (HERE / "answers.json").write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n")
    print(f"written to {HERE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
