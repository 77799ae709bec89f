"""Fakes of hosted providers of speech and language models. They speak the vendors' protocols on
loopback, at the vendors' pace. test_vendor_clients.py checks each of them with the vendor's own
client.

- fake: what all of them share: the server, its faults, the record of what arrived
- http_stream: an answer that is streamed part by part
- transcription: speech-to-text by a script
- synthesis: the sound of a text, and when each of its characters sounds
- deepgram (with flux), assemblyai, scribe, openai_audio (with openai_realtime): speech-to-text
- language_model, anthropic, openai, openai_responses, gemini: language models
- elevenlabs, cartesia, aura, openai_audio: text-to-speech
"""

from .anthropic import AnthropicFake
from .assemblyai import AssemblyAiFake
from .aura import AuraFake
from .cartesia import CartesiaFake
from .deepgram import DeepgramFake
from .elevenlabs import ElevenLabsFake
from .fake import FAULTS, Fake, Fault, Record
from .gemini import GeminiFake
from .openai import OpenAiFake
from .openai_audio import OpenAiSpeechFake, OpenAiSttFake
from .openai_responses import OpenAiResponsesFake
from .scribe import ScribeFake

__all__ = [
    "FAULTS",
    "AnthropicFake",
    "AssemblyAiFake",
    "AuraFake",
    "CartesiaFake",
    "DeepgramFake",
    "ElevenLabsFake",
    "Fake",
    "Fault",
    "GeminiFake",
    "OpenAiFake",
    "OpenAiResponsesFake",
    "OpenAiSpeechFake",
    "OpenAiSttFake",
    "Record",
    "ScribeFake",
]
