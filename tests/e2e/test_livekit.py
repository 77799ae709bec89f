"""Calls in LiveKit rooms, with a real livekit-server and LiveKit's official clients."""

import contextlib

import numpy as np
import pytest

from kit import audio_match, livekit_client, speech
from kit.livekit_client import LiveKitCaller
from kit.livekit_pages import LiveKitPages
from kit.livekit_rooms import (
    AGENT_NAME,
    ANSWER,
    GREETING,
    STORY,
    create_agent,
    create_room,
    lost_jobs,
    metrics,
    start_worker,
    wait_for_status,
    wait_registered,
)
from kit.livekit_server import LiveKitApi, LiveKitServer, create_token
from kit.polling import wait_until

LONG = pytest.mark.long("livekit")


@pytest.fixture(scope="module")
def livekit():
    with LiveKitServer("livekit") as server:
        yield server


@pytest.fixture
def api(livekit):
    return LiveKitApi(livekit)


@pytest.fixture(scope="module")
def rooms(start_server, livekit):
    """A server of ours that serves the rooms."""
    return start_worker(start_server, livekit)


@pytest.fixture
def join(livekit):
    """Joins rooms as a caller with the Python SDK."""
    with contextlib.ExitStack() as callers:
        yield lambda *where, **more: callers.enter_context(LiveKitCaller(livekit, *where, **more))


@pytest.fixture
def pages():
    site = LiveKitPages()
    yield site
    site.close()


def expect_speech(samples: np.ndarray, text: str):
    """Checks that the built-in voice says the text."""
    sent, rate = speech.flite(text, "slt")
    sent = livekit_client.resample(speech.trim_silence(sent), rate)
    audio_match.expect_arrival(audio_match.match(sent, samples), text)


def test_a_visitor_in_chromium_talks_to_the_agent_of_a_room(
    rooms, scripted_llm, livekit, call, pages
):
    created = create_room(rooms, create_agent(rooms, scripted_llm))
    page = pages.open(call)
    page.join(livekit, created["livekit"]["participant_token"])
    page.wait_for("state.captions.some(c => c.text.includes('nice to meet you'))")
    page.call.speak("How many apple trees are there?")
    page.wait_for("state.captions.some(c => c.text.includes('forty two'))")
    page.wait_for("state.frames > 25")
    record = wait_for_status(rooms, created["id"], "IN_PROGRESS")
    assert [entry["role"] for entry in record["transcript"]] == ["assistant", "user", "assistant"]
    page.leave()
    ended = wait_for_status(rooms, created["id"], "ENDED")
    assert ended["end_reason"] == "user_left", ended


@LONG
def test_states_captions_and_video_follow_the_call(rooms, scripted_llm, join):
    created = create_room(rooms, create_agent(rooms, scripted_llm))
    caller = join(token=created["livekit"]["participant_token"])
    agent = caller.wait_for_agent().identity
    greeting = caller.wait_for_caption(agent, text=GREETING)
    said = caller.speak("How many apple trees are there?")
    caller.wait_for_state("thinking", after=said.start)
    answer = caller.wait_for_caption(agent, text=ANSWER)
    assert greeting.segment != answer.segment
    states = [state for _, state in caller.states(agent)]
    assert states[0] == "listening" and {"thinking", "speaking"} <= set(states)
    # The words appear while the agent speaks, and the last one at its end.
    sound = caller.wait_for_sound(agent, after=said.end)
    assert answer.chunks[0][0] > sound and len(answer.chunks) > 2, answer
    words = caller.captions(caller.identity)
    assert words and words[-1].is_final and len({one.segment for one in words}) == 1
    older = [found for _, _, _, segments in caller.received.transcriptions for found in segments]
    assert any(one.text == ANSWER and one.final for one in older), older
    expect_speech(caller.audio_of(agent).samples(said.end), ANSWER)
    caller.wait_for_frames(50)


@LONG
def test_unmodified_components_show_state_captions_and_video(
    rooms, scripted_llm, livekit, call, pages
):
    created = create_room(rooms, create_agent(rooms, scripted_llm))
    page = pages.open(call, "components")
    page.join(livekit, created["livekit"]["participant_token"])
    page.wait_for(f"state.captions?.some((one) => one.text === {GREETING!r})")
    page.wait_for("state.agent.state === 'listening' && state.assistant.state === 'listening'")
    page.call.speak("How many apple trees are there?")
    page.wait_for("state.agent.state === 'speaking' && state.assistant.state === 'speaking'")
    page.wait_for(f"state.captions.some((one) => one.text === {ANSWER!r})")
    final = f"(one) => one.text === {ANSWER!r} && one.final"
    page.wait_for(f"state.assistant.transcriptions.some({final})")
    page.wait_for("state.frames > 50")
    shown = page.state()
    assert shown["agent"]["identity"] == shown["assistant"]["identity"]
    assert shown["assistant"]["audio"] and shown["assistant"]["video"], shown
    assert shown["agent"]["failureReasons"] is None, shown
    page.leave()
    wait_for_status(rooms, created["id"], "ENDED")
    assert page.call.browser_errors == []


@LONG
def test_an_interrupted_caption_stops_at_the_heard_word(rooms, scripted_llm, join):
    created = create_room(rooms, create_agent(rooms, scripted_llm, STORY))
    caller = join(token=created["livekit"]["participant_token"])
    agent = caller.wait_for_agent().identity
    caller.wait_for_caption(agent, text=GREETING)
    caller.speak("Please tell me a story about your garden.")
    caller.wait_for_caption(agent, text="This is a long story", final=False)
    said = caller.speak("Stop it please, that is enough for me today.")
    silent = caller.wait_for_silence(agent, after=said.start)
    assert silent < said.end, "the agent stops while the caller speaks"
    caption = caller.wait_for_caption(agent, text="This is a long story")
    assert STORY.startswith(caption.text) and len(caption.text) < len(STORY), caption
    record = wait_for_status(rooms, created["id"], "IN_PROGRESS")
    assert caption.text in [entry["content"] for entry in record["transcript"]]


@LONG
def test_people_type_and_call_procedures(rooms, scripted_llm, join):
    created = create_room(rooms, create_agent(rooms, scripted_llm, STORY))
    caller = join(token=created["livekit"]["participant_token"], microphone=False)
    agent = caller.wait_for_agent().identity
    caller.wait_for_caption(agent, text=GREETING)
    caller.send_chat("Tell me a story about your garden.")
    caller.wait_for_caption(agent, text="This is a long story", final=False)
    assert caller.interrupt() == "ok"
    message = caller.wait_for_chat(agent)
    assert message.text and STORY.startswith(message.text)
    caller.wait_for_event("agent.interrupted")
    with pytest.raises(Exception, match=r"not supported|UNSUPPORTED_METHOD|1400"):
        caller.rpc("visavis.unknown")
    assert caller.end() == "ok"
    wait_for_status(rooms, created["id"], "ENDED")
    caller.wait_for_end()


@LONG
def test_a_dispatch_names_its_agent_and_the_caller(rooms, scripted_llm, join, api, livekit):
    agent = create_agent(rooms, scripted_llm)
    metadata = {
        "agent_id": agent["id"],
        "user_id": "u-7",
        "user_name": "Maria",
        "context": {"plan": "gold"},
        "meta_data": {"order": 7},
    }
    api.create_dispatch("dispatched", AGENT_NAME, metadata)
    caller = join("dispatched", "maria", name="Maria")
    caller.wait_for_caption(caller.wait_for_agent().identity, text=GREETING)
    listed = rooms.request("GET", "/v1/ext/conversation?limit=1").json()
    record = wait_for_status(rooms, listed[0]["id"], "IN_PROGRESS")
    assert (record["user_id"], record["user_name"]) == ("u-7", "Maria")
    assert record["meta_data"] == {"order": 7}
    caller.leave()
    wait_for_status(rooms, record["id"], "ENDED")
    # By the caller's token, which creates the room.
    token = create_token(
        livekit, "by-token", agent=AGENT_NAME, job_metadata={"agent_id": agent["id"]}
    )
    caller = join(token=token)
    caller.wait_for_caption(caller.wait_for_agent().identity, text=GREETING)


@LONG
def test_a_job_that_cannot_be_served_fails_with_a_sentence(rooms, scripted_llm, api, join):
    for number, (metadata, sentence) in enumerate(
        [
            ("", "name no agent_id, and livekit.default_agent is not set"),
            ("{", "not the expected JSON object"),
            ({"agent_id": "00000000-0000-4000-8000-000000000000"}, "Agent details not found"),
            ({"agent_id": 7}, "not the expected JSON object"),
            ({"agent_id": "x" * 60_000}, "Agent details not found"),
            ({"conversation_id": "00000000-0000-4000-8000-000000000000"}, "does not belong"),
        ]
    ):
        room = f"fails-{number}"
        api.create_dispatch(room, AGENT_NAME, metadata)
        wait_until(
            lambda room=room, sentence=sentence: any(
                f'room="{room}"' in line and sentence in line
                for line in rooms.log.read_text().splitlines()
            ),
            lambda sentence=sentence: f"{sentence}\n{rooms.log_tail()}",
        )
        assert api.list_participants(room) == []


@LONG
def test_several_people_in_a_room(rooms, scripted_llm, join):
    created = create_room(rooms, create_agent(rooms, scripted_llm))
    room = created["livekit"]["room_name"]
    maria = join(token=created["livekit"]["participant_token"])
    agent = maria.wait_for_agent().identity
    maria.wait_for_caption(agent, text=GREETING)
    tom = join(room, "tom", name="Tom")
    tom.wait_for_agent()
    # Nobody addresses the agent.
    tom.speak("I would like to visit the museum on Sunday.")
    tom.wait_for_caption("tom")
    said = tom.speak("Monica, how many apple trees are there?")
    tom.wait_for_sound(agent, after=said.end)
    tom.wait_for_caption(agent, text=ANSWER)
    record = wait_for_status(rooms, created["id"], "IN_PROGRESS")
    users = [entry for entry in record["transcript"] if entry["role"] == "user"]
    assert {entry.get("speaker") for entry in users} == {"Tom"}, users
    answers = [entry for entry in record["transcript"] if entry["role"] == "assistant"]
    assert len(answers) == 2, record["transcript"]
    tom.leave()
    maria.wait_for_event("participant_left")
    maria.leave()
    ended = wait_for_status(rooms, created["id"], "ENDED")
    assert ended["end_reason"] == "user_left"


@LONG
def test_no_video_is_sent_while_nobody_watches(rooms, scripted_llm, join, livekit):
    created = create_room(rooms, create_agent(rooms, scripted_llm))
    access = created["livekit"]
    caller = join(token=access["participant_token"], auto_subscribe=False)
    caller.wait_for_agent()
    caller.wait_for_caption(caller.agent().identity, text=GREETING)

    before = video_frames(rooms)
    caller.speak("How many apple trees are there?")
    caller.wait_for_caption(caller.agent().identity, text=ANSWER)
    # Those before LiveKit has reported that nobody subscribes.
    assert video_frames(rooms) - before < 5
    caller.subscribe_to_video()
    caller.wait_for_frames(25)
    assert video_frames(rooms) - before > 20


def video_frames(server) -> float:
    text = server.request("GET", "/metrics").body.decode()
    (line,) = [one for one in text.splitlines() if one.startswith("visavis_video_frames_total")]
    return float(line.rsplit(" ", 1)[1])


@LONG
def test_a_lost_socket_and_a_lost_server_are_survived(start_server, scripted_llm):
    with LiveKitServer("livekit-lost") as livekit:
        server = start_worker(start_server, livekit, "lost")
        created = create_room(server, create_agent(server, scripted_llm))
        with LiveKitCaller(livekit, token=created["livekit"]["participant_token"]) as caller:
            agent = caller.wait_for_agent().identity
            caller.wait_for_caption(agent, text=GREETING)
            livekit.restart()
            wait_registered(server, 2)
            caller.wait(lambda: len(caller.agents()) == 1, "the agent is back")
            said = caller.speak("How many apple trees are there?")
            caller.wait_for_sound(caller.agent().identity, after=said.end)
            caller.wait_for_caption(caller.agent().identity, text=ANSWER)
            record = wait_for_status(server, created["id"], "IN_PROGRESS")
            roles = [entry["role"] for entry in record["transcript"]]
            assert roles == ["assistant", "user", "assistant"], record["transcript"]


@LONG
def test_a_room_whose_job_was_lost_gets_an_agent(start_server, scripted_llm):
    """No worker is there at the dispatch."""
    with LiveKitServer("livekit-late") as livekit:
        server = start_worker(start_server, livekit, "late")
        agent = create_agent(server, scripted_llm)
        key, data = server.key, server.data
        server.stop()
        token = create_token(
            livekit, "late", agent=AGENT_NAME, job_metadata={"agent_id": agent["id"]}
        )
        with LiveKitCaller(livekit, token=token) as caller:
            env = livekit.environment() | {"VISAVIS_SERVER_METRICS_TOKEN": "metrics"}
            server = start_server("late", data=data, env=env).wait_ready()
            server.key = key
            caller.wait_for_caption(caller.wait_for_agent().identity, text=GREETING)
            assert lost_jobs(server) == {"no_worker": 1}
            assert metrics(server)["visavis_livekit_rooms"] == 1


@LONG
def test_a_wrong_secret_ends_the_server_with_a_sentence(start_server, livekit):
    env = livekit.environment() | {"LIVEKIT_API_SECRET": "wrong" * 8}
    server = start_server("wrong-secret", env=env)
    assert server.process.wait(30) == 1
    assert "refuses the worker: the API key or the secret is wrong" in server.log.read_text()
