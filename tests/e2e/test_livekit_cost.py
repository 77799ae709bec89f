"""What a call in a LiveKit room costs the server, beside a WebRTC call with an agent of the same
kind. Each kind has its own server, and all calls run at the same time, so that other load on the
machine changes both costs."""

import collections
import contextlib
import json
import pathlib
import statistics
import subprocess
import time

import pytest

from kit.livekit_crowd import Crowd
from kit.livekit_rooms import create_room, start_worker
from kit.livekit_server import LiveKitServer
from kit.load_generator import generator_command, require_arguments
from kit.polling import wait_until
from kit.server import ROOT, Server
from kit.server_metrics import metric

pytestmark = [pytest.mark.long("livekit"), pytest.mark.alone]

#: Calls of each server, and the first of them: one for each media thread of a server on two cores.
#: What the first ones allocate once is no cost of a call.
CALLS, FIRST_CALLS = 8, 2
WORKLOAD = ROOT / "benches" / "load" / "workload"
RECORDING, SCRIPT = WORKLOAD / "user.wav", (WORKLOAD / "workload.json").read_text()
#: Seconds of the measurement: every caller speaks the whole recording once.
MEASURED = json.loads(SCRIPT)["duration_s"]
#: Seconds between the last join and the measurement, and between two readings of the memory.
SETTLE, INTERVAL = 3, 1
#: Seconds for which the first calls stay, and the others.
FIRST_STAY, STAY = MEASURED + 60, MEASURED + 20
#: Share by which the work of the two servers may differ: frames of video, words that the callers
#: heard, and their turns. On a busy machine, two utterances of a caller may become one turn.
SAME_WORK = {"frames": 0.1, "words": 0.1, "turns": 0.2}
#: Frames that a caller in a room decodes at least: it watches the video.
MIN_FRAMES = 10 * MEASURED
#: Of a call in a room: CPU time as a multiple of that of a WebRTC call, and memory in MB.
MAX_CPU_RATIO, MAX_MEMORY = 1.3, 2
#: Factor by which noise may raise them. Other load changes both costs, but not equally.
NOISE = 1.1


class Meter:
    """The costs of the calls of one server, and what its agent does in them."""

    def __init__(self, server: Server):
        self.server = server
        self.agent = create_agent(server)

    def calls(self) -> int:
        return int(metric(self.server, "visavis_calls "))

    def transcripts(self) -> list[list[dict]]:
        listed = self.server.request("GET", f"/v1/ext/conversation?limit={CALLS}").json()
        return [self.server.get_conversation(one["id"])["transcript"] for one in listed]

    def has_answered(self) -> bool:
        """Whether the agent has answered twice in each of the first calls."""
        answers = [sum(e["role"] == "assistant" for e in one) for one in self.transcripts()]
        return sum(count >= 2 for count in answers) == FIRST_CALLS

    def begin(self):
        self.memory: list[float] = []
        self.before = self.counters()

    def finish(self) -> dict[str, float]:
        """Costs and work since `begin`, per second of a call."""
        after = self.counters()
        assert self.calls() == CALLS, f"calls have ended early\n{self.server.log_tail()}"
        call_seconds = CALLS * (after.pop("time") - self.before.pop("time"))
        return {name: (n - self.before[name]) / call_seconds for name, n in after.items()}

    def counters(self) -> collections.Counter:
        """Time, CPU time in ms of all threads and by their names, and frames of video."""
        found = collections.Counter(
            {
                "time": time.monotonic(),
                "cpu": self.server.cpu_seconds() * 1e3,
                "frames": metric(self.server, "visavis_video_frames_total"),
            }
        )
        for task in pathlib.Path(f"/proc/{self.server.process.pid}/task").iterdir():
            # A thread may have ended.
            with contextlib.suppress(OSError):
                spent = int((task / "schedstat").read_text().split()[0])
                found[f"cpu of {(task / 'comm').read_text().strip()}"] += spent / 1e6
        return found

    def work(self) -> dict[str, int]:
        """Turns of the callers, and words that they heard, while they spoke the recording once."""
        entries = [
            e for one in self.transcripts() for e in one if e["message_timestamp"] < MEASURED
        ]
        heard = [e["content"] for e in entries if e["role"] == "assistant"]
        return {"turns": len(entries) - len(heard), "words": len(" ".join(heard).split())}


def create_agent(server: Server) -> dict:
    """An agent whose models follow the script of the recording, like that of `visavis load`."""
    settings = {k: v for k, v in json.loads(SCRIPT)["settings"].items() if k != "vad"}
    delays = {key: settings[key] for key in ("min_endpointing_delay", "max_endpointing_delay")}
    config = {
        "stt": {"provider": "script", "model": SCRIPT, **delays},
        "llm": {"provider": "script", "model": SCRIPT},
        "tts": {"provider": "script", "model_id": SCRIPT},
    }
    avatar = {"config": config, "idle_timeout": {"timeout": 0}}
    return server.create_agent(avatar=avatar, turn=settings)


@contextlib.contextmanager
def webrtc_calls(meter: Meter, calls: int, seconds: float):
    """The load generator. Its callers open a data channel, as pages do."""
    server = meter.server
    arguments = [
        *("--server", server.url, "--key", server.key, "--agent", meter.agent["id"], "--channel"),
        *("--calls", str(calls), "--duration", str(seconds)),
        *require_arguments(["failed == 0", "errors == 0"]),
    ]
    with subprocess.Popen([*generator_command(), *arguments]) as process:
        try:
            yield process
        finally:
            process.kill()


def calls_in_rooms(
    livekit: LiveKitServer, meter: Meter, calls: int, seconds: float, out: pathlib.Path
):
    created = [create_room(meter.server, meter.agent) for _ in range(calls)]
    tokens = [one["livekit"]["participant_token"] for one in created]
    return Crowd(livekit, tokens, RECORDING, seconds, out)


def run_for(seconds: float, callers: subprocess.Popen, meters: list[Meter]):
    """Lets the calls run, and reads the memory of the servers meanwhile."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        for meter in meters:
            meter.memory.append(meter.server.rss_mb())
        with contextlib.suppress(subprocess.TimeoutExpired):
            pytest.fail(f"the callers ended with {callers.wait(min(left, INTERVAL))}")


def test_a_call_in_a_room_costs_about_as_much_as_a_webrtc_call(start_server, tmp_path, report):
    env = {"VISAVIS_LIMITS_LOAD": "0"}
    with LiveKitServer("livekit-cost") as livekit, contextlib.ExitStack() as stack:
        rooms = Meter(start_worker(start_server, livekit, "cost-rooms", env))
        direct = Meter(start_server("cost-direct", env=env).read_first_start().wait_ready())
        meters = [rooms, direct]

        def start_callers(calls: int, seconds: float, name: str):
            out = tmp_path / f"{name}.json"
            return (
                stack.enter_context(calls_in_rooms(livekit, rooms, calls, seconds, out)),
                stack.enter_context(webrtc_calls(direct, calls, seconds)),
            )

        start_callers(FIRST_CALLS, FIRST_STAY, "first")
        wait_until(lambda: all(meter.has_answered() for meter in meters), "the first answers")
        first_memory = [meter.server.rss_mb() for meter in meters]
        crowd, generator = start_callers(CALLS - FIRST_CALLS, STAY, "further")
        wait_until(
            lambda: all(meter.calls() == CALLS for meter in meters),
            lambda: f"all calls: {[meter.calls() for meter in meters]}",
        )
        run_for(SETTLE, generator, [])
        for meter in meters:
            meter.begin()
        run_for(MEASURED, generator, meters)
        room, call = found = [meter.finish() | meter.work() for meter in meters]
        for meter, before, figures in zip(meters, first_memory, found, strict=True):
            memory = statistics.median(meter.memory) - before
            figures["memory"] = memory / (CALLS - FIRST_CALLS)
        received = crowd.read_statistics()
        assert generator.wait(60) == 0, "the load generator failed: see the test's output"
    report.add("costs of calls", {"in rooms": room, "by WebRTC": call})
    report.add("video in rooms", [caller["video"] for caller in received])
    assert min(caller["video"]["frames_decoded"] for caller in received) >= MIN_FRAMES, received
    for name, share in SAME_WORK.items():
        assert abs(room[name] / call[name] - 1) <= share, f"{name}: {room} in rooms, {call} else"
    ratio = room["cpu"] / call["cpu"]
    report.check_target("livekit call, CPU as a multiple", ratio, MAX_CPU_RATIO, NOISE)
    report.check_target("livekit call, memory MB", room["memory"], MAX_MEMORY, NOISE)
