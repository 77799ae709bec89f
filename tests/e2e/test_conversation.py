"""A person talks with an agent, end to end: a browser with a microphone, the served binary, its
webhooks and its record."""

import numpy as np
import pytest

from kit import audio_match, calls_with_file, lips, sample_knowledge, speech
from kit.call import BrowserCall

pytestmark = pytest.mark.usefixtures("server")

GREETING = "Hello, and welcome to the museum."
FIRST_ROOM = "What do visitors see in the first room?"
GARDEN = "Tell me about the garden behind the house."
#: Answers that do not take long.
SHORT_ANSWERS = (
    "In the first room visitors see a large collection of old clocks. The garden behind the house "
    "has red roses and a small river."
)


def check_event_order(events: list[dict], conversation: str):
    """What must hold for the events of every conversation."""
    names = [event["event"]["name"] for event in events]
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1)), (
        "sequence numbers have a gap"
    )
    assert all(event["conversation_id"] == conversation for event in events)
    stamps = [event["timestamp"] for event in events]
    assert stamps == sorted(stamps), "time stamps run backwards"
    for start, stop in (
        ("user.started_speaking", "user.stopped_speaking"),
        ("agent.started_speaking", "agent.stopped_speaking"),
    ):
        pair = [name for name in names if name in (start, stop)]
        assert pair[::2] == [start] * len(pair[::2]) and pair[1::2] == [stop] * len(pair[1::2]), (
            f"{start} and {stop} do not alternate: {names}"
        )
    assert names[-2:] == ["participant_left", "call_ended"], names
    for event in events:
        payload = event["event"]["payload"]
        match event["event"]["name"]:
            case "agent.started_speaking" | "agent.stopped_speaking" | "utterance_committed":
                assert set(payload) == {"text"} and isinstance(payload["text"], str), event
            case "participant_left":
                assert set(payload) == {"id"} and isinstance(payload["id"], str), event
            case _:
                assert payload == {}, event


def test_a_whole_conversation(server, call, webhooks, report, rng):
    """The user asks for invented facts, interrupts, and hangs up. Words, audio, video, captions,
    events and record agree."""
    invented = sample_knowledge.invent_knowledge(rng)
    expected_transcripts = [
        *invented.questions,
        invented.long_question,
        "Stop please. I have another question.",
    ]
    agent = server.create_agent(
        knowledge=invented.text,
        hooks=webhooks,
        greeting=GREETING,
        turn={"min_interruption_duration": 0.25},
        transcripts=expected_transcripts,
        tap=True,
    )
    conversation = server.create_conversation(agent["id"], user_name="Ada", user_id="ada-1")
    assert conversation["status"] == "STARTED" and conversation["join_link"].startswith(
        f"{server.url}/join/{conversation['id']}#token="
    )

    page = call(options={"packets": True}).open(conversation["join_link"])
    page.save_screenshot("welcome-desktop-light")
    join = page.join()
    greeting = page.wait_for_event("agent.stopped_speaking")
    assert greeting["payload"]["text"] == GREETING
    page.wait_for_silence()
    page.capture_video()
    started_at = page.audio_clock()

    # Two questions with complete answers.
    turns = []
    for question in invented.questions:
        mark, before = page.message_count(), page.audio_clock()
        question_audio = page.speak(question)
        page.wait_for_event("utterance_committed", mark)
        if not turns:
            page.wait_for_event("agent.started_speaking", mark)
            page.wait_for_sound(question_audio.end)
            page.save_screenshot("speaking-desktop-light")
        stopped = page.wait_for_event("agent.stopped_speaking", mark)
        answer = stopped["payload"]["text"]
        page.wait_for_silence(after=stopped["t"])
        user_audio, agent_audio = page.rtp_audio(before, page.audio_clock())
        turns.append(
            {
                "asked": question,
                "answer": answer,
                "arrived": audio_match.match_page_audio([answer], "rms", agent_audio)[0],
                "heard": audio_match.match_stt_audio(user_audio, server.stt_audio(agent)),
            }
        )

    # The video during all of this.
    ended_at = page.audio_clock()
    _, agent_sound = page.recording(started_at, ended_at)
    page.capture_video(False)
    times, _, luma = page.captured_frames()
    dark = lips.mouth_darkness(luma)
    at, loud = lips.loudness_envelope(agent_sound, started_at)
    _, fit = lips.best_offset(times, dark, at, loud)
    busy, quiet = lips.mouth_motion(times, dark, at, loud)
    steps = np.diff([media for _, media in page.displayed_frames(started_at, ended_at)])

    # Barge-in on the third answer.
    mark = page.message_count()
    page.speak(invented.long_question)
    page.barge_in(expected_transcripts[-1], into=1.0)
    page.wait_for_event("agent.interrupted", mark)
    stopped = page.wait_for_event("agent.stopped_speaking", mark)
    committed = page.wait_for_event("utterance_committed", stopped["n"])
    page.page.wait_for_selector("#captions s.cut")
    page.save_screenshot("interrupted-desktop-light")
    page.wait_for_event("agent.stopped_speaking", committed["n"])

    captions = page.final_captions()
    page.page.click("#hang-up")
    page.page.wait_for_selector("#over-title:has-text('You hung up')")
    webhooks.wait_for(conversation["id"], "call_ended")
    record = server.wait_for(conversation["id"], "ENDED")
    report.add(
        "conversation",
        {
            "join": join,
            "turns": [
                {**turn, "arrived": vars(turn["arrived"]), "heard": vars(turn["heard"])}
                for turn in turns
            ],
            "lips": {"fit": fit, "busy": busy, "quiet": quiet},
            "captions": captions,
        },
    )

    # Words and audio.
    understood = [
        e["event"]["payload"]["text"]
        for e in webhooks.events_of(conversation["id"])
        if e["event"]["name"] == "utterance_committed"
    ]
    assert understood == expected_transcripts
    for turn, key in zip(turns, invented.answers, strict=True):
        assert set(key) <= set(speech.split_words(turn["answer"])), (
            f"the invented {key} is not in the answer: {turn}"
        )
        audio_match.expect_arrival(turn["arrived"], turn["answer"])
        audio_match.expect_arrival(turn["heard"], turn["asked"])

    # Video. The server's own timestamps show how often it draws, whatever this machine had time to
    # display.
    assert 0 < steps[steps > 0].min() <= 0.05, (
        f"less than 20 pictures a second: {np.percentile(steps, [5, 10, 50, 90])}"
    )
    # A busy browser displays audio and video late. test_sync.py checks how well they fit, on a
    # quiet machine.
    assert busy > quiet, (
        f"the mouth moves less in sound than in silence: {busy}, {quiet}; fit {fit}"
    )

    # Events, record and captions are the same.
    assert not webhooks.errors, webhooks.errors
    events = webhooks.events_of(conversation["id"])
    check_event_order(events, conversation["id"])
    names = webhooks.event_names(conversation["id"])
    assert names.count("agent.interrupted") == 1, names
    left = next(e for e in events if e["event"]["name"] == "participant_left")
    assert left["event"]["payload"]["id"] == "ada-1"
    assert record["end_reason"] == "user_left" and record["user_name"] == "Ada"
    event_texts = [
        (
            ("user" if e["event"]["name"] == "utterance_committed" else "assistant"),
            e["event"]["payload"]["text"],
        )
        for e in events
        if e["event"]["name"] in ("utterance_committed", "agent.stopped_speaking")
    ]
    record_texts = [(entry["role"], entry["content"]) for entry in record["transcript"]]
    assert sorted(event_texts) == sorted(record_texts), (event_texts, record_texts)
    cut = next(m for m in record["chat_history"]["messages"] if m["interrupted"])
    assert cut["content"] == stopped["payload"]["text"], (cut, stopped)
    shown = [(("user" if c["who"] == "user" else "assistant"), c["spoken"]) for c in captions]
    assert sorted(text for _, text in shown) == sorted(text for _, text in record_texts), (
        shown,
        record_texts,
    )
    assert any(c["cut"] for c in captions), "no caption is struck through"
    assert not page.browser_errors, page.browser_errors


@pytest.mark.long("faces")
def test_a_video_delay_of_200_ms_is_detected(server, call, report, measurement_offset):
    """The control of the lip-sync check: video that passes it must fail when the test delays it."""
    agent = server.create_agent(
        knowledge=sample_knowledge.LONG_TEXT, transcripts=[FIRST_ROOM, GARDEN]
    )
    page = call().open(server.create_conversation(agent["id"])["join_link"])
    page.join()
    page.capture_video(delay_ms=200)
    started_at = page.audio_clock()
    for question in (FIRST_ROOM, GARDEN):
        mark = page.message_count()
        question_audio = page.speak(question)
        page.wait_for_event("agent.stopped_speaking", mark)
        page.wait_for_silence(after=question_audio.end)
    _, sound = page.recording(started_at, page.audio_clock())
    times, _, luma = page.captured_frames()
    shift, fit = lips.best_offset(
        times, lips.mouth_darkness(luma), *lips.loudness_envelope(sound, started_at)
    )
    shift -= measurement_offset
    report.add("lips delayed by 200 ms", {"offset": shift, "fit": fit})
    assert fit > 0.3
    # The measured delay is the real one: 200 ms more than for pictures that pass.
    late = 0.2
    assert lips.MIN_OFFSET + late <= shift <= lips.MAX_OFFSET + late, (
        f"a delay of 200 ms was measured as {shift * 1000:.0f} ms"
    )
    assert lips.MIN_OFFSET + late > lips.MAX_OFFSET, "and such a one never passes"


def test_a_wav_as_the_browsers_microphone(server, playwright, webhooks, tmp_path):
    """Nothing of the page is replaced here. Chromium itself reads a file as the microphone, with
    pauses and one barge-in."""
    # The first answer takes 11 s, and the second question comes in the middle of it.
    script = [1.0, (FIRST_ROOM, "rms"), 5.0, (GARDEN, "rms"), 6.0]
    spoken = [part for part in script if not isinstance(part, float)]
    agent = server.create_agent(
        knowledge=sample_knowledge.LONG_TEXT,
        hooks=webhooks,
        turn={"min_interruption_duration": 0.25},
        transcripts=spoken,
        tap=True,
    )
    conversation = server.create_conversation(agent["id"])
    with calls_with_file(playwright, tmp_path, speech.concatenate(script)) as chromium:
        page = BrowserCall(chromium, options={"ownMicrophone": True, "late": True}).open(
            conversation["join_link"]
        )
        page.join()
        first = page.wait_for_event("utterance_committed")
        page.wait_for_event("agent.started_speaking", first["n"])
        cut = page.wait_for_event("agent.interrupted", first["n"])
        second = page.wait_for_event("utterance_committed", cut["n"])
        page.wait_for_event("agent.started_speaking", second["n"])
        page.page.click("#hang-up")
        webhooks.wait_for(conversation["id"], "call_ended")
        page.close()
    assert [event["payload"]["text"] for event in (first, second)] == [text for text, _ in spoken]
    for part in spoken:
        arrival = audio_match.match_stt_audio(speech.concatenate([part]), server.stt_audio(agent))
        audio_match.expect_arrival(arrival, part[0])
    assert not webhooks.errors, webhooks.errors
    check_event_order(webhooks.events_of(conversation["id"]), conversation["id"])


def test_typing_instead_of_speaking(server, call, rng):
    """A person without a microphone types, reads and hears the answer."""
    invented = sample_knowledge.invent_knowledge(rng)
    agent = server.create_agent(knowledge=invented.text)
    conversation = server.create_conversation(agent["id"])
    page = call().open(conversation["join_link"])
    page.page.click("#join-typing")
    page.wait_for("frames", {"more": 1})
    page.wait_for_message("bot-ready")
    page.page.fill("#text", invented.questions[0])
    page.page.press("#text", "Enter")
    committed = page.wait_for_event("utterance_committed")
    assert committed["payload"]["text"] == invented.questions[0]
    answer = page.wait_for_event("agent.stopped_speaking", committed["n"])
    for word in invented.answers[0]:
        assert word in speech.split_words(answer["payload"]["text"]), answer
    assert page.wait_for("sound", {"after": 0})


def test_a_reload_during_a_call_continues_the_call(server, call, webhooks):
    agent = server.create_agent(
        knowledge=SHORT_ANSWERS, hooks=webhooks, transcripts=[FIRST_ROOM, GARDEN, ("", 0.2)]
    )
    conversation = server.create_conversation(agent["id"])
    page = call().open(conversation["join_link"])
    page.join()
    first = page.speak(FIRST_ROOM)
    page.wait_for_event("agent.started_speaking")
    page.wait_for_sound(first.end)
    page.page.reload()
    page.page.evaluate("e2e.ready")
    page.wait_for("frames", {"more": 1})
    assert page.page.locator("#captions li[data-who=user]").count() == 1, (
        "the captions of before are gone"
    )
    page.wait_for_silence(lasting=1.0)
    mark = page.message_count()
    page.speak(GARDEN)
    page.wait_for_event("agent.started_speaking", mark)
    page.page.click("#hang-up")
    webhooks.wait_for(conversation["id"], "call_ended")
    names = webhooks.event_names(conversation["id"])
    assert names.count("participant_left") == names.count("call_ended") == 1, names
    assert names.count("utterance_committed") == 2, names
    record = server.wait_for(conversation["id"], "ENDED")
    assert [entry["role"] for entry in record["transcript"]].count("user") == 2


def test_a_second_window_takes_the_call_over(server, call):
    agent = server.create_agent(knowledge=sample_knowledge.LONG_TEXT, transcripts=[FIRST_ROOM])
    conversation = server.create_conversation(agent["id"])
    first = call().open(conversation["join_link"])
    first.join()
    second = call().open(conversation["join_link"])
    second.join()
    first.page.wait_for_selector("#over-title:has-text('The call continues elsewhere')")
    question_audio = second.speak(FIRST_ROOM)
    second.wait_for_sound(question_audio.end)
    assert server.get_conversation(conversation["id"])["status"] == "IN_PROGRESS"


def test_the_api_makes_the_agent_speak_and_ends_the_call(server, call, webhooks):
    agent = server.create_agent(hooks=webhooks)
    conversation = server.create_conversation(agent["id"])
    page = call(options={"packets": True}).open(conversation["join_link"])
    page.join()
    started_at = page.audio_clock()
    reply = server.request(
        "PUT",
        f"/v1/conversation/{conversation['id']}/speak",
        {"text": "The museum closes in ten minutes."},
    )
    assert reply.status == 200 and reply.json() == {
        "message": "Agent is speaking the provided text."
    }, reply
    started = page.wait_for_event("agent.started_speaking")
    assert started["payload"]["text"] == "The museum closes in ten minutes."
    stopped = page.wait_for_event("agent.stopped_speaking", started["n"])
    page.wait_for_silence(after=stopped["t"])
    _, agent_audio = page.rtp_audio(started_at, page.audio_clock())
    arrival = audio_match.match_page_audio(
        ["The museum closes in ten minutes."], "rms", agent_audio
    )[0]
    audio_match.expect_arrival(arrival, "what the API said")
    assert stopped["payload"]["text"] == "The museum closes in ten minutes."
    reply = server.request("DELETE", f"/v1/conversation/{conversation['id']}")
    assert reply.status == 200 and reply.json()["message"] == "Conversation ended successfully", (
        reply
    )
    page.page.wait_for_selector("#over-title:has-text('The conversation is over')")
    webhooks.wait_for(conversation["id"], "call_ended")
    assert "participant_left" not in webhooks.event_names(conversation["id"])
    assert server.get_conversation(conversation["id"])["end_reason"] == "ended_by_api"
    reply = server.request(
        "PUT", f"/v1/conversation/{conversation['id']}/speak", {"text": "Too late."}
    )
    assert reply.status == 409 and reply.json() == {"error": "Conversation has ended"}, reply


def test_a_call_warns_before_its_limit_and_ends_at_it(server, call, webhooks):
    agent = server.create_agent(
        hooks=webhooks,
        config={"maxCallDuration": 5},
        avatar={
            "exit_heads_up_message": {"callout_before": 3, "messages": []},
            "exit_message": {"messages": ["Goodbye."]},
        },
    )
    conversation = server.create_conversation(agent["id"])
    page = call().open(conversation["join_link"])
    # The notice stays for the rest of the call, so a machine that joins late sees it.
    page.page.evaluate("""() => { const notice = document.getElementById('notice');
        window.warned = new Promise((done) => { setTimeout(done, 60_000, false);
          new MutationObserver(() => /The call ends in/.test(notice.textContent) && done(true))
            .observe(notice, { subtree: true, childList: true, characterData: true }); }); }""")
    page.page.click("#join")
    assert page.page.evaluate("warned")
    warning = webhooks.wait_for(conversation["id"], "max_call_duration_warning")
    assert (
        warning["event"]["payload"]["max_call_duration"] == 5
        and 2 <= warning["event"]["payload"]["call_duration"] < 5
    )
    webhooks.wait_for(conversation["id"], "call_ended")
    timeout = webhooks.wait_for(conversation["id"], "max_call_duration_timeout")
    assert set(timeout["event"]["payload"]) == {"call_duration", "max_call_duration"}
    page.page.wait_for_selector("#over-title:has-text('Time is up')")
    record = server.wait_for(conversation["id"], "ENDED")
    assert record["end_reason"] == "max_call_duration"
    assert record["transcript"][-1]["content"] == "Goodbye."


def test_a_receiver_that_fails_gets_the_event_again(server, call, webhooks):
    webhooks.reject_count = 1
    agent = server.create_agent(hooks=webhooks, events=["participant_left", "call_ended"])
    conversation = server.create_conversation(agent["id"])
    page = call().open(conversation["join_link"])
    page.join()
    page.page.click("#hang-up")
    webhooks.wait_for(conversation["id"], "call_ended")
    assert webhooks.event_names(conversation["id"]) == ["participant_left", "call_ended"]
    assert not webhooks.errors, webhooks.errors


def test_the_demo_agent_works_without_configuration(server, call):
    """The recognizer runs, but this test does not check what it recognizes: the question is
    typed."""
    page = call(width=390, height=844, scheme="dark").open(server.demo)
    page.save_screenshot("welcome-phone-dark")
    page.join()
    started = page.wait_for_event("agent.started_speaking")
    page.wait_for_sound(started["t"] - 0.5)
    page.save_screenshot("speaking-phone-dark")
    mark = page.message_count()
    page.speak("What can you do?")
    page.wait_for_message("user-started-speaking", mark)
    page.wait_for_message("user-stopped-speaking", mark)
    page.page.fill("#text", "What can you do?")
    page.page.press("#text", "Enter")
    committed = page.wait_for_event("utterance_committed", mark)
    page.wait_for_event("agent.started_speaking", committed["n"])
    landing = server.request("GET", "/", key=None)
    assert landing.status == 200 and server.demo.removeprefix(server.url).encode() in landing.body
    page.page.click("#hang-up")
    page.page.wait_for_selector("#over-title:has-text('You hung up')")
