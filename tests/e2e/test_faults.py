"""Faults of real life: a killed server, a killed browser, a lost client, a second start."""

import asyncio
import contextlib
import os
import pathlib
import resource
import signal
import subprocess

import pytest

from kit import calls_with_file, sample_knowledge, speech, typed_call
from kit.call import BrowserCall
from kit.polling import wait_until
from kit.server import ROOT

GARDEN = "Tell me about the garden behind the house."


@pytest.fixture(scope="module")
def short_timeout_server(start_server):
    """A server that waits 2 and 4 s for lost clients instead of 5 and 25.
    engine/tests/media_thread.rs tests the real times, in simulated time."""
    return (
        start_server("hasty", env={"VISAVIS_TIMEOUTS_CLOSED": "2", "VISAVIS_TIMEOUTS_SILENCE": "4"})
        .read_first_start()
        .wait_ready()
    )


@pytest.fixture(scope="module")
def long_timeout_server(start_server):
    """A server that waits an hour for lost clients."""
    return (
        start_server(
            "patient", env={"VISAVIS_TIMEOUTS_CLOSED": "3600", "VISAVIS_TIMEOUTS_SILENCE": "3600"}
        )
        .read_first_start()
        .wait_ready()
    )


def restart_times(start, tmp_path, count: int) -> list[float]:
    """Starts a server with an agent and a conversation, and then starts it again `count` times.
    Returns how long each later start took until the server listened."""
    first = start("restart", data=tmp_path).read_first_start().wait_ready()
    agent = first.create_agent(knowledge=sample_knowledge.LONG_TEXT)
    conversation = first.create_conversation(agent["id"])
    key, demo = first.key, first.demo
    first.stop()
    times = []
    for _ in range(count):
        again = start("restart", data=tmp_path)
        times.append(again.seconds_to_listen)
        line = again._next_line(60)
        assert line.startswith("For another API key: visavis keys create "), line
        line = again._next_line(60)
        assert line.startswith("Demo: ") and line.rsplit("/", 1)[1] == demo.rsplit("/", 1)[1], (
            f"the key is shown once only; got {line!r}"
        )
        again.key = key
        assert again.get_conversation(conversation["id"])["status"] == "STARTED"
        assert [a["id"] for a in again.request("GET", "/v1/ext/agent").json()].count(
            agent["id"]
        ) == 1
        again.stop()
    return times


def test_the_second_start_keeps_everything(start_server, tmp_path):
    restart_times(start_server, tmp_path, 1)


@pytest.mark.long("store")
def test_the_second_start_listens_at_once(start_server, tmp_path, report):
    times = restart_times(start_server, tmp_path, 3)
    report.add("second start", {"exec to listening": times})
    report.check_target("from exec to listening, s", sorted(times)[1], 0.2)


def test_a_server_killed_in_a_call_keeps_what_was_heard(start_server, call, webhooks, tmp_path):
    server = start_server("killed", data=tmp_path).read_first_start().wait_ready()
    agent = server.create_agent(
        knowledge=sample_knowledge.LONG_TEXT, hooks=webhooks, transcripts=[GARDEN]
    )
    conversation = server.create_conversation(agent["id"])
    waiting = server.create_conversation(agent["id"])
    page = call().open(conversation["join_link"])
    page.join()
    user_speech = page.speak(GARDEN)
    page.wait_for_event("agent.started_speaking")
    page.wait_for_sound(user_speech.end)
    page.wait_for("speaking", {"into": 2.5})
    server.kill()

    restarted = start_server("killed", data=tmp_path)
    restarted.key = server.key
    record = restarted.get_conversation(conversation["id"])
    assert record["status"] == "ENDED" and record["end_reason"] == "error", record
    webhooks.wait_for(conversation["id"], "call_ended")
    roles = [entry["role"] for entry in record["transcript"]]
    assert roles == ["user", "assistant"], record["transcript"]
    heard_words = speech.split_words(record["transcript"][1]["content"])
    full = speech.split_words(sample_knowledge.LONG_TEXT)
    assert len(heard_words) >= 3, (
        f"2.5 s were audible, at most the last word may be missing: {heard_words}"
    )
    assert " ".join(heard_words) in " ".join(full), "what is on record was never written"
    assert restarted.get_conversation(waiting["id"])["status"] == "STARTED", (
        "a conversation that nobody had joined stays joinable"
    )
    reply = restarted.request(
        "POST",
        f"/rtc/{conversation['id']}",
        key=None,
        raw=b"v=0\r\n",
        headers={
            "content-type": "application/sdp",
            "authorization": f"Bearer {conversation['token']}",
        },
    )
    assert reply.status in (401, 409), reply


def test_a_killed_browser_ends_the_call(short_timeout_server, playwright, webhooks, tmp_path):
    """A killed process sends nothing at all: the server's own timeout ends the call."""
    server = short_timeout_server
    agent = server.create_agent(hooks=webhooks, avatar={"idle_timeout": {"timeout": 0}})
    conversation = server.create_conversation(agent["id"])
    with calls_with_file(playwright, tmp_path, speech.concatenate([1.0])) as chromium:
        page = BrowserCall(chromium).open(conversation["join_link"])
        page.join()
        kill_processes_of(tmp_path)
    left = webhooks.wait_for(conversation["id"], "participant_left")
    assert left["event"]["payload"]["id"] == conversation["id"], (
        "without a user id the participant is named by the conversation"
    )
    webhooks.wait_for(conversation["id"], "call_ended")
    assert server.wait_for(conversation["id"], "ENDED")["end_reason"] == "user_left"


def kill_processes_of(folder):
    """Kills the Chromium that was started with the microphone file of this folder, and all of its
    processes. They are found by their command lines."""
    mark = f"--use-file-for-fake-audio-capture={folder}".encode()
    found = 0
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if mark in command:
            found += 1
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(entry.name), signal.SIGKILL)
    assert found, "the browser was not found"


def test_a_call_ends_after_its_tab_navigates_away(short_timeout_server, call, webhooks):
    agent = short_timeout_server.create_agent(hooks=webhooks)
    conversation = short_timeout_server.create_conversation(agent["id"])
    page = call().open(conversation["join_link"])
    page.join()
    page.page.goto("about:blank")
    webhooks.wait_for(conversation["id"], "participant_left")
    assert short_timeout_server.wait_for(conversation["id"], "ENDED")["end_reason"] == "user_left"


def test_a_hang_up_ends_the_call_at_once(long_timeout_server, call, webhooks):
    """The server waits an hour for a lost client, so nothing else can end the call."""
    agent = long_timeout_server.create_agent(hooks=webhooks)
    conversation = long_timeout_server.create_conversation(agent["id"])
    page = call().open(conversation["join_link"])
    page.join()
    page.page.click("#hang-up")
    webhooks.wait_for(conversation["id"], "call_ended")
    assert long_timeout_server.wait_for(conversation["id"], "ENDED")["end_reason"] == "user_left"


def models_without_moonshine(tmp_path):
    """A folder with all models but Moonshine. The number of calls with PocketSphinx is that of its
    decoders."""
    source = pathlib.Path(os.environ.get("VISAVIS_MODELS_DIR", ROOT / ".cache/models")).resolve()
    folder = tmp_path / "models"
    folder.mkdir()
    for model in source.iterdir():
        if not model.name.startswith("moonshine"):
            (folder / model.name).symlink_to(model)
    return folder


@pytest.mark.parametrize(
    "joined", [True, False], ids=["once it has joined", "before it knows that it is connected"]
)
def test_a_full_server_reports_it_to_the_client(start_server, call, tmp_path, joined):
    """One decoder of PocketSphinx, two calls. The second caller learns that all lines are busy, at
    its offer or after it has connected. It never gets a call without speech-to-text."""
    env = {
        "VISAVIS_STT_POOL": "1",
        "VISAVIS_TIMEOUTS_OFFER": "120",
        "VISAVIS_MODELS_DIR": str(models_without_moonshine(tmp_path)),
    }
    server = start_server("full", env=env).read_first_start().wait_ready()
    agent = server.create_agent()
    first = call().open(server.create_conversation(agent["id"])["join_link"])
    waiting = server.create_conversation(agent["id"])
    second = call()
    # The page waits for its answer as long as the first call takes to join.
    second.page.add_init_script("""AbortSignal.timeout = () => new AbortController().signal;
        const set = window.setTimeout;
        window.setTimeout = (what, ms, ...more) =>
          set(what, ms >= 10_000 ? 120_000 : ms, ...more);""")
    if not joined:
        second.page.add_init_script("""const add = EventTarget.prototype.addEventListener;
            RTCPeerConnection.prototype.addEventListener = function (kind, ...more) {
              if (kind !== 'connectionstatechange') add.call(this, kind, ...more); };""")
    second.open(waiting["join_link"])
    statuses = []

    def answer_offer(route):
        """The second offer is answered while there is capacity. The first call takes the decoder
        before the answer arrives."""
        answer = route.fetch()
        statuses.append(answer.status)
        first.join()
        route.fulfill(response=answer)

    second.page.route("**/rtc/*", answer_offer, times=1)
    second.page.click("#join")
    second.page.wait_for_selector("#over-title:has-text('All lines are busy')")
    assert statuses == [201]
    second.save_screenshot("full")
    assert (
        server.request("GET", f"/v1/ext/conversation/{waiting['id']}").json()["status"] == "STARTED"
    )
    second.page.click("#again")
    second.page.wait_for_selector("#problem:has-text('All lines are busy')")
    first.page.click("#hang-up")
    first.page.wait_for_selector("#over-title:has-text('You hung up')")
    # The page reports the end before the server has released the decoder.
    wait_until_ready(server, 200)
    second.page.click("#join")
    if joined:
        second.wait_for("frames", {"more": 1})


def wait_until_ready(
    server, status: int, reason: str | None = None, timeout: float = typed_call.TEST_TIMEOUT
):
    def answer():
        return server.request("GET", "/readyz", key=None)

    def matching():
        reply = answer()
        return (
            reply
            if reply.status == status and reason in (None, reply.json().get("reason"))
            else None
        )

    return wait_until(
        matching, lambda: f"{status} of /readyz: {answer()}\n{server.log_tail()}", timeout
    )


def check_full_disk(server, hooks, fill, free):
    """Two calls run while nothing can be written for a while. Nothing is lost, no success is
    reported, and nothing needs a restart."""
    knowledge = "The museum has an old clock in the first room. The garden has red roses."
    agent = typed_call.create_typed_agent(server, knowledge=knowledge, hooks=hooks)
    first, second = server.create_conversation(agent["id"]), server.create_conversation(agent["id"])

    async def work():
        one = await typed_call.TypedCall(server, first).connect()
        other = await typed_call.TypedCall(server, second).connect()
        await one.ask("What is in the first room?", "old clock")
        fill()
        # The call continues, and its events wait.
        await one.ask("What is in the garden?", "red roses")
        # A server that lacks CPU time for a moment is not ready either.
        reply = await asyncio.to_thread(
            wait_until_ready, server, 503, "the store accepts no writes"
        )
        assert reply.json()["status"] == "not ready", reply
        for method, path, body in (
            ("POST", "/v1/ext/conversation", {"agent_id": agent["id"]}),
            ("DELETE", f"/v1/conversation/{second['id']}", None),
        ):
            reply = await asyncio.to_thread(server.request, method, path, body)
            assert reply.status == 503 and reply.headers["retry-after"] == "2", (path, reply)
        await other.wait_for(
            lambda: other.find_message(event="call_ended"), what="the requested end"
        )
        await one.ask("And what is in the first room?", "old clock")
        free()
        await asyncio.to_thread(wait_until_ready, server, 200)
        await one.hang_up()
        await other.peer.close()

    typed_call.run_async(work())
    for conversation in (first, second):
        hooks.wait_for(conversation["id"], "call_ended")
        numbers = [event["sequence"] for event in hooks.events_of(conversation["id"])]
        assert numbers == list(range(1, len(numbers) + 1)), numbers
    user_texts = [
        entry["content"]
        for entry in server.wait_for(first["id"], "ENDED")["transcript"]
        if entry["role"] == "user"
    ]
    assert user_texts == [
        "What is in the first room?",
        "What is in the garden?",
        "And what is in the first room?",
    ]
    reply = server.request("DELETE", f"/v1/conversation/{second['id']}")
    assert reply.status == 200, reply
    assert not hooks.errors, hooks.errors


def test_a_store_that_cannot_be_written_for_a_while_loses_nothing(start_server, webhooks, tmp_path):
    """The test lowers the file-size limit of the running server to zero. Every write to a file
    fails, including the log's."""
    # The recognizer is not used, so one decoder is enough.
    server = (
        start_server("full", data=tmp_path, env={"VISAVIS_STT_POOL": "1"})
        .read_first_start()
        .wait_ready()
    )
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)

    def limit(soft):
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (soft, hard))

    check_full_disk(server, webhooks, lambda: limit(0), lambda: limit(hard))
    assert server.is_alive(), server.log_tail()


@pytest.mark.long("store")
def test_a_full_disk_that_gets_room_again_loses_nothing(start_server, webhooks, tmp_path):
    """A file system of 48 MiB. Not every machine grants the right to mount one."""
    disk, filler = tmp_path / "disk", tmp_path / "disk" / "filler"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    ).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        (disk / "data").mkdir(mode=0o700)
        server = start_server("full", data=disk / "data").read_first_start().wait_ready()

        def fill():
            with filler.open("wb") as file, pytest.raises(OSError):
                while True:
                    file.write(bytes(1 << 16))
                    file.flush()

        check_full_disk(server, webhooks, fill, filler.unlink)
        server.stop()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
