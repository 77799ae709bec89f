#!/usr/bin/env python3
"""Writes a workload of spoken questions to the demo agent, for calls with the built-in models.

python3 benches/load/speech_workload.py speech.json speech.wav

It needs flite (Debian: flite). The callers speak 29 % of the time, in two voices, and pause long
enough for the answers. `visavis load --agent ID --workload speech.json --speech speech.wav` plays
it. The agent answers by itself, so the words that the load test counts as wrong are those of
another transcript.
"""

import array
import json
import subprocess
import sys
import wave
from pathlib import Path

RATE = 16_000
#: Samples quieter than this count as silence.
SILENCE = 300
#: Silence after a question, in seconds and in durations of the question.
MIN_PAUSE, PAUSE_FACTOR = 5.5, 7 / 3
QUESTIONS = [
    ("rms", "What is this program, and who is it made for?"),
    ("slt", "How much does it cost to run it on my own machine?"),
    ("rms", "Can you tell me how I begin to use it at home?"),
    ("slt", "Does the whole thing work without the internet?"),
    ("rms", "Which faces can I choose for my own agent?"),
    ("slt", "What happens with the transcript of my conversation?"),
    ("rms", "Can I connect a language model of my own choice?"),
    ("slt", "How do I put an agent on the web site of my company?"),
]


def speak(voice, text):
    """The samples of a sentence, without the silence around it."""
    command = ["flite", "-voice", voice, "-t", text, "-o", "/dev/stdout"]
    wav = subprocess.run(command, capture_output=True, check=True).stdout
    # flite writes to a pipe without knowing the length, so the length in the header is not used.
    body = wav[wav.index(b"data") + 8 :]
    samples = array.array("h", body[: len(body) // 2 * 2])
    loud = [at for at, sample in enumerate(samples) if abs(sample) > SILENCE]
    return samples[loud[0] : loud[-1]]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    samples, utterances = array.array("h", bytes(2 * RATE)), []
    for voice, text in QUESTIONS:
        question = speak(voice, text)
        onset = len(samples) / RATE
        samples.extend(question)
        end = len(samples) / RATE
        reply = {"transcript": text, "interim": text.split()[0], "reply": "yes", "barge_in": False}
        times = {"onset_s": round(onset, 3), "end_s": round(end, 3)}
        utterances.append({"id": len(utterances), **times, **reply})
        pause = max(MIN_PAUSE, (end - onset) * PAUSE_FACTOR)
        samples.extend(array.array("h", bytes(2 * int(RATE * pause))))
    built_in = json.loads((Path(__file__).parent / "workload/workload.json").read_text())
    workload = {**built_in, "duration_s": len(samples) / RATE, "utterances": utterances}
    Path(sys.argv[1]).write_text(json.dumps(workload, indent=1) + "\n")
    with wave.open(sys.argv[2], "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.tobytes())


if __name__ == "__main__":
    main()
