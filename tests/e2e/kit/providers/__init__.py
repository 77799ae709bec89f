"""Fakes of hosted providers of speech and language models. They speak the vendors' protocols on
loopback, at the vendors' pace. test_vendor_clients.py checks each of them with the vendor's own
client.

- fake: what all of them share: the server, its faults, the record of what arrived
- transcription: speech-to-text by a script
- synthesis: the sound of a text, and when each of its characters sounds
- deepgram, assemblyai: speech-to-text
- language_model, anthropic, openai: language models
- elevenlabs, cartesia: text-to-speech
"""

from .anthropic import AnthropicFake
from .assemblyai import AssemblyAiFake
from .cartesia import CartesiaFake
from .deepgram import DeepgramFake
from .elevenlabs import ElevenLabsFake
from .fake import FAULTS, Fake, Fault
from .openai import OpenAiFake

__all__ = [
    "FAULTS",
    "AnthropicFake",
    "AssemblyAiFake",
    "CartesiaFake",
    "DeepgramFake",
    "ElevenLabsFake",
    "Fake",
    "Fault",
    "OpenAiFake",
]
