"""Many callers who come at the same moment and speak at once."""

import concurrent.futures
import contextlib
import datetime
import os
import re
import time

import numpy as np
import pytest
from livekit import rtc

from kit import speech, stores
from kit.livekit_client import SAMPLE_RATE, LiveKitCaller, resample
from kit.livekit_rooms import AGENT_NAME, create_agent
from kit.livekit_server import LiveKitApi, LiveKitServer, run
from kit.livekit_worker import Worker, copy_keys
from kit.polling import wait_until

pytestmark = [pytest.mark.long("livekit"), pytest.mark.alone]

CALLERS, WORKERS = 20, 2
#: Repeated so often that each caller still speaks when its agent comes.
QUESTION = "Good morning, I would like to know how many apple trees there are in your garden."
REPEATS = 3
#: Milliseconds of sound that the SDK holds before it sends them.
QUEUE = 20_000
#: Seconds that LiveKit takes for one job.
LIVEKIT_WAIT = 0.2
#: Seconds from the assignment of a job until its caller is heard. LiveKit itself takes up to two
#: seconds for so many dispatches. The agent says so some .2 s after the first packet of the voice.
HEARD_LIMIT = 2


@pytest.fixture
def fleet(start_server, postgres, tmp_path):
    """A livekit-server, workers for it, and a server with the API on their database."""
    env = {"VISAVIS_SERVER_DATABASE_URL": stores.Postgres(postgres).create_database()}
    with contextlib.ExitStack() as stack:
        livekit = stack.enter_context(LiveKitServer("livekit-load"))
        server = start_server("load", env=env).read_first_start().wait_ready()
        env |= {
            "VISAVIS_LIMITS_LOAD": "0",
            "VISAVIS_MODELS_DIR": os.environ["VISAVIS_MODELS_DIR"],
        }
        workers = []
        for number in range(WORKERS):
            copy_keys(server.data, tmp_path / f"load-{number}")
            workers.append(Worker(livekit, tmp_path / f"load-{number}", env))
            stack.callback(workers[-1].close)
            workers[-1].wait_listening().wait_registered()
        for worker in workers:
            wait_until(lambda w=worker: w.status("/readyz") == 200, "a ready worker")
        yield livekit, server


class SpeakingCaller(LiveKitCaller):
    """Receives no media, and gives its sentence to the SDK in one piece: twenty clients in one
    process leave no CPU time to the workers otherwise."""

    def __init__(self, livekit: LiveKitServer, room: str):
        super().__init__(livekit, room, f"u-{room}", microphone=False, auto_subscribe=False)
        run(self._publish())

    async def _publish(self):
        self.source = rtc.AudioSource(SAMPLE_RATE, 1, QUEUE)
        track = rtc.LocalAudioTrack.create_audio_track("microphone", self.source)
        await self.room.local_participant.publish_track(track)

    def say(self, sound: np.ndarray):
        frame = rtc.AudioFrame(sound.tobytes(), SAMPLE_RATE, 1, len(sound))
        run(self.source.capture_frame(frame))

    def heard_at(self) -> float | None:
        """When the agent said that it hears the caller's voice."""
        times = (at for at, one in self.messages() if one.get("type") == "user-started-speaking")
        return next(times, None)


def test_agents_that_are_dispatched_at_once_hear_all_callers(fleet, scripted_llm, report):
    """The callers are in their rooms already, because the join of twenty clients on one machine
    takes longer than what is measured."""
    livekit, server = fleet
    samples, rate = speech.flite(QUESTION, "slt")
    sound = np.tile(resample(speech.trim_silence(samples), rate), REPEATS)
    # The recognition of twenty voices needs more than one machine.
    transcripts = [(QUESTION, len(sound) / SAMPLE_RATE)]
    agent = create_agent(server, scripted_llm, transcripts=transcripts)
    metadata = {"agent_id": agent["id"]}
    rooms, api = [f"load-{number}" for number in range(CALLERS)], LiveKitApi(livekit)
    with contextlib.ExitStack() as stack:
        callers = [stack.enter_context(SpeakingCaller(livekit, room)) for room in rooms]
        for caller in callers:
            caller.say(sound)
        with concurrent.futures.ThreadPoolExecutor(CALLERS) as pool:
            start = time.monotonic()
            list(pool.map(lambda room: api.create_dispatch(room, AGENT_NAME, metadata), rooms))
        for caller in callers:
            caller.wait(caller.heard_at, "the agent to hear the caller")
        heard = {
            room: caller.heard_at() - start for room, caller in zip(rooms, callers, strict=True)
        }
        assigned = assignments(livekit)
        for caller in callers:
            # The answers of twenty agents need more CPU time than one machine has.
            caller.wait_for_caption(caller.identity)
            assert len(caller.agents()) == 1
        agents = sum(
            how == "joined" for caller in callers for _, _, how in caller.received.participants
        )
    # LiveKit takes more than a second for so many jobs.
    began = min(assigned.values()) - LIVEKIT_WAIT
    waits = {room: assigned[room] - began for room in rooms}
    last = max(heard[room] - waits[room] for room in rooms)
    found = {
        "heard after s": sorted(heard.values()),
        "of this, LiveKit's dispatch": sorted(waits.values()),
        "agents": agents,
    }
    report.add("livekit callers at once", found)
    report.check_target(f"livekit {CALLERS} callers, last heard s", last, HEARD_LIMIT)


def assignments(livekit: LiveKitServer) -> dict[str, float]:
    """When LiveKit assigned the job of each room."""
    line = re.compile(r'(\S+)\t.*assigned job to worker.*"room": "([^"]+)"')
    found = line.findall(livekit.log.read_text())
    return {room: datetime.datetime.fromisoformat(at).timestamp() for at, room in found}
