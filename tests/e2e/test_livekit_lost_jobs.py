"""Each way in which LiveKit loses a job. The room gets an agent that greets in time, and the loss
is counted once, by its cause. A worker that dies during its job is in test_livekit_workers.py.

Figures are seconds until the first sound of the greeting. They count from the caller's arrival, or
from the moment at which our server can serve the room, if that is later.
"""

import concurrent.futures
import contextlib
import time

import pytest

from kit.livekit_client import LiveKitCaller
from kit.livekit_fake_worker import ALWAYS_CHOSEN, FULL, FakeWorker
from kit.livekit_rooms import (
    AGENT_NAME,
    ANSWER,
    GREETING,
    create_agent,
    lost_jobs,
    metrics,
    start_worker,
    wait_registered,
)
from kit.livekit_server import LiveKitServer, create_token
from kit.polling import wait_until
from kit.tcp_relay import HttpRelay

pytestmark = [pytest.mark.long("livekit"), pytest.mark.alone]

#: Seconds until the greeting: 3 and 1 are promised until an agent joins, which takes a third of a
#: second.
LIMIT, LIMIT_WITH_WEBHOOKS = 3.3, 1.3
#: Seconds after a registration in which a lost job counts as `no_worker`: LiveKit may not know the
#: worker yet.
NEW_WORKER = 10
WEBHOOK = "/v1/livekit/webhook"
#: Only its calls make a server full, not the load of this machine.
NO_LOAD_LIMIT = {"VISAVIS_LIMITS_LOAD": "0"}


@pytest.fixture(scope="module")
def livekit():
    with LiveKitServer("livekit-lost-jobs") as server:
        yield server


@pytest.fixture(scope="module")
def relayed(start_server, livekit):
    """A server of ours that reaches LiveKit by a relay, and the relay. Callers do not use it."""
    with HttpRelay(livekit.port) as relay:
        env = NO_LOAD_LIMIT | {"LIVEKIT_URL": relay.url}
        server = start_worker(start_server, livekit, "lost-jobs", env)
        yield server, relay


@pytest.fixture
def tokens(scripted_llm):
    """Makes tokens of callers, which dispatch an agent of the server."""
    agents = {}

    def make(livekit: LiveKitServer, server, room: str, identity="caller") -> str:
        if server.url not in agents:
            agents[server.url] = create_agent(server, scripted_llm)
        metadata = {"agent_id": agents[server.url]["id"]}
        return create_token(livekit, room, identity, agent=AGENT_NAME, job_metadata=metadata)

    return make


@pytest.fixture
def join(tokens):
    """Joins rooms as a caller. Returns at the arrival."""
    with contextlib.ExitStack() as callers:

        def make(livekit: LiveKitServer, server, room: str) -> LiveKitCaller:
            token = tokens(livekit, server, room)
            return callers.enter_context(LiveKitCaller(livekit, token=token))

        yield make


@contextlib.contextmanager
def counted(server, cause: str, times: int = 1):
    """Checks that so many jobs are counted as lost meanwhile, by this cause."""
    before = lost_jobs(server)
    yield
    after = lost_jobs(server)
    added = {name: after[name] - before.get(name, 0) for name in after}
    assert {name: count for name, count in added.items() if count} == {cause: times}, added


def wait_for_greeting(caller: LiveKitCaller, since: float | None = None) -> float:
    """Waits for the whole greeting. Returns the seconds until its first sound, which count from
    the caller's arrival without `since`."""
    agent = caller.wait_for_agent().identity
    caller.wait_for_caption(agent, text=GREETING)
    return caller.wait_for_sound(agent) - (since or caller.received.connection[0][0])


@contextlib.contextmanager
def lost_by(livekit: LiveKitServer):
    """Waits until LiveKit has given up one more job."""
    before = given_up(livekit)
    yield
    wait_until(lambda: given_up(livekit) > before, lambda: f"a lost job\n{livekit.log_tail()}")


def given_up(livekit: LiveKitServer) -> int:
    """The number of jobs of ours that LiveKit has given up."""
    signs = ("failed to send job request", "not dispatching agent job")
    lines = livekit.log.read_text().splitlines()
    ours = [line for line in lines if '"JT_ROOM"' in line and f'"{AGENT_NAME}"' in line]
    return sum(sign in line for line in ours for sign in signs)


# --- This server is not registered ----------------------------------------------------------------


OTHER_WORKERS = {
    "no_worker": None,
    "unavailable": {"answer": False},
    "never_answers": {"answer": None},
    "over_target_load": {"answer": True, "load": 0.8},
    "full": {"answer": True, "status": FULL},
}


@pytest.mark.parametrize("way", OTHER_WORKERS)
def test_a_server_that_registers_later_serves_the_room(livekit, relayed, join, report, way):
    server, relay = relayed
    registered = "visavis_livekit_registered"
    wait_until(lambda: metrics(server)[registered] == 1, server.log_tail)
    relay.refuse()
    wait_until(lambda: metrics(server)[registered] == 0, server.log_tail)
    wait_until(lambda: not has_workers(livekit), livekit.log_tail)
    with contextlib.ExitStack() as workers, counted(server, "no_worker"):
        if other := OTHER_WORKERS[way]:
            workers.enter_context(FakeWorker(livekit, **other))
        with lost_by(livekit):
            caller = join(livekit, server, way)
        relay.resume()
        seconds = wait_for_greeting(caller, since=time.monotonic())
    report.check_target(f"livekit greeting, {way}, s", seconds, LIMIT)


def has_workers(livekit: LiveKitServer) -> bool:
    lines = livekit.log.read_text().splitlines()
    changes = [line for line in lines if "worker registered" in line or "deregistered" in line]
    return "deregistered" not in changes[-1]


# --- This server is registered --------------------------------------------------------------------


def test_a_late_answer_of_this_server_gets_no_assignment(livekit, relayed, join, report):
    server, relay = relayed
    wait_until(lambda: metrics(server)["visavis_livekit_registered"] == 1, server.log_tail)
    with counted(server, "not_assigned"):
        relay.freeze()
        with lost_by(livekit):
            caller = join(livekit, server, "late")
        relay.resume()
        seconds = wait_for_greeting(caller, since=time.monotonic())
    report.check_target("livekit greeting, late answer, s", seconds, LIMIT)


def wait_until_known(server):
    """Waits until a lost job does not count as `no_worker` any more."""
    wait_registered(server)
    since = time.monotonic()
    wait_until(lambda: time.monotonic() - since > NEW_WORKER, "LiveKit to know the worker")


@contextlib.contextmanager
def start_known(start_server, name: str, webhooks: bool):
    """A livekit-server and a server of ours, which it has known for long."""
    with LiveKitServer(f"livekit-{name}", start=False) as livekit:
        env = livekit.environment() | {"VISAVIS_SERVER_METRICS_TOKEN": "metrics"}
        server = start_server(name, env=env | NO_LOAD_LIMIT).read_first_start().wait_ready()
        livekit.start(webhooks=[server.url + WEBHOOK] if webhooks else [])
        wait_until_known(server)
        yield livekit, server


@pytest.fixture(scope="module")
def known(start_server):
    with start_known(start_server, "known", webhooks=False) as both:
        yield both


def test_another_worker_that_answers_late_loses_the_job(known, join, report):
    livekit, server = known
    with FakeWorker(livekit, load=ALWAYS_CHOSEN) as fake, counted(server, "not_asked"):
        with lost_by(livekit):
            caller = join(livekit, server, "late")
            job = fake.wait_until_asked("late")
            seconds = wait_for_greeting(caller)
        fake.answer_late(job)
        assert fake.assigned == [] and len(caller.agents()) == 1, caller.describe()
    report.check_target("livekit greeting, late answer of another worker, s", seconds, LIMIT)


@pytest.fixture(scope="module")
def small(start_server):
    """A livekit-server, and a server of ours with place for one call."""
    with LiveKitServer("livekit-small") as livekit:
        env = NO_LOAD_LIMIT | {"VISAVIS_LIMITS_CALLS": "1"}
        server = start_worker(start_server, livekit, "small", env)
        wait_until_known(server)
        yield livekit, server


def test_a_full_server_serves_rooms_once_it_has_a_place(small, join, report):
    livekit, server = small
    first = join(livekit, server, "first")
    wait_for_greeting(first)
    with counted(server, "unavailable", times=2):
        waiting = []
        for room in ("second", "third"):
            with lost_by(livekit):
                waiting.append(join(livekit, server, room))
        # Longer than a room waits that could be served.
        first.speak("How many apple trees are there?")
        first.wait_for_caption(first.agent().identity, text=ANSWER)
        since = end_call(first)
        wait_until(lambda: any(caller.agents() for caller in waiting), server.log_tail)
        served, last = sorted(waiting, key=lambda caller: not caller.agents())
        seconds = [wait_for_greeting(served, since)]
        seconds.append(wait_for_greeting(last, since=end_call(served)))
    report.check_target("livekit greeting, own server full, s", max(seconds), LIMIT)


def test_a_server_with_one_place_refuses_one_of_two_jobs(small, tokens, report):
    livekit, server = small
    wait_until(lambda: metrics(server)["visavis_livekit_rooms"] == 0, server.log_tail)
    both = [tokens(livekit, server, room) for room in ("left", "right")]
    with contextlib.ExitStack() as callers, counted(server, "unavailable"):
        with lost_by(livekit), concurrent.futures.ThreadPoolExecutor(2) as pool:
            joined = pool.map(lambda token: LiveKitCaller(livekit, token=token), both)
            joined = [callers.enter_context(caller) for caller in joined]
        wait_until(lambda: any(caller.agents() for caller in joined), server.log_tail)
        served, refused = sorted(joined, key=lambda caller: not caller.agents())
        wait_for_greeting(served)
        assert not refused.agents(), refused.describe()
        seconds = wait_for_greeting(refused, since=end_call(served))
    report.check_target("livekit greeting, own server refused, s", seconds, LIMIT)


def end_call(caller: LiveKitCaller) -> float:
    """Ends the call of a caller. Returns when its agent has left."""
    agent = caller.agent().identity
    assert caller.end() == "ok"
    return caller.wait_for_leave(agent)[0]


# --- With webhooks --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_webhooks(start_server):
    with start_known(start_server, "webhooks", webhooks=True) as both:
        yield both


def test_a_reported_room_gets_its_agent_sooner(with_webhooks, join, report):
    livekit, server = with_webhooks
    with FakeWorker(livekit, load=ALWAYS_CHOSEN) as fake, counted(server, "not_asked"):
        caller = join(livekit, server, "reported")
        fake.wait_until_asked("reported")
        seconds = wait_for_greeting(caller)
    report.check_target("livekit greeting, with webhooks, s", seconds, LIMIT_WITH_WEBHOOKS)


def test_a_room_whose_callers_come_together_is_counted_once(with_webhooks, tokens):
    """Each arrival is reported."""
    livekit, server = with_webhooks
    names = [f"caller-{number}" for number in range(5)]
    together = [tokens(livekit, server, "together", name) for name in names]
    with (
        FakeWorker(livekit, load=ALWAYS_CHOSEN),
        counted(server, "not_asked"),
        contextlib.ExitStack() as callers,
        concurrent.futures.ThreadPoolExecutor(len(names)) as pool,
    ):
        for caller in pool.map(lambda token: LiveKitCaller(livekit, token=token), together):
            callers.enter_context(caller)
            wait_for_greeting(caller)
