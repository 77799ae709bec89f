"""Servers of ours that serve the rooms of a livekit-server, and their agents."""

import json
import urllib.request

from .livekit_server import LiveKitServer
from .polling import wait_until

AGENT_NAME = "visavis"
GREETING = "Hello, nice to meet you."
ANSWER = "There are forty two of them, in the garden behind the house."
#: Long enough to be interrupted.
STORY = (
    "This is a long story about a garden with forty two apple trees, which an old man had planted "
    "when he was young, and about the bees that live there, and about the rain in autumn."
)


def start_worker(
    start_server, livekit: LiveKitServer, name="rooms", env: dict | None = None, **settings
):
    """A server that is registered with `livekit`. `settings`: keys of `[livekit]`."""
    env = livekit.environment() | {"VISAVIS_SERVER_METRICS_TOKEN": "metrics"} | (env or {})
    env |= {f"VISAVIS_LIVEKIT_{key.upper()}": str(value) for key, value in settings.items()}
    server = start_server(name, env=env).read_first_start().wait_ready()
    wait_registered(server)
    return server


def wait_registered(server, times: int = 1):
    """Waits until the server has registered so often."""
    wait_until(
        lambda: server.log.read_text().count("registered with LiveKit worker=") >= times,
        server.log_tail,
    )


def create_agent(server, scripted_llm, answer: str = ANSWER, **more) -> dict:
    def answer_all(_request) -> list:
        return [answer]

    llm = {"provider": "custom", "url": scripted_llm(answer_all).base_url, "model": "scripted"}
    return server.create_agent(name="Monica", llm=llm, greeting=GREETING, voice="slt", **more)


def create_room(server, agent: dict, **more) -> dict:
    """A conversation in a room of its own: the answer to its creation."""
    body = {"agent_id": agent["id"], "transport": "livekit", "user_name": "Maria", **more}
    created = server.request("POST", "/v1/ext/conversation", body)
    assert created.status == 201, created
    return created.json()


def read_conversation(server, conversation: str) -> dict:
    answer = server.request("GET", f"/v1/ext/conversation/{conversation}")
    assert answer.status == 200, answer
    return answer.json()


def wait_for_status(server, conversation: str, status: str, timeout: float = 60) -> dict:
    def found():
        record = read_conversation(server, conversation)
        return record if record["status"] == status else None

    return wait_until(found, f"the status {status}", timeout)


def metrics(server) -> dict[str, float]:
    """The metrics of LiveKit by name with labels."""
    with urllib.request.urlopen(server.url + "/metrics") as answer:
        lines = answer.read().decode().splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if line.startswith("visavis_livekit")]
    return {name: float(value) for name, value in pairs}


def lost_jobs(server) -> dict[str, float]:
    """Number of lost jobs by cause, without those that are 0."""
    prefix = "visavis_livekit_jobs_lost_total"
    found = {name: value for name, value in metrics(server).items() if name.startswith(prefix)}
    return {json.loads(name.split("=")[1].rstrip("}")): n for name, n in found.items() if n}
