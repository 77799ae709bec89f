"""A call without a browser, from the join to its record, for tests in which speech is not the claim: the user's words are typed, and a
scripted voice says the answer in a fraction of a second."""

import asyncio
import json
import threading
import time

from . import hearing
from .peer import Call, run

#: Seconds. A time-out and no assertion: what is awaited comes within a second on an idle machine.
PATIENCE = 60


def voice(seconds_per_character: float) -> dict:
    """`config.tts` of a scripted voice of this pace."""
    pace = {"first_audio_s": 0, "s_per_char": seconds_per_character, "speed_x_realtime": 100}
    return {"provider": "script", "model_id": json.dumps({"providers": {"tts": pace}})}


#: A hundred characters in a second.
QUICK = voice(0.01)


def agent(server, *, brain=None, llm=None, hears=(), tts=QUICK, avatar=None, turn=None, **more) -> dict:
    """An agent for typed words. `brain`: a scripted OpenAI-compatible server instead of the built-in answerer; `hears`: what it understands
    where the test does speak (hearing.py)."""
    config = {"tts": tts, "stt": {"provider": "script", "model": hearing.script(list(hears))}}
    if brain:
        llm = {"provider": "custom", "url": brain.base, "model": "scripted"}
        turn = {"preemptive_generation": False, **(turn or {})}
    if llm:
        config["llm"] = llm
    return server.agent(avatar={"config": config, **(avatar or {})}, turn=turn, **more)


class Talk(Call):
    """A call whose waits have the time of a busy machine."""

    async def until(self, found, timeout=PATIENCE, what=""):
        return await super().until(found, timeout, what)

    async def until_spoken(self, words, timeout=PATIENCE):
        return await super().until_spoken(words, timeout)

    async def ask(self, text, words, timeout=PATIENCE):
        return await super().ask(text, words, timeout)

    async def recorded(self, found, what: str):
        """The first true value of `found(record)` while the call goes on."""

        def look():
            end = time.monotonic() + PATIENCE
            while not (value := found(record := self.server.record(self.conversation["id"]))):
                assert time.monotonic() < end, f"waited {PATIENCE} s for {what}; {record}"
                threading.Event().wait(0.1)
            return value

        return await asyncio.to_thread(look)


def talk(server, agent, work, **more) -> dict:
    """The record of a call of `agent` in which `work(client)` happens."""
    conversation = server.conversation(agent["id"], **more)

    async def whole():
        client = await Talk(server, conversation).begin()
        await work(client)
        if client.says(event="call_ended"):
            await client.peer.close()
        else:
            await client.leave()

    run(whole())
    return server.until(conversation["id"], "ENDED", timeout=PATIENCE)
