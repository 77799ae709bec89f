"""Faults in LiveKit rooms: lost sockets, lost callers, hostile jobs and floods. The restart of a
livekit-server is in test_livekit.py, and lost jobs are in test_livekit_workers.py."""

import asyncio
import contextlib
import dataclasses

import numpy as np
import pytest
from livekit import rtc

from kit import audio_match
from kit.livekit_client import CHAT, INTERRUPT, LiveKitCaller
from kit.livekit_process import CallerProcess
from kit.livekit_rooms import (
    AGENT_NAME,
    ANSWER,
    GREETING,
    STORY,
    create_agent,
    create_room,
    read_conversation,
    start_worker,
    wait_for_status,
    wait_registered,
)
from kit.livekit_server import LiveKitApi, LiveKitServer, run
from kit.polling import wait_until
from kit.recording_file import download, wait_for_recording
from kit.server import Server
from kit.tcp_relay import HttpRelay

pytestmark = pytest.mark.long("livekit")

QUESTION, TELL = "How many apple trees are there?", "Please tell me a story about your garden."
#: The path of a participant's socket.
SOCKET = "/rtc/v1"
#: Seconds after which no test counts on a timeout.
NEVER = 3600
#: Messages and tracks of a flood, and by how many MB the server may grow by it.
FLOOD, TRACKS, MAX_GROWTH = 500, 50, 64


@pytest.fixture(scope="module")
def livekit():
    with LiveKitServer("livekit-faults") as server:
        yield server


@pytest.fixture(scope="module")
def rooms(start_server, livekit):
    """A server of ours that serves the rooms. The kit lifts the limit of typed questions."""
    env = {"VISAVIS_LIMITS_LOAD": "0", "VISAVIS_LIMITS_QUESTIONS": "1"}
    return start_worker(start_server, livekit, "faults", env)


@contextlib.contextmanager
def joined(livekit: LiveKitServer, created: dict, **more):
    """A caller in the room of a conversation, with the Python SDK, whom the agent has greeted."""
    token = created["livekit"]["participant_token"]
    with LiveKitCaller(livekit, token=token, **more) as caller:
        caller.wait_for_caption(caller.wait_for_agent().identity, text=GREETING)
        yield caller


def expect_answer(caller: LiveKitCaller):
    """Asks, and checks that the agent answers with sound and caption."""

    def answers() -> list:
        return [one for one in caller.captions() if ANSWER in one.text and one.is_final]

    agent, before = caller.agent().identity, len(answers())
    said = caller.speak(QUESTION)
    caller.wait_for_sound(agent, after=said.end)
    caller.wait(lambda: len(answers()) > before, "the answer")
    expect_speech(caller.audio_of(agent).samples(said.end), ANSWER)


def expect_speech(samples: np.ndarray, text: str, share: float = audio_match.MIN_SHARE):
    """Checks that samples at 48 kHz contain the text in the agent's voice."""
    (arrival,) = audio_match.match_page_audio([text], "slt", samples)
    audio_match.expect_arrival(arrival, text, share)


def expect_another_call(livekit: LiveKitServer, server, scripted_llm):
    """Checks that the server is ready and serves one more room."""
    assert server.request("GET", "/readyz").status == 200
    created = create_room(server, create_agent(server, scripted_llm))
    with joined(livekit, created) as caller:
        expect_answer(caller)


# --- The socket of the participant ----------------------------------------------------------------


@dataclasses.dataclass
class RelayedCall:
    """A call in a room whose server of ours reaches LiveKit by a relay. The caller does not."""

    livekit: LiveKitServer
    server: Server
    relay: HttpRelay
    conversation: str
    caller: LiveKitCaller

    def sockets(self) -> int:
        """How often the agent has opened its socket."""
        return self.relay.forwarded.count(SOCKET)

    def wait_for_socket(self, before: int):
        wait_until(lambda: self.sockets() > before, f"a new socket\n{self.server.log_tail()}")

    def expect_one_stay(self):
        """Checks that nobody has noticed the fault: the agent has not left its room."""
        agent, received = self.caller.agent().identity, self.caller.received
        assert [how for _, who, how in received.participants if who == agent] == ["joined"]
        assert [what for _, what in received.connection] == ["connected"]
        assert read_conversation(self.server, self.conversation)["status"] == "IN_PROGRESS"


@pytest.fixture
def relayed(start_server, scripted_llm, request):
    # Each test counts in a log of its own.
    name = request.node.name.removeprefix("test_")

    def script(llm_request: dict) -> list:
        return [STORY if "story" in str(llm_request["messages"][-1]) else ANSWER]

    with LiveKitServer(f"livekit-{name}") as livekit, HttpRelay(livekit.port) as relay:
        server = start_worker(start_server, livekit, name, {"LIVEKIT_URL": relay.url})
        llm = {"provider": "custom", "url": scripted_llm(script).base_url, "model": "scripted"}
        agent = server.create_agent(name="Monica", llm=llm, greeting=GREETING, voice="slt")
        created = create_room(server, agent)
        with joined(livekit, created) as caller:
            yield RelayedCall(livekit, server, relay, created["id"], caller)


def test_a_cut_socket_interrupts_nothing(relayed):
    caller, agent = relayed.caller, relayed.caller.agent().identity
    said = caller.speak(TELL)
    caller.wait_for_caption(agent, text="This is a long story", final=False)
    before = relayed.sockets()
    relayed.relay.cut()
    relayed.wait_for_socket(before)
    caller.wait_for_caption(agent, text=STORY)
    caller.wait_for_silence(agent, after=said.end)
    expect_speech(caller.audio_of(agent).samples(said.end), STORY, audio_match.STRICT_SHARE)
    expect_answer(caller)
    relayed.expect_one_stay()
    record = read_conversation(relayed.server, relayed.conversation)
    texts = [one["content"] for one in record["transcript"] if one["role"] == "assistant"]
    assert texts == [GREETING, STORY, ANSWER], texts


def test_a_call_goes_on_while_the_livekit_server_refuses_sockets(relayed, scripted_llm):
    relay, server, before = relayed.relay, relayed.server, relayed.sockets()
    registrations = server.log.read_text().count("registered with LiveKit worker=")
    relay.refuse()
    wait_until(lambda: relay.refused.count(SOCKET) >= 4, "four attempts")
    # Sound and data need no socket.
    expect_answer(relayed.caller)
    relay.resume()
    relayed.wait_for_socket(before)
    expect_answer(relayed.caller)
    relayed.expect_one_stay()
    wait_registered(server, registrations + 1)
    expect_another_call(relayed.livekit, server, scripted_llm)


def test_a_call_goes_on_while_the_network_to_the_livekit_server_is_cut(relayed, scripted_llm):
    relay, server, before = relayed.relay, relayed.server, relayed.sockets()
    relay.freeze()
    expect_answer(relayed.caller)
    lost = "the connection to the LiveKit server is lost"
    wait_until(lambda: lost in server.log.read_text(), server.log_tail)
    relay.resume()
    relayed.wait_for_socket(before)
    expect_answer(relayed.caller)
    relayed.expect_one_stay()
    expect_another_call(relayed.livekit, server, scripted_llm)


# --- The end of a call ----------------------------------------------------------------------------


@pytest.fixture
def start_with_timeouts(start_server):
    """Starts a livekit-server and a server of ours for it."""
    with contextlib.ExitStack() as servers:

        def start(name: str, closed: float, silence: float) -> tuple[LiveKitServer, Server]:
            # An empty room stays, so that only our own timeouts end its call.
            room = {"departure_timeout": NEVER}
            livekit = servers.enter_context(LiveKitServer(f"livekit-{name}", room=room))
            env = {
                "VISAVIS_TIMEOUTS_CLOSED": str(closed),
                "VISAVIS_TIMEOUTS_SILENCE": str(silence),
            }
            return livekit, start_worker(start_server, livekit, name, env)

        yield start


def create_patient_agent(server, scripted_llm) -> dict:
    """An agent that says nothing by itself."""
    return create_agent(server, scripted_llm, avatar={"idle_timeout": {"timeout": 0}})


def lose_caller(livekit: LiveKitServer, created: dict):
    """Kills a caller and waits until LiveKit has noticed it, which takes it some 20 s."""
    access = created["livekit"]
    with CallerProcess(livekit, access["participant_token"]) as caller:
        caller.wait_for_greeting()
        caller.kill()
    api = LiveKitApi(livekit)

    def callers() -> list[dict]:
        found = api.list_participants(access["room_name"])
        return [one for one in found if one.get("kind") != "AGENT"]

    wait_until(lambda: not callers(), lambda: f"the caller is gone: {callers()}")


def expect_return(livekit: LiveKitServer, server, created: dict):
    """The call has not ended: the caller comes back and is answered."""
    assert read_conversation(server, created["id"])["status"] == "IN_PROGRESS"
    token = created["livekit"]["participant_token"]
    with LiveKitCaller(livekit, token=token) as caller:
        caller.wait_for_agent()
        expect_answer(caller)
        record = read_conversation(server, created["id"])
        roles = [entry["role"] for entry in record["transcript"]]
        assert roles == ["assistant", "user", "assistant"], record["transcript"]


def test_a_caller_who_leaves_ends_the_call_and_a_lost_one_does_not(
    start_with_timeouts, scripted_llm
):
    livekit, server = start_with_timeouts("leaves", closed=1, silence=NEVER)
    agent = create_patient_agent(server, scripted_llm)
    lost, left = create_room(server, agent), create_room(server, agent)
    lose_caller(livekit, lost)
    # Its end proves that `timeouts.closed` has passed for the other call, too.
    with joined(livekit, left):
        pass
    ended = wait_for_status(server, left["id"], "ENDED")
    assert ended["end_reason"] == "user_left", ended
    expect_return(livekit, server, lost)
    ended = wait_for_status(server, lost["id"], "ENDED")
    assert ended["end_reason"] == "user_left", ended


def test_a_lost_caller_counts_as_silence_and_one_who_leaves_does_not(
    start_with_timeouts, scripted_llm
):
    livekit, server = start_with_timeouts("lost", closed=NEVER, silence=5)
    agent = create_patient_agent(server, scripted_llm)
    lost, left = create_room(server, agent), create_room(server, agent)
    with joined(livekit, left):
        pass
    lose_caller(livekit, lost)
    ended = wait_for_status(server, lost["id"], "ENDED")
    assert ended["end_reason"] == "user_left", ended
    expect_return(livekit, server, left)


# --- Hostile input --------------------------------------------------------------------------------


def test_hostile_jobs_fail_and_the_server_keeps_working(rooms, scripted_llm, livekit):
    api, agent = LiveKitApi(livekit), create_agent(rooms, scripted_llm)
    foreign = create_agent(rooms.with_workspace(), scripted_llm)
    malformed = "not the expected JSON object"
    jobs = {
        "foreign": ({"agent_id": foreign["id"]}, "Agent details not found"),
        "nested": ("[" * 60_000, malformed),
        "deep": ('{"context":' * 5_000, malformed),
        "control": ('{"agent_id": "\x00"}', malformed),
        "wrong": ({"agent_id": agent["id"], "meta_data": "x" * 60_000}, malformed),
    }
    for room, (metadata, _) in jobs.items():
        api.create_dispatch(room, AGENT_NAME, metadata)
    for room, (_, sentence) in jobs.items():
        wait_until(
            lambda room=room, sentence=sentence: any(
                f'room="{room}"' in line and sentence in line
                for line in rooms.log.read_text().splitlines()
            ),
            lambda room=room: f"the failure of {room}\n{rooms.log_tail()}",
        )
        assert api.list_participants(room) == []
    # What participants say about themselves is no job.
    claims = {"agent_id": foreign["id"], "user_id": "boss"}
    job = {"agent_id": agent["id"], "user_id": "u-7", "context": "x" * 60_000}
    api.create_dispatch("claims", AGENT_NAME, job)
    own = {"metadata": str(claims), "attributes": {"agent_id": foreign["id"], "user_id": "boss"}}
    with LiveKitCaller(livekit, "claims", **own) as caller:
        caller.wait_for_caption(caller.wait_for_agent().identity, text=GREETING)
        listed = rooms.request("GET", "/v1/ext/conversation?limit=1").json()
        record = wait_for_status(rooms, listed[0]["id"], "IN_PROGRESS")
        assert (record["user_id"], record["agent_id"]) == ("u-7", agent["id"]), record
    expect_another_call(livekit, rooms, scripted_llm)


def flood(request, count: int = FLOOD) -> list:
    """The results of so many concurrent requests of a participant, which may be exceptions.
    `request(n)` is a coroutine of the SDK."""
    return run(gather(request, count), 120)


async def gather(request, count: int) -> list:
    return await asyncio.gather(*map(request, range(count)), return_exceptions=True)


@contextlib.contextmanager
def bounded_memory(server):
    """Checks that the server does not grow by what it receives."""
    before = server.rss_mb()
    yield
    assert server.rss_mb() - before < MAX_GROWTH, (before, server.rss_mb())


def test_a_flood_of_chat_messages_does_no_harm(rooms, scripted_llm, livekit):
    with joined(livekit, create_room(rooms, create_agent(rooms, scripted_llm))) as caller:
        expect_answer(caller)
        with bounded_memory(rooms):
            us, text = caller.room.local_participant, f"{QUESTION} " * 500
            sent = flood(lambda _: us.send_text(text, topic=CHAT))
            assert not [one for one in sent if isinstance(one, Exception)], sent
            expect_another_call(livekit, rooms, scripted_llm)
        assert caller.interrupt() == "ok"
        expect_answer(caller)


def test_a_flood_of_procedure_calls_does_no_harm(rooms, scripted_llm, livekit):
    with joined(livekit, create_room(rooms, create_agent(rooms, scripted_llm))) as caller:
        expect_answer(caller)
        with bounded_memory(rooms):
            us, agent = caller.room.local_participant, caller.agent().identity
            called = flood(
                lambda n: us.perform_rpc(
                    destination_identity=agent,
                    method=(INTERRUPT, "visavis.unknown")[n % 2],
                    payload="x" * 10_000,
                    response_timeout=10,
                )
            )
            assert all(one == "ok" or isinstance(one, rtc.RpcError) for one in called), called
            # Those beyond the limit of the rate have no effect, and are answered nevertheless.
            errors = {one.message for one in called[::2] if isinstance(one, rtc.RpcError)}
            assert "ok" in called[::2] and errors == {"Too many requests"}, called
            expect_another_call(livekit, rooms, scripted_llm)
        assert caller.interrupt() == "ok"
        expect_answer(caller)


def publish_tracks(caller: LiveKitCaller, count: int) -> list[rtc.LocalTrackPublication]:
    async def publish(number: int):
        source = rtc.AudioSource(48_000, 1)
        track = rtc.LocalAudioTrack.create_audio_track(f"flood-{number}", source)
        return await caller.room.local_participant.publish_track(track)

    published = flood(publish, count)
    assert not [one for one in published if isinstance(one, Exception)], published
    return published


def unpublish_tracks(caller: LiveKitCaller, publications: list[rtc.LocalTrackPublication]):
    async def unpublish(number: int):
        await caller.room.local_participant.unpublish_track(publications[number].sid)

    failed = flood(unpublish, len(publications))
    assert not any(failed), failed


def test_a_flood_of_tracks_does_no_harm(rooms, scripted_llm, livekit):
    with joined(livekit, create_room(rooms, create_agent(rooms, scripted_llm))) as caller:
        expect_answer(caller)
        with bounded_memory(rooms):
            tracks = publish_tracks(caller, TRACKS)
            expect_another_call(livekit, rooms, scripted_llm)
            expect_answer(caller)
            unpublish_tracks(caller, tracks)
            for _ in range(TRACKS):
                unpublish_tracks(caller, publish_tracks(caller, 1))
            expect_answer(caller)


def test_a_person_is_heard_once_a_flood_of_tracks_is_over(rooms, scripted_llm, livekit):
    """Of so many tracks, not all are heard."""
    created = create_room(rooms, create_agent(rooms, scripted_llm))
    with joined(livekit, created, microphone=False) as flooder:
        tracks = publish_tracks(flooder, TRACKS)
        with LiveKitCaller(livekit, created["livekit"]["room_name"], "tom", name="Tom") as tom:
            tom.wait_for_agent()
            unpublish_tracks(flooder, tracks)
            tom.speak("I would like to visit the museum on Sunday.")
            tom.wait_for_caption("tom")


# --- Recordings -----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_watched", [True, False], ids=["watched", "unwatched"])
def test_a_recorded_call_has_both_sides_and_pictures(rooms, scripted_llm, livekit, is_watched):
    config = {"recording": {"channels": "split"}}
    agent = create_agent(rooms, scripted_llm, config=config, extra={"record": True})
    created = create_room(rooms, agent)
    with joined(livekit, created, auto_subscribe=is_watched) as caller:
        caller.speak(QUESTION, voice="rms")
        caller.wait_for_caption(caller.agent().identity, text=ANSWER)
    ended = wait_for_status(rooms, created["id"], "ENDED")
    assert ended["is_recorded"], ended
    recording = download(rooms, wait_for_recording(rooms, created["id"]))
    for text, voice, channel in [
        (GREETING, "slt", recording.agent),
        (ANSWER, "slt", recording.agent),
        (QUESTION, "rms", recording.user),
    ]:
        (reference,) = audio_match.synthesize([text], voice)
        audio_match.expect_arrival(audio_match.match(reference, channel), text)
    assert recording.pictures[0] < 1 and np.diff(recording.pictures).max() < 1
    assert recording.duration - recording.pictures[-1] < 1
