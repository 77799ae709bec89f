"""Talks to the fake of one vendor with the vendor's own client, and prints what the client
understood as JSON. It runs with the packages of requirements.txt, and knows nothing of the fakes.

    check.py NAME URL KEY [FILE]    NAME: a function of stt.py, llm.py or tts.py; FILE: 16-bit
                                    samples at 16 kHz, for speech-to-text
"""

import json
import sys

import llm
import stt
import tts

CHECKS = {
    function.__name__: function
    for function in (
        stt.deepgram,
        stt.flux,
        stt.assemblyai,
        stt.scribe,
        stt.openai_realtime,
        stt.openai_transcriptions,
        llm.anthropic,
        llm.openai,
        llm.openai_responses,
        llm.gemini,
        tts.elevenlabs,
        tts.cartesia,
        tts.aura,
        tts.openai_speech,
    )
}

if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    print(json.dumps(CHECKS[name](*arguments)))
