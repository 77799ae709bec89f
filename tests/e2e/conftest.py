"""Fixtures of the end-to-end tests. What a person needs to understand a failure is printed with it.

With pytest-xdist each worker is a process of its own: it has one browser and one shared server, and its files in target/e2e carry its name.
"""

import fcntl
import json
import os
import pathlib
import random
import re

import pytest
from playwright.sync_api import sync_playwright

from kit import CHROMIUM, call as calls
from kit import stores
from kit.console import Console
from kit.receivers import Hooks, Model, Tool
from kit.report import Report, merge
from kit.server import OUT, WORKER, Server

#: The parts of `make test-long`.
PARTS = ("network", "load", "faces", "store", "editor", "providers", "fuzz")
#: The seed of what the tests of `make test` draw.
SEED = 19
LIVE: dict[str, list] = {"servers": [], "calls": []}


def pytest_addoption(parser):
    parser.addoption("--part", choices=[*PARTS, "all"], help="run the long tests of this part, and no others; without it no long test runs")


def pytest_sessionstart():
    """Earlier results must not be mistaken for those of this run. Only the controller removes them: workers would race."""
    if WORKER is None:
        for old in [*OUT.glob("*.log"), *OUT.glob("*.png"), *OUT.glob("report*.json")]:
            old.unlink(missing_ok=True)


def pytest_collection_modifyitems(config, items):
    part = config.getoption("part")
    kept, left = [], []
    for item in items:
        marks = list(item.iter_markers("long"))
        for mark in marks:
            if len(mark.args) != 1 or mark.args[0] not in PARTS:
                raise pytest.UsageError(f"{item.nodeid}: mark.long takes one of {PARTS}, not {mark.args}")
        if part is None:
            chosen = not marks
        else:
            chosen = any(part in ("all", mark.args[0]) for mark in marks)
        (kept if chosen else left).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.when != "call" or not report.failed:
        return
    for number, page in enumerate(LIVE["calls"]):
        name = re.sub(r"[^\w.-]+", "-", f"failed-{item.path.stem}-{item.name}-{number}")
        try:
            page.shot(name)
            report.sections.append(("picture", str(OUT / f"{name}.png")))
            report.sections.append(("captions", "\n".join(f"{c['who']}: {c['spoken']} [{c['cut']}]" for c in page.captions())))
            report.sections.append(("messages", "\n".join(map(str, page.page.evaluate("e2e.messages.filter((m) => m.data?.level === undefined).slice(-30)")))))
            report.sections.append(("console", "\n".join(page.complaints)))
        except Exception as error:  # the page may be what failed
            report.sections.append(("picture", f"none: {error}"))
    for server in LIVE["servers"]:
        report.sections.append(("server", server.tail()))


def pytest_sessionfinish():
    if WORKER is None:
        merge()


def pytest_terminal_summary(terminalreporter):
    """The last lines of a long log, which its reader sees first: the promised figures, and one line for each failure."""
    for name, found in merge().items():
        if name.startswith("promise: "):
            kept = "kept  " if found["kept"] else "MISSED"
            terminalreporter.write_line(f"{kept} {name[9:]}: {found['measured']}, promised {found['promised']}; {found['machine']}")
    if path := os.environ.get("E2E_DURATIONS"):
        keep_durations(terminalreporter, path)
    for failed in terminalreporter.stats.get("failed", []):
        crash = getattr(failed.longrepr, "reprcrash", None)
        terminalreporter.write_line(f"FAILED {failed.nodeid}: {crash.message.splitlines()[0] if crash else failed.longrepr}")


def keep_durations(terminalreporter, path: str):
    """Writes seconds and outcome of each test, for scripts/test.py."""
    found: dict[str, dict] = {}
    for outcome, reports in terminalreporter.stats.items():
        for one in reports:
            if not isinstance(one, pytest.TestReport):
                continue
            kept = found.setdefault(one.nodeid, {"seconds": 0.0, "outcome": "passed"})
            kept["seconds"] += one.duration
            if outcome in ("failed", "error", "skipped") and kept["outcome"] not in ("failed", "error"):
                kept["outcome"] = outcome
    pathlib.Path(path).write_text(json.dumps(found))


@pytest.fixture(autouse=True)
def turn(request):
    """A test that is marked `alone` begins once every other test is over, and none begins before it is over. All others run side by side."""
    if WORKER is None:
        yield
        return
    alone = request.node.get_closest_marker("alone")
    with (OUT / "door.lock").open("w") as door, (OUT / "room.lock").open("w") as room:
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        if not alone:
            fcntl.flock(door, fcntl.LOCK_UN)
        yield


@pytest.fixture(scope="session")
def report(request):
    return Report(judging=request.config.getoption("part") is not None)


@pytest.fixture(scope="session")
def playwright():
    with sync_playwright() as tool:
        yield tool


@pytest.fixture(scope="session")
def browser(playwright):
    """One Chromium; every call has an empty profile of its own."""
    chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=[*calls.FLAGS, calls.FAKE_DEVICE])
    yield chromium
    chromium.close()


@pytest.fixture
def call(browser):
    """Opens calls: `call(width=…)`. Closes them afterwards."""
    made = []

    def make(**options):
        options.setdefault("browser", browser)
        page = calls.Call(**options)
        made.append(page)
        LIVE["calls"].append(page)
        return page

    yield make
    for page in made:
        LIVE["calls"].remove(page)
        page.close()


@pytest.fixture
def console(browser, server):
    """Opens consoles: `console(width=…)`. Afterwards none of them may have complained."""
    made = []

    def make(**options):
        made.append(Console(browser, server, **options))
        LIVE["calls"].append(made[-1])
        return made[-1]

    yield make
    for one in made:
        LIVE["calls"].remove(one)
        complaints = one.unexpected()
        one.close()
        assert complaints == []


@pytest.fixture(scope="session")
def start(tmp_path_factory):
    """Starts servers: `start(name, *flags, data=…, env=…, scripted=…)`. Stops them at the end."""
    made = []

    def make(name, *flags, data=None, env=None, scripted=True):
        server = Server(data or tmp_path_factory.mktemp(name), *flags, env=env, name=name, scripted=scripted)
        made.append(server)
        LIVE["servers"].append(server)
        return server

    yield make
    for server in made:
        server.stop()


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server: its URL without a database."""
    with stores.postgres_server() as url:
        yield url


@pytest.fixture(scope="session")
def server(start):
    """The server that the tests of a worker share."""
    return start("server").first_start().ready()


@pytest.fixture
def workspace(server):
    """The shared server as a new workspace sees it: no agent, no conversation, no knowledge of another test. A server-wide setting is still shared."""
    return server.workspace()


@pytest.fixture(scope="session")
def own_offset(browser, server, report):
    """The offset in seconds that the measurement of lips itself adds in this browser on this machine: the median of five loops, because the
    two streams of each loop start a little differently. For long tests only."""
    loops = []
    for _ in range(5):
        page = calls.Call(browser).open(f"{server.url}/join/00000000-0000-4000-8000-000000000000")
        loops.append(page.own_offset(seconds=8))
        page.close()
    report.add("the lip measurement's own offset", {"loops": loops, "middle": sorted(loops)[2]})
    return sorted(loops)[2]


@pytest.fixture
def hooks():
    receiver = Hooks()
    yield receiver
    receiver.close()


@pytest.fixture
def model():
    """Makes scripted language models: `model(script)`."""
    made = []

    def make(script):
        made.append(Model(script))
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture
def tool():
    made = []

    def make(result):
        made.append(Tool(result))
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture
def chance(request):
    """A source of random values. The seed is fixed, but random in the long tier, where it is printed with a failure."""
    drawn = request.config.getoption("part") is not None
    seed = int(os.environ.get("E2E_SEED") or (random.randrange(10**6) if drawn else SEED))
    print("seed", seed)
    return random.Random(seed)
