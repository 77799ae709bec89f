"""What goes wrong in real life: a killed server, a killed browser, a lost client, a second start."""

import os
import signal

import pytest

from kit import calls_with_file, facts, voice
from kit.call import Call

GARDEN = "Tell me about the garden behind the house."


@pytest.fixture(scope="module")
def hasty(start):
    """A server that waits for lost clients 2 and 4 s instead of 5 and 25: engine/tests/graph.rs has the true lengths, in simulated time."""
    return start("hasty", env={"VISAVIS_TIMEOUTS_CLOSED": "2", "VISAVIS_TIMEOUTS_SILENCE": "4"}).first_start().ready()


@pytest.fixture(scope="module")
def patient(start):
    """A server that waits an hour for lost clients."""
    return start("patient", env={"VISAVIS_TIMEOUTS_CLOSED": "3600", "VISAVIS_TIMEOUTS_SILENCE": "3600"}).first_start().ready()


def second_starts(start, tmp_path, count: int) -> list[float]:
    """Starts a server that has an agent and a conversation, and then again. Returns how long each later start took until it listened."""
    first = start("restart", data=tmp_path).first_start().ready()
    agent = first.agent(knowledge=facts.LONG)
    conversation = first.conversation(agent["id"])
    key, demo = first.key, first.demo
    first.stop()
    times = []
    for _ in range(count):
        again = start("restart", data=tmp_path)
        times.append(again.listening_after)
        line = again._line(60)
        assert line.startswith("Demo: ") and line.rsplit("/", 1)[1] == demo.rsplit("/", 1)[1], f"the key is shown once only; got {line!r}"
        again.key = key
        assert again.record(conversation["id"])["status"] == "STARTED"
        assert [a["id"] for a in again.call("GET", "/v1/ext/agent").json()].count(agent["id"]) == 1
        again.stop()
    return times


def test_the_second_start_keeps_everything(start, tmp_path):
    second_starts(start, tmp_path, 1)


@pytest.mark.long("store")
def test_the_second_start_listens_at_once(start, tmp_path, report):
    times = second_starts(start, tmp_path, 3)
    report.add("second start", {"exec to listening": times})
    report.promise("from exec to listening, s", sorted(times)[1], 0.2)


def test_a_server_killed_in_a_call_keeps_what_was_heard(start, call, hooks, tmp_path):
    server = start("killed", data=tmp_path).first_start().ready()
    agent = server.agent(knowledge=facts.LONG, hooks=hooks, hears=[GARDEN])
    conversation = server.conversation(agent["id"])
    waiting = server.conversation(agent["id"])
    page = call().open(conversation["join_link"])
    page.join()
    said = page.speak(GARDEN)
    page.event("agent.started_speaking")
    page.sound(said.end)
    page.until("speaking", {"into": 2.5})
    server.kill()

    again = start("killed", data=tmp_path)
    again.key = server.key
    record = again.record(conversation["id"])
    assert record["status"] == "ENDED" and record["end_reason"] == "error", record
    hooks.until(conversation["id"], "call_ended")
    roles = [entry["role"] for entry in record["transcript"]]
    assert roles == ["user", "assistant"], record["transcript"]
    heard = voice.words(record["transcript"][1]["content"])
    full = voice.words(facts.LONG)
    assert len(heard) >= 3, f"2.5 s were heard, at most the last may be missing: {heard}"
    assert " ".join(heard) in " ".join(full), "what is on record was never written"
    assert again.record(waiting["id"])["status"] == "STARTED", "a conversation that nobody had joined stays joinable"
    reply = again.call("POST", f"/rtc/{conversation['id']}", key=None, raw=b"v=0\r\n", headers={"content-type": "application/sdp", "authorization": f"Bearer {conversation['token']}"})
    assert reply.status in (401, 409), reply


def test_a_killed_browser_ends_the_call(hasty, playwright, hooks, tmp_path):
    """Nothing at all is sent by a killed process: the server's own clock decides."""
    server = hasty
    agent = server.agent(hooks=hooks, avatar={"idle_timeout": {"timeout": 0}})
    conversation = server.conversation(agent["id"])
    with calls_with_file(playwright, tmp_path, voice.script([1.0])) as chromium:
        page = Call(chromium).open(conversation["join_link"])
        page.join()
        kill_processes_of(tmp_path)
    left = hooks.until(conversation["id"], "participant_left")
    assert left["event"]["payload"]["id"] == conversation["id"], "without a user id the participant is named by the conversation"
    hooks.until(conversation["id"], "call_ended")
    assert server.until(conversation["id"], "ENDED")["end_reason"] == "user_left"


def kill_processes_of(folder):
    """Kills the Chromium that was started with the microphone file of this folder (and all of its processes): found by its own command line."""
    mark = f"--use-file-for-fake-audio-capture={folder}".encode()
    found = 0
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                command = file.read()
        except OSError:
            continue
        if mark in command:
            found += 1
            try:
                os.kill(int(entry), signal.SIGKILL)
            except ProcessLookupError:
                pass
    assert found, "the browser was not found"


def test_a_tab_that_navigates_away_is_gone_after_a_while(hasty, call, hooks):
    agent = hasty.agent(hooks=hooks)
    conversation = hasty.conversation(agent["id"])
    page = call().open(conversation["join_link"])
    page.join()
    page.page.goto("about:blank")
    hooks.until(conversation["id"], "participant_left")
    assert hasty.until(conversation["id"], "ENDED")["end_reason"] == "user_left"


def test_a_hang_up_ends_the_call_at_once(patient, call, hooks):
    """On a server that waits an hour for a lost client, nothing else can end it."""
    agent = patient.agent(hooks=hooks)
    conversation = patient.conversation(agent["id"])
    page = call().open(conversation["join_link"])
    page.join()
    page.page.click("#hang-up")
    hooks.until(conversation["id"], "call_ended")
    assert patient.until(conversation["id"], "ENDED")["end_reason"] == "user_left"


def test_a_full_server_says_so(start, call, tmp_path):
    """One decoder, two calls: the second is refused at the join, never deaf."""
    server = start("full", data=tmp_path, env={"VISAVIS_STT_POOL": "1"}).first_start().ready()
    agent = server.agent()
    first = call().open(server.conversation(agent["id"])["join_link"])
    first.join()
    second = call().open(server.conversation(agent["id"])["join_link"])
    second.page.click("#join")
    second.page.wait_for_selector("#problem:has-text('no free place')")
    second.shot("full")
    first.page.click("#hang-up")
    first.page.wait_for_selector("#over-title:has-text('You hung up')")
    second.page.click("#join")
    second.until("frames", {"more": 1})
