"""Calls with each combination of two speech-to-text, two language model and two text-to-speech
providers: words, sound, interruption, end, and no protocol violation."""

import itertools

import pytest

from kit import audio_match, provider_call, providers
from kit.providers.transcription import Utterance
from kit.webrtc_client import run_async

pytestmark = pytest.mark.long("providers")

STT = [providers.DeepgramFake, providers.AssemblyAiFake]
LLM = [providers.AnthropicFake, providers.OpenAiFake]
TTS = [providers.ElevenLabsFake, providers.CartesiaFake]

QUESTION = "What do visitors see in the first room?"
TOUR = "Tell me about the whole tour please."
STOP = "Stop please. I have another question."
ANSWERS = {
    QUESTION: "In the first room visitors see a large collection of old clocks.",
    TOUR: " ".join(
        f"The room number {number} is full of interesting things from far away."
        for number in ("one", "two", "three", "four", "five", "six", "seven", "eight")
    ),
    STOP: "Of course. What would you like to know?",
}
#: Seconds from the end of an interrupted reply to the vendor's cancel message, and from
#: `user.stopped_speaking` to its end mark. A reply that is only paused is not cancelled.
CANCEL_SECONDS, END_MARK_SECONDS = 0.05, 0.15


async def talk(server, conversation) -> dict:
    """A question, a long answer that is interrupted, and a last answer."""
    client = await provider_call.SpokenCall(server, conversation).connect()
    assert await client.say(QUESTION) == QUESTION
    spoken_at = client.times_of("user.stopped_speaking")[-1]
    await client.wait_for_utterance(ANSWERS[QUESTION])
    # The sound of the last word follows its event.
    heard = client.samples() + 24_000
    await client.wait_for(lambda: client.samples() >= heard, what="half a second of sound")
    arrival = client.arrival(ANSWERS[QUESTION], 0)
    assert await client.say(TOUR) == TOUR
    await client.wait_for_start(2)
    heard = client.samples() + 48_000
    await client.wait_for(lambda: client.samples() >= heard, what="a second of sound")
    assert await client.say(STOP) == STOP
    assert len(client.times_of("agent.interrupted")) == 1
    await client.wait_for_utterance(ANSWERS[STOP])
    utterances = client.utterances()
    await client.hang_up()
    return {
        "spoken_at": spoken_at,
        "cut_at": client.times_of("agent.stopped_speaking")[1],
        "arrival": arrival,
        "utterances": utterances,
    }


@pytest.mark.parametrize(
    ("stt", "llm", "tts"),
    itertools.product(STT, LLM, TTS),
    ids=lambda kind: kind.provider,
)
def test_a_call(server, vendor, report, stt, llm, tts):
    fakes = stt, llm, tts = (
        vendor(stt, [Utterance.spoken(question) for question in ANSWERS]),
        vendor(llm, ANSWERS.get, tokens_per_second=10),
        vendor(tts, pace=1.1),
    )
    agent = provider_call.create_agent(
        server,
        stt=stt,
        llm=provider_call.choice(llm, model="a-model"),
        tts=tts,
        turn={"min_interruption_duration": 0.25},
    )
    conversation = server.create_conversation(agent["id"])
    assert [fake.records for fake in fakes] == [[], [], []], "a connection of nobody"
    found = run_async(talk(server, conversation))
    record = server.wait_for(conversation["id"], "ENDED")

    audio_match.expect_arrival(found["arrival"], ANSWERS[QUESTION])
    first, cut, last = found["utterances"]
    assert (first, last) == (ANSWERS[QUESTION], ANSWERS[STOP])
    assert cut and ANSWERS[TOUR].startswith(cut.rstrip(".…")) and cut != ANSWERS[TOUR]
    assert record["warnings"] == []
    assert llm.messages()[1].cancelled, "the generation of the answer went on"
    assert tts.cancelled, tts.describe()
    assert not any("eight" in text for text in tts.spoken)
    for fake in (stt, tts):
        fake.wait_for(lambda fake=fake: fake.open_count() == 0, "the end of the connection")
        assert len(fake.records) == 1, fake.describe()
    assert stt.records[0].said_goodbye, stt.describe()
    provider_call.check_secrets(server, list(fakes), agent, conversation)
    provider_call.check_protocols(list(fakes))

    assert {one.body["model"] for one in llm.messages()} == {"a-model"}
    name = "-".join(fake.provider for fake in fakes)
    end_mark = next(
        one.at
        for one in stt.records[0].received
        if isinstance(one.message, dict)
        and one.message.get("type") in ("Finalize", "ForceEndpoint")
    )
    report.check_target(
        f"{name}: end of speech to the end mark at the vendor, s",
        stt.started_at + end_mark - found["spoken_at"],
        END_MARK_SECONDS,
    )
    cancel = next(
        one.at
        for one in tts.records[0].received
        if tts.started_at + one.at > found["cut_at"] - 1
        and isinstance(one.message, dict)
        and (one.message.get("cancel") or one.message.get("close_context"))
    )
    report.check_target(
        f"{name}: the end of the reply to the cancel message at the vendor, s",
        tts.started_at + cancel - found["cut_at"],
        CANCEL_SECONDS,
    )
