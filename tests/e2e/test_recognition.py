"""Recognition from end to end, in a browser. These are the only two tests of `make test` that
recognize words. All others compare audio. The recognizer itself is tested on files (models/tests).

A browser without CPU time loses audio before it sends it. So no other test runs meanwhile, and this
browser gets a higher priority than other programs where that is allowed. It stands for the caller's
own machine.
"""

import os

import pytest

from kit import CHROMIUM, audio_match, speech
from kit import call as calls
from kit.receivers import ScriptedLlm
from kit.relay import JITTER_RANGE, UdpRelay

#: On files, none of the forty words of the questions and one word of the answer is misrecognized.
SPEAKER = "rms"
QUESTIONS = [
    "What do visitors see in the first room of the museum?",
    "When does the last train leave for the city at night?",
    "Please tell me more about the river and the bridge.",
    "Where can people park the car on Sunday?",
]
ANSWER = (
    "Visitors see a large collection of old clocks. The last train leaves at ten. People park the "
    "car behind the church on the river. "
    "Please take the first street on the left and walk along the river to the station."
)


@pytest.fixture(scope="module")
def browser(playwright):
    args = [*calls.FLAGS, calls.FAKE_DEVICE]
    chromium = playwright.chromium.launch(
        executable_path=CHROMIUM, args=args, env={**os.environ, "CHROMIUM_NICE": "-10"}
    )
    yield chromium
    chromium.close()


def check_word_errors(reference: str, hypothesis: str, max_error_rate: float = 0.25):
    wrong, count = speech.word_errors(reference, hypothesis)
    assert count >= 40 and wrong <= max_error_rate * count, (
        f"{wrong} of {count} words are wrong: {reference!r} / {hypothesis!r}"
    )


def ask(page):
    """Speaks the questions, each after the answer to the last."""
    for question in QUESTIONS:
        mark = page.message_count()
        user_speech = page.speak(question, SPEAKER)
        # A sender that stops for a moment splits a question into two turns. Their words count
        # together.
        while page.wait_for_event("utterance_committed", mark)["t"] < user_speech.end:
            mark = page.wait_for_event("utterance_committed", mark)["n"] + 1
        stopped = page.wait_for_event(
            "agent.stopped_speaking", page.wait_for_event("utterance_committed", mark)["n"]
        )
        page.wait_for_silence(after=stopped["t"])


@pytest.mark.long("providers")
def test_the_test_voice_is_recognized():
    """Recognition on files."""
    check_word_errors(
        " ".join(QUESTIONS),
        " ".join(
            speech.recognize(speech.concatenate([0.3, (question, SPEAKER), 0.3]))
            for question in QUESTIONS
        ),
        max_error_rate=0.1,
    )
    check_word_errors(
        ANSWER,
        speech.recognize(speech.concatenate([0.3, (ANSWER, SPEAKER), 0.3])),
        max_error_rate=0.1,
    )


@pytest.mark.alone
def test_the_server_understands_a_user(server, call, scripted_llm):
    """Forty words, from the page's microphone to the text that the language model gets."""
    llm_server = scripted_llm(lambda llm_request: ["I see."])
    agent = server.create_agent(
        llm={"provider": "custom", "url": llm_server.base_url, "model": "scripted"},
        turn={"preemptive_generation": False},
    )
    page = call().open(server.create_conversation(agent["id"])["join_link"])
    page.join()
    ask(page)
    recognized = [
        message["content"]
        for message in llm_server.requests[-1]["messages"]
        if message["role"] == "user"
    ]
    check_word_errors(" ".join(QUESTIONS), " ".join(recognized))
    # Two turns without an answer between them are one message of two lines.
    assert " ".join(recognized).split() == " ".join(page.event_texts("utterance_committed")).split()


def recognize_over(relay, page, server, agent) -> str:
    """The recognized words of the questions if the page's call uses this relay."""
    relay.intercept(page)
    relay.start()
    try:
        page.open(server.create_conversation(agent["id"])["join_link"])
        page.join()
        ask(page)
        recognized = " ".join(page.event_texts("utterance_committed"))
        page.close()
    finally:
        relay.close()
    assert relay.uplink_counts["packets"] > 500, (
        f"the sound went another way: {relay.uplink_counts}"
    )
    return recognized


@pytest.fixture(scope="module")
def agreeing_agent(server):
    """An agent that answers every question with the same words."""
    llm_server = ScriptedLlm(lambda llm_request: ["I see."])
    yield server.create_agent(
        llm={"provider": "custom", "url": llm_server.base_url, "model": "scripted"},
        turn={"preemptive_generation": False},
    )
    llm_server.close()


@pytest.mark.long("network")
@pytest.mark.parametrize(
    "line",
    [
        pytest.param({"burst": 2}, id="2 at once"),
        pytest.param({"burst": 3}, id="3 at once"),
        pytest.param({"burst": 5}, id="5 at once"),
        pytest.param({"jitter": JITTER_RANGE}, id="late"),
        pytest.param({"jitter": JITTER_RANGE, "burst": 3}, id="late, 3 at once"),
        # The page's requests for packets lost on the way back arrive between the words.
        pytest.param({"burst": 3, "loss": 0.1}, id="3 at once, a tenth lost on the way back"),
    ],
)
def test_words_that_come_unevenly_are_understood(server, call, agreeing_agent, report, line):
    """All of the user's packets arrive. The STT misrecognizes other words in each call, also on an
    even line: up to five of forty words differ between two calls with the same audio. So the words
    are judged by `check_word_errors`, and the audio by the next test."""
    relay = UdpRelay(**line)
    recognized = recognize_over(relay, call(), server, agreeing_agent)
    wrong, count = speech.word_errors(" ".join(QUESTIONS), recognized)
    report.add(f"words over {line}", {"wrong": wrong, "of": count, **relay.uplink_counts})
    check_line(relay)
    check_word_errors(" ".join(QUESTIONS), recognized)


@pytest.mark.long("network")
@pytest.mark.parametrize(
    "line",
    [
        pytest.param({"burst": 5}, id="5 at once"),
        pytest.param({"jitter": JITTER_RANGE, "burst": 3}, id="late, 3 at once"),
    ],
)
def test_no_sound_is_lost_or_moved_where_it_comes_unevenly(
    server, call, scripted_llm, report, line
):
    """The STT gets exactly what the microphone recorded: no snippet is missing, doubled or
    moved."""
    llm_server = scripted_llm(lambda llm_request: ["I see."])
    llm = {"provider": "custom", "url": llm_server.base_url, "model": "scripted"}
    transcripts = [(question, SPEAKER) for question in QUESTIONS]
    agent = server.create_agent(
        transcripts=transcripts, tap=True, llm=llm, turn={"preemptive_generation": False}
    )
    relay, page = UdpRelay(**line), call()
    relay.intercept(page)
    relay.start()
    page.open(server.create_conversation(agent["id"])["join_link"])
    page.join()
    for question in QUESTIONS:
        mark, before = page.message_count(), page.audio_clock()
        page.speak(question, SPEAKER)
        stopped = page.wait_for_event(
            "agent.stopped_speaking", page.wait_for_event("utterance_committed", mark)["n"]
        )
        page.wait_for_silence(after=stopped["t"])
        sent, _ = page.recording(before, page.audio_clock())
        snippets = audio_match.locate_snippets(
            audio_match.resample(sent, speech.SAMPLE_RATE), server.stt_audio(agent)
        )
        offsets = [snippet.place - snippet.at for snippet in snippets]
        min_fit, moved = min(snippet.fit for snippet in snippets), max(offsets) - min(offsets)
        report.add(
            f"sound over {line}",
            {"pieces": len(snippets), "min fit": round(min_fit, 3), "moved, s": round(moved, 3)},
        )
        assert len(snippets) >= 10 and min_fit >= 0.9, (question, snippets)
        # Two spectra: the place of a snippet is exact to one.
        assert moved <= 0.021, (question, offsets)
    page.close()
    relay.close()
    check_line(relay)


def check_line(relay):
    """The relay bunched and reordered the packets as requested."""
    assert (
        relay.uplink_counts["bursts"] >= 500 // relay.burst and relay.uplink_counts["lost"] == 0
    ), relay.uplink_counts
    # An eighth of the packets is overtaken.
    assert (
        not relay.jitter[1]
        or relay.uplink_counts["overtaken"] > relay.uplink_counts["packets"] / 20
    ), relay.uplink_counts


@pytest.mark.long("network")
@pytest.mark.parametrize(
    "line",
    [
        pytest.param({}, id="each on time"),
        pytest.param({"jitter": JITTER_RANGE, "burst": 3}, id="late, 3 at once"),
    ],
)
def test_most_words_are_understood_though_a_tenth_of_their_packets_is_lost(
    server, call, agreeing_agent, report, line
):
    """No client retransmits audio. A lost packet is restored from the copy in the next one, once
    the browser knows of the loss and sends copies. If the next one is lost, too (one packet in a
    hundred), the audio is concealed."""
    relay = UdpRelay(up_loss=0.1, **line)
    recognized = recognize_over(relay, call(), server, agreeing_agent)
    wrong, count = speech.word_errors(" ".join(QUESTIONS), recognized)
    report.add(
        f"words over {line}, a tenth lost", {"wrong": wrong, "of": count, **relay.uplink_counts}
    )
    assert 0.05 < relay.uplink_counts["lost"] / relay.uplink_counts["packets"] < 0.15, (
        relay.uplink_counts
    )
    check_word_errors(" ".join(QUESTIONS), recognized)


@pytest.mark.long("network")
def test_nearly_all_of_the_sound_arrives_both_ways(server, call, scripted_llm):
    """Other browser tests accept three tenths of it."""
    # One sentence without a comma. The voice may speak the first part of a longer sentence alone,
    # which sounds different.
    reply = "The museum shows its oldest clocks in the first room."
    llm_server = scripted_llm(lambda llm_request: [reply])
    llm = {"provider": "custom", "url": llm_server.base_url, "model": "scripted"}
    transcripts = [(question, SPEAKER) for question in QUESTIONS]
    agent = server.create_agent(
        transcripts=transcripts, tap=True, llm=llm, turn={"preemptive_generation": False}
    )
    conversation = server.create_conversation(agent["id"])
    page = call().open(conversation["join_link"])
    page.join()
    for question in QUESTIONS:
        mark, before = page.message_count(), page.audio_clock()
        page.speak(question, SPEAKER)
        stopped = page.wait_for_event(
            "agent.stopped_speaking", page.wait_for_event("utterance_committed", mark)["n"]
        )
        assert stopped["payload"]["text"] == reply
        page.wait_for_silence(after=stopped["t"])
        user_audio, agent_audio = page.recording(before, page.audio_clock())
        audio_match.expect_arrival(
            audio_match.match_stt_audio(user_audio, server.stt_audio(agent)),
            question,
            audio_match.STRICT_SHARE,
        )
        audio_match.expect_arrival(
            audio_match.match_page_audio([reply], "rms", agent_audio)[0],
            reply,
            audio_match.STRICT_SHARE,
        )


@pytest.mark.alone
def test_a_user_understands_the_agent(server, call):
    """What the agent says, as the page receives it."""
    agent = server.create_agent(transcripts=[])
    conversation = server.create_conversation(agent["id"])
    page = call(options={"packets": True}).open(conversation["join_link"])
    page.join()
    started_at = page.audio_clock()
    reply = server.request("PUT", f"/v1/conversation/{conversation['id']}/speak", {"text": ANSWER})
    assert reply.status == 200, reply
    page.wait_for_silence(after=page.wait_for_event("agent.stopped_speaking")["t"])
    _, recording = page.rtp_audio(started_at, page.audio_clock())
    check_word_errors(ANSWER, speech.recognize(recording))
