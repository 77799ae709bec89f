"""A call without a browser, from the join to its record, for tests that do not test speech. The
user's words are typed, and a scripted voice speaks the answer in a fraction of a second."""

import asyncio
import json

from . import scripted_stt
from .polling import wait_until
from .webrtc_client import DataChannelCall, run_async

#: Seconds. This is a timeout and no assertion: on an idle machine everything happens within a
#: second.
TEST_TIMEOUT = 60


def scripted_voice(seconds_per_character: float) -> dict:
    """`config.tts` of a scripted voice with this pace."""
    pace = {"first_audio_s": 0, "s_per_char": seconds_per_character, "speed_x_realtime": 100}
    return {"provider": "script", "model_id": json.dumps({"providers": {"tts": pace}})}


#: A hundred characters per second.
FAST_VOICE = scripted_voice(0.01)


def create_typed_agent(
    server,
    *,
    llm_server=None,
    llm=None,
    transcripts=(),
    tts=FAST_VOICE,
    avatar=None,
    turn=None,
    **more,
) -> dict:
    """An agent for typed words. `llm_server`: a scripted OpenAI-compatible server instead of the
    built-in answerer. `transcripts`: what the scripted speech-to-text recognizes if the test does
    speak (scripted_stt.py)."""
    config = {
        "tts": tts,
        "stt": {"provider": "script", "model": scripted_stt.stt_script(list(transcripts))},
    }
    if llm_server:
        llm = {"provider": "custom", "url": llm_server.base_url, "model": "scripted"}
        turn = {"preemptive_generation": False, **(turn or {})}
    if llm:
        config["llm"] = llm
    return server.create_agent(avatar={"config": config, **(avatar or {})}, turn=turn, **more)


class TypedCall(DataChannelCall):
    """A call whose waits have the timeout of a busy machine."""

    async def wait_for(self, found, timeout=TEST_TIMEOUT, what=""):
        return await super().wait_for(found, timeout, what)

    async def wait_for_utterance(self, words, timeout=TEST_TIMEOUT):
        return await super().wait_for_utterance(words, timeout)

    async def ask(self, text, words, timeout=TEST_TIMEOUT):
        return await super().ask(text, words, timeout)

    async def wait_for_record_value(self, found, what: str):
        """The first true value of `found(record)` while the call continues."""

        def record():
            return self.server.get_conversation(self.conversation["id"])

        return await asyncio.to_thread(
            wait_until, lambda: found(record()), lambda: f"{what}: {record()}", TEST_TIMEOUT
        )


def run_call(server, agent, work, **more) -> dict:
    """The record of a call of `agent` in which `work(client)` runs."""
    conversation = server.create_conversation(agent["id"], **more)

    async def whole():
        client = await TypedCall(server, conversation).connect()
        await work(client)
        if client.find_message(event="call_ended"):
            await client.peer.close()
        else:
            await client.hang_up()

    run_async(whole())
    return server.wait_for(conversation["id"], "ENDED", timeout=TEST_TIMEOUT)
