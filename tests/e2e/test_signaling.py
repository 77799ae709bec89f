"""Both signaling endpoints with third-party clients: the public RTVI JavaScript client at
/api/offer, and aiortc at the WHIP endpoint."""

import asyncio
import os
import pathlib

import numpy as np
import pytest

from kit import audio_match, sdp, speech
from kit.receivers import StaticSite
from kit.webrtc_client import WhipClient, run_async

FIRST_ROOM = "What do visitors see in the first room?"
#: Answers that do not take long.
SHORT_ANSWERS = (
    "In the first room visitors see a large collection of old clocks. The garden behind the house "
    "has red roses and a small river."
)
RTVI_BUNDLE = pathlib.Path(
    os.environ.get("VISAVIS_RTVI_BUNDLE")
    or pathlib.Path(__file__).resolve().parents[2] / ".cache" / "rtvi" / "bundle.js"
)


# --- the public RTVI client ---


@pytest.fixture
def open_rtvi_page(server, call):
    """A page of another origin with the public client."""

    page_html = (pathlib.Path(__file__).parent / "rtvi" / "page.html").read_bytes()
    assert RTVI_BUNDLE.exists(), f"{RTVI_BUNDLE} is missing: scripts/test-e2e.sh makes it"
    site = StaticSite(
        {"/": (page_html, "text/html"), "/bundle.js": (RTVI_BUNDLE.read_bytes(), "text/javascript")}
    )

    def make(conversation):
        page = call(options={"face": "#bot"}).open(site.url + "/")
        page.page.evaluate(
            "([base, token]) => client.start(base, token)", [server.url, conversation["token"]]
        )
        return page

    yield make
    site.close()


def test_the_public_rtvi_client_talks(server, open_rtvi_page, webhooks):
    agent = server.create_agent(knowledge=SHORT_ANSWERS, hooks=webhooks, transcripts=[FIRST_ROOM])
    conversation = server.create_conversation(agent["id"])
    page = open_rtvi_page(conversation)
    page.page.wait_for_function("client.log.some((entry) => entry.name === 'botReady')")
    page.wait_for("frames", {"more": 2})
    user_speech = page.speak(FIRST_ROOM)
    page.wait_for_message("user-transcription")
    page.wait_for_message("bot-started-speaking")
    page.wait_for_sound(user_speech.end)
    page.wait_for_message("bot-output")
    page.wait_for_message("bot-stopped-speaking")
    page.wait_for_message("bot-tts-stopped")
    types = [m.get("type") for m in page.page.evaluate("e2e.messages")]
    for type in (
        "bot-ready",
        "user-started-speaking",
        "user-stopped-speaking",
        "user-llm-text",
        "bot-llm-started",
        "bot-llm-text",
        "bot-llm-stopped",
        "bot-tts-started",
        "bot-tts-text",
        "server-message",
    ):
        assert type in types, f"{type} is missing in {types}"
    # Typed text interrupts and is answered; a request gets its response; an unknown request gets an
    # error.
    mark = page.message_count()
    page.page.evaluate("client.pc.sendText('Tell me about the garden behind the house.')")
    page.wait_for_event("utterance_committed", mark)
    page.wait_for_event("agent.started_speaking", mark)
    assert (
        page.page.evaluate("client.pc.sendClientRequest('interrupt').then(() => 'answered')")
        == "answered"
    )
    page.wait_for_event("agent.stopped_speaking", mark)
    assert (
        page.page.evaluate(
            "client.pc.sendClientRequest('no-such-thing').then(() => 'answered', () => 'refused')"
        )
        == "refused"
    )
    names = page.page.evaluate("client.log.map((entry) => entry.name)")
    for name in (
        "connected",
        "botReady",
        "userTranscript",
        "botStartedSpeaking",
        "botStoppedSpeaking",
        "trackStarted",
    ):
        assert name in names, f"{name} is missing in {names}"
    page.page.evaluate("client.pc.disconnectBot()")
    page.page.wait_for_function("client.log.some((entry) => entry.name === 'disconnected')")
    webhooks.wait_for(conversation["id"], "call_ended")
    assert server.wait_for(conversation["id"], "ENDED")["end_reason"] == "user_left"


def test_the_rtvi_client_gives_up_at_once_on_a_wrong_token(server, open_rtvi_page):
    page = open_rtvi_page({"token": "nonsense"})
    page.page.wait_for_function("client.failure")
    assert "401" in page.page.evaluate("client.failure")


def test_foreign_origins_may_call_the_rtvi_endpoint(server):
    preflight_headers = {
        "origin": "https://shop.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    reply = server.request("OPTIONS", "/api/offer", key=None, headers=preflight_headers)
    assert reply.status in (200, 204), reply
    assert reply.headers["access-control-allow-origin"] in ("*", "https://shop.example")
    allowed = reply.headers["access-control-allow-headers"].lower()
    assert "authorization" in allowed and "content-type" in allowed
    refused = server.request(
        "POST",
        "/api/offer",
        {"sdp": "x", "type": "offer"},
        key=None,
        headers={"origin": "https://shop.example"},
    )
    assert refused.status == 401 and refused.headers["access-control-allow-origin"], refused


# --- aiortc ---


def test_an_independent_stack_talks_at_the_whip_endpoint(server, webhooks):
    # A long question has many pieces to compare. A sender in Python without CPU time loses some of
    # them.
    question = (
        (
            "Who is the night guard that walks through the rooms of the museum when all the "
            "visitors have gone home?"
        ),
        "rms",
    )
    agent = server.create_agent(
        knowledge=(
            "The night guard that walks through the rooms of the museum when all the visitors "
            "have gone home is called Robert."
        ),
        hooks=webhooks,
        transcripts=[question],
        tap=True,
    )
    conversation = server.create_conversation(agent["id"])

    async def talk():
        client = await WhipClient(server, conversation).join()
        await client.wait_for(lambda: client.video_frames, what="a picture")
        await client.wait_for(lambda: client.find_message("bot-ready"), what="bot-ready")
        client.microphone.queue = speech.concatenate([question])
        await client.wait_for(
            lambda: client.find_message(event="agent.stopped_speaking"), what="the answer"
        )
        answer = client.find_message(event="agent.stopped_speaking")["data"]["event"]
        text = answer.get("event", answer)["payload"]["text"]
        assert "Robert" in text
        arrival = audio_match.match_page_audio(
            [text], "rms", np.concatenate(client.received_audio)
        )[0]
        audio_match.expect_arrival(arrival, "the answer")
        arrival = audio_match.match_stt_audio(
            speech.concatenate([question]), server.stt_audio(agent)
        )
        audio_match.expect_arrival(arrival, "the question")
        assert client.video_frames[0] == (512, 512)
        trickle = await asyncio.to_thread(
            server.request,
            "PATCH",
            client.resource,
            key=None,
            raw=b"a=ice-ufrag:x\r\n",
            headers={
                "content-type": "application/trickle-ice-sdpfrag",
                "authorization": f"Bearer {conversation['token']}",
            },
        )
        assert trickle.status == 204, trickle
        left = await client.hang_up()
        assert left.status == 200, left

    run_async(talk())
    webhooks.wait_for(conversation["id"], "call_ended")
    assert server.wait_for(conversation["id"], "ENDED")["end_reason"] == "user_left"


def test_a_client_without_video_and_data_channel_is_served_too(server):
    agent = server.create_agent(greeting="Hello, and welcome to the museum.")
    conversation = server.create_conversation(agent["id"])

    async def talk():
        client = await WhipClient(server, conversation, video=False, channel=False).join()

        def greeting_is_loud():
            # So many frames follow the first sound that these are words, and not only their
            # beginning.
            return (
                len(client.received_audio) > 75
                and speech.loudness(np.concatenate(client.received_audio[:-75])).max() > 0.02
            )

        await client.wait_for(greeting_is_loud, what="the greeting")
        await client.hang_up()

    run_async(talk())
    record = server.wait_for(conversation["id"], "ENDED")
    assert record["transcript"][0]["content"].startswith("Hello")


def test_a_delete_of_the_last_offer_that_never_connected_ends_the_conversation(server, webhooks):
    """A client that retried its offer and cleans the first resource up keeps its conversation."""
    agent = server.create_agent(hooks=webhooks, events=["call_ended", "participant_left"])
    conversation = server.create_conversation(agent["id"])
    token = {"authorization": f"Bearer {conversation['token']}"}

    def offer():
        made = server.request(
            "POST",
            f"/rtc/{conversation['id']}",
            key=None,
            raw=sdp.make_offer().encode(),
            headers={**token, "content-type": "application/sdp"},
        )
        return made.status, made.headers.get("location")

    def delete(resource):
        return server.request("DELETE", resource, key=None, headers=token).status

    (_, first), (_, second) = offer(), offer()
    assert delete(first) == 200
    assert delete(first) == 404, "it is gone"
    assert server.get_conversation(conversation["id"])["status"] == "STARTED"
    assert delete(second) == 200
    record = server.get_conversation(conversation["id"])
    assert (record["status"], record["end_reason"]) == ("ENDED", "user_left"), record
    webhooks.wait_for(conversation["id"], "call_ended")
    log = server.request("GET", f"/v1/ext/conversation/{conversation['id']}/deliveries").json()
    assert [delivery["event"] for delivery in log] == ["call_ended"], "nobody has taken part"
    assert delete(second) == 200, "the conversation is over"
    assert offer()[0] == 409
