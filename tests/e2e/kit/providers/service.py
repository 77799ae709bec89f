"""Fakes as a process of their own, pinned to one CPU, for many calls. It prints their addresses and
keys as a line of JSON, and ends with its standard input.

    python -m kit.providers.service WORKLOAD CPU PROVIDER…
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import urllib.request

import numpy as np

from .. import speech
from .anthropic import AnthropicFake
from .assemblyai import AssemblyAiFake
from .cartesia import CartesiaFake
from .deepgram import DeepgramFake
from .elevenlabs import ElevenLabsFake
from .openai import OpenAiFake
from .transcription import SAMPLE_RATE, Utterance, loud_seconds

#: Seconds for the fakes to start.
TIMEOUT = 60


def utterances(workload: pathlib.Path) -> list[Utterance]:
    """The utterances of the load generator's recording."""
    about = json.loads(workload.read_text())
    samples, rate = speech.read_wav((workload.parent / about["wav"]).read_bytes())
    assert rate == SAMPLE_RATE
    return [
        Utterance(
            one["transcript"],
            loud_seconds(
                np.asarray(samples[int(one["onset_s"] * rate) : int(one["end_s"] * rate)])
            ),
        )
        for one in about["utterances"]
    ]


def create(provider: str, workload: pathlib.Path):
    """A fake for many calls."""
    about = json.loads(workload.read_text())
    answers = {one["transcript"]: one["reply"] for one in about["utterances"]}
    options = {"keep_messages": False}
    match provider:
        case "deepgram" | "assemblyai":
            kind = DeepgramFake if provider == "deepgram" else AssemblyAiFake
            return kind(utterances(workload), per_connection=True, **options)
        case "anthropic" | "openai":
            kind = AnthropicFake if provider == "anthropic" else OpenAiFake
            return kind(lambda question: answers.get(question, "Yes."), **options)
        case "elevenlabs" | "cartesia":
            kind = ElevenLabsFake if provider == "elevenlabs" else CartesiaFake
            return kind(voice="hum", **options)
    raise ValueError(provider)


def main(workload: str, cpu: str, *names: str):
    os.sched_setaffinity(0, {int(cpu)})
    fakes = {name: create(name, pathlib.Path(workload)) for name in names}
    print(
        json.dumps({name: {"url": fake.url, "key": fake.key} for name, fake in fakes.items()}),
        flush=True,
    )
    sys.stdin.read()


@contextlib.contextmanager
def running(workload: pathlib.Path, cpu: int, *names: str):
    """The fakes of such a process: `{provider: {url, key}}`."""
    command = [sys.executable, "-m", "kit.providers.service", str(workload), str(cpu), *names]
    folder = pathlib.Path(__file__).resolve().parents[2]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder
    )
    try:
        line = process.stdout.readline()
        assert line, f"the fakes did not start: exit code {process.wait(TIMEOUT)}"
        yield json.loads(line)
    finally:
        process.stdin.close()
        process.wait(TIMEOUT)


def report(fake: dict) -> dict:
    """The figures of a fake of such a process."""
    with urllib.request.urlopen(f"{fake['url']}/-/report", timeout=TIMEOUT) as answer:
        return json.load(answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
