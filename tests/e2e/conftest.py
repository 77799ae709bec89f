"""Fixtures of the end-to-end tests. A failure prints what a person needs to understand it.

With pytest-xdist each worker is its own process. A worker has one browser and one shared server,
and its files in target/e2e carry its name.
"""

import fcntl
import json
import os
import pathlib
import random
import re

import pytest
from playwright.sync_api import sync_playwright

from kit import CHROMIUM, stores
from kit import call as calls
from kit.avatar_call import open_luma
from kit.console import Console
from kit.receivers import MockTool, ScriptedLlm, WebhookReceiver
from kit.report import Report, merge_reports
from kit.separated_servers import SeparatedServers, ServersOnOwnPostgres
from kit.server import OUT, WORKER, Server
from kit.webhook_log import WebhookLog

#: The parts of `make test-long`.
PARTS = ("network", "load", "faces", "store", "editor", "providers", "recording", "livekit", "fuzz")
#: The seed of the random values in `make test`.
SEED = 19
OPEN_RESOURCES: dict[str, list] = {"servers": [], "calls": []}


def pytest_addoption(parser):
    parser.addoption(
        "--part",
        choices=[*PARTS, "all"],
        help="run the long tests of this part, and no others; without it no long test runs",
    )


def pytest_sessionstart():
    """Removes the results of earlier runs, so that they are not mistaken for those of this run.
    Only the controller does this: workers would race."""
    if WORKER is None:
        for old in [*OUT.glob("*.log"), *OUT.glob("*.png"), *OUT.glob("report*.json")]:
            old.unlink(missing_ok=True)


def pytest_collection_modifyitems(config, items):
    part = config.getoption("part")
    selected, deselected = [], []
    for item in items:
        marks = list(item.iter_markers("long"))
        for mark in marks:
            if len(mark.args) != 1 or mark.args[0] not in PARTS:
                raise pytest.UsageError(
                    f"{item.nodeid}: mark.long takes one of {PARTS}, not {mark.args}"
                )
        of_part = any(part in ("all", mark.args[0]) for mark in marks)
        chosen = of_part if part is not None else not marks
        (selected if chosen else deselected).append(item)
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = selected


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.when != "call" or not report.failed:
        return
    for number, page in enumerate(OPEN_RESOURCES["calls"]):
        name = re.sub(r"[^\w.-]+", "-", f"failed-{item.path.stem}-{item.name}-{number}")
        try:
            page.save_screenshot(name)
            report.sections.append(("picture", str(OUT / f"{name}.png")))
            report.sections.append(
                (
                    "captions",
                    "\n".join(f"{c['who']}: {c['spoken']} [{c['cut']}]" for c in page.captions()),
                )
            )
            report.sections.append(
                (
                    "messages",
                    "\n".join(
                        map(
                            str,
                            page.page.evaluate(
                                "e2e.messages.filter((m) => m.data?.level === undefined).slice(-30)"
                            ),
                        )
                    ),
                )
            )
            report.sections.append(("console", "\n".join(page.browser_errors)))
        except Exception as error:  # the page itself may have failed
            report.sections.append(("picture", f"none: {error}"))
    for server in OPEN_RESOURCES["servers"]:
        report.sections.append(("server", server.log_tail()))


def pytest_sessionfinish():
    if WORKER is None:
        merge_reports()


def pytest_terminal_summary(terminalreporter):
    """Prints the last lines of a long log, which its reader sees first: the promised figures, and
    one line for each failure."""
    for name, found in merge_reports().items():
        if name.startswith("promise: "):
            verdict = "kept  " if found["kept"] else "MISSED"
            terminalreporter.write_line(
                f"{verdict} {name[9:]}: {found['measured']}, promised {found['promised']}; "
                f"{found['machine']}"
            )
    if path := os.environ.get("E2E_DURATIONS"):
        write_durations(terminalreporter, path)
    for failed in terminalreporter.stats.get("failed", []):
        crash = getattr(failed.longrepr, "reprcrash", None)
        terminalreporter.write_line(
            f"FAILED {failed.nodeid}: {crash.message.splitlines()[0] if crash else failed.longrepr}"
        )


def write_durations(terminalreporter, path: str):
    """Writes the duration and the outcome of each test, for scripts/test.py."""
    found: dict[str, dict] = {}
    for outcome, reports in terminalreporter.stats.items():
        for test_report in reports:
            if not isinstance(test_report, pytest.TestReport):
                continue
            entry = found.setdefault(test_report.nodeid, {"seconds": 0.0, "outcome": "passed"})
            entry["seconds"] += test_report.duration
            if outcome in ("failed", "error", "skipped") and entry["outcome"] not in (
                "failed",
                "error",
            ):
                entry["outcome"] = outcome
    pathlib.Path(path).write_text(json.dumps(found))


@pytest.fixture(autouse=True)
def exclusive(request):
    """Runs a test that is marked `alone` while no other test runs. All other tests run side by
    side."""
    if WORKER is None:
        yield
        return
    alone = request.node.get_closest_marker("alone")
    with (OUT / "entry.lock").open("w") as entry_lock, (OUT / "run.lock").open("w") as run_lock:
        fcntl.flock(entry_lock, fcntl.LOCK_EX)
        fcntl.flock(run_lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        if not alone:
            fcntl.flock(entry_lock, fcntl.LOCK_UN)
        yield


@pytest.fixture(scope="session")
def report(request):
    return Report(enforce=request.config.getoption("part") is not None)


@pytest.fixture(scope="session")
def playwright():
    with sync_playwright() as tool:
        yield tool


@pytest.fixture(scope="session")
def browser(playwright):
    """One Chromium. Every call has its own empty profile."""
    chromium = playwright.chromium.launch(
        executable_path=CHROMIUM, args=[*calls.FLAGS, calls.FAKE_DEVICE]
    )
    yield chromium
    chromium.close()


@pytest.fixture
def call(browser):
    """Opens calls: `call(width=…)`. Closes them afterwards."""
    created = []

    def make(**options):
        options.setdefault("browser", browser)
        page = calls.BrowserCall(**options)
        created.append(page)
        OPEN_RESOURCES["calls"].append(page)
        return page

    yield make
    for page in created:
        OPEN_RESOURCES["calls"].remove(page)
        page.close()


@pytest.fixture
def console(browser, server):
    """Opens consoles: `console(width=…)`. Fails if one of them logged an unexpected error."""
    created = []

    def make(**options):
        created.append(Console(browser, server, **options))
        OPEN_RESOURCES["calls"].append(created[-1])
        return created[-1]

    yield make
    for one in created:
        OPEN_RESOURCES["calls"].remove(one)
        errors = one.unexpected_errors()
        one.close()
        assert errors == []


@pytest.fixture
def luma(browser):
    with open_luma(browser) as take:
        yield take


@pytest.fixture(scope="session")
def start_server(tmp_path_factory):
    """Starts servers: `start_server(name, *flags, data=…, env=…, scripted=…)`. Stops them at the
    end."""
    created = []

    def make(name, *flags, data=None, env=None, scripted=True):
        server = Server(
            data or tmp_path_factory.mktemp(name), *flags, env=env, name=name, scripted=scripted
        )
        created.append(server)
        OPEN_RESOURCES["servers"].append(server)
        return server

    yield make
    for server in created:
        server.stop()


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server: its URL without a database."""
    with stores.postgres_server() as url:
        yield url


@pytest.fixture
def separated_servers(start_server, tmp_path_factory, postgres):
    """Starts pairs of servers that can be cut off from their database (kit/separated_servers.py).
    The keywords are those of the class."""
    created = []

    def create(**more):
        created.append(SeparatedServers(start_server, tmp_path_factory, postgres, **more))
        return created[-1]

    yield create
    for pair in created:
        pair.close()


@pytest.fixture
def webhook_log():
    created = WebhookLog()
    yield created
    created.close()


@pytest.fixture
def servers_on_own_postgres(start_server, tmp_path_factory):
    """Starts servers with a PostgreSQL server that the test controls. The keywords are those of
    ServersOnOwnPostgres (kit/separated_servers.py)."""
    created = []

    def create(**more):
        created.append(ServersOnOwnPostgres(start_server, tmp_path_factory, **more))
        return created[-1]

    yield create
    for servers in created:
        servers.close()


@pytest.fixture(scope="session")
def server(start_server):
    """The server that the tests of a worker share. On a busy machine, a reload of a page may take
    longer than the default of `timeouts.closed`, which is 5 s."""
    server = start_server("server", env={"VISAVIS_TIMEOUTS_CLOSED": "20"})
    return server.read_first_start().wait_ready()


@pytest.fixture
def workspace(server):
    """The shared server with the key of a new workspace. It shows no agent, conversation or
    knowledge base of another test. Server-wide settings are still shared."""
    return server.with_workspace()


@pytest.fixture(scope="session")
def measurement_offset(browser, server, report):
    """The offset in seconds that the lip-sync measurement itself adds in this browser on this
    machine. It is the median of five loops, because the two streams of each loop start at slightly
    different times. For long tests only."""
    loops = []
    for _ in range(5):
        page = calls.BrowserCall(browser).open(
            f"{server.url}/join/00000000-0000-4000-8000-000000000000"
        )
        loops.append(page.measurement_offset(seconds=8))
        page.close()
    report.add("the lip measurement's own offset", {"loops": loops, "middle": sorted(loops)[2]})
    return sorted(loops)[2]


@pytest.fixture
def webhooks():
    receiver = WebhookReceiver()
    yield receiver
    receiver.close()


@pytest.fixture
def scripted_llm():
    """Creates scripted language models: `scripted_llm(script)`."""
    created = []

    def make(script):
        created.append(ScriptedLlm(script))
        return created[-1]

    yield make
    for server in created:
        server.close()


@pytest.fixture
def vendor():
    """Creates fakes of providers: `vendor(providers.DeepgramFake, …)`."""
    created = []

    def make(kind, *arguments, **options):
        created.append(kind(*arguments, **options))
        return created[-1]

    yield make
    for fake in created:
        fake.close()


@pytest.fixture
def tool():
    created = []

    def make(result):
        created.append(MockTool(result))
        return created[-1]

    yield make
    for server in created:
        server.close()


@pytest.fixture
def rng(request):
    """A source of random values. The seed is fixed in `make test`. It is random in the long tier,
    where a failure prints it."""
    randomize = request.config.getoption("part") is not None
    seed = int(os.environ.get("E2E_SEED") or (random.randrange(10**6) if randomize else SEED))
    print("seed", seed)
    return random.Random(seed)
