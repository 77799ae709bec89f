"""What a person who runs it sees: the metrics and what is written about them, the log, and a server that drains."""

import asyncio
import contextlib
import json
import re
import signal
import threading
import time

import pytest

from kit import sdp, talk, voice
from kit.peer import run
from kit.receivers import Receiver
from kit.server import ROOT
from kit.talk import PATIENCE, Talk

QUESTION = "Hello, who are you?"


def families(server) -> dict[str, str]:
    """Kind of each family, by the name under which its numbers are queried."""
    text = server.call("GET", "/metrics", key=None).body.decode()
    assert text.endswith("# EOF\n")
    kinds = dict(line.split(" ")[2:4] for line in text.splitlines() if line.startswith("# TYPE "))
    return {f"{name}_total" if kind == "counter" else name: kind for name, kind in kinds.items()}


def number(server, name: str) -> float:
    text = server.call("GET", "/metrics", key=None).body.decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(rf"{name}[ {{]", line))


def test_the_dashboard_asks_for_nothing_that_is_not_served(server):
    served = families(server)
    queried = {f"{name}_bucket" if kind == "histogram" else name for name, kind in served.items()}
    dashboard = json.loads((ROOT / "docs/grafana/visavis.json").read_text())
    asked = {name for panel in dashboard["panels"] for target in panel.get("targets", []) for name in re.findall(r"\b(?:visavis|process|tokio)_\w+", target["expr"])}
    assert len(asked) > 30 and asked <= queried, asked - queried


def test_each_metric_is_explained_and_nothing_else_is(server):
    page = (ROOT / "docs/operations.md").read_text()
    named = set(re.findall(r"`((?:visavis|process|tokio)_\w+)(?:\{\w+\})?`", page))
    served = set(families(server))
    assert served <= named, f"not explained: {served - named}"
    assert named <= served, f"explained, not served: {named - served}"


def until(found, server, what: str):
    """The first true value of `found()`."""
    end = time.monotonic() + PATIENCE
    while not (value := found()):
        assert time.monotonic() < end, f"waited {PATIENCE} s for {what}\n{server.tail()}"
        threading.Event().wait(0.05)
    return value


def one_turn(server, conversation, meanwhile=lambda: None):
    """A question that is spoken, and its answer; then a hang-up."""

    async def whole():
        client = await Talk(server, conversation).begin()
        client.mouth.queue = voice.script([(QUESTION, "slt")])
        await client.until(client.spoken, what="the answer")
        await asyncio.to_thread(meanwhile)
        await client.leave()

    run(whole())
    server.until(conversation["id"], "ENDED", timeout=PATIENCE)


def test_a_call_is_counted(server):
    conversation = server.conversation(talk.agent(server, hears=[QUESTION])["id"])
    names = ("visavis_audio_frames_total", "visavis_media_ticks_total", "visavis_turn_voice_to_voice_seconds_count")
    before = [number(server, name) for name in names]

    def counted():
        return all(number(server, name) - then >= least for name, then, least in zip(names, before, (100, 200, 1), strict=True))

    one_turn(server, conversation, lambda: until(counted, server, "the counters to rise"))
    # The client is told first, the record a moment later.
    turn = until(lambda: next((t for t in turns(server, conversation) if t["timeline"]["heard_end"] is not None), None), server, "the turn's record")
    line = turn["timeline"]
    steps = [line[step] for step in ("speech_end", "committed", "first_sample", "heard_end")]
    assert steps == sorted(steps) and abs(line["first_sample"] - line["speech_end"] - turn["voice_to_voice"]) < 1e-5, turn
    assert turn["barge_in"] is None and line["interrupted"] is None, turn


def turns(server, conversation) -> list[dict]:
    return server.call("GET", f"/v1/ext/conversation/{conversation['id']}/turns").json()


class Collector(Receiver):
    """Takes spans, and keeps a collector's rules: a body of JSON at its path."""

    def __init__(self):
        self.spans, self.resources, self.headers = [], [], []
        # It is busy at first: what it refuses so must come again.
        self.refusals = 1
        super().__init__()

    def answer(self, request, body: bytes):
        good = request.path == "/v1/traces" and request.headers.get("content-type") == "application/json"
        with self.changed:
            busy = self.refusals > 0
            self.refusals -= busy
            for resource in json.loads(body)["resourceSpans"] if good and not busy else []:
                self.resources.append(resource["resource"])
                self.headers.append(dict(request.headers))
                self.spans += [span for scope in resource["scopeSpans"] for span in scope["spans"]]
            self.changed.notify_all()
        self.reply(request, 503 if busy else 200 if good else 400, b"{}")

    def seen(self):
        return [span["name"] for span in self.spans]

    def go_away(self):
        """From now on its port is closed."""
        self.close()
        self.server.server_close()


@pytest.fixture(scope="module")
def collector():
    made = Collector()
    yield made
    made.close()


@pytest.fixture(scope="module")
def observed(start, collector):
    """A server that tells all it can: its log as JSON, its spans to the collector."""
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url + "/", "OTEL_EXPORTER_OTLP_HEADERS": "x-team=talk, authorization=Bearer c0llect",
           "VISAVIS_SERVER_LOG_FORMAT": "json", "VISAVIS_LOG": "debug,sqlx=warn"}  # fmt: skip
    return start("observed", env=env).first_start().ready()


def test_spans_of_a_call_reach_the_collector(observed, collector):
    conversation = observed.conversation(talk.agent(observed, hears=[QUESTION])["id"])
    one_turn(observed, conversation)
    root = collector.wait(lambda: next((span for span in collector.spans if span["name"] == "conversation"), None), PATIENCE, "the conversation's span")
    assert root["traceId"] == conversation["id"].replace("-", "") and "parentSpanId" not in root
    turn = next(span for span in collector.spans if span["name"] == "turn")
    assert turn["parentSpanId"] == root["spanId"]
    stages = {span["name"]: span for span in collector.spans if span.get("parentSpanId") == turn["spanId"]}
    assert {"endpointing", "llm", "tts", "playout", "speaking"} <= stages.keys(), collector.seen()
    times = lambda span: (int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"]))
    assert all(times(root)[0] <= times(span)[0] <= times(span)[1] <= times(root)[1] + 1e9 for span in collector.spans)
    told = turns(observed, conversation)[0]
    length = lambda span: (times(span)[1] - times(span)[0]) / 1e9
    assert abs(length(stages["endpointing"]) - told["endpointing"]) < 1e-5 and abs(length(stages["llm"]) - told["llm_ttft"]) < 1e-5
    assert {"key": "service.name", "value": {"stringValue": "visavis"}} in collector.resources[0]["attributes"]
    assert all(headers.get("x-team") == "talk" and headers.get("authorization") == "Bearer c0llect" for headers in collector.headers)
    assert collector.refusals == 0 and len({span["spanId"] for span in collector.spans}) == len(collector.spans), collector.seen()
    assert "c0llect" not in observed.log.read_text()


def test_a_log_of_json_names_the_call_and_no_secret_and_a_collector_that_is_away_hurts_no_call(observed, collector):
    collector.go_away()
    # A model that nobody serves: the failure is logged.
    llm = {"provider": "custom", "url": "http://127.0.0.1:9/v1", "token": "hush-hush-token", "model": "m"}
    conversation = observed.conversation(talk.agent(observed, llm=llm, hears=[QUESTION])["id"])
    id = conversation["id"]
    one_turn(observed, conversation)
    assert turns(observed, conversation)[0]["voice_to_voice"] is not None, "the apology is heard"

    def ended():
        text = observed.log.read_text()
        return any("a conversation has ended" in line and id in line for line in text.splitlines()) and text

    text = until(ended, observed, "the call's last line")
    lines = [json.loads(line) for line in text.splitlines()]
    failed = [line for line in lines if "language model failed" in line.get("message", "")]
    assert failed and all(line["conversation"] == id for line in failed), lines[-20:]
    assert {"a conversation begins", "a conversation has ended"} <= {line.get("message") for line in lines if line.get("conversation") == id}
    # What a library says on a media thread is of the call that the thread works for.
    media = [line for line in lines if line["target"].startswith("str0m")]
    assert any(line.get("conversation") == id for line in media), media[:5]
    known = [one["id"] for one in observed.call("GET", "/v1/ext/conversation").json()]
    assert {line["conversation"] for line in lines if "conversation" in line} <= set(known)
    for secret in (observed.key, conversation["token"], "hush-hush-token"):
        assert not any(secret in json.dumps(line) for line in lines)


def offer(server, conversation, sdp: str):
    headers = {"content-type": "application/sdp", "authorization": f"Bearer {conversation['token']}"}
    return server.call("POST", f"/rtc/{conversation['id']}", key=None, raw=sdp.encode(), headers=headers)


class House:
    """A data folder, and one server at a time on it, which is started again after each drain."""

    def __init__(self, start, data):
        self.start, self.data, self.server, self.drain, self.key = start, data, None, None, None

    def up(self, drain: float):
        """A server that drains for so long."""
        if self.server is None or not self.server.alive() or self.drain != drain:
            if self.server:
                self.server.stop()
            self.server = self.start("drain", data=self.data, env={"VISAVIS_TIMEOUTS_DRAIN": str(drain)})
            self.drain = drain
            self.key = self.key or self.server.first_start().key
            self.server.key = self.key
        return self.server.ready()


@pytest.fixture(scope="module")
def house(start, tmp_path_factory):
    return House(start, tmp_path_factory.mktemp("drain"))


@contextlib.asynccontextmanager
async def draining(server, told=True, **more):
    """A call on a server that was asked to stop; the server goes on until this is over, or its drain. `told`: waits until the server says that it
    drains, for which a drain must be long."""
    conversation = server.conversation(talk.agent(server, **more)["id"])
    client = await Talk(server, conversation).begin()
    server.process.send_signal(signal.SIGTERM)

    def ready():
        reply = server.call("GET", "/readyz", key=None)
        return reply.status == 503 and reply.json().get("reason") == "draining" and reply

    if told:
        reply = await asyncio.to_thread(until, ready, server, "the drain")
        assert reply.json() == {"status": "not ready", "reason": "draining"}
    yield client
    await asyncio.to_thread(server.process.wait, PATIENCE)
    await client.peer.close()
    assert server.process.returncode == 0


LONG, SHORT = 600, 11
GOODBYE = "Good bye, and thank you."


def test_a_draining_server_finishes_its_call_and_takes_no_other(house):
    server = house.up(LONG)
    agent = talk.agent(server)["id"]
    waiting = server.conversation(agent)
    refused = {"error": "No capacity", "reason": "the server is shutting down"}
    offered = sdp.offer()

    async def work():
        async with draining(server) as client:
            for reply in (offer(server, waiting, offered), server.call("POST", "/v1/ext/conversation", {"agent_id": agent})):
                assert (reply.status, reply.json(), reply.headers["retry-after"]) == (503, refused, "2")
            client.type(QUESTION)
            await client.until(client.spoken, what="the answer")
            assert server.alive() and server.record(client.conversation["id"])["status"] == "IN_PROGRESS"
            await client.leave()
            return client.conversation["id"]

    ended = run(work())
    again = house.up(SHORT)
    record = again.record(ended)
    assert (record["status"], record["end_reason"]) == ("ENDED", "user_left")
    assert [entry["role"] for entry in record["transcript"]].count("assistant") >= 1
    assert again.record(waiting["id"])["status"] == "STARTED", "it stays joinable"


def test_what_still_runs_before_the_end_of_a_drain_says_good_bye(house):
    """The last ten seconds of a drain are for farewells: here they begin after one second."""

    async def work():
        async with draining(house.up(SHORT), told=False, avatar={"exit_message": {"messages": [GOODBYE]}}) as client:
            return client.conversation["id"]

    ended = run(work())
    record = house.up(LONG).record(ended)
    assert (record["status"], record["end_reason"]) == ("ENDED", "ended_by_api")
    assert record["transcript"][-1]["content"] == GOODBYE


def test_a_second_signal_ends_a_drain_at_once(house):
    """Not after the ten minutes that the drain may take."""
    server = house.up(LONG)

    async def work():
        async with draining(server) as client:
            assert server.alive()
            server.process.send_signal(signal.SIGTERM)
            return client.conversation["id"]

    ended = run(work())
    assert house.up(LONG).record(ended)["end_reason"] == "ended_by_api"
