"""A call with each further interface of the providers: words, sound, interruption, end, and no
protocol violation. test_provider_combinations.py has the calls with the others."""

import dataclasses

import pytest

from kit import provider_call, providers
from kit.interrupted_call import ANSWERS, check, report_times, talk
from kit.providers.transcription import Utterance
from kit.webrtc_client import run_async

pytestmark = pytest.mark.long("providers")


@dataclasses.dataclass
class Case:
    """The fakes of a call, and the models that select their interfaces."""

    name: str
    stt: tuple[type[providers.Fake], dict]
    llm: tuple[type[providers.Fake], str]
    tts: tuple[type[providers.Fake], dict]
    #: The path of the speech-to-text, and parameters or fields that it has.
    path: str
    query: dict[str, str] = dataclasses.field(default_factory=dict)
    #: Whether each utterance and each reply is a request of its own.
    stt_has_requests: bool = False
    tts_has_requests: bool = False


RESPONSES = (providers.OpenAiResponsesFake, "gpt-4.1-mini")
GEMINI = (providers.GeminiFake, "gemini-2.5-flash")
AURA = (providers.AuraFake, {"model_id": "aura-2", "voice_id": "thalia", "language": "en"})
SPEECH = (providers.OpenAiSpeechFake, {"model_id": "gpt-4o-mini-tts", "voice_id": "coral"})
CASES = [
    Case(
        "flux-responses-aura",
        (providers.DeepgramFake, {"model": "flux-general-en", "keyterms": ["Visavis"]}),
        RESPONSES,
        AURA,
        "/v2/listen",
    ),
    Case(
        "flux_turns-gemini-aura",
        (providers.DeepgramFake, {"model": "flux-general-multi", "turn": "provider"}),
        GEMINI,
        AURA,
        "/v2/listen",
    ),
    Case(
        "scribe-gemini-openai",
        (providers.ScribeFake, {"language": "en", "keyterms": ["Visavis"]}),
        GEMINI,
        SPEECH,
        "/v1/speech-to-text/realtime",
        {"language_code": "en", "keyterms": "Visavis", "enable_logging": "false"},
        tts_has_requests=True,
    ),
    Case(
        "realtime-responses-openai",
        (providers.OpenAiSttFake, {"keyterms": ["Visavis"]}),
        RESPONSES,
        SPEECH,
        "/v1/realtime",
        tts_has_requests=True,
    ),
    Case(
        "late_deltas-gemini-aura",
        (providers.OpenAiSttFake, {"model": "gpt-4o-mini-transcribe"}),
        GEMINI,
        AURA,
        "/v1/realtime",
    ),
    Case(
        "transcriptions-responses-aura",
        (providers.OpenAiSttFake, {"model": "gpt-transcribe", "keyterms": ["Visavis"]}),
        RESPONSES,
        AURA,
        "/v1/audio/transcriptions",
        stt_has_requests=True,
    ),
    Case(
        "whisper-gemini-openai",
        (providers.OpenAiSttFake, {"model": "whisper-1", "keyterms": ["Visavis"]}),
        GEMINI,
        SPEECH,
        "/v1/audio/transcriptions",
        stt_has_requests=True,
        tts_has_requests=True,
    ),
]


def check_end(fake: providers.Fake, has_requests: bool, path: str) -> providers.Record:
    """All connections have ended; a WebSocket was the only one, and ended politely. Returns the
    first one."""
    fake.wait_for(lambda: fake.open_count() == 0, "the end of the connection")
    served = [record for record in fake.records if not record.path.endswith("/models")]
    assert {record.path for record in served} == {path}, fake.describe()
    if not has_requests:
        assert [record.said_goodbye for record in served] == [True], fake.describe()
    return served[0]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_call(server, vendor, report, case):
    kind, stt_choice = case.stt
    stt = vendor(kind, [Utterance.spoken(question) for question in ANSWERS])
    kind, model = case.llm
    llm = vendor(kind, ANSWERS.get, tokens_per_second=10)
    kind, tts_choice = case.tts
    tts = vendor(kind, pace=1.1)
    fakes = [stt, llm, tts]
    agent = provider_call.create_agent(
        server,
        stt=provider_call.choice(stt, **stt_choice),
        llm=provider_call.choice(llm, model=model),
        tts=provider_call.choice(tts, **tts_choice),
        turn={"min_interruption_duration": 0.25},
    )
    conversation = server.create_conversation(agent["id"])
    assert [fake.records for fake in fakes] == [[], [], []], "a connection of nobody"
    found = run_async(talk(server, conversation))
    record = server.wait_for(conversation["id"], "ENDED")

    check(found, record, llm, tts)
    served = check_end(stt, case.stt_has_requests, case.path)
    assert case.query.items() <= ((served.body or {}) | served.query).items(), served
    speech_path = "/v1/audio/speech" if case.tts_has_requests else "/v1/speak"
    check_end(tts, case.tts_has_requests, speech_path)
    llm.wait_for(lambda: llm.open_count() == 0, "the end of the requests")
    provider_call.check_secrets(server, fakes, agent, conversation)
    provider_call.check_protocols(fakes)
    for one in llm.messages():
        # The vendor does not store the conversation, where it would.
        assert one.body.get("store", False) is False, one.body
    report_times(report, case.name, found, stt, tts)
