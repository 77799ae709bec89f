"""Fixtures of the end-to-end tests. What a person needs to understand a failure is printed with it."""

import os
import random

import pytest
from playwright.sync_api import sync_playwright

from kit import call as calls
from kit import stores
from kit.console import Console
from kit.receivers import Hooks, Model, Tool
from kit.report import Report
from kit.server import OUT, Server

CHROMIUM = "/usr/bin/chromium"
LIVE: dict[str, list] = {"servers": [], "calls": []}


def pytest_sessionstart():
    """What earlier runs left is not mistaken for this one's."""
    for old in [*OUT.glob("*.log"), *OUT.glob("*.png"), *OUT.glob("report.json")]:
        old.unlink()


def pytest_collection_modifyitems(items):
    """What a browser does on a shared machine is tried again; on CI, where nobody can, all is. Never where a test says of itself how often."""
    for item in items:
        if ("playwright" in item.fixturenames or os.environ.get("CI")) and not item.get_closest_marker("flaky"):
            item.add_marker(pytest.mark.flaky(reruns=2))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.when != "call" or not report.failed:
        return
    for number, page in enumerate(LIVE["calls"]):
        name = f"failed-{item.name}-{number}"
        try:
            page.shot(name)
            report.sections.append(("picture", f"target/e2e/{name}.png"))
            report.sections.append(("captions", "\n".join(f"{c['who']}: {c['spoken']} [{c['cut']}]" for c in page.captions())))
            report.sections.append(("messages", "\n".join(map(str, page.page.evaluate("e2e.messages.filter((m) => m.data?.level === undefined).slice(-30)")))))
            report.sections.append(("console", "\n".join(page.complaints)))
        except Exception as error:  # the page may be what failed
            report.sections.append(("picture", f"none: {error}"))
    for server in LIVE["servers"]:
        report.sections.append(("server", server.tail()))


def pytest_terminal_summary(terminalreporter):
    """Last of all, where a reader of a long log looks first: what was promised and measured, and what failed in one line each."""
    for name, told in (RUN.sections if RUN else {}).items():
        if name.startswith("promise: "):
            terminalreporter.write_line(f"{'kept  ' if told['kept'] else 'MISSED'} {name[9:]}: {told['measured']}, promised {told['promised']}; stolen {told['stolen']:.0%}")
    for again in terminalreporter.stats.get("rerun", []):
        terminalreporter.write_line(f"RERUN  {again.nodeid}")
    for failed in terminalreporter.stats.get("failed", []):
        crash = getattr(failed.longrepr, "reprcrash", None)
        terminalreporter.write_line(f"FAILED {failed.nodeid}: {crash.message.splitlines()[0] if crash else failed.longrepr}")


RUN = None


@pytest.fixture(scope="session")
def report():
    global RUN
    RUN = Report()
    return RUN


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
    """Starts servers: `start(name, *flags, data=…, env=…)`. Stops them at the end."""
    made = []

    def make(name, *flags, data=None, env=None):
        server = Server(data or tmp_path_factory.mktemp(name), *flags, env=env, name=name)
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
    """The server that most tests share."""
    return start("server").first_start().ready()


@pytest.fixture
def own_offset(browser, server, report):
    """What the measurement of lips adds of itself in this browser on this machine, in seconds: the middle of five loops, as each loop's
    two streams come together a little differently."""
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
def chance():
    """Invents facts; the seed is printed with a failure."""
    seed = random.randrange(10**6)
    print("seed", seed)
    return random.Random(seed)
