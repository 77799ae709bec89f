"""The fakes of the providers with the vendors' own clients (vendor_clients/check.py). The clients
are installed from the package index, so this belongs to the long tier."""

import filecmp
import json
import os
import shutil
import subprocess
import sys

import pytest

from kit import audio_match, providers, speech
from kit.providers.synthesis import flite_voice
from kit.server import ROOT

pytestmark = pytest.mark.long("providers")

FOLDER = ROOT / "tests/e2e/vendor_clients"
VENV = ROOT / ".cache/vendor-clients"
QUESTION = "What do visitors see in the first room?"
TEXTS = ["Hello there, how are you?", "The museum opens at nine."]
NEWS = "Nothing is new. All is well."


@pytest.fixture(scope="module")
def clients():
    """The Python with the vendors' clients."""
    wanted, installed = FOLDER / "requirements.txt", VENV / "requirements.txt"
    if not installed.exists() or not filecmp.cmp(wanted, installed, shallow=False):
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        pip = [str(VENV / "bin/pip"), "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run(
            [*pip, "-r", str(wanted)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"the vendors' clients cannot be installed: {done.stderr}"
        shutil.copy(wanted, installed)
    return str(VENV / "bin/python")


@pytest.fixture
def check(clients, tmp_path):
    """`check(name, fake, text=None)`: what the vendor's client understood."""

    def run(name: str, fake: providers.Fake, text: str | None = None) -> dict:
        arguments = [name, fake.url, fake.key]
        if text:
            file = tmp_path / "speech.pcm"
            samples = speech.concatenate([(text, "slt"), 0.3], rate=16_000)
            file.write_bytes(samples.tobytes())
            arguments.append(str(file))
        try:
            done = subprocess.run(
                [clients, str(FOLDER / "check.py"), *arguments],
                capture_output=True,
                text=True,
                timeout=90,
                check=False,
                # The clients read keys and addresses from the environment.
                env={"PATH": os.environ["PATH"]},
            )
            assert done.returncode == 0, f"{done.stderr}\n{fake.describe()}"
        finally:
            fake.close()
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_deepgram(check):
    utterance = providers.transcription.Utterance.spoken(QUESTION)
    fake = providers.DeepgramFake([utterance])
    found = check("deepgram", fake, QUESTION)
    assert found["final"] == QUESTION and found["words"] == QUESTION.split()
    assert found["interims"] and all(QUESTION.startswith(text) for text in found["interims"])
    assert found["duration"] > 1.5 and found["wrong_key"] == 401
    assert fake.records[0].said_goodbye and fake.violations == []


def test_deepgram_flux(check):
    utterance = providers.transcription.Utterance.spoken(QUESTION)
    fake = providers.DeepgramFake([utterance], per_connection=True)
    found = check("flux", fake, QUESTION)
    kinds = [event for event, _ in found["events"]]
    assert (kinds[0], kinds[-1], set(kinds[1:-1])) == ("StartOfTurn", "EndOfTurn", {"Update"})
    assert all(text and QUESTION.startswith(text) for _, text in found["events"])
    assert found["events"][-1][1] == QUESTION and found["words"] == QUESTION.split()
    assert found["sequence"] == list(range(len(kinds) + 2)) and found["trigger"] == "manual"
    *_, eager, end = found["by_model"]
    assert eager == ["EagerEndOfTurn", QUESTION, None] and end == ["EndOfTurn", QUESTION, "model"]
    assert found["warning"] == "NO_OPEN_TURN" and found["wrong_key"] == 401
    assert [one.said_goodbye for one in fake.records] == [True, True, False]
    assert fake.violations == []


def test_elevenlabs_scribe(check):
    """The client has a connection for this interface."""
    utterance = providers.transcription.Utterance.spoken(QUESTION)
    fake = providers.ScribeFake([utterance], per_connection=True)
    found = check("scribe", fake, QUESTION)
    assert found["partials"] and all(QUESTION.startswith(text) for text in found["partials"])
    assert found["committed"] == found["timed"] == [QUESTION] and found["errors"] == []
    assert found["words"] == QUESTION.split() and found["wrong_key"] == 401
    assert [one.said_goodbye for one in fake.records] == [True, True, False]
    assert fake.violations == []


def test_openai_realtime_transcription(check):
    utterance = providers.transcription.Utterance.spoken(QUESTION)
    fake = providers.OpenAiSttFake([utterance], per_connection=True)
    found = check("openai_realtime", fake, QUESTION)
    assert found.pop("wrong_key") == 401
    for model, one in found.items():
        assert one["model"] == model and one["is_of_item"] and one["tokens"] > 20
        assert one["transcript"] == one["deltas"] == QUESTION
        kinds = one["kinds"]
        assert kinds[:2] == ["session.created", "session.updated"] and kinds[-1] == "completed"
        committed = kinds.index("input_audio_buffer.committed")
        assert kinds[committed + 1] == "conversation.item.added"
        # Only some models transcribe while the user speaks.
        assert ("delta" in kinds[:committed]) == (model == "gpt-live-transcribe")
        assert kinds.count("delta") == len(QUESTION.split())
    assert [one.said_goodbye for one in fake.records] == [True, True, False]
    assert fake.violations == []


def test_openai_transcriptions(check):
    utterance = providers.transcription.Utterance.spoken(QUESTION)
    fake = providers.OpenAiSttFake([utterance], per_connection=True)
    found = check("openai_transcriptions", fake, QUESTION)
    assert found["text"] == found["verbose"] == QUESTION and found["segments"] == [QUESTION]
    assert found["tokens"] > 20 and found["duration"] > 1.5 and found["billed_seconds"] > 1
    assert found["wrong_key"] == 401
    assert fake.transcriptions()[0].body["keywords[]"] == "museum"
    assert fake.violations == []


def test_assemblyai(check):
    utterance = providers.transcription.Utterance.spoken(QUESTION)
    fake = providers.AssemblyAiFake([utterance])
    found = check("assemblyai", fake, QUESTION)
    assert found["began"] and found["ended"] >= 1 and found["errors"] == []
    assert found["turns"][-1] == [True, QUESTION, len(QUESTION.split())]
    assert len(found["turns"]) > 1 and not any(turn[0] for turn in found["turns"][:-1])
    assert found["wrong_key"] == [401]
    assert fake.records[0].said_goodbye and fake.violations == []


def test_anthropic(check):
    fake = providers.AnthropicFake(lambda question: NEWS)
    found = check("anthropic", fake)
    assert found["text"] == found["whole"] == NEWS and found["stop_reason"] == "end_turn"
    assert found["deltas"] == found["output_tokens"] == len(NEWS.split())
    assert found["wrong_key"] == 401 and fake.violations == []


def test_openai(check):
    fake = providers.OpenAiFake(lambda question: NEWS)
    found = check("openai", fake)
    assert found["text"] == NEWS and found["finish_reasons"] == ["stop"]
    assert found["deltas"] == found["completion_tokens"] == len(NEWS.split())
    assert found["wrong_key"] == 401 and fake.violations == []


def test_openai_responses(check):
    fake = providers.OpenAiResponsesFake(lambda question: NEWS)
    found = check("openai_responses", fake)
    assert found["text"] == NEWS and found["status"] == "completed"
    assert found["deltas"] == found["output_tokens"] == len(NEWS.split())
    assert found["kinds"] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert found["wrong_key"] == 401 and fake.violations == []


def test_gemini(check):
    fake = providers.GeminiFake(lambda question: NEWS)
    found = check("gemini", fake)
    assert found["text"] == NEWS and found["finish_reasons"] == ["STOP"]
    assert found["deltas"] == found["output_tokens"] == len(NEWS.split())
    assert found["wrong_key"] == [400, "INVALID_ARGUMENT"] and fake.violations == []


def test_deepgram_aura(check):
    fake = providers.AuraFake()
    found = check("aura", fake)
    sounds = [flite_voice(f"{text} ", 24_000) for text in TEXTS]
    assert found["bytes"] == [2 * len(sound.samples) for sound in sounds]
    assert 0 < found["cancelled_bytes"] < sum(found["bytes"]) / 2
    assert fake.cancelled == ["  ".join(TEXTS)] and found["sequence"] == [0, 1, 2]
    assert found["model"] == "aura-2-thalia-en" and found["wrong_key"] == 401
    assert fake.records[0].said_goodbye and fake.violations == []


def test_openai_speech(check):
    fake = providers.OpenAiSpeechFake()
    found = check("openai_speech", fake)
    assert found["kinds"] == ["audio/pcm", "audio/wav"]
    assert found["bytes"] == 2 * len(flite_voice(f"{TEXTS[0]} ", 24_000).samples)
    assert found["wav_is_the_same"] and found["wav_header"] == 44
    assert found["wrong_key"] == 401 and fake.violations == []


def test_elevenlabs(check):
    fake = providers.ElevenLabsFake()
    found = check("elevenlabs", fake)
    assert found["single_bytes"] > 24_000 and found["has_audio"] and found["final"] == "r1"
    assert found["text"].split() == " ".join(TEXTS).split()
    assert found["starts"] == len(found["text"])
    assert found["voices"] == ["George"] and found["wrong_key"] == 401
    assert fake.violations == [] and fake.records[1].said_goodbye


def test_cartesia(check):
    fake = providers.CartesiaFake()
    found = check("cartesia", fake)
    assert found["words"] == " ".join(TEXTS).split() and found["ends"] == sorted(found["ends"])
    sounds = [flite_voice(f"{text} ", 24_000) for text in TEXTS]
    assert found["bytes"] == 2 * sum(len(sound.samples) for sound in sounds)
    assert found["kinds"] == ["chunk", "done", "flush_done", "timestamps"]
    assert found["wrong_key"] == 401 and fake.violations == []


def test_the_sound_of_a_fake_is_recognized_as_the_text():
    """The comparison with which the calls check what arrived, without a call."""
    sound = flite_voice(TEXTS[1], 24_000)
    at_16k = providers.synthesis.resample(sound.samples, 24_000, audio_match.SAMPLE_RATE)
    own, rate = speech.flite(TEXTS[1], "kal16")
    assert rate == audio_match.SAMPLE_RATE
    assert audio_match.match(own, at_16k).share == 1.0
    other, _ = speech.flite(TEXTS[0], "kal16")
    assert audio_match.match(other, at_16k).share < 0.5
