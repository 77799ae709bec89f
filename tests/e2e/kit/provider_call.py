"""Calls whose models are served by the fakes of the providers, and what must hold for each of
them."""

import json
import time

import numpy as np

from . import audio_match, providers, speech
from .typed_call import TypedCall

#: Voice with which the fakes speak. No built-in voice sounds like it.
FAKE_VOICE = "kal16"


def choice(fake: providers.Fake, **more) -> dict:
    """The choice of an agent that brings its own address and key."""
    return {"provider": fake.provider, "url": fake.base_url, "token": fake.key, **more}


def fallback(fake: providers.Fake, **more) -> dict:
    """An entry of `fallback`, which has no key of its own."""
    entry = choice(fake, **more)
    del entry["token"]
    return entry


def create_agent(server, *, stt=None, llm=None, tts=None, turn=None, **more) -> dict:
    """An agent with these fakes, or with these choices. Without one, the built-in model serves."""
    config = {"tts": {"provider": "flite", "voice_id": "rms"}}
    for kind, fake in (("stt", stt), ("llm", llm), ("tts", tts)):
        if fake is not None:
            config[kind] = fake if isinstance(fake, dict) else choice(fake)
    turn = {"preemptive_generation": False, **(turn or {})}
    return server.create_agent(avatar={"config": config}, turn=turn, **more)


def check_secrets(server, fakes: list[providers.Fake], agent: dict, conversation: dict):
    """No key is in a URL, in the log, or in an answer of the API. Each vendor got its own only."""
    keys = [fake.key for fake in fakes]
    log = server.log.read_text(errors="replace")
    paths = [
        f"/v1/ext/agent/{agent['id']}",
        "/v1/ext/agent?perpage=100",
        f"/v1/ext/conversation/{conversation['id']}",
        f"/v1/ext/conversation/{conversation['id']}/turns",
        "/v1/ext/conversation?perpage=100",
        "/v1/ext/providers",
    ]
    answers = {path: server.request("GET", path).body.decode() for path in paths}
    for key in keys:
        assert key not in log, "a key is in the log"
        for path, answer in answers.items():
            assert key not in answer, f"a key is in the answer of {path}"
    for fake in fakes:
        for record in fake.records:
            name, _ = fake.key_header
            others = {n: v for n, v in record.headers.items() if n != name}
            messages = [one.message for one in record.received]
            shown = json.dumps([record.path, record.query, others, record.body, messages])
            assert fake.key not in shown, f"{fake.vendor} got the key outside of its header"
            everything = shown + json.dumps(record.headers)
            assert not any(key in everything for key in keys if key != fake.key)
            assert "sec-websocket-extensions" not in record.headers, "compression is requested"


def check_protocols(fakes: list[providers.Fake]):
    """The server did nothing that a vendor does not allow."""
    for fake in fakes:
        assert fake.violations == [], f"{fake.vendor}: {fake.violations}"


class SpokenCall(TypedCall):
    """A call in which the user speaks. `times` has the arrival of each message, in seconds of the
    monotonic clock."""

    def __init__(self, server, conversation):
        super().__init__(server, conversation)
        self.times: list[float] = []

    def _on_message(self, text):
        self.times.append(time.monotonic())
        super()._on_message(text)

    def play(self, text: str, voice: str = "slt"):
        """Speaks after what is being spoken."""
        sound = speech.concatenate([(text, voice)])
        self.microphone.queue = np.concatenate([self.microphone.queue, sound])

    async def say(self, text: str) -> str:
        """Speaks, and returns what was understood."""
        count = len(self.events("utterance_committed"))
        self.play(text)
        await self.wait_for(
            lambda: len(self.events("utterance_committed")) > count, what=f"a transcript of {text}"
        )
        return self.events("utterance_committed")[count]["text"]

    async def wait_for_start(self, count: int):
        """Waits until the agent has begun its `count`-th utterance."""
        started = "agent.started_speaking"
        await self.wait_for(lambda: len(self.events(started)) >= count, what=f"{count} {started}")

    def samples(self) -> int:
        return sum(len(part) for part in self.received_audio)

    def arrival(self, text: str, start: int, voice: str = FAKE_VOICE) -> audio_match.Arrival:
        """How much of a text is in the sound from `start` on, in samples."""
        sound = np.concatenate(self.received_audio)[start:]
        return audio_match.match_page_audio([text], voice, sound)[0]

    def times_of(self, name: str) -> list[float]:
        """When the events of this name arrived."""
        return [
            at
            for at, message in zip(self.times, self.messages, strict=True)
            if event_name(message) == name
        ]


def event_name(message: dict) -> str | None:
    event = (message.get("data") or {}).get("event") or {}
    return event.get("event", event).get("name")
