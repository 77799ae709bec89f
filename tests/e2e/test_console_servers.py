"""The servers that share the database, in the console. The shared server has its own database, so
lists of several servers are the test's. So is the browser's clock, which starts each refresh."""

import datetime
import uuid

import pytest

from kit.console import (
    FIND_LOW_CONTRAST,
    FIND_OVERFLOW,
    FIND_UNNAMED_ELEMENTS,
    IS_FOCUS_VISIBLE,
    resize,
)

PATH = "/v1/ext/servers"
#: Milliseconds between two refreshes.
REFRESH = 5_000
COLUMNS = "[...document.querySelectorAll('thead th')].map((cell) => cell.textContent)"
#: The rows: the id, whether it is marked as this server, and the texts of the cells by column.
ROWS = """[...document.querySelectorAll('tbody tr')].map((row) => ({
  id: row.querySelector('code').title,
  self: row.querySelector('th').textContent.includes('This server'),
  ...Object.fromEntries(
    [...row.querySelectorAll('td')].map((cell) => [cell.dataset.label, cell.textContent])) }))"""
#: Cells that a card cuts off.
FIND_CUT_CELLS = """[...document.querySelectorAll('.card.flush')]
  .filter((card) => card.scrollWidth > card.clientWidth).map((card) => card.scrollWidth)"""


def listed(state="ready", **fields):
    """A server in the list. It renewed its lease one second ago."""
    now = datetime.datetime.now(datetime.UTC)
    age = fields.pop("age", datetime.timedelta(seconds=1))
    return {
        "id": str(uuid.uuid4()),
        "version": "0.1.0",
        "region": "",
        "calls": 0,
        "load": 0.0,
        "state": state,
        "renewed_at": (now - age).isoformat(),
        "is_self": False,
    } | fields


class Servers:
    """The page of the servers, with a list of the test's."""

    def __init__(self, console_page, servers):
        self.console_page, self.page = console_page, console_page.page
        self.servers, self.requests, self.status = servers, 0, 200
        self.page.clock.install()
        self.page.route(f"**{PATH}?*", self._answer)
        console_page.login().navigate("servers")

    def _answer(self, route):
        self.requests += 1
        if self.status != 200:
            return route.fulfill(status=self.status, json={"error": "Unavailable"})
        headers = {"x-total-count": str(len(self.servers))}
        return route.fulfill(json=self.servers, headers=headers)

    def refresh(self):
        """Starts a refresh."""
        self.page.clock.fast_forward(REFRESH)

    def rows(self):
        return self.page.evaluate(ROWS)


@pytest.fixture
def open_servers(console):
    """Opens the page with a list of servers: `open_servers([…])`."""
    return lambda servers, **options: Servers(console(**options), servers)


def test_a_server_with_its_own_database_is_alone(server, console):
    console_page = console().login()
    page = console_page.page
    page.focus("nav a[data-name=servers]")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:text-is('Servers'):focus")
    assert page.get_attribute("nav a[aria-current=page]", "data-name") == "servers"
    # The calls of an earlier test may end meanwhile.
    page.wait_for_selector("tbody tr:has-text('Ready'):has(td[data-label=Calls]:text-is('0'))")
    [item] = server.request("GET", PATH).json()
    assert item["is_self"] and item["renewed_at"] is None and item["region"] == ""
    [row] = page.evaluate(ROWS)
    assert row.pop("Load").endswith(" %")
    assert row == {
        "id": item["id"],
        "self": True,
        "State": "Ready",
        "Version": item["version"],
        "Calls": "0",
    }
    assert page.evaluate(COLUMNS) == ["Server", "State", "Version", "Calls", "Load"]
    assert page.inner_text("#main [role=status]") == "1 server: 1 ready"
    assert page.is_visible("text=This server has its own database.")


def test_a_lost_server_is_shown_as_lost(open_servers):
    own = listed(is_self=True, calls=3, load=0.257)
    lost = listed("lost", region="eu-west", calls=2, age=datetime.timedelta(hours=3, minutes=20))
    full = listed("full", calls=40, load=0.996)
    found = open_servers([own, lost, full])
    page = found.page
    assert page.evaluate(COLUMNS) == [
        "Server",
        "State",
        "Region",
        "Version",
        "Calls",
        "Load",
        "Renewed",
    ]
    rows = found.rows()
    assert [(row["id"], row["self"]) for row in rows] == [
        (own["id"], True),
        (lost["id"], False),
        (full["id"], False),
    ]
    texts = [[row[name] for name in ("State", "Region", "Calls", "Load")] for row in rows]
    assert texts == [
        ["Ready", "–", "3", "26 %"],
        ["Lost", "eu-west", "2", "0 %"],
        ["Full", "–", "40", "100 %"],
    ]
    assert rows[1]["Renewed"] == "3 hours ago"
    assert page.get_attribute(f"tr:has-text('{lost['id']}') time", "datetime") == lost["renewed_at"]
    # The word tells the state, and the colour repeats it.
    assert page.get_attribute("td .pill:text-is('Lost')", "class") == "pill bad"
    # The end of the id is seen; the whole id is read out.
    row = page.get_by_role("rowheader", name=lost["id"])
    assert row.locator("[aria-hidden]").inner_text() == f"…{lost['id'][-8:]}"
    assert page.inner_text("#main [role=status]") == "3 servers: 1 ready, 1 lost, 1 full"
    assert not page.is_visible("text=This server has its own database.")
    assert page.is_visible("dd:has-text('It did not renew its lease in time.')")


def test_a_refresh_keeps_focus_scroll_and_selection(open_servers):
    found = open_servers([listed(is_self=True), listed("lost")], width=390, height=400)
    page = found.page
    page.evaluate(
        "window.kept = document.querySelector('td[data-label=Version]');"
        "getSelection().selectAllChildren(kept);"
        "scrollTo(0, 120);"
    )
    assert page.evaluate("document.activeElement.localName") == "h1"
    found.servers = [found.servers[0], {**found.servers[1], "state": "draining", "calls": 1}]
    found.refresh()
    page.wait_for_selector("td .pill:text-is('Draining')")
    assert found.rows()[1]["Calls"] == "1"
    assert page.inner_text("#main [role=status]") == "2 servers: 1 ready, 1 draining"
    assert page.evaluate(
        "[kept.isConnected, getSelection().toString(), scrollY, document.activeElement.localName]"
    ) == [True, "0.1.0", 120, "h1"]
    # A further server, and a region, add a row and a column.
    found.servers = [*found.servers, listed("unavailable", region="us-east")]
    found.refresh()
    page.wait_for_selector("td .pill:text-is('Unavailable')")
    assert [row["Region"] for row in found.rows()] == ["–", "–", "us-east"]
    assert page.evaluate("[scrollY, document.activeElement.localName]") == [120, "h1"]


def test_a_failed_refresh_is_reported_until_one_succeeds(open_servers):
    found = open_servers([listed(is_self=True), listed()])
    page = found.page
    with found.console_page.expect_status(503):
        found.status = 503
        found.refresh()
        page.wait_for_selector("[role=alert]:has-text('This list is not current.')")
    assert len(found.rows()) == 2
    found.status = 200
    found.refresh()
    page.wait_for_selector("[role=alert]", state="detached")


def test_the_refresh_ends_when_the_page_is_left(open_servers):
    found = open_servers([listed(is_self=True)])
    before = found.requests
    with found.page.expect_response(f"**{PATH}?*"):
        found.refresh()
    assert found.requests == before + 1
    found.console_page.navigate("keys")
    before = found.requests
    found.page.clock.fast_forward(10 * REFRESH)
    # A request of the timer would be sent before this one.
    found.page.evaluate(f"fetch('{PATH}?last').then((answer) => answer.text())")
    assert found.requests == before + 1


def test_a_key_of_another_workspace_gets_the_reason(workspace, console):
    console_page = console().login(workspace.key)
    page = console_page.page
    console_page.navigate("servers")
    assert workspace.request("GET", PATH).json() == []
    page.get_by_text("Only API keys of the first workspace see the servers.").wait_for()
    console_page.navigate("keys")
    assert console_page.title() == "API keys"


def test_the_page_is_accessible(open_servers):
    """All states, in both colour schemes, at the widths of phones, tablets and desktops."""
    states = ("ready", "full", "draining", "unavailable", "lost")
    found = open_servers(
        [
            listed(
                state,
                is_self=state == "ready",
                region="Rechenzentrum_der_Donaudampfschifffahrt" if state == "full" else "eu-west",
                calls=1234,
                load=1.0,
                age=datetime.timedelta(minutes=59),
            )
            for state in states
        ]
    )
    page = found.page
    assert page.evaluate(FIND_UNNAMED_ELEMENTS) == []
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        assert page.evaluate(FIND_LOW_CONTRAST) == [], scheme
    # The menu stands beside the table from 861 pixels on.
    for width in (320, 360, 768, 861, 1440):
        resize(page, width)
        assert page.evaluate(FIND_OVERFLOW) == [], width
        assert page.evaluate(FIND_CUT_CELLS) == [], width
    resize(page, 360)
    # Each cell of a phone names its column.
    assert page.evaluate(
        "[...document.querySelectorAll('tbody td')].every((cell) => "
        "getComputedStyle(cell, '::before').content === JSON.stringify(cell.dataset.label))"
    )
    page.click("#menu")
    page.focus("nav a[data-name=servers]")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.name") == "servers"
    assert page.evaluate(IS_FOCUS_VISIBLE)
