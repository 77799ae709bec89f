"""The cost of the control plane: CPU time of a request, memory of an idle server.

CPU time is measured because other programs on the machine change it little: caches and shared units
of the CPU add to it. `make test` allows for that. The long tier checks the promise itself.
"""

import asyncio
import json
import time

import pytest

from kit.report import percentiles
from kit.webrtc_client import run_async

CONNECTIONS = 8
#: How much more CPU time a request may take beside other programs.
NOISE_FACTOR = 3


async def send_requests(server, method, path, body, count):
    """Sends `count` requests over a few connections, each one after the answer to the last. Returns
    the latency of each, and the CPU time of one."""
    raw = json.dumps(body).encode() if body is not None else b""
    host, port = server.url.removeprefix("http://").split(":")
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: {host}:{port}\r\nx-api-key: "
        f"{server.key}\r\ncontent-type: application/json\r\ncontent-length: {len(raw)}\r\n\r\n"
    )
    request, durations, left = head.encode() + raw, [], iter(range(count))

    async def client():
        reader, writer = await asyncio.open_connection(host, int(port))
        for _ in left:
            started_at = time.perf_counter()
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.split()[1] in (b"200", b"201"), answer
            length = next(
                line
                for line in answer.lower().split(b"\r\n")
                if line.startswith(b"content-length:")
            )
            await reader.readexactly(int(length.split(b":")[1]))
            durations.append(time.perf_counter() - started_at)
        writer.close()

    cpu = server.cpu_seconds()
    await asyncio.gather(*(client() for _ in range(CONNECTIONS)))
    return durations, (server.cpu_seconds() - cpu) / count


@pytest.fixture(scope="module")
def server_without_models(start_server, tmp_path_factory):
    """A server without models: nothing but the control plane works."""
    empty = tmp_path_factory.mktemp("no-models")
    return start_server("bare", env={"VISAVIS_MODELS_DIR": str(empty)}).read_first_start()


def test_memory_of_an_idle_server(server_without_models, report):
    # About 10 MB are flite and its voice, which the system has installed, not `make setup`.
    report.check_limit(
        "RSS of an idle server without models, MB", server_without_models.rss_mb(), 75
    )


#: The number of requests in `make test`; the long tier sends five times as many.
@pytest.mark.parametrize("times", [1, pytest.param(5, marks=pytest.mark.long("store"))])
@pytest.mark.parametrize(
    "what, method, path, count, promised",
    [
        ("read of an agent", "GET", "/v1/ext/agent/{agent}", 1500, 3000),
        ("read of a conversation", "GET", "/v1/ext/conversation/{conversation}", 1500, 3000),
        ("creation of a conversation", "POST", "/v1/ext/conversation", 400, 500),
        ("creation of an agent", "POST", "/v1/ext/agent", 400, 500),
    ],
)
def test_cpu_time_of_a_request(
    server_without_models, report, what, method, path, count, promised, times
):
    """Promised: so many requests per second of one core."""
    agent = server_without_models.create_agent()["id"]
    conversation = server_without_models.create_conversation(agent)["id"]
    picture = server_without_models.request("GET", "/v1/ext/avatars").json()[0]["avatar_key_id"]
    bodies = {
        "/v1/ext/conversation": {"agent_id": agent},
        "/v1/ext/agent": {
            "agent_name": "A",
            "agent_system_prompt": "Be kind.",
            "avatars": [{"avatar_key_id": picture}],
        },
    }
    path = path.format(agent=agent, conversation=conversation)
    durations, cpu = run_async(
        send_requests(server_without_models, method, path, bodies.get(path), count * times)
    )
    report.add(
        what,
        {
            "a second of a core": round(1 / cpu),
            "took": percentiles(durations),
            "p99": round(sorted(durations)[int(0.99 * len(durations))], 4),
        },
    )
    report.check_target(f"CPU time of a {what}, s", cpu, 1 / promised)
    report.check_limit(
        f"CPU time of a {what} beside other programs, s", cpu, NOISE_FACTOR / promised
    )
