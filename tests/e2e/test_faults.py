"""What goes wrong in real life: a killed server, a killed browser, a lost client, a second start."""

import asyncio
import os
import resource
import signal
import subprocess
import threading
import time

import pytest

from kit import calls_with_file, facts, talk, voice
from kit.call import Call

GARDEN = "Tell me about the garden behind the house."


@pytest.fixture(scope="module")
def hasty(start):
    """A server that waits for lost clients 2 and 4 s instead of 5 and 25: engine/tests/media_thread.rs has the true lengths, in simulated time."""
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


@pytest.mark.parametrize("joined", [True, False], ids=["once it has joined", "before it knows that it is connected"])
def test_a_full_server_says_so(start, call, tmp_path, joined):
    """One decoder, two calls: the second is told that all lines are busy, be it at its offer or once it has connected; it is never deaf."""
    server = start("full", data=tmp_path, env={"VISAVIS_STT_POOL": "1", "VISAVIS_TIMEOUTS_OFFER": "120"}).first_start().ready()
    agent = server.agent()
    first = call().open(server.conversation(agent["id"])["join_link"])
    waiting = server.conversation(agent["id"])
    second = call()
    # It waits for its answer as long as the first takes to join.
    second.page.add_init_script("""AbortSignal.timeout = () => new AbortController().signal;
        const set = window.setTimeout; window.setTimeout = (what, ms, ...more) => set(what, ms >= 10_000 ? 120_000 : ms, ...more);""")
    if not joined:
        second.page.add_init_script("""const add = EventTarget.prototype.addEventListener;
            RTCPeerConnection.prototype.addEventListener = function (kind, ...more) {
              if (kind !== 'connectionstatechange') add.call(this, kind, ...more); };""")
    second.open(waiting["join_link"])
    statuses = []

    def meanwhile(route):
        """The second offer is answered while there is room, and the first call takes it before the answer arrives."""
        answer = route.fetch()
        statuses.append(answer.status)
        first.join()
        route.fulfill(response=answer)

    second.page.route("**/rtc/*", meanwhile, times=1)
    second.page.click("#join")
    second.page.wait_for_selector("#over-title:has-text('All lines are busy')")
    assert statuses == [201]
    second.shot("full")
    assert server.call("GET", f"/v1/ext/conversation/{waiting['id']}").json()["status"] == "STARTED"
    second.page.click("#again")
    second.page.wait_for_selector("#problem:has-text('All lines are busy')")
    first.page.click("#hang-up")
    first.page.wait_for_selector("#over-title:has-text('You hung up')")
    # The page says so before the server has let the decoder go.
    until_ready(server, 200)
    second.page.click("#join")
    if joined:
        second.until("frames", {"more": 1})


def until_ready(server, status: int, reason: str | None = None, timeout: float = talk.PATIENCE):
    end = time.monotonic() + timeout
    while (reply := server.call("GET", "/readyz", key=None)).status != status or reason not in (None, reply.json().get("reason")):
        assert time.monotonic() < end, f"/readyz never answered {status}: {reply}\n{server.tail()}"
        threading.Event().wait(0.05)
    return reply


def check_full_disk(server, hooks, fill, free):
    """Two calls run while nothing can be written for a while: nothing is lost, no success is told, and nothing needs a restart."""
    knowledge = "The museum has an old clock in the first room. The garden has red roses."
    agent = talk.agent(server, knowledge=knowledge, hooks=hooks)
    first, second = server.conversation(agent["id"]), server.conversation(agent["id"])

    async def work():
        one = await talk.Talk(server, first).begin()
        other = await talk.Talk(server, second).begin()
        await one.ask("What is in the first room?", "old clock")
        fill()
        # The call goes on, and its facts wait.
        await one.ask("What is in the garden?", "red roses")
        # A server that is short of processors for a moment is not ready either.
        reply = await asyncio.to_thread(until_ready, server, 503, "the store takes no writes")
        assert reply.json()["status"] == "not ready", reply
        for method, path, body in (("POST", "/v1/ext/conversation", {"agent_id": agent["id"]}), ("DELETE", f"/v1/conversation/{second['id']}", None)):
            reply = await asyncio.to_thread(server.call, method, path, body)
            assert reply.status == 503 and reply.headers["retry-after"] == "2", (path, reply)
        await other.until(lambda: other.says(event="call_ended"), what="the end that was asked for")
        await one.ask("And what is in the first room?", "old clock")
        free()
        await asyncio.to_thread(until_ready, server, 200)
        await one.leave()
        await other.peer.close()

    talk.run(work())
    for conversation in (first, second):
        hooks.until(conversation["id"], "call_ended")
        numbers = [event["sequence"] for event in hooks.of(conversation["id"])]
        assert numbers == list(range(1, len(numbers) + 1)), numbers
    asked = [entry["content"] for entry in server.until(first["id"], "ENDED")["transcript"] if entry["role"] == "user"]
    assert asked == ["What is in the first room?", "What is in the garden?", "And what is in the first room?"]
    reply = server.call("DELETE", f"/v1/conversation/{second['id']}")
    assert reply.status == 200, reply
    assert not hooks.faults, hooks.faults


def test_a_store_that_cannot_be_written_for_a_while_loses_nothing(start, hooks, tmp_path):
    """The file-size limit of the running server is lowered to nothing: every write to a file fails, its log's too."""
    # What the recogniser would need is not used.
    server = start("full", data=tmp_path, env={"VISAVIS_STT_POOL": "1"}).first_start().ready()
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)

    def limit(soft):
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (soft, hard))

    check_full_disk(server, hooks, lambda: limit(0), lambda: limit(hard))
    assert server.alive(), server.tail()


@pytest.mark.long("store")
def test_a_full_disk_that_gets_room_again_loses_nothing(start, hooks, tmp_path):
    """A file system of 48 MiB. Mounting needs rights that not every machine gives."""
    disk, filler = tmp_path / "disk", tmp_path / "disk" / "filler"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        (disk / "data").mkdir(mode=0o700)
        server = start("full", data=disk / "data").first_start().ready()

        def fill():
            with filler.open("wb") as file, pytest.raises(OSError):
                while True:
                    file.write(bytes(1 << 16))
                    file.flush()

        check_full_disk(server, hooks, fill, filler.unlink)
        server.stop()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
