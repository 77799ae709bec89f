"""Agents in external meetings: what becomes of a bot, from the request to its removal."""

import json
import time

import pytest

from kit.meeting_server import (
    MEET,
    METRICS_TOKEN,
    PUBLIC_URL,
    SERVICES,
    ZOOM,
    EventStream,
    MeetingServer,
    credential,
)
from kit.meeting_services import WRONG
from kit.polling import wait_until
from kit.typed_call import create_typed_agent

#: Names of the services.
ALL = list(SERVICES)


@pytest.fixture(scope="module")
def start_meetings(start_server):
    """Servers with the stand-in of a service: `start_meetings(name, provider, **settings)`."""
    created = []

    def make(*arguments, **settings):
        created.append(MeetingServer(start_server, *arguments, **settings))
        return created[-1]

    yield make
    for meetings in created:
        violations = meetings.service.violations
        meetings.close()
        assert violations == []


@pytest.fixture(scope="module")
def attendee(start_meetings):
    """A server that the tests of this file share."""
    return start_meetings("attendee", "attendee", lobby_timeout=3600, alone_timeout=2)


@pytest.fixture(scope="module")
def agent(attendee):
    return create_typed_agent(attendee.server)


def new_link():
    """A link to a meeting of its own."""
    return f"https://zoom.us/j/{time.monotonic_ns() % 10**10:010}"


def create(attendee, agent, **more):
    """A visit to a meeting of its own."""
    return attendee.join(agent, meeting_url=new_link(), **more)


def test_a_bot_is_ordered_as_the_request_says(attendee, agent):
    visit = attendee.join(agent, meeting_url=ZOOM, user_name="Clara \U0001f600 Müller")
    order = visit.bot.request
    assert order["meeting_url"] == ZOOM
    assert order["bot_name"] == "Clara Müller"
    assert order["zoom_settings"] == {"sdk": "web"}
    assert order["recording_settings"]["format"] == "none"
    assert order["voice_agent_settings"]["url"].startswith(f"{PUBLIC_URL}/meet/{visit.id}#token=")
    assert visit.bot.chat_messages == [
        "Clara Müller is an AI agent. It listens to this meeting and can speak."
    ]
    record = visit.record()
    assert (record["type"], record["status"]) == ("meeting", "STARTED")
    assert record["meeting_url"] == "https://us05web.zoom.us/j/1234567890"
    assert record["meeting_status"] == "joining"
    [listed] = attendee.server.request("GET", f"/v1/ext/conversation?search={visit.id}").json()
    assert listed["meeting_status"] == "joining"
    assert "secret" not in json.dumps([record, listed])
    assert visit.delete().status == 200
    visit.wait_for_release()


def test_the_status_follows_the_bot_and_is_on_the_stream(attendee, agent):
    visit = create(attendee, agent)
    stream = EventStream(attendee.server, visit.id)
    visit.bot.enter_lobby()
    visit.wait(meeting_status="waiting_room")
    visit.bot.admit()
    visit.wait(meeting_status="in_call", status="STARTED")
    visit.bot.end_meeting()
    record = visit.wait(status="ENDED", meeting_status="done")
    assert (record["end_reason"], record["meeting_detail"]) == ("meeting_ended", "ended")
    assert record["warnings"] == []
    visit.wait_for_release()
    seen = [event["status"] for event in stream.events() if event["what"] == "meeting.status"]
    assert seen[:3] == ["joining", "waiting_room", "in_call"], seen


@pytest.mark.parametrize(
    ("happens", "detail", "reason"),
    [
        (lambda bot: bot.deny(), "denied", "error"),
        (lambda bot: bot.time_out_in_lobby(), "lobby_timeout", "error"),
        (lambda bot: bot.fail_to_join("meeting_not_found"), "not_found", "error"),
        (lambda bot: bot.fail_to_join("login_required"), "login_required", "error"),
        (
            lambda bot: bot.fail_to_join("meeting_not_started_waiting_for_host"),
            "host_missing",
            "error",
        ),
        (lambda bot: bot.fail(), "service_error", "error"),
        (lambda bot: bot.remove("Maria"), "removed", "meeting_ended"),
        (lambda bot: bot.leave_automatically(), "alone", "meeting_ended"),
    ],
    ids=[
        "denied",
        "lobby",
        "not-found",
        "login",
        "host",
        "failed",
        "removed",
        "alone",
    ],
)
def test_each_end_has_its_reason(attendee, agent, happens, detail, reason):
    visit = create(attendee, agent)
    happens(visit.bot)
    record = visit.wait(status="ENDED")
    assert (record["end_reason"], record["meeting_detail"]) == (reason, detail)
    assert len(record["warnings"]) == (reason == "error")
    visit.wait_for_release()


def test_a_repeated_late_or_older_status_changes_nothing(attendee, agent):
    visit = create(attendee, agent)
    bot = visit.bot
    bot.admit()
    visit.wait(meeting_status="in_call")
    late = bot.state_change("waiting_room")
    assert bot.send_webhook("bot.state_change", late, repeat=2) == [200, 200]
    assert visit.record()["meeting_status"] == "in_call"
    bot.end_meeting()
    visit.wait(status="ENDED", meeting_status="done")
    assert bot.send_webhook("bot.state_change", bot.state_change("joined_recording")) == [200]
    assert visit.record()["meeting_status"] == "done"


def test_unsigned_and_wrongly_signed_webhooks_are_refused_and_counted(attendee, agent):
    def rejected():
        text = attendee.server.request("GET", "/metrics", headers=METRICS).body.decode()
        [line] = [one for one in text.splitlines() if one.startswith(REJECTED)]
        return float(line.split()[1])

    visit = create(attendee, agent)
    before = rejected()
    removed = visit.bot.state_change("fatal_error")
    for signature in (WRONG, None):
        assert visit.bot.send_webhook("bot.state_change", removed, signature) == [401]
    assert visit.record()["meeting_status"] == "joining"
    for path in ("x", "a.b", "%00"):
        answer = attendee.server.request("POST", f"/v1/meetings/webhook/{path}", {})
        assert answer.status == 401, answer
    path = visit.bot.request["webhooks"][0]["url"].removeprefix(PUBLIC_URL)
    answer = attendee.server.request("POST", path, raw=b"x" * (256 * 1024 + 1), key=None)
    assert (answer.status, answer.json()) == (413, {"error": "Request body is too large"})
    assert rejected() == before + 6
    visit.delete()
    visit.wait_for_release()


REJECTED = "visavis_meeting_webhooks_rejected_total"
METRICS = {"authorization": f"Bearer {METRICS_TOKEN}"}


def test_without_webhooks_the_status_is_polled(start_meetings):
    meetings = start_meetings("polled", "attendee", webhooks=False)
    visit = meetings.join(create_typed_agent(meetings.server))
    assert "webhooks" not in visit.bot.request
    visit.bot.enter_lobby()
    visit.wait(meeting_status="waiting_room")
    visit.bot.deny()
    record = visit.wait(status="ENDED")
    assert record["meeting_detail"] == "denied"
    # Without a secret, a webhook proves nothing.
    address = meetings.server.request("POST", "/v1/meetings/webhook/x.y", {})
    assert address.status == 401
    # The service does not know the bot any more.
    other = meetings.join(meetings.server.create_agent())
    meetings.service.bots.pop(other.bot.id)
    record = other.wait(status="ENDED")
    assert (record["end_reason"], record["meeting_detail"]) == ("error", "service_error")


def test_the_lobby_has_a_time_limit_of_ours(start_meetings):
    meetings = start_meetings("lobby", "attendee", lobby_timeout=2)
    visit = meetings.join(create_typed_agent(meetings.server))
    visit.bot.enter_lobby()
    record = visit.wait(status="ENDED")
    assert (record["end_reason"], record["meeting_detail"]) == ("error", "lobby_timeout")
    assert record["warnings"] == ["Nobody admitted the agent to the meeting in time."]
    visit.wait_for_release()
    assert visit.bot.left_by_request


@pytest.mark.parametrize(("media", "missing"), [("page", "page"), ("socket", "audio socket")])
def test_a_bot_whose_page_or_socket_does_not_arrive_is_removed(start_meetings, media, missing):
    meetings = start_meetings(f"without-{media}", media=media, reconnect_timeout=1)
    visit = meetings.join(create_typed_agent(meetings.server))
    visit.bot.enter_lobby()
    visit.bot.admit()
    record = visit.wait(status="ENDED")
    assert (record["end_reason"], record["meeting_detail"]) == ("error", "service_error")
    assert record["warnings"] == [f"The agent's {missing} did not connect to the call in time."]
    visit.wait_for_release()
    assert visit.bot.left_by_request


def test_an_agent_that_is_alone_leaves_also_without_its_page(attendee, agent):
    visit = create(attendee, agent)
    visit.bot.admit()
    visit.wait(meeting_status="in_call")
    visit.bot.participant_joins("Maria")
    visit.bot.participant_leaves("Maria")
    record = visit.wait(status="ENDED")
    assert (record["end_reason"], record["meeting_detail"]) == ("meeting_ended", "alone")
    assert record["warnings"] == []
    visit.wait_for_release()
    assert visit.bot.left_by_request


@pytest.mark.parametrize(
    ("status", "body"),
    [(400, None), (401, None), (402, None), (429, None), (507, None), (500, None), (200, "<html>")],
)
def test_a_service_that_refuses_leaves_an_ended_conversation(attendee, agent, status, body):
    attendee.service.fail_create(status, body, {"Retry-After": "30"})
    before = len(attendee.service.live_bots())
    answer = attendee.send(agent, meeting_url="https://zoom.us/j/5550000000")
    assert (answer.status, answer.body) == (502, b"Unable to create agent request.")
    [record] = attendee.server.request("GET", "/v1/ext/conversation?perpage=1").json()
    record = attendee.server.get_conversation(record["id"])
    assert (record["status"], record["end_reason"]) == ("ENDED", "error")
    assert (record["meeting_status"], record["meeting_detail"]) == ("error", "service_error")
    [warning] = record["warnings"]
    assert warning.startswith("The agent was not sent: ") and "meeting-key" not in warning
    assert len(attendee.service.live_bots()) == before
    labels = {400: "other", 507: "5xx", 500: "5xx", 200: "malformed"}
    label = labels.get(status, str(status))
    text = attendee.server.request("GET", "/metrics", headers=METRICS).body.decode()
    name = "visavis_meeting_requests_failed_total"
    assert f'{name}{{provider="attendee",status="{label}"}}' in text
    # The meeting is free again.
    visit = attendee.join(agent, meeting_url="https://zoom.us/j/5550000000")
    visit.delete()
    visit.wait_for_release()


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (404, None, "the service knows no such address: check the URL of the account."),
        (400, {"error": "No credits."}, "the service answered 400: No credits."),
        (201, {"id": "../x"}, "the answer of the service is malformed: its id is not valid."),
    ],
)
def test_the_reason_of_a_refusal_is_one_sentence(attendee, agent, status, body, reason):
    attendee.service.fail_create(status, body)
    assert attendee.send(agent, meeting_url=new_link()).status == 502
    [listed] = attendee.server.request("GET", "/v1/ext/conversation?perpage=1").json()
    warnings = attendee.server.get_conversation(listed["id"])["warnings"]
    assert warnings == [f"The agent was not sent: {reason}"]


@pytest.mark.parametrize("answer", [(201, "<html>"), (0, None), (500, None)])
def test_a_bot_that_was_created_without_a_valid_answer_is_removed(attendee, agent, answer):
    attendee.service.fail_create(*answer, performs=True)
    sent = attendee.send(agent, meeting_url=new_link())
    assert sent.status == 502, sent
    bot = attendee.service.wait_for_bot()
    # Its webhooks say that it exists.
    bot.enter_lobby()
    wait_until(lambda: bot.is_over, attendee.service.describe, 60)
    assert bot.left_by_request


def test_a_service_without_an_answer_does_not_hang_the_request(attendee, agent):
    attendee.service.fail_create(None)
    started = time.monotonic()
    answer = attendee.send(agent, meeting_url="https://zoom.us/j/5550000001")
    assert answer.status == 502, answer
    # The time limit of a request to a service is 15 s.
    assert time.monotonic() - started < 25
    attendee.service.recover()


def test_an_agent_is_in_a_meeting_once_unless_the_request_says_otherwise(attendee, agent):
    first = attendee.join(agent, meeting_url=MEET)
    again = attendee.send(agent, meeting_url=f"{MEET}?authuser=1")
    assert (again.status, again.json()) == (409, {"error": "Agent is already in this meeting"})
    second = attendee.join(agent, meeting_url=MEET, allow_multiple=True)
    other = attendee.join(create_typed_agent(attendee.server), meeting_url=MEET)
    for visit in (first, second, other):
        assert visit.delete().status == 200
        visit.wait_for_release()
        assert visit.bot.left_by_request
    visit = attendee.join(agent, meeting_url=MEET)
    visit.delete()
    visit.wait_for_release()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("meeting_url", "https://example.com/abc-defg-hij"),
        ("meeting_url", "https://meet.google.com.evil.example/abc-defg-hij"),
        ("meeting_url", "https://meet.google.com/"),
        ("meeting_url", "https://user:secret@zoom.us/j/1234567890"),
        ("meeting_url", "http://zoom.us/j/1234567890"),
        ("meeting_url", "https://zoom.us\\@evil.example/j/1234567890"),
        ("meeting_url", "https://-.zoom.us/j/1234567890"),
        ("meeting_url", "https://zoom.us/rec/share/123456789"),
        ("user_name", "\U0001f600"),
        ("user_name", "\u200b\u2066"),
        ("user_name", ""),
        ("user_id", ""),
        ("wake_phrase", "x" * 201),
        ("wake_phrase", "?!"),
        ("allow_multiple", "yes"),
    ],
)
def test_bad_input_is_named(attendee, agent, field, value):
    answer = attendee.send(agent, **{field: value})
    assert answer.status == 400, answer
    assert [error["field"] for error in answer.json()["details"]] == [field]
    assert "secret" not in answer.body.decode()


def test_a_secret_that_cannot_verify_webhooks_is_refused(workspace):
    body = {"token": "k", "webhook_secret": "%%%"}
    answer = workspace.request("PUT", "/v1/ext/credentials/recall", body)
    assert answer.status == 400, answer
    assert [error["field"] for error in answer.json()["details"]] == ["webhook_secret"]


def test_a_bot_that_was_not_removed_yet_keeps_its_place(attendee, agent):
    link = new_link()
    visit = attendee.join(agent, meeting_url=link)
    visit.bot.admit()
    visit.wait(meeting_status="in_call")
    attendee.service.fail_leave(503, times=None)
    assert visit.delete().status == 200
    again = attendee.send(agent, meeting_url=link)
    assert (again.status, again.json()) == (409, {"error": "Agent is already in this meeting"})
    attendee.service.recover()
    visit.wait_for_release()
    visit = attendee.join(agent, meeting_url=link)
    visit.delete()
    visit.wait_for_release()


def test_a_removal_is_tried_until_the_service_answers(attendee, agent):
    visit = create(attendee, agent)
    attendee.service.fail_leave(503, times=2)
    assert visit.delete().status == 200
    visit.wait_for_release()
    assert len(attendee.service.requests_of("leave")) >= 3


def test_an_answer_of_a_proxy_ends_no_meeting(start_meetings):
    meetings = start_meetings("proxy", "attendee", webhooks=False)
    visit = meetings.join(create_typed_agent(meetings.server))
    meetings.service.fail_get(404, "404 page not found", times=2)
    visit.bot.enter_lobby()
    visit.wait(meeting_status="waiting_room", status="STARTED")
    assert len(meetings.service.requests_of("get")) >= 3
    meetings.service.fail_leave(404, "404 page not found", times=2)
    assert visit.delete().status == 200
    visit.wait_for_release()
    assert visit.bot.left_by_request


def test_links_of_an_error_are_not_repeated(attendee, agent):
    body = {"error": f"'{ZOOM}' is not a valid link"}
    attendee.service.fail_create(400, body)
    assert attendee.send(agent, meeting_url=ZOOM).status == 502
    [listed] = attendee.server.request("GET", "/v1/ext/conversation?perpage=1").json()
    [warning] = attendee.server.get_conversation(listed["id"])["warnings"]
    assert "'(link)' is not a valid link" in warning
    assert "pwd=secret" not in attendee.server.log_tail(1000)


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "stopped"])
def test_a_restart_resumes_bots_that_join_and_removes_those_of_calls(start_meetings, kill):
    meetings = start_meetings(f"restart-{kill}", "attendee")
    agent = create_typed_agent(meetings.server)
    joining = meetings.join(agent, meeting_url="https://zoom.us/j/1000000001")
    ended = meetings.join(agent, meeting_url="https://zoom.us/j/1000000002")
    # The service does not let it go before the restart.
    meetings.service.fail_leave(503, times=None)
    assert ended.delete().status == 200
    meetings.restart(kill=kill)
    assert not ended.bot.is_over
    meetings.service.recover()
    ended.wait_for_release()
    joining.bot.enter_lobby()
    joining.wait(meeting_status="waiting_room", status="STARTED")
    joining.bot.deny()
    joining.wait(status="ENDED", meeting_detail="denied")
    joining.wait_for_release()


def test_a_call_whose_server_died_says_so(start_meetings):
    meetings = start_meetings("died", media="socket")
    visit = meetings.join(create_typed_agent(meetings.server))
    visit.bot.admit()
    visit.bot.participant_joins("Maria")
    assert visit.bot.open_socket()
    visit.wait(status="IN_PROGRESS", meeting_status="in_call")
    meetings.restart(kill=True)
    record = visit.wait(status="ENDED", meeting_detail="service_error")
    assert record["end_reason"] == "error"
    assert record["warnings"] == ["The server that ran the call stopped or failed."]
    visit.wait_for_release()
    assert visit.bot.left_by_request


def test_without_a_service_or_https_nothing_is_created(server, workspace):
    agent = workspace.create_agent()
    body = {"agent_id": agent["id"], "meeting_url": MEET, "user_name": "n", "user_id": "u"}
    refused = workspace.request("POST", "/v1/ext/externalmeeting", body)
    assert (refused.status, refused.body) == (502, b"Unable to create agent request.")
    assert workspace.request("GET", "/v1/ext/conversation").json() == []
    assert "no meeting service is configured" in server.log_tail(20)
    with credential(workspace, "attendee", "http://127.0.0.1:9"):
        refused = workspace.request("POST", "/v1/ext/externalmeeting", body)
    assert refused.status == 502
    assert "meeting services need server.public_url with https" in server.log_tail(20)


@pytest.mark.parametrize("provider", ["recall", "meetingbaas"])
def test_each_service_works_with_an_account_of_the_workspace(attendee, start_server, provider):
    kind, secret = SERVICES[provider]
    workspace = attendee.server.with_workspace()
    with (
        kind("meeting-key", secret, {PUBLIC_URL: attendee.server.url}) as service,
        credential(workspace, provider, service.url, secret),
    ):
        [item] = workspace.request("GET", "/v1/ext/credentials").json()
        assert (item["token"], item["webhook_secret"]) == ("***", "***")
        service.webhook_url = item["webhook_url"]
        assert service.webhook_url.startswith(f"{PUBLIC_URL}/v1/meetings/webhook/")
        visits = WorkspaceMeetings(workspace, service)
        visit = visits.join(create_typed_agent(workspace))
        visit.bot.enter_lobby()
        visit.wait(meeting_status="waiting_room")
        visit.bot.admit()
        visit.wait(meeting_status="in_call")
        visit.bot.remove()
        record = visit.wait(status="ENDED", meeting_detail="removed")
        assert record["end_reason"] == "meeting_ended"
        visit.wait_for_release()
        denied = visits.join(create_typed_agent(workspace))
        denied.bot.deny()
        denied.wait(status="ENDED", meeting_detail="denied")
        left = visits.join(create_typed_agent(workspace))
        left.bot.admit()
        # Without the account, nothing could remove the bot.
        path = f"/v1/ext/credentials/{provider}"
        for refused in (
            workspace.request("DELETE", path),
            workspace.request("PUT", path, {"token": "k", "url": "https://other.example"}),
        ):
            assert refused.status == 409, refused
        assert left.delete().status == 200
        left.wait_for_release()
        assert left.bot.left_by_request
        # Another workspace does not use the account.
        other = attendee.server.with_workspace()
        visit = WorkspaceMeetings(other, attendee.service).join(create_typed_agent(other))
        visit.delete()
        visit.wait_for_release()
        assert service.violations == []


class WorkspaceMeetings(MeetingServer):
    """The meetings of one workspace of a server."""

    def __init__(self, server, service):
        self.server, self.service = server, service
