"""What an operator sees: the metrics and their documentation, the log, and a server that drains."""

import asyncio
import contextlib
import json
import re
import signal

import pytest

from kit import sdp, speech, typed_call
from kit.polling import wait_until
from kit.receivers import MockServer
from kit.server import ROOT
from kit.typed_call import TEST_TIMEOUT, TypedCall
from kit.webrtc_client import run_async

QUESTION = "Hello, who are you?"


def metric_types(server) -> dict[str, str]:
    """The type of each metric family, by the name under which it is queried."""
    text = server.request("GET", "/metrics", key=None).body.decode()
    assert text.endswith("# EOF\n")
    kinds = dict(line.split(" ")[2:4] for line in text.splitlines() if line.startswith("# TYPE "))
    return {f"{name}_total" if kind == "counter" else name: kind for name, kind in kinds.items()}


def metric_value(server, name: str) -> float:
    text = server.request("GET", "/metrics", key=None).body.decode()
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if re.match(rf"{name}[ {{]", line)
    )


def test_the_dashboard_uses_only_exported_metrics(server):
    served = metric_types(server)
    served_names = {
        f"{name}_bucket" if kind == "histogram" else name for name, kind in served.items()
    }
    dashboard = json.loads((ROOT / "docs/grafana/visavis.json").read_text())
    dashboard_names = {
        name
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
        for name in re.findall(r"\b(?:visavis|process|tokio)_\w+", target["expr"])
    }
    assert len(dashboard_names) > 30 and dashboard_names <= served_names, (
        dashboard_names - served_names
    )


def test_exactly_the_exported_metrics_are_documented(server):
    page = (ROOT / "docs/operations.md").read_text()
    explained = set(re.findall(r"`((?:visavis|process|tokio)_\w+)(?:\{\w+\})?`", page))
    renamed = re.findall(
        r"^  \| `(visavis_\w+).*?` \| `(visavis_\w+).*?` \|",
        (ROOT / "CHANGELOG.md").read_text(),
        re.MULTILINE,
    )
    previous = {old for old, _ in renamed}
    served = set(metric_types(server))
    assert len(previous) == 20 and {new for _, new in renamed} <= explained
    assert previous <= served, f"no longer exported under the old name: {previous - served}"
    assert served - previous <= explained, f"not explained: {served - previous - explained}"
    assert explained <= served, f"explained, not served: {explained - served}"


def wait_for(found, server, what: str):
    """The first true value of `found()`."""
    return wait_until(found, lambda: f"{what}\n{server.log_tail()}", TEST_TIMEOUT)


def run_one_turn(server, conversation, meanwhile=lambda: None):
    """A spoken question and its answer; then the user hangs up."""

    async def whole():
        client = await TypedCall(server, conversation).connect()
        client.microphone.queue = speech.concatenate([(QUESTION, "slt")])
        await client.wait_for(client.utterances, what="the answer")
        await asyncio.to_thread(meanwhile)
        await client.hang_up()

    run_async(whole())
    server.wait_for(conversation["id"], "ENDED", timeout=TEST_TIMEOUT)


def test_a_call_is_counted(server):
    conversation = server.create_conversation(
        typed_call.create_typed_agent(server, transcripts=[QUESTION])["id"]
    )
    names = (
        "visavis_audio_frames_total",
        "visavis_media_ticks_total",
        "visavis_turn_voice_to_voice_seconds_count",
    )
    before = [metric_value(server, name) for name in names]

    def counted():
        return all(
            metric_value(server, name) - then >= minimum
            for name, then, minimum in zip(names, before, (100, 200, 1), strict=True)
        )

    run_one_turn(server, conversation, lambda: wait_for(counted, server, "the counters to rise"))
    # The client gets the message first, the record a moment later.
    turn = wait_for(
        lambda: next(
            (t for t in turn_times(server, conversation) if t["timeline"]["heard_end"] is not None),
            None,
        ),
        server,
        "the turn's record",
    )
    line = turn["timeline"]
    steps = [line[step] for step in ("speech_end", "committed", "first_sample", "heard_end")]
    assert (
        steps == sorted(steps)
        and abs(line["first_sample"] - line["speech_end"] - turn["voice_to_voice"]) < 1e-5
    ), turn
    assert turn["barge_in"] is None and line["interrupted"] is None, turn


def turn_times(server, conversation) -> list[dict]:
    return server.request("GET", f"/v1/ext/conversation/{conversation['id']}/turns").json()


class OtlpCollector(MockServer):
    """Receives spans by the rules of a collector: a JSON body at its path."""

    def __init__(self):
        self.spans, self.resources, self.headers = [], [], []
        # It is busy at first. The server must send a rejected batch again.
        self.rejections = 1
        super().__init__()

    def handle(self, request, body: bytes):
        good = (
            request.path == "/v1/traces"
            and request.headers.get("content-type") == "application/json"
        )
        with self.changed:
            busy = self.rejections > 0
            self.rejections -= busy
            for resource in json.loads(body)["resourceSpans"] if good and not busy else []:
                self.resources.append(resource["resource"])
                self.headers.append(dict(request.headers))
                self.spans += [span for scope in resource["scopeSpans"] for span in scope["spans"]]
            self.changed.notify_all()
        self.reply(request, 503 if busy else 200 if good else 400, b"{}")

    def describe(self):
        return [span["name"] for span in self.spans]

    def close_port(self):
        """Closes its port."""
        self.close()
        self.server.server_close()


@pytest.fixture(scope="module")
def collector():
    created = OtlpCollector()
    yield created
    created.close()


@pytest.fixture(scope="module")
def instrumented_server(start_server, collector):
    """A server with all of its outputs: the log as JSON, spans to the collector."""
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url + "/",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-team=talk, authorization=Bearer c0llect",
        "VISAVIS_SERVER_LOG_FORMAT": "json",
        "VISAVIS_LOG": "debug,sqlx=warn",
    }
    return start_server("observed", env=env).read_first_start().wait_ready()


def test_spans_of_a_call_reach_the_collector(instrumented_server, collector):
    conversation = instrumented_server.create_conversation(
        typed_call.create_typed_agent(instrumented_server, transcripts=[QUESTION])["id"]
    )
    run_one_turn(instrumented_server, conversation)
    root = collector.wait_until(
        lambda: next((span for span in collector.spans if span["name"] == "conversation"), None),
        TEST_TIMEOUT,
        "the conversation's span",
    )
    assert root["traceId"] == conversation["id"].replace("-", "") and "parentSpanId" not in root
    turn = next(span for span in collector.spans if span["name"] == "turn")
    assert turn["parentSpanId"] == root["spanId"]
    stages = {
        span["name"]: span for span in collector.spans if span.get("parentSpanId") == turn["spanId"]
    }
    assert {"endpointing", "llm", "tts", "playout", "speaking"} <= stages.keys(), (
        collector.describe()
    )

    def times(span):
        return (int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"]))

    assert all(
        times(root)[0] <= times(span)[0] <= times(span)[1] <= times(root)[1] + 1e9
        for span in collector.spans
    )
    recorded_turn = turn_times(instrumented_server, conversation)[0]

    def length(span):
        return (times(span)[1] - times(span)[0]) / 1e9

    assert (
        abs(length(stages["endpointing"]) - recorded_turn["endpointing"]) < 1e-5
        and abs(length(stages["llm"]) - recorded_turn["llm_ttft"]) < 1e-5
    )
    assert {"key": "service.name", "value": {"stringValue": "visavis"}} in collector.resources[0][
        "attributes"
    ]
    assert all(
        headers.get("x-team") == "talk" and headers.get("authorization") == "Bearer c0llect"
        for headers in collector.headers
    )
    assert collector.rejections == 0 and len({span["spanId"] for span in collector.spans}) == len(
        collector.spans
    ), collector.describe()
    assert "c0llect" not in instrumented_server.log.read_text()


def test_json_logs_name_the_call_without_secrets_and_a_missing_collector_is_harmless(
    instrumented_server, collector
):
    collector.close_port()
    # No server runs at the model's address: the failure is logged.
    llm = {
        "provider": "custom",
        "url": "http://127.0.0.1:9/v1",
        "token": "hush-hush-token",
        "model": "m",
    }
    conversation = instrumented_server.create_conversation(
        typed_call.create_typed_agent(instrumented_server, llm=llm, transcripts=[QUESTION])["id"]
    )
    id = conversation["id"]
    run_one_turn(instrumented_server, conversation)
    assert turn_times(instrumented_server, conversation)[0]["voice_to_voice"] is not None, (
        "the apology is heard"
    )

    def ended():
        text = instrumented_server.log.read_text()
        return (
            any("conversation ended" in line and id in line for line in text.splitlines()) and text
        )

    text = wait_for(ended, instrumented_server, "the call's last line")
    lines = [json.loads(line) for line in text.splitlines()]
    failed = [line for line in lines if "language model failed" in line.get("message", "")]
    assert failed and all(line["conversation"] == id for line in failed), lines[-20:]
    assert {"conversation started", "conversation ended"} <= {
        line.get("message") for line in lines if line.get("conversation") == id
    }
    # What a library logs on a media thread belongs to the call that the thread works for.
    media = [line for line in lines if line["target"].startswith("str0m")]
    assert any(line.get("conversation") == id for line in media), media[:5]
    known = [one["id"] for one in instrumented_server.request("GET", "/v1/ext/conversation").json()]
    assert {line["conversation"] for line in lines if "conversation" in line} <= set(known)
    for secret in (instrumented_server.key, conversation["token"], "hush-hush-token"):
        assert not any(secret in json.dumps(line) for line in lines)


def send_offer(server, conversation, sdp: str):
    headers = {
        "content-type": "application/sdp",
        "authorization": f"Bearer {conversation['token']}",
    }
    return server.request(
        "POST", f"/rtc/{conversation['id']}", key=None, raw=sdp.encode(), headers=headers
    )


class RestartableServer:
    """A data folder with one server at a time, which is started again after each drain."""

    def __init__(self, start, data):
        self.start, self.data, self.server, self.drain, self.key = start, data, None, None, None

    def server_with_drain(self, drain: float):
        """A server whose drain takes at most this long."""
        if self.server is None or not self.server.is_alive() or self.drain != drain:
            if self.server:
                self.server.stop()
            self.server = self.start(
                "drain", data=self.data, env={"VISAVIS_TIMEOUTS_DRAIN": str(drain)}
            )
            self.drain = drain
            self.key = self.key or self.server.read_first_start().key
            self.server.key = self.key
        return self.server.wait_ready()


@pytest.fixture(scope="module")
def restartable_server(start_server, tmp_path_factory):
    return RestartableServer(start_server, tmp_path_factory.mktemp("drain"))


@contextlib.asynccontextmanager
async def draining_call(server, wait=True, **more):
    """A call on a server that was asked to stop. The server runs until this context or its drain
    ends. `wait`: waits until the server reports the drain, which must be long enough."""
    conversation = server.create_conversation(typed_call.create_typed_agent(server, **more)["id"])
    client = await TypedCall(server, conversation).connect()
    server.process.send_signal(signal.SIGTERM)

    def ready():
        reply = server.request("GET", "/readyz", key=None)
        return reply.status == 503 and reply.json().get("reason") == "draining" and reply

    if wait:
        reply = await asyncio.to_thread(wait_for, ready, server, "the drain")
        assert reply.json() == {"status": "not ready", "reason": "draining"}
    yield client
    await asyncio.to_thread(server.process.wait, TEST_TIMEOUT)
    await client.peer.close()
    assert server.process.returncode == 0


LONG_DRAIN, SHORT_DRAIN = 600, 11
GOODBYE = "Good bye, and thank you."


def test_a_draining_server_finishes_its_call_and_takes_no_other(restartable_server):
    server = restartable_server.server_with_drain(LONG_DRAIN)
    agent = typed_call.create_typed_agent(server)["id"]
    waiting = server.create_conversation(agent)
    refused = {"error": "No capacity", "reason": "the server is shutting down"}
    offered = sdp.make_offer()

    async def work():
        async with draining_call(server) as client:
            for reply in (
                send_offer(server, waiting, offered),
                server.request("POST", "/v1/ext/conversation", {"agent_id": agent}),
            ):
                assert (reply.status, reply.json(), reply.headers["retry-after"]) == (
                    503,
                    refused,
                    "2",
                )
            client.send_typed(QUESTION)
            await client.wait_for(client.utterances, what="the answer")
            assert (
                server.is_alive()
                and server.get_conversation(client.conversation["id"])["status"] == "IN_PROGRESS"
            )
            await client.hang_up()
            return client.conversation["id"]

    ended = run_async(work())
    again = restartable_server.server_with_drain(SHORT_DRAIN)
    record = again.get_conversation(ended)
    assert (record["status"], record["end_reason"]) == ("ENDED", "user_left")
    assert [entry["role"] for entry in record["transcript"]].count("assistant") >= 1
    assert again.get_conversation(waiting["id"])["status"] == "STARTED", "it stays joinable"


def test_running_calls_say_goodbye_before_a_drain_ends(restartable_server):
    """The last ten seconds of a drain are for goodbyes. Here they begin after one second."""

    async def work():
        async with draining_call(
            restartable_server.server_with_drain(SHORT_DRAIN),
            wait=False,
            avatar={"exit_message": {"messages": [GOODBYE]}},
        ) as client:
            return client.conversation["id"]

    ended = run_async(work())
    record = restartable_server.server_with_drain(LONG_DRAIN).get_conversation(ended)
    assert (record["status"], record["end_reason"]) == ("ENDED", "ended_by_api")
    assert record["transcript"][-1]["content"] == GOODBYE


def test_a_second_signal_ends_a_drain_at_once(restartable_server):
    """It does not wait for the ten minutes that the drain may take."""
    server = restartable_server.server_with_drain(LONG_DRAIN)

    async def work():
        async with draining_call(server) as client:
            assert server.is_alive()
            server.process.send_signal(signal.SIGTERM)
            return client.conversation["id"]

    ended = run_async(work())
    assert (
        restartable_server.server_with_drain(LONG_DRAIN).get_conversation(ended)["end_reason"]
        == "ended_by_api"
    )
