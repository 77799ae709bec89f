"""The fakes of the providers note what the vendors do not allow. The calls rely on it."""

import base64

import aiohttp
import pytest

from kit import providers
from kit.webrtc_client import run_async

pytestmark = pytest.mark.long("providers")

#: 50 ms of silence at 16 kHz, and at 24 kHz.
SILENCE, SILENCE_AT_24_KHZ = bytes(1600), bytes(2400)


def chunk(audio: bytes = b"", **more) -> dict:
    """A message for Scribe."""
    text = base64.b64encode(audio).decode()
    message = {"message_type": "input_audio_chunk", "audio_base_64": text, "commit": False}
    return message | {"sample_rate": 16_000} | more


def append(audio: bytes) -> dict:
    """A message for OpenAI's realtime interface."""
    return {"type": "input_audio_buffer.append", "audio": base64.b64encode(audio).decode()}


def session(**more) -> dict:
    """Settings for OpenAI's realtime interface."""
    audio = {
        "format": {"type": "audio/pcm", "rate": 24_000},
        "transcription": {"model": "gpt-live-transcribe"},
        "turn_detection": None,
    }
    settings = {"type": "transcription", "audio": {"input": audio | more}}
    return {"type": "session.update", "session": settings}


FLUX = "/v2/listen?model=flux-general-en&encoding=linear16&sample_rate=16000"
SCRIBE = (
    "/v1/speech-to-text/realtime?model_id=scribe_v2_realtime&audio_format=pcm_16000"
    "&commit_strategy=manual"
)
REALTIME = "/v1/realtime?intent=transcription"
AURA = "/v1/speak?model=aura-2-thalia-en&encoding=linear16&sample_rate=24000"
SPEAK, FLUSH, COMMIT = {"type": "Speak", "text": "Hi. "}, {"type": "Flush"}, chunk(commit=True)
REALTIME_COMMIT = {"type": "input_audio_buffer.commit"}


@pytest.mark.parametrize(
    ("kind", "path", "messages", "violation"),
    [
        (providers.DeepgramFake, FLUX, [SILENCE], None),
        (providers.DeepgramFake, f"{FLUX}&punctuate=true", [], "punctuate"),
        (providers.DeepgramFake, f"{FLUX}&language_hint=de", [], "language_hint"),
        (providers.DeepgramFake, f"{FLUX}&eot_threshold=0.2", [], "eot_threshold"),
        (providers.DeepgramFake, FLUX, [{"type": "KeepAlive"}], "KeepAlive"),
        (providers.DeepgramFake, FLUX, [b"\0"], "odd number"),
        (providers.ScribeFake, SCRIBE, [*[chunk(SILENCE)] * 6, COMMIT], None),
        (providers.ScribeFake, SCRIBE, [*[chunk(SILENCE)] * 5, COMMIT], "a commit of 0.25 s"),
        (providers.ScribeFake, SCRIBE, [chunk(SILENCE, language="en")], "unknown message or field"),
        (providers.ScribeFake, SCRIBE, [chunk(), chunk(previous_text="Hi")], "previous_text"),
        (providers.ScribeFake, f"{SCRIBE}&keyterms={'a' * 21}", [], "keyterms"),
        (providers.ScribeFake, SCRIBE.replace("manual", "vad"), [], "not pcm_16000"),
        (
            providers.OpenAiSttFake,
            REALTIME,
            [session(), *[append(SILENCE_AT_24_KHZ)] * 2, REALTIME_COMMIT],
            None,
        ),
        (providers.OpenAiSttFake, REALTIME, [append(SILENCE_AT_24_KHZ)], "early message"),
        (
            providers.OpenAiSttFake,
            REALTIME,
            [session(), append(SILENCE_AT_24_KHZ), REALTIME_COMMIT],
            "a commit of 50 ms",
        ),
        (
            providers.OpenAiSttFake,
            REALTIME,
            [session(format={"type": "audio/pcm", "rate": 16_000})],
            "24 kHz",
        ),
        (
            providers.OpenAiSttFake,
            REALTIME,
            [session(transcription={"model": "gpt-4o-transcribe", "keywords": ["Hi"]})],
            "keywords",
        ),
        (providers.AuraFake, AURA, [SPEAK, FLUSH, {"type": "Clear"}], None),
        (providers.AuraFake, AURA, [FLUSH] * 21, "more than 20 flushes"),
        (providers.AuraFake, AURA, [{"type": "Speak", "text": "a" * 2001}], "no text to speak"),
        (providers.AuraFake, AURA.replace("-en", "-de") + "&speed=1.2", [], "speed"),
        (providers.AuraFake, AURA.replace("thalia-en", "thalia"), [], "no voice"),
    ],
)
def test_a_socket(vendor, kind, path, messages, violation):
    fake = vendor(kind, **({"voice": "hum"} if kind is providers.AuraFake else {}))

    async def send():
        name, prefix = fake.key_header
        headers = {name: prefix + fake.key}
        async with (
            aiohttp.ClientSession(headers=headers) as client,
            client.ws_connect(fake.url + path) as socket,
        ):
            for message in messages:
                if isinstance(message, bytes):
                    await socket.send_bytes(message)
                else:
                    await socket.send_json(message)
            await socket.close()

    run_async(send())
    fake.wait_for(lambda: fake.records and fake.open_count() == 0, "the end")
    check(fake, violation)


SPEECH = {"model": "gpt-4o-mini-tts", "voice": "coral", "input": "Hi.", "response_format": "pcm"}
RESPONSE = {"model": "gpt-4.1-mini", "input": "Hi.", "stream": True}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
CONTENT = {"contents": [{"role": "user", "parts": [{"text": "Hi."}]}]}
GEMINI = "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"


def function(schema: dict) -> dict:
    """A function for Gemini."""
    properties = {"a": {"type": "string"} | schema}
    parameters = {"type": "object", "properties": properties}
    return {"tools": [{"functionDeclarations": [{"name": "f", "parameters": parameters}]}]}


@pytest.mark.parametrize(
    ("kind", "path", "body", "violation"),
    [
        (providers.OpenAiSpeechFake, "/v1/audio/speech", SPEECH, None),
        (providers.OpenAiSpeechFake, "/v1/audio/speech", SPEECH | {"pitch": 1}, "pitch"),
        (providers.OpenAiSpeechFake, "/v1/audio/speech", SPEECH | {"voice": ""}, "voice"),
        (providers.OpenAiSpeechFake, "/v1/audio/speech", SPEECH | {"input": "a" * 4097}, "long"),
        (providers.OpenAiResponsesFake, "/v1/responses", RESPONSE, None),
        (providers.OpenAiResponsesFake, "/v1/responses", RESPONSE | {"messages": []}, "messages"),
        (providers.OpenAiResponsesFake, "/v1/responses", RESPONSE | {"input": [CALL]}, "results"),
        (providers.OpenAiResponsesFake, "/v1/responses", RESPONSE | {"stream": False}, "stream"),
        (providers.GeminiFake, GEMINI, CONTENT | function({}), None),
        (providers.GeminiFake, GEMINI, CONTENT | function({"const": "b"}), "const"),
        (providers.GeminiFake, GEMINI, CONTENT | {"model": "gemini"}, "model"),
        (
            providers.GeminiFake,
            GEMINI,
            CONTENT | {"generationConfig": {"thinkingConfig": {"thinkingLevel": "low"}}},
            "thinkingLevel",
        ),
        (providers.GeminiFake, GEMINI.replace("?alt=sse", ""), CONTENT, "without stream"),
    ],
)
def test_a_request(vendor, kind, path, body, violation):
    is_speech = kind is providers.OpenAiSpeechFake
    fake = vendor(kind, **({"voice": "hum"} if is_speech else {"tokens_per_second": 1000}))
    name, prefix = fake.key_header

    async def send():
        headers = {name: prefix + fake.key}
        async with (
            aiohttp.ClientSession(headers=headers) as client,
            client.post(fake.url + path, json=body) as response,
        ):
            await response.read()

    run_async(send())
    check(fake, violation)


def check(fake: providers.Fake, violation: str | None):
    if violation is None:
        assert fake.violations == []
    else:
        assert len(fake.violations) == 1 and violation in fake.violations[0], fake.violations
