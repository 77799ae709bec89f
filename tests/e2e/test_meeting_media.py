"""Agents in external meetings: what they hear, answer and say, through the page of a bot and
through the sockets of the services. The meeting is recorded, and three people speak in it."""

import time

import numpy as np
import pytest

from kit.meeting_audio import LONG_SCRIPT, RATE, SHORT_SCRIPT, Line, Recording, record
from kit.meeting_server import PUBLIC_URL, MeetingServer
from kit.meeting_services import open_bot_page
from kit.polling import wait_until
from kit.recording_file import download, wait_for_recording
from kit.typed_call import create_typed_agent

NAMES = ("Maria", "Tom", "Priya")
#: Level of the agent's voice over which it is heard, of 32,768.
VOICE_LEVEL = 300


@pytest.fixture
def start_meetings(start_server):
    created = []

    def make(*arguments, **settings):
        created.append(MeetingServer(start_server, *arguments, **settings))
        return created[-1]

    yield make
    for meetings in created:
        violations = meetings.service.violations
        meetings.close()
        assert violations == []


def answer_all(request) -> list:
    """Every question has the same answer, because a transcript may have errors."""
    return ["That is a good question, and the answer is forty two."]


def create_agent(meetings, scripted_llm, **more) -> dict:
    llm = {"provider": "custom", "url": scripted_llm(answer_all).base_url, "model": "scripted"}
    return meetings.server.create_agent(name="Monica", llm=llm, **more)


def check_meeting(record: dict, recording: Recording, start: float):
    """Each question is answered before the next sentence has ended, and at most one other sentence
    is. `start`: when the recording begins, in seconds of the conversation."""
    answers = [
        entry["message_timestamp"] - start
        for entry in record["transcript"]
        if entry["role"] == "assistant"
    ]
    ends = [one.end for one in recording.intervals[1:]] + [recording.seconds + 5]
    spans = [
        (one, one.end - 0.2, end)
        for one, end in zip(recording.intervals, ends, strict=True)
        if one.line.is_question
    ]
    transcript = "\n".join(
        f"{e['message_timestamp'] - start:6.1f} {e.get('speaker')}: {e['content']}"
        for e in record["transcript"]
    )
    missed = [one.line.text for one, first, last in spans if not within(answers, first, last)]
    assert missed == [], transcript
    assert len(answers) <= len(spans) + 1, transcript


def within(times: list[float], first: float, last: float) -> bool:
    return any(first < at < last for at in times)


def check_speakers(record: dict, recording: Recording, start: float, share: float):
    """Most utterances have the name of the person who spoke them."""
    right = wrong = 0
    for entry in record["transcript"]:
        if entry["role"] != "user":
            continue
        at = entry["message_timestamp"] - start
        near = [one for one in recording.intervals if one.start - 0.7 < at < one.end]
        if not near:
            continue
        is_right = entry.get("speaker") in {one.name for one in near}
        right, wrong = right + is_right, wrong + (not is_right)
    assert right / (right + wrong) >= share, (right, wrong, record["transcript"])


def answer_through_page(meetings, browser, agent, script, *, reports: bool, **more):
    """A meeting of recorded people in the page of a bot. Returns its record and the recording."""
    recording = record(script)
    visit = meetings.join(agent, **more)
    bot = visit.bot
    bot.enter_lobby()
    bot.admit()
    for name in NAMES:
        bot.participant_joins(name)
    page = open_bot_page(browser, bot.page_url, recording.mixed)
    try:
        start, end = page.meeting_times()
        visit.wait(status="IN_PROGRESS", meeting_status="in_call")
        clock = time.monotonic() - (page.audio_clock() - start)
        if reports:
            bot.report_speech(recording.intervals, clock)
        page.wait_until_time(end, timeout=recording.seconds + 60)
        assert page.has_banner() is False and page.is_audible()
        assert page.browser_errors == []
    finally:
        page.close()
    live = visit.record()
    assert live["status"] == "IN_PROGRESS"
    bot.end_meeting()
    ended = visit.wait(status="ENDED", meeting_status="done")
    assert ended["end_reason"] == "meeting_ended"
    visit.wait_for_release()
    origin = find_start(ended, recording)
    return ended, recording, origin


def find_start(ended: dict, recording: Recording) -> float:
    """When the recording begins, in seconds of the conversation: the offset with which most
    utterances begin when one of its lines does."""
    begins = [e["message_timestamp"] for e in ended["transcript"] if e["role"] == "user"]
    lines = np.array([one.start for one in recording.intervals])
    offsets = np.arange(-30.0, 30.0, 0.1)
    hits = [sum(np.abs(lines + offset - at).min() < 0.4 for at in begins) for offset in offsets]
    best = np.flatnonzero(np.array(hits) == max(hits))
    return float(offsets[best[len(best) // 2]])


def test_two_minutes_with_three_people_through_the_page(start_meetings, browser, scripted_llm):
    meetings = start_meetings("page-meeting")
    agent = create_agent(meetings, scripted_llm)
    ended, recording, start = answer_through_page(
        meetings, browser, agent, SHORT_SCRIPT, reports=True
    )
    check_meeting(ended, recording, start)
    check_speakers(ended, recording, start, 0.8)


@pytest.mark.long("network")
def test_eight_minutes_with_three_people_through_the_page(start_meetings, browser, scripted_llm):
    meetings = start_meetings("long-meeting")
    agent = create_agent(meetings, scripted_llm)
    ended, recording, start = answer_through_page(
        meetings, browser, agent, LONG_SCRIPT, reports=True
    )
    check_meeting(ended, recording, start)
    check_speakers(ended, recording, start, 0.8)


#: Two questions in half a minute.
QUESTIONS = [
    Line("Maria", "We have a lot to do today.", 2.0),
    Line("Maria", "Monica, how large is the garden?", 9.0, "answer"),
    Line("Tom", "That is larger than I thought.", 2.5),
    Line("Tom", "Monica, what do two benches cost?", 9.0, "answer"),
]


def open_socket_visit(meetings, agent, **more):
    visit = meetings.join(agent, **more)
    visit.bot.admit()
    for name in NAMES:
        visit.bot.participant_joins(name)
    assert visit.bot.open_socket()
    visit.wait(status="IN_PROGRESS", meeting_status="in_call")
    return visit


def check_file(server, ended: dict, recording: Recording, start: float):
    """The recording has the voices of the meeting and that of the agent at their times."""
    stored = wait_for_recording(server, ended["id"])
    url = stored["recording_url"].replace(PUBLIC_URL, server.url)
    file = download(server, {**stored, "recording_url": url})
    for question in recording.questions():
        at = file.first_sound(file.user, start + question.start - 1.0)
        assert abs(at - start - question.start) < 0.3, (at, start, question)
        assert not file.is_silent(file.agent, start + question.end, start + question.end + 6)


def is_voice(frame: bytes) -> bool:
    return np.abs(np.frombuffer(frame, np.int16).astype(np.int32)).max() > VOICE_LEVEL


@pytest.mark.parametrize(
    "provider", [pytest.param("attendee", marks=pytest.mark.long("network")), "meetingbaas"]
)
def test_questions_are_answered_over_a_socket(start_meetings, scripted_llm, provider):
    meetings = start_meetings(f"socket-{provider}", provider, media="socket")
    agent = create_agent(
        meetings,
        scripted_llm,
        config={"recording": {"channels": "split"}},
        extra={"record": True},
    )
    recording = record(QUESTIONS)
    visit = open_socket_visit(meetings, agent)
    assert "This conversation is recorded." in visit.bot.request.get(
        "entry_message", visit.bot.request.get("bot_chat_message", {}).get("message")
    )
    bot = visit.bot
    bot.play(recording.voices if provider == "attendee" else recording.mixed, RATE)
    if provider == "meetingbaas":
        bot.report_speech(recording.intervals, time.monotonic())
    bot.wait_until_played()
    # Each message has 100 ms, is sent in real time, and none is left incomplete.
    assert bot.voice.discarded == 0
    assert np.median(bot.voice.ahead) <= 0.2 and max(bot.voice.ahead) <= 1
    assert {len(frame) for _, frame in bot.received} == {24_000 // 10 * 2}
    assert any(is_voice(frame) for _, frame in bot.received)
    assert visit.delete().status == 200
    ended = visit.wait(status="ENDED")
    start = find_start(ended, recording)
    check_meeting(ended, recording, start)
    check_speakers(ended, recording, start, 0.75)
    check_file(meetings.server, ended, recording, start)
    visit.wait_for_release()
    # The socket of an ended conversation is refused.
    path = bot.socket_urls()[0].removeprefix(PUBLIC_URL.replace("https://", "wss://"))
    assert meetings.server.request("GET", path, key=None).status == 409


def test_a_greeting_is_spoken_in_the_meeting_and_not_before(start_meetings):
    meetings = start_meetings("greeted", media="socket", alone_timeout=2)
    agent = create_typed_agent(meetings.server, greeting="Hello everybody, here I am.")
    visit = meetings.join(agent, mode="one_to_one")
    visit.bot.enter_lobby()
    visit.wait(meeting_status="waiting_room")
    assert visit.bot.open_socket()
    assert visit.record()["status"] == "STARTED"
    visit.bot.admit()
    visit.wait(status="IN_PROGRESS")
    wait_until(
        lambda: any(is_voice(frame) for _, frame in visit.bot.received),
        lambda: "no greeting",
        60,
    )
    wait_until(
        lambda: (
            [entry["content"] for entry in visit.record()["transcript"]]
            == ["Hello everybody, here I am."]
        ),
        lambda: str(visit.record()["transcript"]),
        60,
    )
    # Attendee's own time limit does not fire here: this server counts the people, too.
    visit.bot.participant_joins("Maria")
    visit.bot.participant_joins("Tom")
    visit.bot.participant_leaves("Maria")
    visit.bot.participant_leaves("Tom")
    ended = visit.wait(status="ENDED")
    assert (ended["end_reason"], ended["meeting_detail"]) == ("meeting_ended", "alone")
    visit.wait_for_release()
    assert visit.bot.left_by_request


@pytest.mark.long("network")
def test_a_lost_socket_loses_only_what_was_said_meanwhile(start_meetings, scripted_llm):
    meetings = start_meetings("lost", "meetingbaas")
    agent = create_agent(meetings, scripted_llm)
    recording = record(QUESTIONS)
    visit = open_socket_visit(meetings, agent)
    bot = visit.bot
    start = bot.play(recording.mixed, RATE)
    bot.report_speech(recording.intervals, start)
    question = recording.questions()[0]
    # In the middle of the answer to the first question.
    wait_until(lambda: any(is_voice(f) for _, f in bot.received), lambda: "no answer", 60)
    assert time.monotonic() > start + question.end
    bot.drop_socket(2)
    bot.wait_for_socket(60)
    bot.wait_until_played()
    visit.delete()
    ended = visit.wait(status="ENDED")
    [warning] = [text for text in ended["warnings"] if "interrupted" in text]
    assert warning.startswith("The audio of the meeting was interrupted for ")
    spoken = [entry["content"] for entry in ended["transcript"] if entry["role"] == "assistant"]
    assert spoken == ["That is a good question, and the answer is forty two."] * 2
    visit.wait_for_release()
