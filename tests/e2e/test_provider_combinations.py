"""Calls with each combination of two speech-to-text, two language model and two text-to-speech
providers: words, sound, interruption, end, and no protocol violation."""

import itertools

import pytest

from kit import provider_call, providers
from kit.interrupted_call import ANSWERS, check, report_times, talk
from kit.providers.transcription import Utterance
from kit.webrtc_client import run_async

pytestmark = pytest.mark.long("providers")

STT = [providers.DeepgramFake, providers.AssemblyAiFake]
LLM = [providers.AnthropicFake, providers.OpenAiFake]
TTS = [providers.ElevenLabsFake, providers.CartesiaFake]


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

    check(found, record, llm, tts)
    for fake in (stt, tts):
        fake.wait_for(lambda fake=fake: fake.open_count() == 0, "the end of the connection")
        assert len(fake.records) == 1, fake.describe()
    assert stt.records[0].said_goodbye, stt.describe()
    provider_call.check_secrets(server, list(fakes), agent, conversation)
    provider_call.check_protocols(list(fakes))

    assert {one.body["model"] for one in llm.messages()} == {"a-model"}
    name = "-".join(fake.provider for fake in fakes)
    report_times(report, name, found, stt, tts)
