"""The kit for calls in LiveKit rooms: two participants with the official SDK, LiveKit's public
clients in Chromium, and a real livekit-server. No server of ours takes part."""

import json

import numpy as np
import pytest
from livekit import rtc

from kit import audio_match, livekit_client, speech
from kit.livekit_client import LiveKitCaller
from kit.livekit_pages import LiveKitPages
from kit.livekit_server import (
    LiveKitApi,
    LiveKitServer,
    create_token,
    read_webhook,
    run,
    webhook_token,
)
from kit.receivers import MockServer

pytestmark = pytest.mark.long("livekit")

SENTENCES = "Good morning, this is the first participant.", "And I am the second one, good morning."
#: Size of the agent's picture.
WIDTH, HEIGHT = 320, 180


@pytest.fixture(scope="module")
def livekit():
    with LiveKitServer("livekit-kit") as server:
        yield server


class Webhooks(MockServer):
    """Receives the events of a livekit-server."""

    def __init__(self):
        super().__init__()
        self.deliveries: list[tuple[bytes, str]] = []

    def handle(self, request, body):
        with self.changed:
            self.deliveries.append((body, request.headers["authorization"]))
            self.changed.notify_all()
        self.reply(request, 200)

    def wait_for(self, event: str) -> tuple[bytes, str]:
        """The first delivery of such an event: its body and its token."""
        name = json.dumps(event).encode()
        return self.wait_until(
            lambda: next((one for one in self.deliveries if name in one[0]), None), 60, event
        )

    def describe(self):
        return self.deliveries


@pytest.fixture
def webhooks():
    receiver = Webhooks()
    yield receiver
    receiver.close()


@pytest.fixture
def pages():
    site = LiveKitPages()
    yield site
    site.close()


class Agent(LiveKitCaller):
    """A participant of the kind `agent` that does what the tests tell it."""

    def __init__(self, server: LiveKitServer, room: str):
        state = {livekit_client.STATE: "initializing"}
        super().__init__(server, room, "agent-1", kind="agent", attributes=state)

    def set_state(self, state: str):
        run(self.room.local_participant.set_attributes({livekit_client.STATE: state}))

    def write_caption(self, segment: str, words: list[str]):
        """Writes its own caption word by word."""

        async def write():
            attributes = {
                livekit_client.SEGMENT: segment,
                livekit_client.CAPTION_TRACK: self.microphone.sid,
                livekit_client.FINAL: "false",
            }
            writer = await self.room.local_participant.stream_text(
                topic=livekit_client.CAPTIONS, attributes=attributes
            )
            for word in words:
                await writer.write(word)
            await writer.aclose(attributes={livekit_client.FINAL: "true"})

        run(write())

    def write_caption_of(self, caller: str, segment: str, text: str, final: bool):
        """Writes a caption in the caller's name."""

        async def write():
            attributes = {
                livekit_client.SEGMENT: segment,
                livekit_client.FINAL: str(final).lower(),
            }
            writer = await self.room.local_participant.stream_text(
                topic=livekit_client.CAPTIONS, attributes=attributes, sender_identity=caller
            )
            await writer.write(text)
            await writer.aclose()

        run(write())

    def write_old_caption(self, segment: str, text: str):
        found = rtc.TranscriptionSegment(segment, text, 0, 0, "en", True)
        packet = rtc.Transcription(self.identity, self.microphone.sid, [found])
        run(self.room.local_participant.publish_transcription(packet))

    def answer_rpc(self, method: str, answer: str):
        async def register():
            self.room.local_participant.register_rpc_method(method, lambda _: answer)

        run(register())

    def publish_video(self) -> rtc.VideoSource:
        async def publish():
            source = rtc.VideoSource(WIDTH, HEIGHT)
            track = rtc.LocalVideoTrack.create_video_track("camera", source)
            options = rtc.TrackPublishOptions(source=rtc.TrackSource.SOURCE_CAMERA, simulcast=False)
            await self.room.local_participant.publish_track(track, options)
            return source

        return run(publish())


def send_pictures(source: rtc.VideoSource, until, what: str):
    """Sends a picture at each attempt until `until()` is true."""
    pixels = np.full((HEIGHT, WIDTH, 4), 128, np.uint8)
    frame = rtc.VideoFrame(WIDTH, HEIGHT, rtc.VideoBufferType.RGBA, pixels.tobytes())

    def attempt():
        source.capture_frame(frame)
        return until()

    livekit_client.wait_until(attempt, what)


def expect_sentence(samples: np.ndarray, text: str):
    """Checks that the sound of a sentence arrived."""
    sent, rate = speech.flite(text, "slt")
    sent = livekit_client.resample(speech.trim_silence(sent), rate)
    audio_match.expect_arrival(audio_match.match(sent, samples), text)


def test_two_participants_hear_each_other(livekit):
    with Agent(livekit, "sound") as agent, LiveKitCaller(livekit, "sound") as caller:
        caller.wait_for_agent()
        for speaker, listener, text in (
            (caller, agent, SENTENCES[0]),
            (agent, caller, SENTENCES[1]),
        ):
            said = speaker.speak(text)
            at = listener.wait_for_sound(speaker.identity, after=said.start)
            recording = listener.audio_of(speaker.identity)
            listener.wait(lambda r=recording, s=said: r.until() > s.end + 1, "the whole sentence")
            assert said.start < at < said.end
            expect_sentence(recording.samples(said.start), text)
        assert caller.wait_for_silence(after=said.start) >= said.end - 0.5
        (track,) = caller.inbound_rtp()
        assert track["packets_received"] > 50, track
        assert any("agent-1" in identities for _, identities in caller.received.speakers)


def test_a_caller_gets_captions_states_events_and_messages(livekit):
    with Agent(livekit, "texts") as agent, LiveKitCaller(livekit, "texts") as caller:
        caller.wait_for_agent()
        for state in ("listening", "thinking", "speaking"):
            agent.set_state(state)
            caller.wait_for_state(state)
        names = [state for _, state in caller.states("agent-1")]
        assert names == ["initializing", "listening", "thinking", "speaking"]

        agent.write_caption("A1", ["Good ", "morning."])
        caption = caller.wait_for_caption("agent-1")
        assert (caption.text, caption.segment) == ("Good morning.", "A1")
        assert caption.attributes[livekit_client.CAPTION_TRACK] == agent.microphone.sid
        agent.write_caption_of("caller", "C1", "Hello", False)
        agent.write_caption_of("caller", "C1", "Hello there.", True)
        caller.wait_for_caption("caller", text="there")
        assert [(one.text, one.is_final) for one in caller.captions("caller")] == [
            ("Hello", False),
            ("Hello there.", True),
        ]
        agent.write_old_caption("A1", "Good morning.")
        caller.wait(lambda: caller.received.transcriptions, "an older packet")
        _, speaker, track, segments = caller.received.transcriptions[0]
        assert (speaker, track) == ("agent-1", agent.microphone.sid)
        assert [(one.id, one.text, one.final) for one in segments] == [
            ("A1", "Good morning.", True)
        ]

        caller.send_chat("How are you?")
        assert agent.wait_for_chat("caller").text == "How are you?"
        agent.send_chat("Fine.")
        assert caller.wait_for_chat("agent-1").text == "Fine."
        event = {"name": "agent_start_talking", "payload": {"turn": 1}}
        agent.send_data(json.dumps({"type": "server-message", "data": {"event": event}}))
        assert caller.wait_for_event("agent_start_talking")[1] == event
        agent.answer_rpc(livekit_client.INTERRUPT, "ok")
        assert caller.interrupt() == "ok"
        with pytest.raises(rtc.RpcError):
            caller.end()


def test_the_api_dispatches_lists_and_removes(livekit):
    rooms = LiveKitApi(livekit)
    job = {"agent_id": "a", "user_name": "Ada"}
    dispatch = rooms.create_dispatch("explicit", "visavis", job)
    # One without a name belongs to the automatic dispatch.
    named = [one for one in rooms.list_dispatches("explicit") if one.get("agent_name")]
    assert [one["id"] for one in named] == [dispatch["id"]]
    assert json.loads(named[0]["metadata"]) == job
    rooms.delete_dispatch("explicit", dispatch["id"])
    options = {"agent": "visavis", "job_metadata": job}
    caller = LiveKitCaller(livekit, "by-token", microphone=False, **options)
    (named,) = [one for one in rooms.list_dispatches("by-token") if one.get("agent_name")]
    assert (named["agent_name"], json.loads(named["metadata"])) == ("visavis", job)
    assert {room["name"] for room in rooms.list_rooms()} >= {"explicit", "by-token"}
    assert [one["identity"] for one in rooms.list_participants("by-token")] == ["caller"]
    rooms.remove_participant("by-token", "caller")
    assert caller.wait_for_end()[1] == "PARTICIPANT_REMOVED"
    caller.close()
    caller = LiveKitCaller(livekit, "by-token", microphone=False)
    rooms.delete_room("by-token")
    assert caller.wait_for_end()[1] == "ROOM_DELETED"
    caller.close()


def test_a_crashed_server_is_back_on_its_ports_with_its_key(webhooks):
    with LiveKitServer("livekit-crash") as server, LiveKitCaller(server, "room", "first") as caller:
        server.restart(webhooks=[webhooks.url])
        # The SDK joins again by itself.
        caller.wait(lambda: caller.received.connection[-1][1] == "reconnected", "the caller")
        with LiveKitCaller(server, "room", "second"):
            joined = "second", "joined"
            caller.wait(
                lambda: any(event[1:] == joined for event in caller.received.participants), joined
            )
        caller.wait_for_leave("second")
        body, token = webhooks.wait_for("participant_left")
        assert read_webhook(server, body, token)["participant"]["identity"] == "second"
        read_webhook(server, body, webhook_token(server, body))
        with pytest.raises(Exception, match="hash"):
            read_webhook(server, body + b" ", token)
        caller.leave()
        server.stop()


def test_the_page_with_livekit_client_takes_part(livekit, pages, call):
    page = pages.open(call).join(livekit, create_token(livekit, "page", "caller"))
    with Agent(livekit, "page") as agent:
        agent.set_state("listening")
        page.wait_for("state.agentStates.some((one) => one.state === 'listening')")
        said = page.call.speak(SENTENCES[0])
        at = agent.wait_for_sound("caller")
        agent.wait_for_silence("caller", after=at)
        expect_sentence(agent.audio_of("caller").samples(at - 0.2), SENTENCES[0])
        agent.speak(SENTENCES[1])
        heard = page.call.wait_for_sound(said.end)
        quiet = page.call.wait_for_silence(after=heard["to"])
        _, sound = page.call.recording(heard["from"] - 0.2, quiet + 0.2)
        expect_sentence(sound, SENTENCES[1])
        send_pictures(agent.publish_video(), lambda: page.state()["frames"] > 10, "the picture")
        assert page.state()["picture"]["width"] == WIDTH

        agent.write_caption("A1", ["Good ", "morning."])
        agent.write_caption_of("caller", "C1", "Hello there.", True)
        page.wait_for("state.captions.length === 2 && state.captions.every((one) => one.closed)")
        assert [(one["identity"], one["text"]) for one in page.state()["captions"]] == [
            ("agent-1", "Good morning."),
            ("caller", "Hello there."),
        ]
        event = {"name": "agent_start_talking", "payload": {"turn": 1}}
        agent.send_data(json.dumps({"type": "server-message", "data": {"event": event}}))
        assert page.call.wait_for_event("agent_start_talking")["payload"] == {"turn": 1}
        page.page.evaluate("call.chat('How are you?')")
        assert agent.wait_for_chat("caller").text == "How are you?"
        agent.answer_rpc(livekit_client.INTERRUPT, "ok")
        assert page.page.evaluate("call.rpc('visavis.interrupt')") == "ok"
        assert page.page.evaluate("call.stats()")["audio"]["packetsReceived"] > 50
        page.leave()
        agent.wait_for_leave("caller")
    assert page.call.browser_errors == []


def test_the_page_with_react_components_takes_part(livekit, pages, call):
    page = pages.open(call, "components").join(livekit, create_token(livekit, "hooks", "caller"))
    with Agent(livekit, "hooks") as agent:
        # The hook misses a change between its first rendering and its subscription, so each state
        # follows the last one that the page shows. The first one is the agent's own.
        for state in ("initializing", "listening", "thinking", "speaking"):
            agent.set_state(state)
            page.wait_for(
                f"state.agent?.state === {state!r} && state.assistant.state === {state!r}"
            )
        assert page.state()["agent"]["identity"] == "agent-1"
        send_pictures(agent.publish_video(), lambda: page.state()["frames"] > 10, "the picture")
        agent.write_caption("A1", ["Good ", "morning."])
        agent.write_caption_of("caller", "C1", "Hello there.", True)
        page.wait_for("state.captions.length === 2")
        assert [one["text"] for one in page.state()["captions"]] == [
            "Good morning.",
            "Hello there.",
        ]
        agent.write_old_caption("A1", "Good morning.")
        page.wait_for("state.assistant.transcriptions.length === 1")
        page.call.speak(SENTENCES[0])
        agent.wait_for_sound("caller")
        agent.speak(SENTENCES[1])
        page.call.wait_for_sound(page.call.audio_clock())
        page.leave()
        agent.wait_for_leave("caller")
    assert page.call.browser_errors == []
