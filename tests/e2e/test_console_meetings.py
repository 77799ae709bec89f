"""Agents in external meetings, in the console. The shared server has no account at a meeting
service, so the answers about meetings are the test's."""

import contextlib
import copy
import json
import re

import pytest

from kit.console import (
    FIND_LOW_CONTRAST,
    FIND_OVERFLOW,
    FIND_UNNAMED_ELEMENTS,
    IS_FOCUS_VISIBLE,
    Console,
    resize,
)
from kit.meeting_server import MEET, MeetingServer
from kit.polling import wait_until

ID = "5f0c1a52-6a36-4d0c-8a3e-0f6f2f5d6f10"
PATH = f"/v1/ext/conversation/{ID}"
SEND = "/v1/ext/externalmeeting"
#: Whether an element is in the visible part of the dialog.
IS_IN_DIALOG = """(selector) => {
  const inner = document.querySelector(selector).getBoundingClientRect();
  const outer = document.querySelector('dialog').getBoundingClientRect();
  return inner.top >= outer.top && inner.bottom <= outer.bottom;
}"""
CREATED = "2026-01-02T03:04:05.000Z"
RECORD = {
    "id": ID,
    "agent_id": "0b9a5d3c-5b57-4f0e-9f53-6a1c0e8c9d11",
    "agent_name": "Ada",
    "avatar_id": "luma",
    "user_id": "console-1",
    "user_name": "Clara Müller",
    "context": None,
    "status": "STARTED",
    "end_reason": None,
    "type": "meeting",
    "meta_data": None,
    "feedback": None,
    "rating": None,
    "usage_status": "pending",
    "is_active": True,
    "created_at": CREATED,
    "updated_at": CREATED,
    "joined_at": None,
    "ended_at": None,
    "meeting_url": MEET,
    "meeting_status": "joining",
    "is_recorded": False,
    "recording_url": "",
    "transcript": [],
    "chat_history": {"messages": []},
    "snippets": {"items": []},
    "usage_json": "{}",
    "warnings": [],
}
ENDED = {"status": "ENDED", "is_active": False, "ended_at": CREATED}
#: The lines of the transcript: who speaks, and what.
LINES = """[...document.querySelectorAll('.transcript li')].map((line) =>
  [line.querySelector('.who')?.textContent, line.querySelector('.message-body p').textContent])"""


def event(what, seq=None, **fields):
    """An event of the stream. It has no number before the conversation starts."""
    number = {} if seq is None else {"seq": seq, "at": float(seq)}
    return {**number, "timestamp": CREATED, "what": what, **fields}


def status_event(status, seq=None, **fields):
    return event("meeting.status", seq, status=status, **fields)


class Meeting:
    """The page of a conversation in a meeting, with a record and events of the test's."""

    def __init__(self, console_page, **fields):
        self.console_page, self.page = console_page, console_page.page
        self.record = {**copy.deepcopy(RECORD), **fields}
        self.events: list[dict] = []
        #: Methods, paths and bodies of the commands.
        self.commands: list[tuple] = []
        #: The request of the stream that waits for its answer.
        self.stream = None
        self.page.route(f"**{PATH}", lambda route: route.fulfill(json=self.record))
        self.page.route(f"**{PATH}/events", self._on_events)
        self.page.route(f"**{PATH}/deliveries?*", lambda route: route.fulfill(json=[]))
        self.page.route(f"**/v1/conversation/{ID}*", self._on_command)
        self.page.route(f"**/v1/conversation/{ID}/*", self._on_command)

    def open(self):
        self.console_page.navigate(f"conversations/{ID}")
        return self

    def _on_events(self, route):
        if "event-stream" in route.request.headers.get("accept", ""):
            self.stream = route
        else:
            route.fulfill(json=self.events)

    def _on_command(self, route):
        request = route.request
        path = request.url.split(f"{ID}", 1)[1]
        self.commands.append((request.method, path, request.post_data_json))
        if request.method == "DELETE":
            self.record |= ENDED | {"end_reason": "ended_by_api"}
        route.fulfill(json={"message": "Done"})

    def _find_stream(self):
        # The browser's answer comes after the requests that it made before.
        self.page.evaluate("new Promise(requestAnimationFrame)")
        return self.stream

    def send(self, *events, **changes) -> str | None:
        """Sends events and ends the stream, which the page opens again. Returns the number of the
        last event that the page has, according to its request."""
        stream, self.stream = wait_until(self._find_stream, "no request of the stream"), None
        self.record |= changes
        self.events += [one for one in events if "seq" in one]
        body = "".join(f"event: {one['what']}\ndata: {json.dumps(one)}\n\n" for one in events)
        stream.fulfill(body=body, content_type="text/event-stream")
        return stream.request.headers.get("last-event-id")

    def wait(self, text: str):
        """Until the card says where the agent is, with an icon."""
        self.page.wait_for_selector(f".meeting-status:has(svg) span:text-is('{text}')")


@pytest.fixture
def open_meeting(console):
    """Opens the page of a meeting: `open_meeting(meeting_status=…)`. `options`: of the console."""
    return lambda options=None, **fields: Meeting(
        console(**(options or {})).login(), **fields
    ).open()


def open_dialog(console_page, server):
    """Opens the dialog of a new agent. Returns the dialog."""
    agent = server.create_agent(name="Ada")
    console_page.open(f"agents/{agent['id']}")
    console_page.page.click("text=Send into a meeting")
    return console_page.page.get_by_role("dialog")


def press_send(dialog):
    dialog.get_by_role("button", name="Send", exact=True).click()


# The dialog.


def test_an_agent_is_sent_and_its_conversation_opens(workspace, console):
    console_page = console().login(workspace.key)
    page = console_page.page
    meeting = Meeting(console_page)
    bodies = []

    def answer(route):
        bodies.append(route.request.post_data_json)
        route.fulfill(
            body="Agent request successfully created.",
            content_type="text/plain; charset=utf-8",
            headers={"location": PATH},
        )

    page.route(f"**{SEND}", answer)
    dialog = open_dialog(console_page, workspace)
    dialog.get_by_label(re.compile("^Address of the meeting")).fill(MEET)
    # A participant is addressed by its name, and by a wake phrase if there is one.
    dialog.get_by_label("Wake phrase").fill("Hey Ada")
    mode = dialog.get_by_label("Participation mode")
    mode.select_option("one_to_one")
    assert dialog.get_by_label("Wake phrase").is_hidden()
    mode.select_option("participant")
    assert dialog.get_by_label("The agent may be in this meeting more than once").is_hidden()
    press_send(dialog)
    meeting.wait("Joining")
    assert page.url == f"{workspace.url}/console/conversations/{ID}"
    page.wait_for_selector(".toast:has-text('on its way to the meeting')")
    page.wait_for_selector("h1:text-is('Ada in a meeting'):focus")
    [body] = bodies
    assert body.pop("user_id").startswith("console-") and body.pop("agent_id")
    assert body == {
        "meeting_url": MEET,
        "user_name": "Ada",
        "mode": "participant",
        "wake_phrase": "Hey Ada",
        "context": "",
        "allow_multiple": False,
    }


def test_an_agent_is_sent_a_second_time_on_request(workspace, console):
    console_page = console().login(workspace.key)
    page = console_page.page
    meeting = Meeting(console_page)

    def answer(route):
        if route.request.post_data_json["allow_multiple"]:
            return route.fulfill(body="", headers={"location": PATH})
        return route.fulfill(status=409, json={"error": "Agent is already in this meeting"})

    page.route(f"**{SEND}", answer)
    dialog = open_dialog(console_page, workspace)
    dialog.get_by_label(re.compile("^Address of the meeting")).fill(MEET)
    with console_page.expect_status(409):
        press_send(dialog)
        dialog.get_by_role("alert").get_by_text("Agent is already in this meeting.").wait_for()
    # The box above the message moves neither the message nor the button out of sight.
    for part in (".problem", "button[type=submit]"):
        assert page.evaluate(IS_IN_DIALOG, f"dialog {part}"), part
    box = dialog.get_by_label("The agent may be in this meeting more than once")
    assert not box.is_checked() and page.evaluate(FIND_UNNAMED_ELEMENTS) == []
    box.focus()
    page.keyboard.press("Space")
    assert page.evaluate(IS_FOCUS_VISIBLE)
    press_send(dialog)
    meeting.wait("Joining")


def test_a_failure_says_what_to_check_and_keeps_the_text(workspace, console):
    """The shared server has no account at a meeting service."""
    console_page = console(width=390, height=844).login(workspace.key)
    page = console_page.page
    dialog = open_dialog(console_page, workspace)
    press_send(dialog)
    dialog.get_by_text("The address is required.").wait_for()
    address = dialog.get_by_label(re.compile("^Address of the meeting"))
    dialog.get_by_label("Participation mode").select_option("observer")
    dialog.get_by_label("Wake phrase").fill("Hey Ada")
    address.fill("https://example.com/room")
    with console_page.expect_status(400):
        press_send(dialog)
        dialog.get_by_text("The address must be a meeting of Google Meet").wait_for()
    address.fill(MEET)
    with console_page.expect_status(502):
        press_send(dialog)
        dialog.get_by_role("alert").get_by_text("The agent was not sent.").wait_for()
    text = dialog.get_by_role("alert").inner_text()
    assert "“Providers”" in text and "[meetings]" in text and "list of conversations" in text
    assert dialog.get_by_label("Wake phrase").input_value() == "Hey Ada"
    assert page.evaluate(FIND_UNNAMED_ELEMENTS) == []
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(FIND_LOW_CONTRAST) == [], scheme
    for width in (320, 390):
        resize(page, width)
        assert page.evaluate(FIND_OVERFLOW) == [], width
    console_page.save_screenshot("console-meeting-dialog")


# The page of the conversation.


def test_the_status_follows_the_stream_before_and_after_the_start(open_meeting):
    meeting = open_meeting()
    page = meeting.page
    meeting.wait("Joining")
    link = page.get_by_role("region", name="The meeting").get_by_role("link", name=MEET)
    assert link.get_attribute("href") == MEET
    assert "noopener" in link.get_attribute("rel") and link.get_attribute("target") == "_blank"
    # The record still says the earlier status: the event comes first.
    meeting.send(status_event("waiting_room"))
    meeting.wait("In the waiting room")
    assert meeting.send(status_event("in_call"), meeting_status="in_call") is None
    meeting.wait("In the meeting")
    started = {"status": "IN_PROGRESS", "joined_at": CREATED}
    last = meeting.send(event("joined", 0, unix_micros=0), status_event("in_call", 1), **started)
    assert last is None, "events without a number are not resumed after"
    page.wait_for_selector(".head .pill.live")
    page.click("role=tab[name=Events]")
    page.wait_for_selector(".events li >> nth=1")
    assert page.locator(".events li").count() == 2
    # An older report changes nothing.
    assert meeting.send(status_event("waiting_room", 2)) == "1"
    page.wait_for_selector(".events li >> nth=2")
    assert page.inner_text(".meeting-status") == "In the meeting"
    over = {**ENDED, "end_reason": "meeting_ended"}
    meeting.send(
        status_event("left", 3, detail="removed"),
        event("ended", 4, reason="meeting_ended"),
        **over,
        meeting_status="left",
        meeting_detail="removed",
    )
    meeting.wait("Left: a participant removed the agent")
    page.wait_for_selector(".head .pill:text-is('Ended')")
    assert page.get_by_role("region", name="Control of the agent").is_hidden()
    # The service finishes after the stream has ended.
    meeting.record["meeting_status"] = "done"
    meeting.wait("Finished: a participant removed the agent")


def test_each_end_has_its_words(open_meeting):
    warning = "The agent was not sent: the service answered 402."
    meeting = open_meeting(**ENDED, meeting_status="done", warnings=[warning])
    page = meeting.page
    for status, detail, text in [
        ("done", None, "Finished"),
        ("error", "denied", "Failed: the host refused the agent"),
        ("error", "lobby_timeout", "Failed: nobody admitted the agent in time"),
        ("error", "not_found", "Failed: the meeting does not exist"),
        ("error", "login_required", "Failed: the meeting admits only people who have signed in"),
        ("error", "host_missing", "Failed: the host did not come"),
        ("error", "service_error", "Failed: an error of the meeting service"),
        ("left", "removed", "Left: a participant removed the agent"),
        ("done", "alone", "Finished: everyone else had left"),
        ("done", "ended", "Finished: the meeting is over"),
        # The service has not reported yet that the agent has left.
        ("in_call", None, "Leaving"),
    ]:
        meeting.record |= {"meeting_status": status, "meeting_detail": detail}
        meeting.open().wait(text)
        # Only the service's own words say what failed there.
        shown = page.locator(".meeting .note").is_visible()
        assert shown == (detail == "service_error"), text
        page.click("role=tab[name=Details]")
        rows = page.inner_text("[role=tabpanel] dl")
        assert re.search(f"Status in the meeting\\s+{re.escape(text)}\n", rows), rows
        assert re.search("Name in the meeting\\s+Clara Müller", rows), rows
        assert "Caller" not in rows
        meeting.console_page.navigate("keys")


def test_the_live_transcript_names_the_speakers(open_meeting):
    meeting = open_meeting(status="IN_PROGRESS", joined_at=CREATED, meeting_status="in_call")
    page = meeting.page
    page.wait_for_selector("text=What is said in the meeting appears here as it is said.")
    meeting.send(
        event("utterance_committed", 0, text="Good morning.", speaker="Maria"),
        event("history", 1, role="user", text="Good morning.", speaker="Maria"),
        event("user.transcript", 2, text="Ada, what", is_final=False),
        event("utterance_committed", 3, text="Ada, what is next?"),
        event("history", 4, role="user", text="Ada, what is next?"),
        event("agent.started_speaking", 5, text="The budget.", utterance=1),
        event("agent.stopped_speaking", 6, text="The budget.", utterance=1),
        event("user.transcript", 7, text="Thank", is_final=False),
    )
    page.wait_for_selector(".transcript li:has-text('Thank')")
    assert page.evaluate(LINES) == [
        ["Maria", "Good morning."],
        ["Participant", "Ada, what is next?"],
        ["Ada", "The budget."],
        ["Participant", " Thank"],
    ]
    # The names come late.
    meeting.send(
        event("utterance.speaker", 8, turn=1, speaker="Jonas <b>Weber</b>"),
        event("utterance_committed", 9, text="Thank you.", speaker="Maria"),
    )
    page.wait_for_selector(".transcript li:has-text('Thank you.')")
    assert page.evaluate(LINES) == [
        ["Maria", "Good morning."],
        ["Jonas <b>Weber</b>", "Ada, what is next?"],
        ["Ada", "The budget."],
        ["Maria", "Thank you."],
    ]
    assert "Maria: Good morning." in page.text_content("[role=log]")
    # The ended conversation shows the same.
    live = page.evaluate(LINES)
    meeting.send(
        event("ended", 10, reason="meeting_ended"),
        **ENDED,
        end_reason="meeting_ended",
        meeting_status="done",
        meeting_detail="ended",
    )
    meeting.wait("Finished: the meeting is over")
    meeting.console_page.navigate("conversations")
    meeting.open()
    page.wait_for_selector(".transcript li >> nth=3")
    assert page.evaluate(LINES) == live


def test_a_record_without_events_names_the_speakers(open_meeting):
    said = {"timestamp": CREATED, "seconds_from_start": 1.0, "duration": 1.0, "speech_id": None}
    messages = [
        {**said, "role": "user", "content": "Good morning.", "speaker": "Maria"},
        {**said, "role": "user", "content": "Hello.", "interrupted": False},
        {**said, "role": "assistant", "content": "Welcome.", "interrupted": False},
    ]
    meeting = open_meeting(
        **ENDED, meeting_status="done", chat_history={"messages": messages}, joined_at=CREATED
    )
    meeting.page.wait_for_selector(".transcript li >> nth=2")
    assert meeting.page.evaluate(LINES) == [
        ["Maria", "Good morning."],
        ["Participant", "Hello."],
        ["Ada", "Welcome."],
    ]


def test_the_agent_is_controlled_and_removed_with_the_keyboard(open_meeting):
    meeting = open_meeting(status="IN_PROGRESS", joined_at=CREATED, meeting_status="in_call")
    page = meeting.page
    controls = page.get_by_role("region", name="Control of the agent")
    controls.get_by_label("Command").select_option("respond")
    controls.get_by_label("Words").fill("What is next?")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector(".toast:has-text('Done')")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Remove from the meeting"
    assert page.evaluate(IS_FOCUS_VISIBLE)
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Remove the agent from the meeting?")
    dialog.get_by_role("button", name="Cancel").click()
    page.keyboard.press("Enter")
    dialog.get_by_role("button", name="Remove from the meeting").click()
    # The service takes some seconds until the agent has left.
    meeting.wait("Leaving")
    page.wait_for_selector(".head :text-is('Ended by the API')")
    # The button that had the focus is gone.
    page.wait_for_selector("h1:focus")
    meeting.record |= {"meeting_status": "done"}
    meeting.wait("Finished")
    assert meeting.commands == [
        ("POST", "/respond", {"text": "What is next?"}),
        ("POST", "/interrupt", {}),
        ("DELETE", "", None),
    ]


def test_nothing_offers_the_place_of_the_agent(open_meeting):
    """Whoever opened the join link would take the place of the bot."""
    meeting = open_meeting(join_link="https://visavis.test/join/x#token=y")
    meeting.wait("Joining")
    for tab in ("Transcript", "Events", "Webhooks", "Details"):
        meeting.page.click(f"role=tab[name={tab}]")
        assert "/join/" not in meeting.page.inner_html("#main"), tab


def test_an_address_that_is_not_of_the_web_is_no_link(open_meeting):
    meeting = open_meeting(meeting_url="javascript:alert(1)")
    meeting.wait("Joining")
    assert meeting.page.locator(".meeting a").count() == 0
    assert "javascript:alert(1)" in meeting.page.inner_text(".meeting")


def test_the_page_of_a_meeting_is_accessible(open_meeting):
    meeting = open_meeting(
        status="IN_PROGRESS",
        joined_at=CREATED,
        meeting_status="in_call",
        meeting_url="https://teams.microsoft.com/l/meetup-join/19%3ameeting_" + "Zm9v" * 40,
        user_name="Donaudampfschifffahrtsgesellschaftskapitänin " + "x" * 50,
    )
    page = meeting.page
    meeting.send(
        event("utterance_committed", 0, text="Good morning.", speaker="Maria " + "y" * 90),
        event("agent.started_speaking", 1, text="Good morning.", utterance=1),
        event("agent.stopped_speaking", 2, text="Good morning.", utterance=1),
    )
    page.wait_for_selector(".transcript li >> nth=1")
    assert page.evaluate(FIND_UNNAMED_ELEMENTS) == []
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        assert page.evaluate(FIND_LOW_CONTRAST) == [], scheme
    for width in (320, 390, 768, 861, 1440):
        resize(page, width)
        assert page.evaluate(FIND_OVERFLOW) == [], width
    resize(page, 390, 844)
    meeting.console_page.save_screenshot("console-meeting-phone")


def test_each_status_has_enough_contrast(open_meeting):
    meeting = open_meeting()
    page = meeting.page
    for status, text in [
        ("joining", "Joining"),
        ("waiting_room", "In the waiting room"),
        ("in_call", "In the meeting"),
        ("left", "Left"),
        ("error", "Failed"),
    ]:
        meeting.send(status_event(status), meeting_status=status)
        meeting.wait(text)
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            assert page.evaluate(FIND_LOW_CONTRAST) == [], (status, scheme)


def test_an_agent_is_sent_watched_and_removed(browser, start_server):
    """Through a stand-in of Attendee."""
    with contextlib.ExitStack() as stack:
        meetings = MeetingServer(start_server, "console-meetings")
        stack.callback(meetings.close)
        console_page = Console(browser, meetings.server)
        stack.callback(console_page.close)
        page = console_page.login().page
        dialog = open_dialog(console_page, meetings.server)
        dialog.get_by_label(re.compile("^Address of the meeting")).fill(MEET)
        press_send(dialog)
        bot = meetings.service.wait_for_bot()
        page.wait_for_selector(".meeting-status span:text-is('Joining')")
        bot.enter_lobby()
        page.wait_for_selector(".meeting-status span:text-is('In the waiting room')")
        bot.admit()
        page.wait_for_selector(".meeting-status span:text-is('In the meeting')")
        page.click("text=Remove from the meeting")
        page.click("dialog >> text=Remove from the meeting >> nth=-1")
        page.wait_for_selector(".meeting-status span:text-is('Finished')")
        page.wait_for_selector(".head :text-is('Ended by the API')")
        assert bot.is_over and bot.left_by_request
        assert console_page.unexpected_errors() == []
        assert meetings.service.violations == []


# The list of conversations.


def test_the_list_shows_meetings_and_filters_them(console):
    console_page = console(width=1280).login()
    page = console_page.page
    listed = [
        {**RECORD, "id": "1", "meeting_status": "waiting_room"},
        {**RECORD, "id": "2", "status": "IN_PROGRESS", "meeting_status": "in_call"},
        {
            **RECORD,
            **ENDED,
            "id": "3",
            "end_reason": "error",
            "meeting_status": "error",
            "meeting_detail": "denied",
        },
        {**RECORD, **ENDED, "id": "4", "end_reason": "ended_by_api", "meeting_status": "done"},
        {**RECORD, "id": "5", "type": None, "user_name": "Mia", "status": "IN_PROGRESS"},
    ]
    queries = []

    def answer(route):
        queries.append(route.request.url.split("?")[1])
        items = [one for one in listed if one["type"] or "type=meeting" not in queries[-1]]
        route.fulfill(json=items, headers={"x-total-count": str(len(items))})

    page.route("**/v1/ext/conversation?*", answer)
    console_page.navigate("conversations")

    def rows():
        """What the rows say about who takes part, and about the state."""
        return page.evaluate(
            "[...document.querySelectorAll('tbody tr')].map((row) => ["
            "row.querySelector('th .soft').textContent,"
            "...[...row.querySelector('[data-label=State]').children].map((n) => n.textContent)])"
        )

    meetings = [
        ["In a meeting as Clara Müller", "In the waiting room"],
        ["In a meeting as Clara Müller", "Live", "In the meeting"],
        ["In a meeting as Clara Müller", "Ended", "Failed: the host refused the agent"],
        ["In a meeting as Clara Müller", "Ended", "Ended by the API"],
    ]
    assert rows() == [*meetings, ["Mia", "Live"]]
    assert page.evaluate(FIND_UNNAMED_ELEMENTS) == []
    chip = page.get_by_role("button", name="Only meetings")
    assert chip.get_attribute("aria-pressed") == "false"
    chip.press("Enter")
    page.wait_for_url("**?type=meeting")
    console_page.wait_until_loaded()
    assert "type=meeting" in queries[-1] and rows() == meetings
    chip = page.get_by_role("button", name="Only meetings")
    assert chip.get_attribute("aria-pressed") == "true"
    assert page.get_by_label("Type").input_value() == "meeting"
    for width in (320, 390, 1280):
        resize(page, width)
        assert page.evaluate(FIND_OVERFLOW) == [], width
    console_page.save_screenshot("console-meeting-list")
    chip.click()
    page.wait_for_selector("tr:has-text('Mia')")


# The accounts at meeting services.


def test_a_key_of_a_meeting_service_has_a_secret_and_an_address(workspace, console):
    console_page = console(width=390, height=844).login(workspace.key).open("providers")
    console_page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = console_page.page

    def stored():
        [item] = workspace.request("GET", "/v1/ext/credentials").json()
        return item

    page.click("#store-key")
    dialog = page.get_by_role("dialog")
    secret = dialog.get_by_label("Webhook secret")
    assert secret.is_hidden(), "vendors of models have none"
    dialog.get_by_label("Vendor").select_option("recall")
    dialog.get_by_label(re.compile("^Key")).fill("recall-key")
    secret.fill("whsec with a space")
    with console_page.expect_status(400):
        dialog.get_by_role("button", name="Store key").click()
        dialog.locator(".fault:has-text('Webhook secret must not')").wait_for()
    secret.fill("whsec_c2VjcmV0")
    dialog.get_by_role("button", name="Store key").click()
    item = page.locator(".list.inner li:has(h3:text-is('Recall.ai'))")
    item.get_by_text("Webhook secret stored").wait_for()
    assert stored()["webhook_secret"] == "***" and "whsec_" not in page.content()
    address = stored()["webhook_url"]
    assert item.get_by_label("webhook address for Recall.ai", exact=True).inner_text() == address
    item.get_by_text("Enter this address in the dashboard of Recall.ai").wait_for()
    item.get_by_role("button", name="Copy webhook address for Recall.ai").click()
    item.get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == address
    assert page.evaluate(FIND_UNNAMED_ELEMENTS) == []
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(FIND_LOW_CONTRAST) == [], scheme
    for width in (320, 390):
        resize(page, width)
        assert page.evaluate(FIND_OVERFLOW) == [], width
    console_page.save_screenshot("console-meeting-account")

    # Unchanged fields keep what is stored.
    item.get_by_role("button", name="Change the key of Recall.ai").click()
    assert secret.input_value() == "***"
    dialog.get_by_role("button", name="Store key").click()
    dialog.wait_for(state="detached")
    console_page.wait_until_loaded()
    assert stored()["webhook_secret"] == "***"
    # An empty one removes the secret.
    item.get_by_role("button", name="Change the key of Recall.ai").click()
    secret.fill("")
    dialog.get_by_role("button", name="Store key").click()
    item.get_by_text("No webhook secret").wait_for()
    assert stored()["webhook_secret"] is None
    item.get_by_role("button", name="Remove the key of Recall.ai").click()
    dialog.get_by_role("button", name="Remove").click()
    item.wait_for(state="detached")
    assert workspace.request("GET", "/v1/ext/credentials").json() == []
