"""Many calls with hosted providers: the load generator at a server whose agent is served by fakes
in a process on one CPU (kit/providers/service.py)."""

import json
import os

import pytest

from kit.load_generator import read_report, require_arguments, run_load
from kit.polling import wait_until
from kit.providers import service
from kit.server import ALL_EVENTS, ROOT

pytestmark = pytest.mark.long("providers")

WORKLOAD = ROOT / "benches/load/workload/workload.json"
PROVIDERS = {"stt": "deepgram", "llm": "anthropic", "tts": "elevenlabs"}
#: CPU of the fakes.
FAKE_CPU = 0
CALLS = 50
#: Milliseconds that a task of the fakes may wait for their CPU: they keep up.
MAX_LOOP_DELAY_MS = 250
#: Connections that 20 callers open, who hang up within 6 s.
MIN_CONNECTIONS = 1000


@pytest.fixture(scope="module")
def fakes():
    cpu = FAKE_CPU if FAKE_CPU in os.sched_getaffinity(0) else min(os.sched_getaffinity(0))
    with service.running(WORKLOAD, cpu, *PROVIDERS.values()) as found:
        yield found


@pytest.fixture(scope="module")
def loaded_server(start_server):
    return start_server("providers-load").read_first_start().wait_ready()


@pytest.fixture(scope="module")
def agent(loaded_server, fakes):
    """An agent with the settings of the workload."""
    settings = json.loads(WORKLOAD.read_text())["settings"]
    config = {
        kind: {
            "provider": name,
            "url": fakes[name]["url"],
            "token": fakes[name]["key"],
        }
        for kind, name in PROVIDERS.items()
    }
    delays = ("min_endpointing_delay", "max_endpointing_delay")
    config["stt"] |= {name: settings[name] for name in delays}
    return loaded_server.create_agent(
        avatar={"config": config, "idle_timeout": {"timeout": 0}},
        turn=settings,
        extra={"callback_url": "http://127.0.0.1:9/", "callback_events": ALL_EVENTS[:1]},
    )


def load(server, agent: dict, out, arguments: list[str], limits: list[str], timeout=400) -> dict:
    run = run_load(
        *("--server", server.url, "--key", server.key, "--agent", agent["id"]),
        *arguments,
        *("--out", str(out)),
        *require_arguments(limits),
        timeout=timeout,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return read_report(out)


def reports(fakes: dict) -> dict[str, dict]:
    return {kind: service.report(fakes[name]) for kind, name in PROVIDERS.items()}


def wait_until_closed(fakes: dict) -> dict[str, dict]:
    """The figures of the fakes, once all sockets of the calls are closed."""

    def closed():
        found = reports(fakes)
        return found if found["stt"]["open"] == found["tts"]["open"] == 0 else None

    return wait_until(closed, lambda: f"the end of all connections: {reports(fakes)}")


def test_fifty_calls_at_once(loaded_server, agent, fakes, tmp_path, report):
    """All words are right and all questions are answered. The delays are those of the vendors, the
    server's and the machine's together."""
    before = reports(fakes)
    found = load(
        loaded_server,
        agent,
        tmp_path / "fifty.json",
        ["--calls", str(CALLS), "--ramp", "5/s", "--duration", "45"],
        ["failed == 0", "errors == 0", "turns.unanswered == 0"],
    )
    after = wait_until_closed(fakes)
    cpu = after["stt"]["cpu_seconds"] - before["stt"]["cpu_seconds"]
    report.add("fifty calls with providers", found | {"fakes": after, "fakes_cpu_seconds": cpu})
    report.check_limit(
        "fifty calls with providers: turns with other words, of a hundred",
        100 * (1 - found["turns"]["right"] / found["turns"]["expected"]),
        1,
    )
    report.check_limit(
        "fifty calls with providers: delay of the fakes, ms",
        max(fake["loop_delay_ms"] for fake in after.values()),
        MAX_LOOP_DELAY_MS,
    )
    report.check_target(
        "fifty calls with providers: voice to voice p95, s",
        found["ms"]["voice_to_voice"]["p95"] / 1000,
        1.8,
        server=loaded_server,
    )
    for kind in ("stt", "tts"):
        assert after[kind]["connections"] - before[kind]["connections"] == CALLS, after[kind]
        assert after[kind]["violations"] == [], after[kind]
    assert after["stt"]["polite"] - before["stt"]["polite"] == CALLS


def test_a_thousand_connects_leak_nothing(loaded_server, agent, fakes, tmp_path, report):
    """Twenty callers hang up at a random moment within 6 s and call again. Each call has its own
    connections, which are closed."""
    before = reports(fakes)
    run = run_load(
        *("--server", loaded_server.url, "--key", loaded_server.key, "--agent", agent["id"]),
        *("--calls", "20", "--ramp", "10/s", "--cycle", "6", "--duration", "176"),
        *("--out", str(tmp_path / "connects.json")),
        *require_arguments(["failed == 0", "soak.rss_growth <= 10%"]),
        timeout=400,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    soak = json.loads((tmp_path / "connects.json").read_text())["soak"]
    after = wait_until_closed(fakes)
    report.add("a thousand connects to providers", {"soak": soak, "fakes": after})
    for kind in ("stt", "tts"):
        connections = after[kind]["connections"] - before[kind]["connections"]
        assert connections >= MIN_CONNECTIONS, after[kind]
        # One of each call.
        assert connections <= soak["calls"] + 20, (soak["calls"], after[kind])
        assert after[kind]["violations"] == [], after[kind]
    assert soak["calls_left"] == 0, soak
    assert soak["threads"][1] <= soak["threads"][0] + 8, soak
    # Twenty callers hang up at the same time: their peer, store and two connections each.
    assert soak["files"][1] <= soak["files"][0] + 80, soak
