"""Workers of LiveKit: registration, load, drain, lost jobs, and servers that answer nonsense."""

import asyncio
import concurrent.futures
import signal
import threading
import time

import pytest
from aiohttp import web
from livekit.protocol import agent as agent_protocol

from kit import stores
from kit.livekit_client import LiveKitCaller
from kit.livekit_rooms import (
    AGENT_NAME,
    GREETING,
    create_agent,
    create_room,
    lost_jobs,
    metrics,
    start_worker,
    wait_for_status,
)
from kit.livekit_server import LiveKitApi, LiveKitServer, create_token
from kit.livekit_worker import Worker, copy_keys
from kit.polling import wait_until

pytestmark = pytest.mark.long("livekit")


@pytest.fixture(scope="module")
def livekit():
    with LiveKitServer("livekit-workers") as server:
        yield server


@pytest.fixture
def fleet(livekit, start_server, postgres, tmp_path):
    """A server with the API, which is no worker, and workers on the same database."""
    env = {"VISAVIS_SERVER_DATABASE_URL": stores.Postgres(postgres).create_database()}
    server = start_server("fleet", env=env).read_first_start().wait_ready()
    workers = []

    def start(name: str, **more) -> Worker:
        copy_keys(server.data, tmp_path / name)
        workers.append(Worker(livekit, tmp_path / name, {**env, **more}))
        return workers[-1].wait_listening()

    yield server, start
    for worker in workers:
        worker.close()


def test_a_worker_serves_rooms_of_the_fleet(fleet, livekit, scripted_llm):
    server, start = fleet
    agent = create_agent(server, scripted_llm)
    worker = start("one")
    _, url, name = worker.wait_registered().groups()
    assert (url, name) == (livekit.url, AGENT_NAME)
    assert [worker.status(path) for path in ("/healthz", "/metrics")] == [200, 200]
    wait_until(lambda: worker.status("/readyz") == 200, lambda: worker.text("/readyz"))
    assert [worker.status(path) for path in ("/", "/v1/ext/agents", "/docs")] == [404] * 3
    token = create_token(livekit, "fleet", agent=AGENT_NAME, job_metadata={"agent_id": agent["id"]})
    with LiveKitCaller(livekit, token=token) as caller:
        caller.wait_for_caption(caller.wait_for_agent().identity, text=GREETING)
        listed = server.request("GET", "/v1/ext/conversation?limit=1").json()
        wait_for_status(server, listed[0]["id"], "IN_PROGRESS")
        # A worker that drains takes no job and lets its calls end.
        worker.process.send_signal(signal.SIGTERM)
        wait_until(lambda: worker.status("/readyz") == 503, "the worker drains")
        said = caller.speak("How many apple trees are there?")
        caller.wait_for_sound(after=said.end)
        assert caller.end() == "ok"
    assert worker.process.wait(30) == 0


def test_a_worker_waits_for_a_livekit_server_that_is_not_there(fleet, start_server):
    _, start = fleet
    with LiveKitServer("livekit-absent", start=False) as absent:
        worker = start("patient", **absent.environment())
        assert worker.status("/readyz") == 503
        wait_until(lambda: "not registered with LiveKit" in worker.text("/readyz"), "the reason")
        absent.start()
        worker.wait_registered()
        wait_until(lambda: worker.status("/readyz") == 200, lambda: worker.text("/readyz"))


def test_a_worker_without_what_it_needs_ends_with_a_sentence(livekit, tmp_path):
    for name, env, status, sentence in [
        ("no-database", {}, 2, "a worker needs server.database_url"),
        (
            "no-url",
            {"VISAVIS_SERVER_DATABASE_URL": "postgres://host/name", "LIVEKIT_URL": ""},
            2,
            "a worker needs --livekit URL",
        ),
        ("bad-url", {"LIVEKIT_URL": "ftp://x"}, 2, "is not a ws, wss, http or https URL"),
        ("short", {"LIVEKIT_API_SECRET": "short"}, 2, "has fewer than 32 characters"),
    ]:
        worker = Worker(livekit, tmp_path / name, env)
        assert worker.process.wait(30) == status, worker.log.read_text()
        assert sentence in worker.log.read_text()


def test_a_full_server_takes_no_job_and_serves_the_room_once_it_has_room(
    start_server, scripted_llm
):
    with LiveKitServer("livekit-full") as livekit:
        env = {"VISAVIS_LIMITS_CALLS": "1"}
        server = start_server("full", env=livekit.environment() | env | METRICS)
        server.read_first_start().wait_ready()
        agent = create_agent(server, scripted_llm)
        wait_until(lambda: "registered with LiveKit" in server.log.read_text(), "registered")
        first = create_room(server, agent)
        with LiveKitCaller(livekit, token=first["livekit"]["participant_token"]) as caller:
            caller.wait_for_caption(caller.wait_for_agent().identity, text=GREETING)
            metadata = {"agent_id": agent["id"]}
            token = create_token(livekit, "waits", "tom", agent=AGENT_NAME, job_metadata=metadata)
            with LiveKitCaller(livekit, token=token) as other:
                caller.end()
                other.wait_for_caption(other.wait_for_agent().identity, text=GREETING)
                # LiveKit asks no full worker, and says nothing about it. The first job may be lost
                # too: LiveKit does not know a worker at once.
                assert lost_jobs(server)["unavailable"] == 1, lost_jobs(server)


METRICS = {"VISAVIS_SERVER_METRICS_TOKEN": "metrics"}


def test_a_full_worker_leaves_lost_jobs_to_another_one(fleet, livekit, scripted_llm):
    server, start = fleet
    metadata = {"agent_id": create_agent(server, scripted_llm)["id"]}

    def join(room: str) -> LiveKitCaller:
        token = create_token(livekit, room, "maria", agent=AGENT_NAME, job_metadata=metadata)
        return LiveKitCaller(livekit, token=token)

    full = start("full", VISAVIS_LIMITS_CALLS="1")
    full.wait_registered()
    wait_until(lambda: full.status("/readyz") == 200, lambda: full.text("/readyz"))
    # The first worker looks for lost jobs, until it has a call.
    with join("first") as caller:
        caller.wait_for_caption(caller.wait_for_agent().identity, text=GREETING)
        with join("second") as other:
            start("free").wait_registered()
            other.wait_for_caption(other.wait_for_agent().identity, text=GREETING)
            assert len(caller.agents()) == 1


def test_a_burst_of_jobs_is_accepted_only_as_far_as_there_are_places(start_server, scripted_llm):
    with LiveKitServer("livekit-burst") as livekit:
        server = start_worker(start_server, livekit, "burst", {"VISAVIS_LIMITS_CALLS": "2"})
        metadata, api = {"agent_id": create_agent(server, scripted_llm)["id"]}, LiveKitApi(livekit)
        rooms = [f"burst-{number}" for number in range(8)]
        with concurrent.futures.ThreadPoolExecutor(len(rooms)) as pool:
            list(pool.map(lambda room: api.create_dispatch(room, AGENT_NAME, metadata), rooms))
        wait_until(lambda: sum(bool(api.list_participants(room)) for room in rooms) == 2, "agents")
        assert metrics(server)["visavis_livekit_jobs_accepted_total"] == 2, metrics(server)
        assert metrics(server)["visavis_livekit_jobs_failed_total"] == 0, server.log_tail()


def test_a_room_gets_a_new_agent_when_its_server_was_killed(start_server, scripted_llm):
    with LiveKitServer("livekit-killed") as livekit:
        server = start_worker(start_server, livekit, "killed")
        created = create_room(server, create_agent(server, scripted_llm))
        with LiveKitCaller(livekit, token=created["livekit"]["participant_token"]) as caller:
            first = caller.wait_for_agent().identity
            caller.wait_for_caption(first, text=GREETING)
            key, data = server.key, server.data
            server.kill()
            again = start_server("killed", data=data, env=livekit.environment() | METRICS)
            again.wait_ready().key = key
            # LiveKit keeps the dead participant for some 20 s.
            caller.wait(
                lambda: [one for one in caller.agents() if one.identity != first], "a new agent", 90
            )
            second = next(one.identity for one in caller.agents() if one.identity != first)
            caller.wait_for_caption(second, text=GREETING)
            assert lost_jobs(again) == {"worker_lost": 1} or sum(lost_jobs(again).values()) == 1


def test_an_agent_leaves_a_room_that_has_one(start_server, scripted_llm):
    """Two dispatches of one agent into one room are two jobs."""
    with LiveKitServer("livekit-twice") as livekit:
        server = start_worker(start_server, livekit, "twice")
        agent = create_agent(server, scripted_llm)
        api = LiveKitApi(livekit)
        metadata = {"agent_id": agent["id"]}
        api.create_dispatch("twice", AGENT_NAME, metadata)
        with LiveKitCaller(livekit, "twice") as caller:
            caller.wait_for_caption(caller.wait_for_agent().identity, text=GREETING)
            # LiveKit may lose the jobs of the first seconds after a registration.
            api.create_dispatch("twice", AGENT_NAME, metadata)
            wait_until(
                lambda: "the room has an agent already" in server.log.read_text(), server.log_tail
            )
            assert len(caller.agents()) == 1


def test_the_end_of_the_room_and_a_removal_end_the_call(start_server, scripted_llm):
    with LiveKitServer("livekit-ends") as livekit:
        server = start_worker(start_server, livekit, "ends")
        agent, api = create_agent(server, scripted_llm), LiveKitApi(livekit)
        for end in (
            lambda room, _: api.delete_room(room),
            api.remove_participant,
        ):
            created = create_room(server, agent)
            access = created["livekit"]
            with LiveKitCaller(livekit, token=access["participant_token"]) as caller:
                identity = caller.wait_for_agent().identity
                caller.wait_for_caption(identity, text=GREETING)
                end(access["room_name"], identity)
                ended = wait_for_status(server, created["id"], "ENDED", 10)
                assert ended["end_reason"] == "user_left", ended


class NonsenseServer:
    """A LiveKit server that registers workers and then answers nonsense, or nothing."""

    def __init__(self):
        self.behaviour = "garbage"
        self.registrations = 0
        self.started = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()
        self.started.wait(10)

    def _run(self):
        async def serve():
            app = web.Application()
            app.router.add_get("/agent", self._agent)
            app.router.add_get("/rtc/v1", self._room)
            app.router.add_post("/twirp/{method}", self._twirp)
            runner = web.AppRunner(app)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"ws://127.0.0.1:{runner.addresses[0][1]}"
            self.started.set()
            await asyncio.get_running_loop().create_future()

        asyncio.run(serve())

    async def _agent(self, request):
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        if self.behaviour == "silent":
            await socket.receive()
            return socket
        self.registrations += 1
        registered = agent_protocol.RegisterWorkerResponse(worker_id="AW_fake")
        await socket.send_bytes(
            agent_protocol.ServerMessage(register=registered).SerializeToString()
        )
        for payload in (b"", b"\xff" * 1000, b"\x0a\xff\xff\xff\xff"):
            await socket.send_bytes(payload)
        await socket.send_str("text")
        job = agent_protocol.Job(id="AJ_1", metadata="{" * 1000)
        await socket.send_bytes(
            agent_protocol.ServerMessage(
                availability=agent_protocol.AvailabilityRequest(job=job)
            ).SerializeToString()
        )
        self.asked_at = time.monotonic()
        async for message in socket:
            received = agent_protocol.WorkerMessage.FromString(message.data)
            if received.HasField("availability"):
                self.answered_after = time.monotonic() - self.asked_at
                assignment = agent_protocol.JobAssignment(job=job, token="nonsense")
                await socket.send_bytes(
                    agent_protocol.ServerMessage(assignment=assignment).SerializeToString()
                )
            if received.HasField("update_job") and received.update_job.error:
                self.error = received.update_job.error
        return socket

    async def _room(self, request):
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_bytes(b"\xff" * 100)
        return socket

    async def _twirp(self, _request):
        return web.Response(body=b"\xff" * 1000)


def test_a_server_that_answers_nonsense_harms_nothing(start_server, scripted_llm):
    fake = NonsenseServer()
    env = {
        "LIVEKIT_URL": fake.url,
        "LIVEKIT_API_KEY": "key",
        "LIVEKIT_API_SECRET": "secret" * 8,
    }
    server = start_server("nonsense", env=env).read_first_start().wait_ready()
    wait_until(lambda: hasattr(fake, "error"), server.log_tail)
    assert "not the expected JSON object" in fake.error
    assert fake.answered_after < 0.1
    create_agent(server, scripted_llm)
    assert server.request("GET", "/readyz").status == 200
    # A server that never registers the worker is tried again.
    fake.behaviour = "silent"
    log = server.log.read_text()
    assert "panicked" not in log
    assert fake.registrations >= 1
