"""What a person who runs it sees: the metrics and what is written about them, the log, and a server that drains."""

import json
import pathlib
import re
import signal
import time

from kit.receivers import Receiver

ROOT = pathlib.Path(__file__).parent.parent


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


def test_a_call_is_counted(server, call):
    agent = server.agent()
    conversation = server.conversation(agent["id"])
    frames, ticks = number(server, "visavis_audio_frames_total"), number(server, "visavis_media_ticks_total")
    page = call().open(conversation["join_link"])
    page.join()
    said = page.speak("Hello, who are you?")
    page.event("agent.stopped_speaking", timeout=30)
    assert number(server, "visavis_audio_frames_total") - frames > 100
    assert number(server, "visavis_media_ticks_total") - ticks > 200
    assert number(server, "visavis_turn_voice_to_voice_seconds_count") >= 1
    # The page is told first, the record a moment later.
    end = time.monotonic() + 10
    while (turn := server.call("GET", f"/v1/ext/conversation/{conversation['id']}/turns").json()[0])["timeline"]["heard_end"] is None:
        assert time.monotonic() < end, turn
    line = turn["timeline"]
    steps = [line[step] for step in ("speech_end", "committed", "first_sample", "heard_end")]
    assert steps == sorted(steps) and abs(line["first_sample"] - line["speech_end"] - turn["voice_to_voice"]) < 1e-5, turn
    assert said.end and turn["barge_in"] is None and line["interrupted"] is None, turn


def test_a_log_of_json_names_the_call_and_no_secret(start, call, tmp_path):
    server = start("json-log", data=tmp_path, env={"VISAVIS_SERVER_LOG_FORMAT": "json", "VISAVIS_LOG": "debug,sqlx=warn"}).first_start().ready()
    # A model that nobody serves: the failure is logged.
    agent = server.agent(llm={"provider": "custom", "url": "http://127.0.0.1:9/v1", "token": "hush-hush-token", "model": "m"})
    conversation = server.conversation(agent["id"])
    page = call().open(conversation["join_link"])
    page.join()
    page.speak("Hello, who are you?")
    page.event("agent.stopped_speaking", timeout=30)
    page.page.click("#hang-up")
    server.until(conversation["id"], "ENDED")
    server.stop()
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    failed = [line for line in lines if "language model failed" in line.get("message", "")]
    assert failed and all(line["conversation"] == conversation["id"] for line in failed), lines[-20:]
    assert {"a conversation begins", "a conversation has ended"} <= {line.get("message") for line in lines if line.get("conversation") == conversation["id"]}
    # What a library says on a media thread is of the call that the thread works for.
    media = [line for line in lines if line["target"].startswith("str0m")]
    assert any(line.get("conversation") == conversation["id"] for line in media), media[:5]
    assert {line.get("conversation", conversation["id"]) for line in lines} == {conversation["id"]}
    for secret in (server.key, conversation["token"], "hush-hush-token"):
        assert not any(secret in json.dumps(line) for line in lines)


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


def one_turn(server, call):
    """A conversation of one question and its answer, hung up."""
    conversation = server.conversation(server.agent()["id"])
    page = call().open(conversation["join_link"])
    page.join()
    page.speak("Hello, who are you?")
    page.event("agent.stopped_speaking", timeout=30)
    page.page.click("#hang-up")
    server.until(conversation["id"], "ENDED")
    return conversation


def test_spans_of_a_call_reach_the_collector(start, call, tmp_path):
    collector = Collector()
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url + "/", "OTEL_EXPORTER_OTLP_HEADERS": "x-team=talk, authorization=Bearer c0llect"}
    server = start("otlp", data=tmp_path, env=env).first_start().ready()
    conversation = one_turn(server, call)
    root = collector.wait(lambda: next((span for span in collector.spans if span["name"] == "conversation"), None), 15, "the conversation's span")
    assert root["traceId"] == conversation["id"].replace("-", "") and "parentSpanId" not in root
    turn = next(span for span in collector.spans if span["name"] == "turn")
    assert turn["parentSpanId"] == root["spanId"]
    stages = {span["name"]: span for span in collector.spans if span.get("parentSpanId") == turn["spanId"]}
    assert {"endpointing", "llm", "tts", "playout", "speaking"} <= stages.keys(), collector.seen()
    times = lambda span: (int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"]))
    assert all(times(root)[0] <= times(span)[0] <= times(span)[1] <= times(root)[1] + 1e9 for span in collector.spans)
    told = server.call("GET", f"/v1/ext/conversation/{conversation['id']}/turns").json()[0]
    length = lambda span: (times(span)[1] - times(span)[0]) / 1e9
    assert abs(length(stages["endpointing"]) - told["endpointing"]) < 1e-5 and abs(length(stages["llm"]) - told["llm_ttft"]) < 1e-5
    assert {"key": "service.name", "value": {"stringValue": "visavis"}} in collector.resources[0]["attributes"]
    assert all(headers.get("x-team") == "talk" and headers.get("authorization") == "Bearer c0llect" for headers in collector.headers)
    server.stop()
    assert collector.refusals == 0 and len({span["spanId"] for span in collector.spans}) == len(collector.spans), collector.seen()
    assert "c0llect" not in server.log.read_text()
    collector.close()


def test_a_collector_that_is_away_hurts_no_call(start, call, tmp_path):
    server = start("no-collector", data=tmp_path, env={"VISAVIS_OTLP_ENDPOINT": "http://127.0.0.1:9"}).first_start().ready()
    conversation = one_turn(server, call)
    end = time.monotonic() + 15
    while "spans do not reach the collector" not in server.log.read_text():
        assert time.monotonic() < end, server.tail()
        server.call("GET", "/healthz", key=None)
    assert server.call("GET", f"/v1/ext/conversation/{conversation['id']}/turns").json()[0]["voice_to_voice"] is not None


def offer(server, conversation, sdp: str):
    headers = {"content-type": "application/sdp", "authorization": f"Bearer {conversation['token']}"}
    return server.call("POST", f"/rtc/{conversation['id']}", key=None, raw=sdp.encode(), headers=headers)


def draining(start, call, tmp_path, drain: float):
    """A server that was asked to stop while a call runs, with a conversation that nobody has joined."""
    server = start("drain", data=tmp_path, env={"VISAVIS_TIMEOUTS_DRAIN": str(drain)}).first_start().ready()
    agent = server.agent(avatar={"exit_message": {"messages": ["Good bye, and thank you."]}})
    running, waiting = (server.conversation(agent["id"]) for _ in range(2))
    page = call().open(running["join_link"])
    page.join()
    sdp = page.page.evaluate("e2e.offers.at(-1)")
    server.process.send_signal(signal.SIGTERM)
    end = time.monotonic() + 5
    while server.call("GET", "/readyz", key=None).status != 503 and time.monotonic() < end:
        pass
    ready = server.call("GET", "/readyz", key=None)
    assert (ready.status, ready.json()) == (503, {"status": "not ready", "reason": "draining"})
    return server, agent, running, waiting, page, sdp


def test_a_draining_server_finishes_its_call_and_takes_no_other(start, call, tmp_path):
    server, agent, running, waiting, page, sdp = draining(start, call, tmp_path, 60)
    refused = {"error": "No capacity", "reason": "the server is shutting down"}
    for reply in (offer(server, waiting, sdp), server.call("POST", "/v1/ext/conversation", {"agent_id": agent["id"]})):
        assert (reply.status, reply.json(), reply.headers["retry-after"]) == (503, refused, "2")
    page.speak("Hello, who are you?")
    page.event("agent.stopped_speaking", timeout=30)
    assert server.alive() and server.record(running["id"])["status"] == "IN_PROGRESS"
    page.page.click("#hang-up")
    server.process.wait(10)
    assert server.process.returncode == 0
    again = start("drain", data=tmp_path)
    again.key = server.key
    record = again.record(running["id"])
    assert (record["status"], record["end_reason"]) == ("ENDED", "user_left")
    assert [entry["role"] for entry in record["transcript"]].count("assistant") >= 1
    assert again.record(waiting["id"])["status"] == "STARTED", "it stays joinable"


def test_what_still_runs_before_the_end_of_a_drain_says_good_bye(start, call, tmp_path):
    began = time.monotonic()
    server, _, running, _, _, _ = draining(start, call, tmp_path, 12)
    server.process.wait(20)
    assert time.monotonic() - began < 30 and server.process.returncode == 0
    again = start("drain", data=tmp_path)
    again.key = server.key
    record = again.record(running["id"])
    assert (record["status"], record["end_reason"]) == ("ENDED", "ended_by_api")
    assert record["transcript"][-1]["content"] == "Good bye, and thank you."


def test_a_second_signal_ends_a_drain_at_once(start, call, tmp_path):
    server, _, running, _, _, _ = draining(start, call, tmp_path, 60)
    assert server.alive()
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(8)
    again = start("drain", data=tmp_path)
    again.key = server.key
    assert again.record(running["id"])["end_reason"] == "ended_by_api"
