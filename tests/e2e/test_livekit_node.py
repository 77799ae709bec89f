"""A call in a LiveKit room with LiveKit's official client for Node."""

import pytest

from kit import audio_match, speech
from kit.livekit_node import NodeCaller
from kit.livekit_rooms import (
    ANSWER,
    GREETING,
    create_agent,
    create_room,
    start_worker,
    wait_for_status,
)
from kit.livekit_server import LiveKitServer
from kit.polling import wait_until

pytestmark = pytest.mark.long("livekit")

#: The kind `agent` of participants, as a number.
AGENT_KIND = 4


def test_the_node_client_talks_to_the_agent_of_a_room(start_server, scripted_llm, tmp_path):
    with LiveKitServer("livekit-node") as livekit:
        server = start_worker(start_server, livekit, "node")
        created = create_room(server, create_agent(server, scripted_llm))
        token = created["livekit"]["participant_token"]
        with NodeCaller(livekit, token, tmp_path / "sound.pcm") as caller:
            agent = caller.wait_for("participant", kind=AGENT_KIND)["identity"]
            caption = caller.wait_for(
                "text", topic="lk.transcription", identity=agent, text=GREETING
            )
            assert caption["attributes"]["lk.segment_id"]
            assert caption["attributes"]["lk.transcribed_track_id"].startswith("TR_")
            expect_speech(caller, GREETING)

            caller.send_chat("How many apple trees are there?")
            caller.wait_for("text", topic="lk.transcription", identity=agent, text=ANSWER)
            caller.wait_for("text", topic="lk.chat", identity=agent, text=ANSWER)
            expect_speech(caller, ANSWER)
            assert caller.states(agent)[0] == "listening"
            assert {"thinking", "speaking"} <= set(caller.states(agent))
            record = wait_for_status(server, created["id"], "IN_PROGRESS")
            roles = [entry["role"] for entry in record["transcript"]]
            assert roles == ["assistant", "user", "assistant"], record["transcript"]

            assert caller.leave() == 0, caller.describe()
        ended = wait_for_status(server, created["id"], "ENDED")
        assert ended["end_reason"] == "user_left", ended


def expect_speech(caller: NodeCaller, text: str):
    """Checks that the built-in voice has said the text. The sound of the last word may follow its
    caption."""
    end = len(caller.samples()) + speech.SAMPLE_RATE // 2
    wait_until(lambda: len(caller.samples()) >= end, lambda: f"sound\n{caller.describe()}")
    (arrival,) = audio_match.match_page_audio([text], "slt", caller.samples())
    audio_match.expect_arrival(arrival, text)
