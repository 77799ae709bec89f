"""Both doors, with clients that are not ours: the public RTVI JavaScript client at /api/offer, and aiortc at the WHIP door."""

import asyncio
import os
import pathlib

import numpy as np
import pytest

from kit import sound, voice
from kit.peer import Client, run
from kit.receivers import Site

FIRST_ROOM = "What do visitors see in the first room?"
#: Answers that do not take long.
SHORT = "In the first room visitors see a large collection of old clocks. The garden behind the house has red roses and a small river."
BUNDLE = pathlib.Path(os.environ.get("VISAVIS_RTVI_BUNDLE") or pathlib.Path(__file__).resolve().parents[2] / ".cache" / "rtvi" / "bundle.js")


# --- the public RTVI client ---


@pytest.fixture
def rtvi(server, call):
    """A page of another origin that holds the public client."""

    page_html = (pathlib.Path(__file__).parent / "rtvi" / "page.html").read_bytes()
    assert BUNDLE.exists(), f"{BUNDLE} is missing: scripts/test-e2e.sh makes it"
    site = Site({"/": (page_html, "text/html"), "/bundle.js": (BUNDLE.read_bytes(), "text/javascript")})

    def make(conversation):
        page = call(options={"face": "#bot"}).open(site.url + "/")
        page.page.evaluate("([base, token]) => client.start(base, token)", [server.url, conversation["token"]])
        return page

    yield make
    site.close()


def test_the_public_rtvi_client_talks(server, rtvi, hooks):
    agent = server.agent(knowledge=SHORT, hooks=hooks, hears=[FIRST_ROOM])
    conversation = server.conversation(agent["id"])
    page = rtvi(conversation)
    page.page.wait_for_function("client.log.some((entry) => entry.name === 'botReady')")
    page.until("frames", {"more": 2})
    said = page.speak(FIRST_ROOM)
    page.message("user-transcription")
    page.message("bot-started-speaking")
    page.sound(said.end)
    page.message("bot-output")
    page.message("bot-stopped-speaking")
    page.message("bot-tts-stopped")
    types = [m.get("type") for m in page.page.evaluate("e2e.messages")]
    for type in ("bot-ready", "user-started-speaking", "user-stopped-speaking", "user-llm-text", "bot-llm-started", "bot-llm-text", "bot-llm-stopped", "bot-tts-started", "bot-tts-text", "server-message"):
        assert type in types, f"{type} is missing in {types}"
    # Typed text interrupts and is answered; a request gets its response; nonsense gets an error.
    mark = page.mark()
    page.page.evaluate("client.pc.sendText('Tell me about the garden behind the house.')")
    page.event("utterance_committed", mark)
    page.event("agent.started_speaking", mark)
    assert page.page.evaluate("client.pc.sendClientRequest('interrupt').then(() => 'answered')") == "answered"
    page.event("agent.stopped_speaking", mark)
    assert page.page.evaluate("client.pc.sendClientRequest('no-such-thing').then(() => 'answered', () => 'refused')") == "refused"
    names = page.page.evaluate("client.log.map((entry) => entry.name)")
    for name in ("connected", "botReady", "userTranscript", "botStartedSpeaking", "botStoppedSpeaking", "trackStarted"):
        assert name in names, f"{name} is missing in {names}"
    page.page.evaluate("client.pc.disconnectBot()")
    page.page.wait_for_function("client.log.some((entry) => entry.name === 'disconnected')")
    hooks.until(conversation["id"], "call_ended")
    assert server.until(conversation["id"], "ENDED")["end_reason"] == "user_left"


def test_the_rtvi_client_gives_up_at_once_on_a_wrong_token(server, rtvi):
    page = rtvi({"token": "nonsense"})
    page.page.wait_for_function("client.failure")
    assert "401" in page.page.evaluate("client.failure")


def test_foreign_origins_may_knock_at_the_rtvi_door(server):
    asked = {"origin": "https://shop.example", "access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    reply = server.call("OPTIONS", "/api/offer", key=None, headers=asked)
    assert reply.status in (200, 204), reply
    assert reply.headers["access-control-allow-origin"] in ("*", "https://shop.example")
    allowed = reply.headers["access-control-allow-headers"].lower()
    assert "authorization" in allowed and "content-type" in allowed
    refused = server.call("POST", "/api/offer", {"sdp": "x", "type": "offer"}, key=None, headers={"origin": "https://shop.example"})
    assert refused.status == 401 and refused.headers["access-control-allow-origin"], refused


# --- aiortc ---


def test_an_independent_stack_talks_at_the_whip_door(server, hooks):
    # Many pieces to compare: a sender in Python that gets no processor loses some of them.
    asked = ("Who is the night guard that walks through the rooms of the museum when all the visitors have gone home?", "rms")
    agent = server.agent(knowledge="The night guard that walks through the rooms of the museum when all the visitors have gone home is called Robert.", hooks=hooks, hears=[asked], tap=True)
    conversation = server.conversation(agent["id"])

    async def talk():
        client = await Client(server, conversation).join()
        await client.until(lambda: client.pictures, what="a picture")
        await client.until(lambda: client.says("bot-ready"), what="bot-ready")
        client.mouth.queue = voice.script([asked])
        await client.until(lambda: client.says(event="agent.stopped_speaking"), what="the answer")
        answer = client.says(event="agent.stopped_speaking")["data"]["event"]
        text = answer.get("event", answer)["payload"]["text"]
        assert "Robert" in text
        came = sound.heard_by_page([text], "rms", np.concatenate(client.heard))[0]
        sound.expect(came, "the answer")
        came = sound.heard_by_server(voice.script([asked]), server.heard(agent))
        sound.expect(came, "the question")
        assert client.pictures[0] == (512, 512)
        trickle = await asyncio.to_thread(server.call, "PATCH", client.resource, key=None, raw=b"a=ice-ufrag:x\r\n",
                                          headers={"content-type": "application/trickle-ice-sdpfrag", "authorization": f"Bearer {conversation['token']}"})  # fmt: skip
        assert trickle.status == 204, trickle
        left = await client.leave()
        assert left.status == 200, left

    run(talk())
    hooks.until(conversation["id"], "call_ended")
    assert server.until(conversation["id"], "ENDED")["end_reason"] == "user_left"


def test_a_client_without_video_and_data_channel_is_served_too(server):
    agent = server.agent(greeting="Hello, and welcome to the museum.")
    conversation = server.conversation(agent["id"])

    async def talk():
        client = await Client(server, conversation, video=False, channel=False).join()

        def loud():
            # Behind the first sound come so many frames: words, and not the beginning of one.
            return len(client.heard) > 75 and voice.loudness(np.concatenate(client.heard[:-75])).max() > 0.02

        await client.until(loud, what="the greeting")
        await client.leave()

    run(talk())
    record = server.until(conversation["id"], "ENDED")
    assert record["transcript"][0]["content"].startswith("Hello")
