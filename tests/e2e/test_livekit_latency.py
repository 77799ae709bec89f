"""How fast an agent is in its room, and how many rooms two workers serve at once."""

import concurrent.futures
import contextlib
import statistics
import time

import pytest

from kit import stores
from kit.livekit_client import LiveKitCaller
from kit.livekit_rooms import AGENT_NAME, create_agent, start_worker
from kit.livekit_server import LiveKitApi, LiveKitServer, create_token
from kit.livekit_worker import Worker, copy_keys
from kit.polling import wait_until

pytestmark = [pytest.mark.long("livekit"), pytest.mark.alone]

#: Of 20 joins in a row, seconds at the median: agent in the room, first packet of its voice, first
#: picture. LiveKit itself takes .2 s.
JOINS = 20
ROOMS = 100
LIMITS = {"agent": 0.28, "sound": 0.4, "picture": 0.45}


def test_an_agent_is_in_its_room_at_once(start_server, scripted_llm, report):
    with LiveKitServer("livekit-latency") as livekit:
        server = start_worker(start_server, livekit, "latency")
        metadata = {"agent_id": create_agent(server, scripted_llm)["id"]}
        times = {name: [] for name in LIMITS}
        # The first room after the registration may wait for LiveKit's own cache.
        for number in range(JOINS + 2):
            token = create_token(livekit, f"join-{number}", agent=AGENT_NAME, job_metadata=metadata)
            start = time.monotonic()
            with LiveKitCaller(livekit, token=token, microphone=False) as caller:
                agent = caller.wait_for_agent().identity
                joined = next(at for at, who, what in caller.received.participants if who == agent)
                sound = caller.wait(lambda c=caller, a=agent: first_sound(c, a), "sound")
                picture = caller.wait(lambda c=caller: first_picture(c), "a picture")
            if number >= 2:
                times["agent"].append(joined - start)
                times["sound"].append(sound - start)
                times["picture"].append(picture - start)
        medians = {name: statistics.median(values) for name, values in times.items()}
        for name, limit in LIMITS.items():
            report.check_target(f"livekit {name} s", medians[name], limit)


def first_sound(caller, agent) -> float | None:
    recordings = [one for one in caller.received.audio.values() if one.identity == agent]
    return recordings[0].parts[0][0] if recordings and recordings[0].parts else None


def first_picture(caller) -> float | None:
    return caller.received.video[0][0] if caller.received.video else None


def test_two_workers_serve_a_hundred_rooms(start_server, scripted_llm, postgres, tmp_path, report):
    env = {"VISAVIS_SERVER_DATABASE_URL": stores.Postgres(postgres).create_database()}
    with contextlib.ExitStack() as stack:
        livekit = stack.enter_context(LiveKitServer("livekit-hundred"))
        server = start_server("hundred", env=env).read_first_start().wait_ready()
        for name in ("one", "two"):
            copy_keys(server.data, tmp_path / name)
            worker = Worker(livekit, tmp_path / name, {**env, "VISAVIS_LIMITS_LOAD": "0"})
            stack.callback(worker.close)
            worker.wait_listening().wait_registered()
            wait_until(lambda w=worker: w.status("/readyz") == 200, "a ready worker")
        metadata = {"agent_id": create_agent(server, scripted_llm)["id"]}
        api = LiveKitApi(livekit)
        start = time.monotonic()
        waiting = {f"room-{number}" for number in range(ROOMS)}
        with concurrent.futures.ThreadPoolExecutor(ROOMS) as pool:
            # Each request waits for LiveKit's search of a worker.
            list(pool.map(lambda room: api.create_dispatch(room, AGENT_NAME, metadata), waiting))

        def all_have_agents() -> bool:
            waiting.difference_update(room for room in list(waiting) if api.list_participants(room))
            return not waiting

        wait_until(all_have_agents, lambda: f"{len(waiting)} rooms have no agent", 60)
        report.check_target(f"livekit {ROOMS} rooms s", time.monotonic() - start, 8)
