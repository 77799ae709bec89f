"""How fast an agent is in its room, from the start of a worker, from a job, after LiveKit has lost
the job, and after a restart of LiveKit; and how many rooms two workers serve at once."""

import concurrent.futures
import contextlib
import datetime
import os
import re
import statistics
import time

import pytest

from kit import stores
from kit.livekit_client import LiveKitCaller
from kit.livekit_rooms import (
    AGENT_NAME,
    GREETING,
    create_agent,
    create_room,
    lost_jobs,
    start_worker,
    wait_registered,
)
from kit.livekit_server import LiveKitApi, LiveKitServer, create_token
from kit.livekit_signals import SignalCallers
from kit.livekit_worker import Worker, copy_keys
from kit.polling import wait_until

pytestmark = [pytest.mark.long("livekit"), pytest.mark.alone]

#: Of 20 joins in a row, seconds at the median: agent in the room, first packet of its voice, first
#: picture. LiveKit itself takes .2 s.
JOINS = 20
ROOMS = 100
LIMITS = {"agent": 0.28, "sound": 0.4, "picture": 0.45}
#: Starts of a worker, and seconds until it is registered and until it has accepted its first job,
#: at the median.
STARTS = 5
START_LIMITS = {"registered": 0.5, "accepted": 2}
#: Restarts of LiveKit, and seconds until the agent is back, at the median.
RESTARTS, BACK_LIMIT = 5, 3
#: Seconds from the decision to join `ROOMS` rooms without a job to the last agent in its room.
DIRECT_LIMIT = 2


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


def test_a_worker_takes_jobs_soon_after_its_start(
    start_server, scripted_llm, postgres, tmp_path, report
):
    env = {"VISAVIS_SERVER_DATABASE_URL": stores.Postgres(postgres).create_database()}
    speech = {"VISAVIS_MODELS_DIR": os.environ["VISAVIS_MODELS_DIR"]}
    times = {name: [] for name in START_LIMITS}
    with LiveKitServer("livekit-starts") as livekit:
        server = start_server("starts", env=env).read_first_start().wait_ready()
        metadata = {"agent_id": create_agent(server, scripted_llm)["id"]}
        for number in range(STARTS):
            copy_keys(server.data, tmp_path / f"start-{number}")
            worker = Worker(livekit, tmp_path / f"start-{number}", env | speech)
            with contextlib.closing(worker.wait_listening()):
                worker.wait_registered()
                times["registered"].append(worker.line_at - worker.started_at)
                accepted = wait_for_job(worker, LiveKitApi(livekit), f"start-{number}", metadata)
                times["accepted"].append(accepted - worker.started_at)
    for name, limit in START_LIMITS.items():
        report.check_target(f"livekit worker {name} s", statistics.median(times[name]), limit)


def wait_for_job(worker: Worker, api: LiveKitApi, name: str, metadata: dict) -> float:
    """Dispatches agents to new rooms until the worker has accepted a job: LiveKit loses those that
    a worker refuses. Returns when it was accepted."""
    rooms = (f"{name}-{number}" for number in range(1_000))

    def is_accepted() -> bool:
        api.create_dispatch(next(rooms), AGENT_NAME, metadata)
        (accepted,) = re.findall(
            r"visavis_livekit_jobs_accepted_total (\d+)", worker.text("/metrics")
        )
        return int(accepted) > 0

    wait_until(is_accepted, worker.log.read_text)
    return time.monotonic()


def test_an_agent_is_back_soon_after_a_restart_of_livekit(start_server, scripted_llm, report):
    with LiveKitServer("livekit-restarts") as livekit:
        # The call must not end while its caller is away, which a client of LiveKit is for longer.
        env = {"VISAVIS_TIMEOUTS_SILENCE": "600", "VISAVIS_LIMITS_LOAD": "0"}
        server = start_worker(start_server, livekit, "restarts", env)
        created = create_room(server, create_agent(server, scripted_llm))
        access, api, times = created["livekit"], LiveKitApi(livekit), []

        def has_agent() -> bool:
            found = api.list_participants(access["room_name"])
            return any((one.get("kind"), one.get("state")) == ("AGENT", "ACTIVE") for one in found)

        with LiveKitCaller(livekit, token=access["participant_token"]) as caller:
            caller.wait_for_caption(caller.wait_for_agent().identity, text=GREETING)
            for number in range(RESTARTS):
                livekit.restart()
                start = time.monotonic()
                wait_until(has_agent, server.log_tail)
                times.append(time.monotonic() - start)
                wait_registered(server, number + 2)
    report.check_target("livekit agent back s", statistics.median(times), BACK_LIMIT)


def test_a_hundred_rooms_without_a_job_get_their_agents(start_server, report):
    """LiveKit has lost all jobs, because no worker was there. The agents say nothing: a hundred
    greetings at once are too many for the built-in speech on a small machine."""
    with LiveKitServer("livekit-direct") as livekit:
        env = {"VISAVIS_LIMITS_LOAD": "0"}
        server = start_worker(start_server, livekit, "direct", env)
        metadata = {"agent_id": server.create_agent()["id"]}
        server.stop()
        tokens = [
            create_token(livekit, f"direct-{number}", agent=AGENT_NAME, job_metadata=metadata)
            for number in range(ROOMS)
        ]
        with SignalCallers(livekit, tokens) as callers:
            env |= livekit.environment() | {"VISAVIS_SERVER_METRICS_TOKEN": "metrics"}
            again = start_server("direct", data=server.data, env=env)
            offset = time.time() - time.monotonic()
            wait_until(
                lambda: len(callers.agents_at) == ROOMS,
                lambda: f"agents in {len(callers.agents_at)} rooms\n{again.log_tail()}",
            )
            assert lost_jobs(again) == {"no_worker": ROOMS}
        decided = re.search(r"(\S+)  WARN \S+ LiveKit has lost a job", again.log.read_text())
        start = datetime.datetime.fromisoformat(decided[1]).timestamp() - offset
        report.check_target(
            f"livekit {ROOMS} rooms without a job s",
            max(callers.agents_at.values()) - start,
            DIRECT_LIMIT,
        )
